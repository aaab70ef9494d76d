# SPDX-License-Identifier: BSD-2-Clause
"""The host side as a whole, seen from the link as TLPs: loads, doorbells, reads and writes at once."""

import random

import pytest
from litepcie.common import get_bar_mask, phy_layout
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import WriteKind
from gateware.common.tables import BAR0_BYTES, BAR0_DOORBELL
from gateware.config import ConfigError, preset
from gateware.host.pcie_host import PCIeHost
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import passive, simulate
from tests.gateware.host.paged import pieces
from tests.gateware.host.tlps import completion_dwords, enables, parse_one, request_dwords, words_of

class Phy(LiteXModule):
    endianness = "big"
    def __init__(self, width):
        self.data_width        = width
        self.bar0_mask         = get_bar_mask(BAR0_BYTES)
        self.sink              = stream.Endpoint(phy_layout(width))
        self.source            = stream.Endpoint(phy_layout(width))
        self.id                = Signal(16, reset=0x0100)
        self.bus_master_enable = Signal(reset=1)
        self.max_request_size  = Signal(16, reset=512)
        self.max_payload_size  = Signal(16, reset=256)

class Dut(LiteXModule):
    def __init__(self, config):
        self.phy  = Phy(config.host_width)
        self.host = PCIeHost(self.phy, config)
        self.comb += [     # A bus of one register file: reads give the address.
            self.host.packets.ready.eq(1),
            self.host.bus.dat_r.eq(self.host.bus.adr),
            self.host.bus.ack.eq(self.host.bus.cyc & self.host.bus.stb),
        ]

class Host:
    """Root complex and memory: answers reads, takes writes, sends requests."""
    def __init__(self, dut, width, seed=1, rcb=64, idle=0.0, stall=0.0, latency=40):
        self.dut, self.width, self.rcb, self.idle, self.latency = dut, width, rcb, idle, latency
        self.random  = random.Random(seed)
        self.from_card = StreamSink(dut.phy.sink, seed=seed, stall=stall)
        self.memory  = {}
        self.queue   = []         # [time, dwords]
        self.answers = {}
        self.writes  = []
        self.reads   = 0
        self.now     = 0
        self.trace   = []

    def byte(self, a):
        return self.memory.get(a, (a*7 ^ a >> 8) & 0xff)

    def handle(self, dwords):
        tlp = parse_one(dwords)
        self.trace.append(tlp["kind"])
        assert tlp["id"] == 0x0100
        if tlp["kind"] == "completion":
            self.answers[tlp["tag"]] = tlp
        elif tlp["kind"] == "write":
            assert 4*tlp["length"] <= 256
            bits = enables(tlp["first_be"], tlp["last_be"], tlp["length"])
            for i, bit in enumerate(bits):
                if bit:
                    self.memory[tlp["address"] + i] = tlp["data"][i]
            self.writes.append(tlp["address"])
        else:
            self.reads += 1
            at, left, when = tlp["address"], 4*tlp["length"], self.now + self.random.randrange(self.latency + 1)
            while left:
                n = min(left, self.rcb - at % self.rcb)
                data = bytes(self.byte(at + i) for i in range(n))
                self.queue.append([when, completion_dwords(tlp["tag"], data, left, at & 0x7f)])
                at, left = at + n, left - n

    @passive
    def run(self):
        s, beats, seen, dwords = self.dut.phy.source, [], 0, []
        while True:
            self.now += 1
            for beat in self.from_card.beats[seen:]:
                n = bin(beat["be"]).count("1")//4
                dwords += [beat["dat"] >> 32*i & 0xffffffff for i in range(n)]
                if beat["last"]:
                    self.handle(dwords)
                    dwords = []
            seen = len(self.from_card.beats)
            if not beats and self.random.random() >= self.idle:
                for q in self.queue:
                    if q[0] <= self.now:
                        self.queue.remove(q)
                        beats = words_of(q[1], self.width)
                        break
            if beats:
                b, beats = beats[0], beats[1:]
                yield [s.dat.eq(b["dat"]), s.be.eq(b["be"]), s.first.eq(int(b["first"])), s.last.eq(int(b["last"])), s.valid.eq(1)]
                yield
                while not (yield s.ready):
                    yield
                    self.now += 1
                if not beats:
                    yield s.valid.eq(0)
            else:
                yield

DUTS = {}

def build(host, network):
    if (host, network) not in DUTS:
        config = preset("tiny", host_width=host, network_width=network, max_mtu=4096, receive_store=8192,
            payload_store=16384, read_tags=16)
        DUTS[host, network] = config, Dut(config)
    return DUTS[host, network]

def packets_of(beats, step):
    result, current = [], b""
    for b in beats:
        assert not b["error"]
        current += b["data"].to_bytes(step, "little")
        if b["last"]:
            result.append(current)
            current = b""
    return result

@pytest.mark.parametrize("host,network", [(64, 64), (128, 64)])
def test_everything_at_once(host, network):
    config, dut = build(host, network)
    r     = random.Random(3)
    link  = Host(dut, host, seed=3, rcb=128, idle=0.1, stall=0.2)
    step  = network//8
    # Reads.
    requests = [{"address": r.randrange(1 << 12, 1 << r.choice([30, 40])), "beyond": r.getrandbits(28),
        "length": r.choice([0, 1, 64, 100, 1024, 4096])} for _ in range(20)]
    source   = StreamSource(dut.host.read_request, requests, seed=1)
    payload  = StreamSink(dut.host.payload, seed=2, stall=0.1)
    # Writes.
    jobs, words, wanted = [], [], {}
    for n in range(30):
        data, offset, address = r.randbytes(r.choice([1, 3, 64, 1024])), r.randrange(step), (1 << 45) + 8192*n + r.randrange(4096)
        frame = bytes(offset) + data + bytes(4)
        beyond = (1 << 33) + 2*n + 1
        jobs += [{"kind": WriteKind.PAYLOAD, "offset": offset, "address": address, "beyond": beyond, "length": len(data)},
            {"kind": WriteKind.WORD, "address": (1 << 46) + 8*n, "word": n + 1}]
        beats  = [int.from_bytes(frame[i:i + step], "little") for i in range(0, len(frame), step)]
        words += [{"data": w, "last": i == len(beats) - 1} for i, w in enumerate(beats)]
        for at, length in pieces(address, beyond, len(data)):
            wanted[at], data = data[:length], data[length:]
    writer = StreamSource(dut.host.jobs, jobs, seed=4)
    stored = StreamSource(dut.host.stored[0], words, seed=5)
    # Doorbells and loads, in one stream of requests from the host.
    bells  = StreamSink(dut.host.doorbell, seed=6, stall=0)
    tokens = [r.getrandbits(64) for _ in range(20)]
    for n, token in enumerate(tokens):
        link.queue.append([50*n, request_dwords(0xe0000000 + BAR0_DOORBELL + 64*n, token.to_bytes(8, "little"))])
        link.queue.append([50*n, request_dwords(0xe0000100 + 4*n, length=1, tag=n)])
    def rest():
        while writer.sent < len(jobs) or stored.sent < len(words) or len(link.answers) < 20:
            yield
        yield from payload.wait_packets(len(requests))
        for _ in range(200):
            yield
        assert (yield dut.host.read_errors) == 0 and (yield dut.host.unknown_completions) == 0
        assert (yield dut.host.bad_doorbells) == 0
    simulate(dut, [source.run(), payload.run(), writer.run(), stored.run(), bells.run(), link.from_card.run(), link.run(), rest()],
        limit=60000, seed=3)
    for packet, request in zip(packets_of(payload.beats, step), requests, strict=True):
        clean = Host(dut, host)
        assert packet[:request["length"]] == bytes(clean.byte(at + i)
            for at, length in pieces(request["address"], request["beyond"], request["length"]) for i in range(length))
    for address, data in wanted.items():
        assert bytes(link.memory[address + i] for i in range(len(data))) == data
    assert [link.memory[(1 << 46) + 8*n] for n in range(30)] == list(range(1, 31))
    flags = [w for w in link.writes if w >> 46]
    assert len(flags) == 30
    assert [b["data"] for b in bells.beats] == tokens and [b["address"] for b in bells.beats] == [64*n for n in range(20)]
    for n in range(20):
        assert link.answers[n]["data"] == (0x40 + n).to_bytes(4, "little")

@pytest.mark.parametrize("rcb", [64, 128, 512])
def test_rate_of_reads(rcb):
    """128 bits on the host side feed 64 bits of network at full rate, even with the smallest completions."""
    config, dut = build(128, 64)
    link     = Host(dut, 128, rcb=rcb, latency=100)
    requests = [{"address": (1 << 36) + 4096*n, "length": 4096} for n in range(12)]
    source   = StreamSource(dut.host.read_request, requests, idle=0)
    payload  = StreamSink(dut.host.payload, stall=0)
    cycles   = []
    def rest():
        for n in range(1, 13):
            yield from payload.wait_packets(n)
            cycles.append(link.now)
    simulate(dut, [source.run(), payload.run(), link.from_card.run(), link.run(), rest()], limit=30000)
    per_packet = (cycles[-1] - cycles[3])/8
    assert per_packet <= 512 + 10

def test_nothing_before_bus_master_enable():
    config, dut = build(64, 64)
    link   = Host(dut, 64)
    source = StreamSource(dut.host.read_request, [{"address": 0x1000, "length": 64}], idle=0)
    def main():
        yield dut.phy.bus_master_enable.eq(0)
        link.queue.append([0, request_dwords(0x40, length=1, tag=9)])
        for _ in range(300):
            yield
        assert link.reads == 0 and 9 in link.answers
        yield dut.phy.bus_master_enable.eq(1)
        for _ in range(100):
            yield
        assert link.reads == 1
    simulate(dut, [source.run(), link.from_card.run(), link.run(), main()])

def test_a_phy_of_another_width_is_refused():
    with pytest.raises(ConfigError, match="128"):
        PCIeHost(Phy(64), preset("tiny", host_width=128))
