# SPDX-License-Identifier: BSD-2-Clause
"""BAR0: every load is answered, every store lands where it should, a doorbell never holds the link."""

import random

import pytest

from gateware.common.tables import BAR0_DOORBELL, BAR0_FIRMWARE
from gateware.config import preset
from gateware.host.bar_bridge import BUS_TIMEOUT, BarBridge
from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes
from tests.engines import passive, simulate

DEAD  = 0x8000      # Nobody acknowledges here.
ERROR = 0x9000      # The bus answers with err.

class Bus:
    """Wishbone target with 128 KiB of bytes, random wait states, a dead and a failing address."""
    def __init__(self, dut, seed):
        self.bus, self.random = dut.bus, random.Random(seed)
        self.bytes    = bytearray(random.Random(99).randbytes(0x20000))
        self.accesses = 0

    @passive
    def run(self):
        b = self.bus
        while True:
            if (yield b.cyc) and (yield b.stb):
                address = 4*(yield b.adr)
                assert address < BAR0_DOORBELL
                if address == DEAD:
                    yield
                    continue
                for _ in range(self.random.choice([0, 0, 1, 5])):
                    yield
                self.accesses += 1
                if address == ERROR:
                    yield b.err.eq(1)
                elif (yield b.we):
                    data, sel = (yield b.dat_w), (yield b.sel)
                    for i in range(4):
                        if sel >> i & 1:
                            self.bytes[address + i] = data >> 8*i & 0xff
                    yield b.ack.eq(1)
                else:
                    yield b.dat_r.eq(int.from_bytes(self.bytes[address:address + 4], "little"))
                    yield b.ack.eq(1)
                yield
                yield [b.ack.eq(0), b.err.eq(0)]
            yield

def store(address, data, width, first_be=0xf, last_be=None, **more):
    n = len(data)//4
    last_be = (0xf if n > 1 else 0) if last_be is None else last_be
    return beats_of_bytes(data, width, field="dat", we=1, address=address, length=n, first_be=first_be, last_be=last_be, **more)

def load(address, n, tag, first_be=0xf, last_be=None):
    last_be = (0xf if n > 1 else 0) if last_be is None else last_be
    return [{"we": 0, "address": address, "length": n, "first_be": first_be, "last_be": last_be, "req_id": 0x4321,
        "tag": tag, "first": 1, "last": 1}]

def drive(dut, beats, seed=1, idle=0.2, stall=0.3, bus=None, limit=60000):
    bus     = bus or Bus(dut, seed)
    source  = StreamSource(dut.sink, beats, seed=seed, idle=idle)
    answers = StreamSink(dut.completion, seed=seed + 1, stall=stall)
    bells   = StreamSink(dut.doorbell, seed=seed + 2, stall=0)
    def rest():
        while source.sent < len(beats):
            yield
        for _ in range(300):
            yield
    simulate(dut, [source.run(), answers.run(), bells.run(), bus.run(), rest()], limit=limit, seed=seed)
    return bus, bells.beats, answers.beats

def completions(beats, width):
    """Per tag: (status, data), with the rules of completions checked."""
    result, current = {}, []
    for beat in beats:
        current.append(beat)
        if beat["last"]:
            head = current[0]
            assert len(current) == max(1, -(-head["length"]*32//width))
            data = b"".join(b["dat"].to_bytes(width//8, "little") for b in current)[:4*head["length"]]
            skip = head["lower_address"] % 4
            entry = result.setdefault(head["tag"], {"status": 0, "data": b"", "left": head["byte_count"], "lower": head["lower_address"]})
            assert head["byte_count"] == entry["left"], "byte count"
            assert head["req_id"] == 0x4321
            if head["length"]:
                take = min(len(data) - skip, entry["left"])
                entry["data"] += data[skip:skip + take]
                entry["left"] -= take
                ends = (head["lower_address"] + take) % 64
                assert entry["left"] == 0 or ends == 0, "split off a multiple of 64 bytes"
            entry["status"] = head["status"]
            current = []
    assert not current
    return result

DUTS = {}

def build(width):
    if width not in DUTS:
        DUTS[width] = BarBridge(preset("tiny", host_width=width))
    return DUTS[width]

@pytest.mark.parametrize("width", [64, 128])
def test_doorbell_stores(width):
    dut  = build(width)
    base = BAR0_DOORBELL
    b8, b4 = bytes(range(1, 9)), bytes([0x11, 0x22, 0x33, 0x44])
    good = [(0x40, b8, 3), (0x1038, b8, 3), (0x80, b4, 1), (0x84, b4, 2)]
    beats = []
    for offset, data, _ in good:
        beats += store(base + offset, data, width)
    bad = [store(base + 4, b8, width), store(base, b8, width, first_be=0xe), store(base, b8, width, last_be=7),
        store(base, b4, width, first_be=3), store(base, b8 + b4, width), store(base, b8*4, width),
        store(base, b8, width, poisoned=1), store(base, b4, width, first_be=0)]
    for b in bad:
        beats += b
    beats += store(base + 0x100, b8, width)
    _, bells, _ = drive(dut, beats)
    assert [(b["address"], b["dwords"]) for b in bells] == [(o, d) for o, _, d in good] + [(0x100, 3)]
    for bell, (_, data, _) in zip(bells, good, strict=False):
        assert bell["data"].to_bytes(8, "little") == (data if len(data) == 8 else data*2)

def test_bad_doorbells_are_counted():
    dut = build(64)
    source = StreamSource(dut.sink, store(BAR0_DOORBELL + 4, bytes(8), 64)*5, idle=0)
    def rest():
        while source.sent < 5:
            yield
        yield
        yield
        assert (yield dut.bad_doorbells) == 5
        assert not (yield dut.doorbell.valid)
    simulate(dut, [source.run(), rest()])

def test_no_token_is_lost_when_the_doorbell_is_slow():
    """The consumer takes a beat now and then: every store arrives, in order."""
    dut    = build(64)
    beats  = [beat for i in range(40) for beat in store(BAR0_DOORBELL + 64*i, i.to_bytes(8, "little"), 64)]
    source = StreamSource(dut.sink, beats, idle=0)
    sink   = StreamSink(dut.doorbell, stall=0.9)
    def rest():
        while len(sink.beats) < 40:
            yield
    simulate(dut, [source.run(), sink.run(), rest()])
    assert [b["data"] for b in sink.beats] == list(range(40))

@pytest.mark.parametrize("width", [64, 128])
def test_loads_and_stores(width):
    dut, r = build(width), random.Random(3)
    bus    = Bus(dut, 5)
    image  = bytearray(bus.bytes)
    beats, expected = [], {}
    for tag in range(60):
        n       = r.choice([1, 1, 2, 3, 5, 16, 17, 40])
        address = 4*r.randrange(0x20, 0x1000) + r.choice([0, BAR0_FIRMWARE])
        first   = 0xf if n > 1 and r.random() < 0.5 else r.choice([0xf, 1, 2, 4, 8, 3, 0xc, 6] if n == 1 else [0xf, 0xe, 0xc, 8])
        last    = 0 if n == 1 else r.choice([0xf, 7, 3, 1])
        masks   = [first] + ([0xf]*(n - 2) + [last] if n > 1 else [])
        bits    = [m >> i & 1 for m in masks for i in range(4)]
        if r.random() < 0.5:
            data   = r.randbytes(4*n)
            beats += store(address, data, width, first, last)
            for i, bit in enumerate(bits):
                if bit:
                    image[address + i] = data[i]
        else:
            beats += load(address, n, tag, first, last)
            low, high = bits.index(1), len(bits) - bits[::-1].index(1)
            expected[tag] = bytes(image[address + low:address + high]), (address + low) & 0x7f
    bus, _, answers = drive(dut, beats, bus=bus)
    assert bus.bytes == image
    got = completions(answers, width)
    assert {tag: (c["data"], c["lower"]) for tag, c in got.items()} == expected
    assert all(c["status"] == 0 and c["left"] == 0 for c in got.values())

@pytest.mark.parametrize("width", [64, 128])
def test_what_nobody_answers_is_answered(width):
    dut   = build(width)
    beats = load(0x30000, 1, 1) + load(BAR0_DOORBELL, 2, 2) + load(DEAD, 1, 3) + load(DEAD - 8, 6, 4) + load(ERROR, 1, 5)
    beats += load(0x100, 1, 6, first_be=0) + store(DEAD, bytes(4), width) + store(0x30000, bytes(8), width) + load(0x104, 1, 7)
    bus, _, answers = drive(dut, beats, limit=10*BUS_TIMEOUT)
    got = completions(answers, width)
    assert sorted(got) == [1, 2, 3, 4, 5, 6, 7]
    assert [got[t]["status"] for t in range(1, 8)] == [0, 0, 1, 1, 1, 0, 0]
    assert got[1]["data"] == bytes(4) and got[2]["data"] == bytes(8) and len(got[6]["data"]) == 1
    assert got[7]["data"] == bytes(bus.bytes[0x104:0x108])
