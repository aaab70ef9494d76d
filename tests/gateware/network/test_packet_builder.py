# SPDX-License-Identifier: BSD-2-Clause
"""Packet builder against the Python model and scapy: every packet type, payload lengths, speed, poison."""

import random
from ipaddress import ip_address

import pytest
from scapy.all import IP, Ether, raw
from scapy.all import UDP as ScapyUDP
from scapy.all import IPv6 as ScapyIPv6
from scapy.contrib.roce import BTH as ScapyBTH

from gateware.common.headers import *
from gateware.config import preset
from gateware.network.packet_builder import PacketBuilder
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import passive, simulate
from tests.gateware.network.frames import frames_of, words_of
from tests.gateware.network.test_wire import bitwise_icrc
from tests.models import wire

def job_of(rng, opcode, payload, ts, plane=0, ipv6=None):
    """(beat of send_layout, the frame that must come out), on IPv4 or IPv6 if `ipv6` does not say which."""
    kind   = PACKET_TYPES[opcode]
    ipv6   = rng.getrandbits(1) if ipv6 is None else ipv6
    values = dict(destination_mac=rng.getrandbits(48), source_mac=rng.getrandbits(48), ipv6=ipv6,
        source_ip=rng.getrandbits(128 if ipv6 else 32), destination_ip=rng.getrandbits(128 if ipv6 else 32), dscp=rng.getrandbits(6),
        entropy=rng.getrandbits(16), udp_port=UDP_PORT, p_key=rng.getrandbits(16), dest_qp=rng.getrandbits(24),
        a=rng.getrandbits(1), rtx=rng.getrandbits(1), psn=rng.getrandbits(24))
    body = rng.randbytes(BODY_BYTES)   # What is not on the wire must not show.
    if kind.data:
        on_wire = body[:4] + (body[4:8] if ts else b"") + body[8:24] + (body[24:28] if kind.imm else b"")
    else:
        on_wire = body[:kind.body]
    frame = wire.build(opcode, on_wire, payload, ecn=2 if kind.data else 0, ts=ts if kind.data else 0, **values)
    beat  = dict(values, plane=plane, opcode=opcode, ts=ts, length=len(payload), body=int.from_bytes(body, "little"),
        body_length=len(on_wire))
    return beat, frame

def jobs(rng, longest):
    """Every opcode, with and without TSETH, at lengths around every boundary, shuffled."""
    result = []
    for opcode, kind in PACKET_TYPES.items():
        for ts in (0, 1):
            for length in ([*range(0, 20), rng.randrange(20, longest), longest] if kind.data else [0]):
                result.append((opcode, rng.randbytes(length), ts))
    rng.shuffle(result)
    return result

@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_every_packet_type(width):
    dut, rng = PacketBuilder(preset("tiny", network_width=width, host_width=512)), random.Random(width)
    for seed, idle, stall in ((1, 0, 0), (2, 0.5, 0), (3, 0, 0.5), (4, 0.4, 0.4)):
        work    = [(*job_of(rng, opcode, payload, ts, plane=rng.randrange(4)), payload) for opcode, payload, ts in jobs(rng, 1024)]
        beats   = [beat for beat, _, _ in work]
        words   = [w for _, _, payload in work for w in words_of(payload, width)]
        planes, starts, ends = [], [], []
        sink    = StreamSink(dut.source, seed=seed, stall=stall)
        @passive
        def watch(planes=planes, starts=starts, ends=ends):
            cycle, inside = 0, False
            while True:
                yield
                cycle += 1
                if (yield dut.source.valid) and (yield dut.source.ready):
                    if not inside:
                        planes.append((yield dut.plane))
                        starts.append(cycle)
                    inside = not (yield dut.source.last)
                    if not inside:
                        ends.append(cycle)
        def drain(work=work, ends=ends):
            while len(ends) < len(work):
                yield
            for _ in range(10):
                yield
        simulate(dut, [StreamSource(dut.sink, beats, seed=seed, idle=idle).run(),
            StreamSource(dut.payload, words, seed=seed + 10, idle=0).run(), sink.run(), watch(), drain()], limit=400000)
        frames = frames_of(sink.beats, width)
        assert len(frames) == len(work)
        for (beat, expected, payload), (frame, _) in zip(work, frames, strict=True):
            assert frame == expected, (hex(beat["opcode"]), len(payload), beat["ts"])
        assert planes == [beat["plane"] for beat, _, _ in work]
        if not stall:
            # No bubble in a frame, and at most 2 idle cycles between frames when the next one waits; a header takes
            # 6 cycles, which frames of fewer than 4 words do not fill.
            for i, (frame, _) in enumerate(frames):
                assert ends[i] - starts[i] + 1 == -(-len(frame)//(width//8)), i
                if i and not idle:
                    gap, words_before = starts[i] - ends[i - 1] - 1, ends[i - 1] - starts[i - 1] + 1
                    assert gap <= max(2, 6 - words_before), (i, gap)

@pytest.mark.parametrize("width", [64, 128])
def test_a_frame_never_waits_for_its_payload(width):
    """The payload of a packet comes late but whole, as it does behind one that is dropped: the frame begins when it is there."""
    dut, rng = PacketBuilder(preset("tiny", network_width=width)), random.Random(width)
    lanes    = width//8
    payloads = [rng.randbytes(rng.randrange(8*lanes, 20*lanes)) for _ in range(120)]
    opcodes  = [o for o, t in PACKET_TYPES.items() if t.data]
    work     = [job_of(rng, rng.choice(opcodes), payload, rng.getrandbits(1)) for payload in payloads]
    stops, words = {}, []
    for payload in payloads:
        stops[len(words)] = rng.choice([0, 0, 1, 2, 5, 40])
        words += words_of(payload, width)
    sink, spans = StreamSink(dut.source, stall=0), []
    @passive
    def watch():
        cycle, start = 0, None
        while True:
            yield
            cycle += 1
            if (yield dut.source.valid) and (yield dut.source.ready):
                start = cycle if start is None else start
                if (yield dut.source.last):
                    spans.append(cycle - start + 1)
                    start = None
    def drain():
        while len(spans) < len(work):
            yield
    simulate(dut, [StreamSource(dut.sink, [beat for beat, _ in work], idle=0).run(), sink.run(), watch(), drain(),
        StreamSource(dut.payload, words, idle=0, stops=stops).run()], limit=40000)
    assert [frame for frame, _ in frames_of(sink.beats, width)] == [frame for _, frame in work]
    assert spans == [-(-len(frame)//lanes) for _, frame in work]

@pytest.mark.parametrize("width", [64, 128])
def test_scapy_agrees_and_a_failed_read_spoils_the_icrc(width):
    dut, rng = PacketBuilder(preset("tiny", network_width=width)), random.Random(width)
    payloads = [rng.randbytes(n) for n in (1, 60, 100, 333)]
    work  = [job_of(rng, Opcode.WRITE_ONLY, payload, 1, ipv6=0) for payload in payloads]
    words = [w for i, payload in enumerate(payloads) for w in words_of(payload, width)]
    at    = len(words_of(payloads[0], width)) + len(words_of(payloads[1], width)) + 2
    words[at]["error"] = 1 # In the third packet.
    sink  = StreamSink(dut.source, stall=0.2)
    def drain():
        for _ in range(600):
            yield
    simulate(dut, [StreamSource(dut.sink, [b for b, _ in work]).run(), StreamSource(dut.payload, words, idle=0).run(),
        sink.run(), drain()])
    frames = [frame for frame, _ in frames_of(sink.beats, width)]
    assert [wire.parse(frame)["error"] for frame in frames] == [None, None, "icrc", None]
    for frame in frames[:2] + frames[3:]:
        packet = Ether(frame)
        assert packet[ScapyBTH].compute_icrc(raw(packet[ScapyBTH])[:-4]) == frame[-4:]
        del packet[IP].chksum
        assert bytes(packet)[24:26] == frame[24:26]

def test_ipv6_frames_are_right_for_an_independent_computation():
    """Scapy knows layers and lengths of IPv6, but its ICRC of IPv6 is always 0."""
    dut, rng = PacketBuilder(preset("tiny")), random.Random(6)
    payloads = [rng.randbytes(n) for n in (1, 2, 60, 333)]
    work     = [job_of(rng, Opcode.WRITE_ONLY_IMM, payload, 1, ipv6=1) for payload in payloads]
    words    = [w for payload in payloads for w in words_of(payload, 64)]
    sink     = StreamSink(dut.source, stall=0.2)
    def drain():
        for _ in range(600):
            yield
    simulate(dut, [StreamSource(dut.sink, [b for b, _ in work]).run(), StreamSource(dut.payload, words, idle=0).run(),
        sink.run(), drain()])
    frames = [frame for frame, _ in frames_of(sink.beats, 64)]
    assert len(frames) == len(work)
    for (beat, _), frame in zip(work, frames, strict=True):
        packet = Ether(frame)
        ip, udp = packet[ScapyIPv6], packet[ScapyUDP]
        assert (ip.version, ip.nh, ip.hlim, ip.plen, udp.len) == (6, 17, 64, len(frame) - 54, len(frame) - 54)
        assert (ip.tc, ip.fl) == (beat["dscp"] << 2 | 2, beat["entropy"]) and (udp.sport, udp.chksum) == (beat["entropy"], 0)
        assert (int(ip_address(ip.src)), int(ip_address(ip.dst))) == (beat["source_ip"], beat["destination_ip"])
        assert bitwise_icrc(frame[14:-4]) == frame[-4:]
