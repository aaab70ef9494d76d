# SPDX-License-Identifier: BSD-2-Clause
"""Deadline: late once per arming, never when idle, restarted by progress, also where time wraps.

The model is told everything in the same cycles; a report may be late by a walk over all queue pairs.
"""

import random

import pytest

from firmware.contract import EventKind
from gateware.common.tables import QpState
from gateware.transport.requester.deadline import Deadline
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, ahead, put, request, wait

CONFIG = WINDOWS[128]
LATEST = 3*CONFIG.queue_pairs + 12       # A walk, the FIFO, and what the test's own writes cost.

class Dut(Bench):
    """The walker; one tick per cycle."""
    def __init__(self):
        super().__init__(CONFIG)
        self.block = Deadline(CONFIG, self.tables, self.send_state, self.ack_state, self.status)

@pytest.fixture(scope="module")
def dut():
    return Dut()

class World:
    def __init__(self, dut, seed, start):
        self.dut, self.rng, self.now = dut, random.Random(seed), start
        self.sink   = StreamSink(dut.block.event, seed=seed, stall=0)
        self.count  = CONFIG.queue_pairs
        self.state  = [
            dict(unacked=PSN - 3, next=PSN - 3, started=0, retired=0, heard=0, asked=1, life=QpState.RTS, interval=0)
            for _ in range(self.count)]

    def clock(self):
        yield "passive"
        while True:
            yield self.dut.block.time.eq(self.now % 2**32)
            yield
            self.now += 1

    def start(self, n, interval):
        s = self.state[n]
        yield from put(self.dut.tables.queue_pair, n, timeout=interval)
        yield from self.move(n)
        yield from put(self.dut.status, n, state=s["life"])
        yield from request(self.dut.block.init, qp=n)
        s["interval"] = interval

    def move(self, n, **changes):
        s = self.state[n]
        s.update(changes)
        yield from put(self.dut.send_state, n, next_psn=s["next"], msn=s["started"], asked=s["asked"])
        yield from put(self.dut.ack_state, n, unacked=s["unacked"], msn=s["retired"], rtt=n + 7, heard=s["heard"] % 256)

    def arm(self, n, interval):
        self.state[n]["interval"] = interval
        yield from request(self.dut.block.sink, qp=n, interval=interval)

    def events(self):
        """Events that came since the last call."""
        found = [(b["qp"], b["time"]) for b in self.sink.beats]
        for b in self.sink.beats:
            s = self.state[b["qp"]]
            assert b["kind"] == EventKind.TIMEOUT and b["mask_low"] == 1 and b["rtt"] == b["qp"] + 7
            assert (b["unacked"], b["base"], b["next"]) == (s["unacked"], s["unacked"], s["next"])
        self.sink.beats.clear()
        return found

    def run(self, generator):
        simulate(self.dut, [generator, self.clock(), self.sink.run()], limit=40000)

@pytest.mark.parametrize("seed, start", [(0, 0), (1, 2**32 - 3000), (2, 2**32 - 700), (3, 2**31 - 900)])
def test_late_once_per_arming_and_never_when_idle(dut, seed, start):
    world = World(dut, seed, start)
    rng   = world.rng
    fired, quiet = 0, 0
    def drive():
        nonlocal fired, quiet
        for n in range(world.count):
            yield from world.start(n, 10**9)
        for _ in range(60):
            n = rng.randrange(world.count)
            s = world.state[n]
            interval = rng.choice((50, 120, rng.randrange(40, 400)))
            outstanding = rng.random() < 0.7
            yield from world.move(n, next=(s["unacked"] + (rng.randrange(1, 60) if outstanding else 0)) % PSN)
            yield from world.arm(n, interval)
            begin = world.now
            assert not world.events()
            if outstanding and rng.random() < 0.5:
                # Progress restarts the interval.
                yield from wait(rng.randrange(interval - 30) + 1)
                span = ahead(s["next"], s["unacked"])
                yield from world.move(n, unacked=(s["unacked"] + rng.randrange(1, span + 1)) % PSN)
                begin = world.now
                assert not world.events()
            yield from wait(interval + LATEST)
            events = world.events()
            if s["unacked"] == s["next"]:
                assert not events, "an idle queue pair was late"
                quiet += 1
            else:
                assert [qp for qp, _ in events] == [n]
                assert interval - 6 <= (events[0][1] - begin) % 2**32 <= interval + LATEST
                yield from wait(rng.choice((10, 2*interval)))
                assert not world.events(), "the same deadline was reported twice"
                fired += 1
            yield from world.arm(n, 10**9)
    world.run(drive())
    assert fired > 15 and quiet > 10

def test_a_new_life_starts_anew_and_a_failed_queue_pair_is_not_late(dut):
    world = World(dut, 9, 50)
    def drive():
        for n in range(world.count):
            yield from world.start(n, 200)
        yield from world.move(1, next=0)
        yield from wait(100)
        yield from world.start(1, 200)
        yield from wait(120)
        assert not world.events()
        yield from wait(80 + LATEST)
        assert [qp for qp, _ in world.events()] == [1]
        # Progress after a report makes the deadline count again without being armed.
        yield from world.move(1, unacked=PSN - 1)
        yield from wait(200 + LATEST)
        assert [qp for qp, _ in world.events()] == [1]
        for life in (QpState.ERROR, QpState.RESET, QpState.RTR):
            yield from put(dut.status, 1, state=life)
            yield from world.arm(1, 60)
            yield from wait(200)
            assert not world.events()
    world.run(drive())

def test_a_message_without_its_transport_ack_is_late(dut):
    world = World(dut, 5, 1000)
    def drive():
        for n in range(world.count):
            yield from world.start(n, 100)
        yield from world.move(3, started=1)    # All of its packets are acknowledged.
        yield from wait(100 + LATEST)
        assert [qp for qp, _ in world.events()] == [3]
        yield from world.move(3, retired=1)
        yield from world.arm(3, 60)
        yield from wait(300)
        assert not world.events()
    world.run(drive())

def test_reports_wait_for_a_full_queue(dut):
    world = World(dut, 3, 0)
    world.sink.stall = 1
    def drive():
        for n in range(world.count):
            yield from world.start(n, 50)
            yield from world.move(n, next=5)
        yield from wait(200)
        for n in range(world.count):           # More reports than the queue holds.
            yield from world.move(n, unacked=PSN - 1)
        yield from wait(200)
        world.sink.stall = 0
        yield from wait(100)
        counts = [sum(b["qp"] == n for b in world.sink.beats) for n in range(world.count)]
        assert counts == [2]*world.count
    world.run(drive())

def test_any_answer_restarts_the_interval(dut):
    world = World(dut, 6, 2**32 - 500)
    def drive():
        for n in range(world.count):
            yield from world.start(n, 200)
        yield from world.move(2, next=9)
        for heard in range(250, 262):          # Also where its count wraps.
            yield from wait(150)
            yield from world.move(2, heard=heard)
        assert not world.events()
        yield from wait(200 + LATEST)
        assert [qp for qp, _ in world.events()] == [2]
    world.run(drive())

def test_who_has_not_asked_is_four_times_as_patient(dut):
    world = World(dut, 7, 0)
    def drive():
        for n in range(world.count):
            yield from world.start(n, 100)
        yield from world.move(1, next=9, asked=0)
        yield from wait(340)
        assert not world.events()
        # Asking begins the interval.
        yield from world.move(1, next=10, asked=1)
        yield from wait(90)
        assert not world.events()
        yield from wait(10 + LATEST)
        assert [qp for qp, _ in world.events()] == [1]
        # Who is armed has been probed: the short interval until something is heard.
        yield from world.move(1, asked=0)
        yield from world.arm(1, 100)
        yield from wait(100 + LATEST)
        assert [qp for qp, _ in world.events()] == [1]
        yield from world.arm(1, 100)
        yield from world.move(1, heard=1)
        yield from wait(380)
        assert not world.events()
        yield from wait(20 + LATEST)
        assert [qp for qp, _ in world.events()] == [1]
    world.run(drive())
