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
ALL_WIDTHS = [64, 128, 256, 512]
ERRORS = {"header": "bad_header", "endpoint": "endpoint", "opcode": "bad_opcode", "length": "bad_length", "icrc": "bad_icrc"}

_duts = {}
def dut_of(width):
    """One block, built once, for all tests of a width."""
    if width not in _duts:
        _duts[width] = ReceivePath(preset("tiny", network_width=width, host_width=512))
    return _duts[width]

def receive(width, frames, idle=0.0, stall=0.0, stored_stall=0.0, seed=1, settle=200, own_ip=0, own_ip6=0, own_mac=0,
        udp_port=UDP_PORT, gap=0, limit=400000):
    """Runs (frame, fcs_error) pairs; returns headers (with their payload words) and counters."""
    dut    = dut_of(width)
    beats  = [beats_of(frame, width, error) for frame, error in frames]
    source = StreamSource(dut.sink, [] if gap else [beat for frame in beats for beat in frame], seed=seed, idle=idle)
    head   = StreamSink(dut.source, seed=seed + 1, stall=stall)
    stored = StreamSink(dut.stored, seed=seed + 2, stall=stored_stall)
    counts = {}
    def drive():
        yield [dut.own_ip.eq(own_ip), dut.own_ip6.eq(own_ip6), dut.own_mac.eq(own_mac), dut.udp_port.eq(udp_port)]
        yield
        yield from source.run()
        for frame in beats if gap else []:
            yield from StreamSource(dut.sink, frame, seed=seed, idle=0).run()
            for _ in range(gap):
                yield
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
    for name in ("opcode", "p_key", "dest_qp", "a", "rtx", "psn", "entropy", "ce"):
        assert beat[name] == parsed[name], name
    assert beat["verdict"] == parsed["verdict"]
    assert beat["ts"] == (parsed["ts"] if parsed["kind"].data else 0)
    assert beat["body"] == int.from_bytes(parsed["body"], "little")
    assert beat["length"] == len(parsed["payload"]) and payload == parsed["payload"]
    assert not beat["stored"] or beat["offset"] == parsed["offset"] % (width//8)

def short(frame):
    """Too short for whole headers: what the gateware finds wrong depends on the frame before."""
    return len(frame) < ETH.length or len(frame) < wire.prefix(frame)

def compare(width, frames, result, counts, **own):
    """Model and gateware agree on what comes out and, for frames with whole headers, on why not."""
    parsed   = [dict(wire.parse(frame, max_mtu=1024, **own), fcs=error, short=short(frame)) for frame, error in frames]
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

def restamp(frame):
    """Sets the IP checksum of a changed IPv4 frame."""
    if not wire.is_ipv6(frame):
        frame[24:26] = bytes(2)
        frame[24:26] = wire.ip_checksum(frame[14:34]).to_bytes(2, "big")

def with_lengths(frame, datagram, udp=None):
    """The frame with IP and UDP lengths as of a UDP packet of `datagram` bytes; `udp` contradicts."""
    frame = bytearray(frame)
    at    = wire.prefix(frame) - BTH.length - UDP.length + 4
    frame[at:at + 2] = (datagram if udp is None else udp).to_bytes(2, "big")
    if wire.is_ipv6(frame):
        frame[18:20] = datagram.to_bytes(2, "big")
    else:
        frame[16:18] = ((datagram + IPV4.length) & 0xffff).to_bytes(2, "big")
    restamp(frame)
    return bytes(frame)

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
        frame[rng.randrange(12, min(len(frame), wire.prefix(frame) + 6))] = rng.getrandbits(8)
        restamp(frame)
    elif kind == 4:                                 # Lengths that agree with each other, not with the frame.
        own   = len(frame) - (54 if wire.is_ipv6(frame) else 34)
        sizes = (0, 4, 8, 23, 24, 27, 28, 44, 48, own, own + 1, own + 2, 1480, 0xffeb, rng.randrange(0xffec))
        frame = with_lengths(frame, rng.choice(sizes))
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

OWN = dict(own_ip=wire.DEFAULTS["destination_ip"], own_ip6=wire.DEFAULTS["destination_ip"], own_mac=wire.DEFAULTS["destination_mac"])

@pytest.mark.parametrize("ipv6", [0, 1])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_opcode_pad_and_length_with_a_right_icrc(width, ipv6):
    """Frames that are whole and right but for one rule: only the table's opcodes and lengths pass."""
    frames = []
    for opcode in range(256):
        body = PACKET_TYPES[opcode].body if opcode in PACKET_TYPES else 20
        frames.append((wire.build(opcode, bytes(range(body)), minimum=60, psn=opcode, ipv6=ipv6), 0))
    def lengths(frame, pad):
        frame = bytearray(frame)
        frame[43 + 20*ipv6] = (frame[43 + 20*ipv6] & 0xcf) | pad << 4
        return bytes(frame[:-4]) + wire.icrc(frame[14:-4])
    for opcode, kind in PACKET_TYPES.items():
        for extra in range(-8, 12):
            for ts in (0, 1):
                frame = wire.build(opcode, bytes(max(0, kind.body + extra)), minimum=0, ts=ts, ipv6=ipv6)
                for pad in range(4):
                    frames.append((lengths(frame, pad), 0))
    for length in (1023, 1024, 1025, 1028, 2048, 4096):
        frames.append((wire.build_data(Opcode.WRITE_ONLY, bytes(length), tx_timestamp=1, ipv6=ipv6), 0))
    for values in (dict(udp_port=4790), dict(destination_ip=1), dict(destination_mac=1), dict(tver=1)):
        tver  = values.pop("tver", 0)
        frame = bytearray(wire.build_data(Opcode.WRITE_ONLY, b"x", ipv6=ipv6, **values))
        frame[43 + 20*ipv6] |= tver
        frames.append((bytes(frame[:-4]) + wire.icrc(frame[14:-4]), 0))
    expected = compare(width, frames, *receive(width, frames, settle=600, **OWN), **OWN)
    assert expected["bad_opcode"] == 256 - len(PACKET_TYPES) - len(ENDPOINT_OPCODES) and expected["bad_header"] == 4
    assert expected["endpoint"] == len(ENDPOINT_OPCODES)

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

@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_frames_that_end_behind_the_bth_are_counted_drops(width):
    """All opcodes; the shortest frame there is, whose lengths are right."""
    frames = [(wire.build(opcode, b"", minimum=60, ipv6=ipv6, dest_qp=dest_qp), 0)
        for opcode in range(256) for ipv6 in (0, 1) for dest_qp in (1, ENDPOINT_QP)]
    result, counts = receive(width, frames)
    compare(width, frames, result, counts)
    assert result == [] and counts["good"] == 0 and counts["endpoint"] == 2*(256 + len(ENDPOINT_OPCODES))
    assert counts["bad_length"] == 2*len(PACKET_TYPES)

@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_lengths_below_the_headers_and_lengths_that_contradict_each_other_are_dropped(width):
    """UDP lengths of 0 to 60 with and without the IP length that fits, IP lengths below their own header."""
    frames = []
    for ipv6 in (0, 1):
        for whole in (wire.build_data(Opcode.WRITE_ONLY, bytes(7), tx_timestamp=1, ipv6=ipv6),
                      wire.build(Opcode.ACKNOWLEDGE, bytes(4), ipv6=ipv6)):
            right = UDP.unpack(whole[wire.prefix(whole) - 20:])["length"]
            for length in range(61):
                if length != right:
                    frames += [with_lengths(whole, length), with_lengths(whole, right, udp=length), with_lengths(whole, length, udp=right)]
            if not ipv6:
                for total in range(20):
                    changed = bytearray(whole)
                    changed[16:18] = total.to_bytes(2, "big")
                    changed[38:40] = ((total - 20) & 0xffff).to_bytes(2, "big")
                    restamp(changed)
                    frames.append(bytes(changed))
    frames = [(f + bytes(max(0, 60 - len(f))), 0) for f in frames]
    result, counts = receive(width, frames)
    compare(width, frames, result, counts)
    assert result == [] and counts["bad_length"] + counts["bad_icrc"] == len(frames) and counts["bad_length"] > 0.8*len(frames)

@pytest.mark.parametrize("next_header", [0, 43, 44, 50, 51, 58, 59, 60, 135, 139, 140, 6])
def test_ipv6_extension_headers_are_refused(next_header):
    """Whatever stands in front of UDP, the packet behind it being right; and where what follows looks like UDP."""
    frames = []
    for extension in (bytes((17, 0)) + bytes(6), b""):
        frame = bytearray(wire.build_data(Opcode.WRITE_ONLY, bytes(9), ipv6=1))
        frame[54:54] = extension
        frame[20]    = next_header
        frame[18:20] = (len(frame) - 54).to_bytes(2, "big")
        frame[-4:]   = wire.icrc(frame[14:-4])
        frames.append((bytes(frame), 0))
    result, counts = receive(64, frames)
    assert result == [] and counts["bad_header"] == 2

def test_traffic_class_flow_label_and_hop_limit_are_the_networks():
    """A router may change them; the congestion mark is seen."""
    frames, marks = [], []
    for ecn in range(4):
        for label, hops in ((0, 0), (0xfffff, 255), (0x12345, 1)):
            frame = bytearray(wire.build_data(Opcode.WRITE_ONLY, bytes(9), ipv6=1))
            ip    = {**IPV6.unpack(frame[14:]), "dscp": 33, "ecn": ecn, "flow_label": label, "hop_limit": hops}
            frame[14:54] = IPV6.pack(**ip)
            frames.append((bytes(frame), 0))
            marks.append(int(ecn == 3))
    result, counts = receive(64, frames)
    assert counts["good"] == len(frames) and [beat["ce"] for beat, _ in result] == marks

def test_each_family_has_its_own_address():
    frames = [(wire.build_data(Opcode.WRITE_ONLY, bytes(9), psn=10*ipv6 + n, ipv6=ipv6, destination_ip=ip), 0)
        for ipv6 in (0, 1) for n, ip in enumerate((5, 1 << 31 | 7, *([1 << 127 | 7, 1 << 64 | 5] if ipv6 else [])))]
    def psns(**own):
        result, counts = receive(64, frames, **own)
        assert counts["bad_header"] == len(frames) - len(result)
        return [beat["psn"] for beat, _ in result]
    assert psns() == [0, 1, 10, 11, 12, 13]
    assert psns(own_ip=5) == [0, 10, 11, 12, 13]
    assert psns(own_ip6=5) == [0, 1, 10]
    assert psns(own_ip=1 << 31 | 7, own_ip6=1 << 127 | 7) == [1, 12]

@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_captured_frames_pass(width, monkeypatch):
    """Frames of another implementation, told to a path that takes what follows their BTH as payload."""
    packets_ = roce_packets()
    bth_of   = lambda packet, version: packet[28 if version == 4 else 48:]
    for opcode in {bth_of(packet, version)[0] for _, version, packet in packets_}:
        monkeypatch.setitem(PACKET_TYPES, opcode, PacketType(opcode, "captured", 0, data=True))
    monkeypatch.setitem(_duts, width, ReceivePath(preset("tiny", network_width=width, host_width=512, max_mtu=4096, receive_store=16384,
        payload_store=16384)))
    frames = [bytes(12) + (b"\x08\x00" if version == 4 else b"\x86\xdd") + packet for _, version, packet in packets_]
    # Their payload begins in the first word of 512 bits, MRC's does not: verdict and payload must be kept apart.
    gap = int(width == 512)
    result, counts = receive(width, [(frame, 0) for frame in frames], settle=600, gap=gap)
    assert counts["good"] == len(frames) == len(result) == 372
    for (_, payload), (_, version, packet) in zip(result, packets_, strict=True):
        bth = bth_of(packet, version)
        pad = (bth[1] >> 4) & 3
        assert payload == bth[12:len(bth) - 4 - pad]
    rng, damaged_ = random.Random(width), []
    for frame in frames[:100] + frames[-100:]:
        frame = bytearray(frame)
        frame[rng.randrange(wire.prefix(frame), len(frame))] ^= 1 << rng.randrange(8)
        damaged_.append((bytes(frame), 0))
    result, counts = receive(width, damaged_, settle=600, gap=gap)
    assert result == [] and counts["bad_icrc"] == 200

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
@pytest.mark.parametrize("length", [1, 20, 64, 65])
def test_small_packets_without_room_are_announced_before_they_are_dropped(width, length):
    """Nobody takes a header: WRITEs with a payload leave room in the header FIFO for those without one."""
    frames = [(wire.build_data(Opcode.WRITE_ONLY, bytes(length), psn=psn, tx_timestamp=psn), 0) for psn in range(100)]
    result, counts = receive(width, frames, stall=0.999, settle=150000)
    verdicts = [beat["verdict"] for beat, _ in result]
    good     = verdicts.index(Verdict.NO_BUFFER)
    assert 40 <= good and verdicts[good:good + 12] == [Verdict.NO_BUFFER]*12
    assert counts["no_buffer"] >= 12 and counts["store_full"] > 0
    assert [beat["psn"] for beat, _ in result][:good + 12] == list(range(good + 12))

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
            more  = 20*wire.is_ipv6(frame)
            size  = more + rng.choice((64, rng.randrange(36, 70), rng.randrange(36, 400)))
            frame = wire.trim(frame, size, rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)))
            if rng.random() < 0.3 and len(frame) > 70 + more:
                frame = frame[:66 + more] + rng.randbytes(len(frame) - 66 - more)
            if rng.random() < 0.1 and not more:
                frame = frame[:24] + bytes(2) + frame[26:]
        frames.append((frame, int(rng.random() < 0.1)))
    expected = compare(width, frames, *receive(width, frames, idle=idle, stall=0.2, seed=seed))
    assert all(expected[name] > 5 for name in ("good", "trimmed", "bad_fcs", "bad_header", "bad_length")), expected

@pytest.mark.parametrize("ipv6", [0, 1])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_trimmed_packet_needs_its_sequence_number_and_timestamp(width, ipv6):
    """Every cut; after a whole packet, whose headers must not show through. Control packets are not trimmed."""
    frames = []
    for opcode, kind in PACKET_TYPES.items():
        for ts in (0, 1) if kind.data else (0,):
            whole = wire.build(opcode, bytes(range(1, 1 + kind.body + 4*ts)), bytes(64*kind.data), ts=ts, psn=opcode, ipv6=ipv6)
            for size in range(40, 74):
                frames += [(whole, 0), (wire.trim(whole, size + 20*ipv6), 0)]
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

@pytest.mark.parametrize("width", [256, 512])
def test_wider_paths_work(width):
    rng    = random.Random(width)
    frames = [(random_frame(rng, psn), 0) for psn in range(100)]
    compare(width, frames, *receive(width, frames, stall=0.2))
