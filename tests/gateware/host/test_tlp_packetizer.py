# SPDX-License-Identifier: BSD-2-Clause
"""Every TLP of the packetizer is exact in header, data and byte enables, at any width."""

import random

import pytest
from litex.soc.interconnect import stream

from gateware.host.tlp_packetizer import TLPPacketizer
from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes
from tests.engines import simulate
from tests.gateware.host.tlps import parse

def scenario(dut, width, seed, idle, stall, count=40):
    r = random.Random(seed)
    def address():
        return 4*r.randrange(1, 1 << r.choice([10, 30, 50, 62]))
    expected = {"write": [], "read": [], "completion": []}
    beats    = {"write": [], "read": [], "completion": []}
    for _ in range(count):
        n    = r.choice([1, 2, 3, 4, 5, 8, r.randrange(1, 129)])
        data = r.randbytes(4*n)
        head = {"address": address(), "length": n, "first_be": r.randrange(16), "last_be": r.randrange(16)}
        beats["write"] += beats_of_bytes(data, width, field="dat", **head)
        expected["write"].append({"kind": "write", "id": 0x1234, "data": data, "tag": 0, **head})
        head = {"address": address(), "length": r.randrange(1, 129), "tag": r.randrange(256), "first_be": 15, "last_be": 15}
        beats["read"].append({**head, "first": 1, "last": 1})
        expected["read"].append({"kind": "read", "id": 0x1234, "data": b"", **head})
        n    = r.choice([0, 1, 2, r.randrange(17)])
        data = r.randbytes(4*n)
        head = {"status": 0 if n else 1, "tag": r.randrange(256), "lower_address": r.randrange(128),
            "byte_count": r.randrange(4096), "length": n}
        requester = r.randrange(1 << 16)
        beats["completion"] += beats_of_bytes(data, width, field="dat", req_id=requester, **head)
        expected["completion"].append({"kind": "completion", "id": 0x1234, "data": data, "requester": requester, **head})
    for kind in ("write", "read"):     # Requests keep within 4 KiB.
        for e in expected[kind]:
            over = (e["address"] % 4096) + 4*e["length"] - 4096
            e["address"] -= max(0, (over + 3) & ~3)
    index = {"write": -1, "read": -1}
    for kind in index:
        for b in beats[kind]:
            index[kind] += b["first"]
            b["address"] = expected[kind][index[kind]]["address"]
    sink    = StreamSink(dut.source, seed=seed, stall=stall)
    sources = [StreamSource(getattr(dut, kind), beats[kind], seed=seed + i, idle=idle) for i, kind in enumerate(beats)]
    def settings():
        yield dut.requester_id.eq(0x1234)
        yield
    def main():
        yield
        for s in sources:
            if s.sent < len(s.beats):
                while s.sent < len(s.beats):
                    yield
        for _ in range(400):
            yield
    cycles = simulate(dut, [settings(), main(), sink.run(), *(s.run() for s in sources)], limit=60000, seed=seed)
    tlps = parse(sink.beats, width)
    for kind, wanted in expected.items():
        assert [t for t in tlps if t["kind"] == kind] == wanted, f"{kind}s differ, seed {seed}"
    return tlps, cycles

@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_every_tlp_is_exact(width):
    dut = TLPPacketizer(width)
    for seed, idle, stall in ((1, 0.3, 0.3), (2, 0, 0), (3, 0, 0.6), (4, 0.7, 0)):
        scenario(dut, width, seed, idle, stall)

def test_reads_and_writes_share_the_link():
    tlps, _ = scenario(TLPPacketizer(128), 128, seed=5, idle=0, stall=0)
    kinds   = [t["kind"] for t in tlps if t["kind"] != "completion"][:40]
    assert kinds.count("read") >= 18 and kinds.count("write") >= 18

@pytest.mark.parametrize("width", [64, 128])
def test_rate_of_long_writes(width):
    """256 bytes take their words and the header's words, no more, when addresses need four dwords."""
    dut   = TLPPacketizer(width)
    beats = []
    for n in range(20):
        beats += beats_of_bytes(bytes(range(256)), width, field="dat", address=(1 << 40) + 256*n, length=64, first_be=15, last_be=15)
    source, sink = StreamSource(dut.write, beats, idle=0), StreamSink(dut.source, stall=0)
    cycles = simulate(dut, [source.run(), sink.run()])
    assert cycles <= 20*(256*8//width + 128//width) + 10

def test_nothing_leaves_before_bus_master_enable():
    dut  = TLPPacketizer(64)
    sink = StreamSink(dut.source, stall=0)
    def main():
        yield dut.bus_master_enable.eq(0)
        yield dut.write.valid.eq(1)
        yield dut.write.length.eq(1)
        yield dut.read.valid.eq(1)
        for _ in range(50):
            yield
        assert not sink.beats
        yield dut.bus_master_enable.eq(1)
        for _ in range(10):
            yield
        assert sink.beats
    simulate(dut, [main(), sink.run()])

def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="96"):
        TLPPacketizer(96)
    with pytest.raises(ValueError, match="middle"):
        TLPPacketizer(64, "middle")
    assert isinstance(TLPPacketizer(64, "little").source, stream.Endpoint)
