# SPDX-License-Identifier: BSD-2-Clause
"""Receive path against the Python model: good, damaged, foreign, short and captured frames, full stores."""

import random
from collections import Counter

import pytest

from gateware.common.headers import *
from gateware.common.layouts import Verdict
from gateware.config import preset
from gateware.network.packet_parser import ReceivePath
from tests.drivers.stream import StreamSink, StreamSource, packets
from tests.engines import simulate
from tests.gateware.network.frames import beats_of, random_frame
from tests.gateware.network.test_wire import roce_packets
from tests.models import wire

WIDTHS = [64, 128]
ERRORS = {"header": "bad_header", "opcode": "bad_opcode", "length": "bad_length", "icrc": "bad_icrc"}

_duts = {}
def dut_of(width):
    """One block, built once, for all tests of a width."""
    if width not in _duts:
        _duts[width] = ReceivePath(preset("tiny", network_width=width, host_width=max(width, 128)))
    return _duts[width]

def receive(width, frames, idle=0.0, stall=0.0, stored_stall=0.0, seed=1, settle=200, own_ip=0, own_mac=0, udp_port=UDP_PORT, limit=400000):
    """Runs (frame, fcs_error) pairs; returns headers (with their payload words) and counters."""
    dut    = dut_of(width)
    beats  = [beat for frame, error in frames for beat in beats_of(frame, width, error)]
    head   = StreamSink(dut.source, seed=seed + 1, stall=stall)
    stored = StreamSink(dut.stored, seed=seed + 2, stall=stored_stall)
    counts = {}
    def drive():
        yield [dut.own_ip.eq(own_ip), dut.own_mac.eq(own_mac), dut.udp_port.eq(udp_port)]
        yield
        yield from StreamSource(dut.sink, beats, seed=seed, idle=idle).run()
        for _ in range(settle):
            yield
        for name in dut.counters:
            counts[name] = (yield getattr(dut, name))
    simulate(dut, [drive(), head.run(), stored.run()], limit=limit, seed=seed)
    payloads, result = packets(stored), []
    for beat in head.beats:
        assert beat["stored"] == (beat["length"] > 0 and beat["verdict"] == Verdict.GOOD)
        data = b"".join(w.to_bytes(width//8, "little") for w in payloads.pop(0)) if beat["stored"] else b""
        assert not beat["stored"] or len(data) == -(-(beat["offset"] + beat["length"])//(width//8))*(width//8)
        result.append((beat, data[beat["offset"]:beat["offset"] + beat["length"]]))
    assert payloads == [], "payload without a header"
    return result, counts

def check(width, beat, payload, parsed):
    for name in ("opcode", "p_key", "dest_qp", "a", "rtx", "psn", "entropy", "ce", "source"):
        assert beat[name] == parsed[name], name
    assert beat["verdict"] == parsed["verdict"]
    assert beat["ts"] == (parsed["ts"] if parsed["kind"].data else 0)
    assert beat["body"] == int.from_bytes(parsed["body"], "little")
    assert beat["length"] == len(parsed["payload"]) and payload == parsed["payload"]
    assert not beat["stored"] or beat["offset"] == parsed["offset"] % (width//8)

def compare(width, frames, result, counts, **own):
    """Model and gateware agree on what comes out and, for frames with whole headers, on why not."""
    parsed   = [dict(wire.parse(frame, max_mtu=1024, **own), fcs=error, short=len(frame) < PREFIX_BYTES) for frame, error in frames]
    good     = [p for p in parsed if p["error"] is None and not p["fcs"]]
    expected = Counter("bad_fcs" if p["fcs"] else "short" if p["short"] else ERRORS[p["error"]] if p["error"] else
        "trimmed" if p["verdict"] else "good" for p in parsed)
    assert len(result) == len(good) == counts["good"] + counts["trimmed"]
    for (beat, payload), p in zip(result, good, strict=True):
        check(width, beat, payload, p)
    assert sum(counts.values()) == len(frames) and counts["store_full"] == counts["no_buffer"] == 0
    assert counts["bad_fcs"] == expected["bad_fcs"]
    loose = sum(counts[name] - expected[name] for name in counts)
    assert loose == expected["short"], (counts, expected)
    assert all(counts[name] >= expected[name] for name in counts), (counts, expected)
    return expected

@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed,idle", [(1, 0.0), (2, 0.0), (3, 0.3)])
def test_good_frames_at_line_rate(width, seed, idle):
    rng    = random.Random(seed)
    frames = [(random_frame(rng, psn), 0) for psn in range(200)]
    compare(width, frames, *receive(width, frames, idle=idle, stall=0.2, seed=seed))

@pytest.mark.parametrize("width", WIDTHS)
def test_minimal_frames_back_to_back(width):
    frames = [(wire.build_control(Opcode.ACKNOWLEDGE, psn=psn, syndrome=0x1f, msn=psn), 0) for psn in range(300)]
    compare(width, frames, *receive(width, frames))

def damaged(rng, frame):
    """A frame after something bad happened to it."""
    frame = bytearray(frame)
    kind  = rng.randrange(7)
    if kind == 0:                                   # One bit anywhere.
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    elif kind == 1:                                 # Cut short.
        frame = frame[:rng.randrange(1, len(frame))]
    elif kind == 2:                                 # Longer than its lengths say.
        frame += rng.randbytes(rng.randrange(1, 40))
    elif kind == 3:                                 # One random byte in the headers, IP checksum kept right.
        frame[rng.randrange(12, 60)] = rng.getrandbits(8)
        frame[24:26] = bytes(2)
        frame[24:26] = wire.ip_checksum(frame[14:34]).to_bytes(2, "big")
    elif kind == 4:                                 # Lengths that agree with each other, not with the frame.
        own    = len(frame) - 14
        length = rng.choice((0, 20, 43, 44, 47, 48, 64, 68, own, own + 1, own + 2, 1500, 0xffff, rng.getrandbits(16)))
        frame[16:18] = length.to_bytes(2, "big")
        frame[38:40] = ((length - 20) & 0xffff).to_bytes(2, "big")
        frame[24:26] = bytes(2)
        frame[24:26] = wire.ip_checksum(frame[14:34]).to_bytes(2, "big")
    elif kind == 5:                                 # Any bytes.
        frame = rng.randbytes(rng.randrange(1, 120))
    return bytes(frame)

@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_damaged_frames_leave_nothing(width, seed):
    rng, frames = random.Random(seed), []
    for psn in range(400):
        frame = random_frame(rng, psn)
        frames.append((damaged(rng, frame) if rng.random() < 0.7 else frame, rng.choice((0, 0, 0, 0, 1))))
    expected = compare(width, frames, *receive(width, frames, idle=rng.choice((0.0, 0.3)), seed=seed))
    assert all(expected[name] > 5 for name in ("good", "bad_fcs", "bad_header", "bad_length", "bad_icrc", "short")), expected

@pytest.mark.parametrize("width", WIDTHS)
def test_every_opcode_pad_and_length_with_a_right_icrc(width):
    """Frames that are whole and right but for one rule: only the table's opcodes and lengths pass."""
    frames = []
    for opcode in range(256):
        body = PACKET_TYPES[opcode].body if opcode in PACKET_TYPES else 20
        frames.append((wire.build(opcode, bytes(range(body)), minimum=60, psn=opcode), 0))
    def lengths(frame, pad):
        frame = bytearray(frame)
        frame[43] = (frame[43] & 0xcf) | pad << 4
        return bytes(frame[:-4]) + wire.icrc(frame[14:-4])
    for opcode, kind in PACKET_TYPES.items():
        for extra in range(-8, 12):
            for ts in (0, 1):
                frame = wire.build(opcode, bytes(max(0, kind.body + extra)), minimum=0, ts=ts)
                for pad in range(4):
                    frames.append((lengths(frame, pad), 0))
    for length in (1023, 1024, 1025, 1028, 2048, 4096):
        frames.append((wire.build_data(Opcode.WRITE_ONLY, bytes(length), tx_timestamp=1), 0))
    for values in (dict(udp_port=4790), dict(destination_ip=1), dict(destination_mac=1), dict(tver=1)):
        tver  = values.pop("tver", 0)
        frame = bytearray(wire.build_data(Opcode.WRITE_ONLY, b"x", **values))
        frame[43] |= tver
        frames.append((bytes(frame[:-4]) + wire.icrc(frame[14:-4]), 0))
    own = dict(own_ip=wire.DEFAULTS["destination_ip"], own_mac=wire.DEFAULTS["destination_mac"])
    expected = compare(width, frames, *receive(width, frames, settle=600, **own), **own)
    assert expected["bad_opcode"] == 256 - len(PACKET_TYPES) and expected["bad_header"] == 4

@pytest.mark.parametrize("width", WIDTHS)
def test_no_combination_of_ip_and_udp_length_underflows(width):
    """Both lengths of one frame from 0 to beyond its end, ICRC and IP checksum right for what they say."""
    good, frames = wire.build_data(Opcode.WRITE_ONLY, bytes(range(13)), tx_timestamp=5), []
    whole = len(good) - 14
    for total in (*range(0, 30), *range(30, whole + 9, 5), whole, 0x7fff, 0xffff):
        for udp in {0, 1, 7, 8, 11, 12, 19, 20, 23, 24, 60, max(total - 20, 0), whole - 20, 0xffff}:
            frame = bytearray(good)
            frame[16:18], frame[38:40] = total.to_bytes(2, "big"), udp.to_bytes(2, "big")
            frame[24:26] = bytes(2)
            frame[24:26] = wire.ip_checksum(frame[14:34]).to_bytes(2, "big")
            end = min(max(14 + total, 58), len(frame))
            frame[end - 4:end] = wire.icrc(frame[14:end - 4])
            frames.append((bytes(frame), 0))
    expected = compare(width, frames, *receive(width, frames, settle=600))
    assert 1 <= expected["good"] <= 4 and expected["bad_length"] > 200     # Shorter than the frame is no fault: padding.

@pytest.mark.parametrize("width", WIDTHS)
def test_captured_frames_pass(width, monkeypatch):
    """Frames of another implementation, told to a path that takes what follows their BTH as payload."""
    packets_ = [packet for _, _, packet in roce_packets(version=4)]
    for opcode in {packet[28] for packet in packets_}:
        monkeypatch.setitem(PACKET_TYPES, opcode, PacketType(opcode, "captured", 0, data=True))
    monkeypatch.setitem(_duts, width, ReceivePath(preset("tiny", network_width=width, max_mtu=4096, receive_store=16384,
        payload_store=16384)))
    frames = [bytes(12) + b"\x08\x00" + packet for packet in packets_]
    result, counts = receive(width, [(frame, 0) for frame in frames], settle=600)
    assert counts["good"] == len(frames) == len(result)
    for (_, payload), packet in zip(result, packets_, strict=True):
        pad = (packet[29] >> 4) & 3
        assert payload == packet[40:len(packet) - 4 - pad]
    rng, damaged_ = random.Random(width), []
    for frame in frames[:100]:
        frame = bytearray(frame)
        frame[rng.randrange(54, len(frame))] ^= 1 << rng.randrange(8)
        damaged_.append((bytes(frame), 0))
    result, counts = receive(width, damaged_, settle=600)
    assert result == [] and counts["bad_icrc"] == 100

@pytest.mark.parametrize("width", WIDTHS)
def test_without_room_for_payloads_headers_go_on(width):
    rng    = random.Random(7)
    frames = [(wire.build_data(Opcode.WRITE_MIDDLE, rng.randbytes(rng.choice((0, rng.randrange(1, 900)))), psn=psn, tx_timestamp=psn), 0)
        for psn in range(120)]
    result, counts = receive(width, frames, stored_stall=0.97, settle=30000)
    assert [beat["psn"] for beat, _ in result] == list(range(120)) and counts["good"] + counts["no_buffer"] == 120
    assert counts["no_buffer"] > 5 and counts["good"] > 5
    for beat, payload in result:
        p = wire.parse(frames[beat["psn"]][0])
        if beat["verdict"] == Verdict.NO_BUFFER:
            assert beat["length"] == len(p["payload"]) > 0 and payload == b"" and not beat["stored"]
        else:
            check(width, beat, payload, p)

@pytest.mark.parametrize("width", WIDTHS)
def test_without_room_for_headers_packets_are_dropped(width):
    rng    = random.Random(8)
    frames = [(wire.build_data(Opcode.WRITE_MIDDLE, rng.randbytes(rng.randrange(1, 300)), psn=psn), 0) for psn in range(120)]
    frames = [(wire.trim(f), e) if psn % 5 == 0 else (f, e) for psn, (f, e) in enumerate(frames)]
    result, counts = receive(width, frames, stall=0.995, settle=30000)
    assert counts["store_full"] > 5 and counts["good"] > 5 and counts["trimmed"] > 0
    assert len(result) == len(frames) - counts["store_full"]
    for beat, payload in result:
        if beat["verdict"] != Verdict.NO_BUFFER:
            check(width, beat, payload, wire.parse(frames[beat["psn"]][0]))

@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed,idle", [(1, 0.0), (2, 0.3)])
def test_trimmed_packets_announce_their_headers_only(width, seed, idle):
    """Between good ones, cut anywhere, with bits flipped where nothing looks, and with wrong FCS or checksum."""
    rng, frames = random.Random(seed), []
    for psn in range(300):
        frame = random_frame(rng, psn)
        if rng.random() < 0.7:
            size  = rng.choice((64, rng.randrange(36, 70), rng.randrange(36, 400)))
            frame = wire.trim(frame, size, rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)))
            if rng.random() < 0.3 and len(frame) > 70:
                frame = frame[:66] + rng.randbytes(len(frame) - 66)
            if rng.random() < 0.1:
                frame = frame[:24] + bytes(2) + frame[26:]
        frames.append((frame, int(rng.random() < 0.1)))
    expected = compare(width, frames, *receive(width, frames, idle=idle, stall=0.2, seed=seed))
    assert all(expected[name] > 5 for name in ("good", "trimmed", "bad_fcs", "bad_header", "bad_length")), expected

@pytest.mark.parametrize("width", WIDTHS)
def test_a_trimmed_packet_needs_its_sequence_number_and_timestamp(width):
    """Every cut; after a whole packet, whose headers must not show through. Control packets are not trimmed."""
    frames = []
    for opcode, kind in PACKET_TYPES.items():
        for ts in (0, 1) if kind.data else (0,):
            whole = wire.build(opcode, bytes(range(1, 1 + kind.body + 4*ts)), bytes(64*kind.data), ts=ts, psn=opcode)
            for size in range(40, 74):
                frames += [(whole, 0), (wire.trim(whole, size), 0)]
    result, counts = receive(width, frames, settle=600)
    compare(width, frames, result, counts)
    cuts = sum(size >= 44 + 4*ts for size in range(40, 74) for ts in (0, 1))
    assert counts["trimmed"] == cuts*sum(kind.data for kind in PACKET_TYPES.values())

def test_latency_is_at_most_ten_cycles():
    dut, seen = dut_of(64), []
    def drive():
        yield [dut.source.ready.eq(1), dut.stored.ready.eq(0)]
        yield from StreamSource(dut.sink, beats_of(wire.build_data(Opcode.WRITE_ONLY, b"hello"), 64), idle=0).run()
        for cycle in range(12):
            if (yield dut.source.valid):
                seen.append((cycle, (yield dut.stored.valid)))
            yield
    simulate(dut, [drive()])
    assert len(seen) == 1 and seen[0][0] <= 10 and seen[0][1] == 1, seen

@pytest.mark.parametrize("width", [256])
def test_wider_paths_work(width):
    rng    = random.Random(width)
    frames = [(random_frame(rng, psn), 0) for psn in range(100)]
    compare(width, frames, *receive(width, frames, stall=0.2))

def test_a_path_that_is_too_wide_is_refused():
    with pytest.raises(ValueError, match="64, 128 or 256"):
        ReceivePath(preset("tiny", network_width=512, host_width=512))
