# SPDX-License-Identifier: BSD-2-Clause
"""Digest: every note is in exactly one report, reports keep their interval, and a full queue loses nothing."""

import copy
import random

import pytest

from firmware.contract import EventKind
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import window_layout
from gateware.transport.requester.digest import Digest
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import WINDOWS, Bench, put, request, wait

CONFIG = WINDOWS[128]

class Dut(Bench):
    """The digest; the test writes the tables and notes what an acknowledger would."""
    def __init__(self):
        super().__init__(CONFIG)
        self.windows = TableRAM(window_layout(CONFIG), CONFIG.queue_pairs)
        self.block   = Digest(CONFIG, self.send_state, self.ack_state, self.status, self.windows)

class Counts:
    """What a queue pair's next report must say."""
    def __init__(self):
        self.bytes = self.sacks = self.marks = self.nacks = self.longest = 0
        self.shortest = 0xffff

    def note(self, sack, marked, bytes, sampled, rtt):
        self.bytes = min(self.bytes + bytes, 2**24 - 1)
        self.sacks, self.marks, self.nacks = self.sacks + sack, self.marks + marked, min(self.nacks + (not sack), 255)
        if sampled:
            self.shortest, self.longest = min(self.shortest, rtt), max(self.longest, rtt)

    def event(self):
        return dict(base=self.bytes, reason=self.nacks, mask_low=self.sacks | self.marks << 16,
            mask_high=self.shortest | self.longest << 16)

def play(seed, engine, steps=200, stall=0.0):
    dut, rng = Dut(), random.Random(seed)
    block    = dut.block
    count    = CONFIG.queue_pairs
    sink     = StreamSink(block.event, seed=seed, stall=stall)
    interval = [0, 5, 60, 65535]
    counts, total, seen, clock = [Counts() for _ in range(count)], [Counts() for _ in range(count)], {}, [2**32 - 300]
    started, before, last = [None]*count, {}, {}

    def time():
        yield "passive"
        while True:
            clock[0] = (clock[0] + (not rng.randrange(3))) % 2**32
            yield block.time.eq(clock[0])
            for b in sink.beats[len(seen):]:
                n, c = b["qp"], counts[b["qp"]]
                seen[len(seen)] = b
                assert b["kind"] == EventKind.DIGEST and interval[n] and (b["unacked"], b["next"], b["rtt"], b["life"]) == \
                    (100 + n, 200 + n, 7*n, 9 + n)
                missed = stall == 0 and {name: b[name] for name in c.event()} != c.event()
                if missed:                     # The last note came just behind the report.
                    assert {name: b[name] for name in c.event()} == before[n].event()
                assert started[n] is None or (b["time"] - started[n]) % 2**32 >= interval[n]
                started[n] = b["time"]
                counts[n]  = Counts()
                if missed:
                    counts[n].note(**last[n])
            yield

    def drive():
        for n in range(count):
            yield from put(dut.send_state, n, next_psn=200 + n)
            yield from put(dut.ack_state, n, unacked=100 + n, rtt=7*n)
            yield from put(dut.status, n, life=9 + n)
            yield from put(dut.windows, n, digest=interval[n])
            yield from request(block.init, qp=n)
        for _ in range(steps):
            n = rng.randrange(count)
            sack, sampled = int(rng.random() < 0.7), rng.getrandbits(1)
            values = dict(sack=sack, marked=sack and rng.getrandbits(1), bytes=sack*rng.choice((0, 16, rng.getrandbits(8),
                rng.getrandbits(22))), sampled=sack and sampled, rtt=rng.choice((0, 65535, rng.getrandbits(12))))
            yield from wait(6*count)           # All reports of what came before are out.
            before[n], last[n] = copy.copy(counts[n]), values
            counts[n].note(**values)
            total[n].note(**values)
            yield from request(block.sink, qp=n, **values)
            yield from wait(rng.choice((8, 8, 40)))
        if stall:
            sink.stall = 0
            for n in range(1, count):
                yield from put(dut.windows, n, digest=5)
                interval[n] = 5
                yield from request(block.sink, qp=n, sack=1, marked=0, bytes=0, sampled=0)
                total[n].note(1, 0, 0, 0, 0)
            yield from wait(400)
    simulate(dut, [drive(), time(), sink.run()], engine=engine, limit=200000)
    return sink.beats, total, interval

@pytest.mark.parametrize("seed", range(2))
def test_a_report_says_what_was_noted_since_the_last_one(seed):
    beats, *_ = play(seed, "verilator")
    assert {b["qp"] for b in beats} == {1, 2} and len(beats) > 20

def test_a_full_event_queue_loses_nothing():
    beats, total, interval = play(5, "verilator", steps=120, stall=0.999)
    for n in range(1, CONFIG.queue_pairs):
        mine = [b for b in beats if b["qp"] == n]
        assert sum(b["mask_low"] & 0xffff for b in mine) == total[n].sacks
        assert sum(b["mask_low"] >> 16 for b in mine) == total[n].marks
        assert min(b["mask_high"] & 0xffff for b in mine) == total[n].shortest
        assert max(b["mask_high"] >> 16 for b in mine) == total[n].longest
    assert not any(b["qp"] == 0 for b in beats)

def test_both_engines_agree():
    assert play(9, "migen", steps=25)[0] == play(9, "verilator", steps=25)[0]
