# SPDX-License-Identifier: BSD-2-Clause
"""Barriers end when, and only when, what was ahead of them has passed."""

import random

import pytest
from litex.gen import LiteXModule

from gateware.transport.barriers import Drain, Fence
from tests.engines import ENGINES, simulate

class Bench(LiteXModule):
    def __init__(self):
        self.drain = Drain()
        self.fence = Fence(2)

DUTS = {engine: Bench() for engine in ENGINES}

@pytest.mark.parametrize("engine", ENGINES)
def test_a_drain_ends_with_the_last_packet_ahead_of_it(engine):
    rng, d = random.Random(5), DUTS[engine].drain
    inside, sending, marks = [], False, 0          # Packets by number; the first one is with the sender while `sending`.
    def main():
        nonlocal sending, marks
        number, mark, started = 0, None, False
        for _ in range(3000):
            enter = rng.random() < 0.3 and len(inside) < 20
            if sending:
                if rng.random() < 0.4:
                    inside.pop(0)
                    sending = False
            elif inside and rng.random() < 0.5:
                sending = True
            yield [d.entered.eq(enter), d.sender_busy.eq(sending)]
            if started:
                yield d.start.eq(0)
                started = False
            elif mark is None and rng.random() < 0.1:
                yield d.start.eq(1)
                started, mark = True, number + enter
            yield
            if enter:
                inside.append(number)
                number += 1
            if mark is not None and not started:
                ahead = sum(n < mark for n in inside)
                done  = yield d.done
                # The pulse of a leaving packet is seen a cycle later.
                assert not (done and ahead), "it ended too early"
                if done:
                    mark, marks = None, marks + 1
        inside.clear()
    simulate(DUTS[engine], main(), engine)
    assert marks > 20

@pytest.mark.parametrize("engine", ENGINES)
def test_a_fence_ends_when_its_own_job_has_come_out(engine):
    rng, f = random.Random(6), DUTS[engine].fence
    log = []
    def client(n):
        for _ in range(20):
            yield from pause(30)
            yield f.clients[n].valid.eq(1)
            yield
            while not (yield f.clients[n].ready):
                yield
            yield f.clients[n].valid.eq(0)
            log.append(("passed", n))
            yield
    def pause(most):
        for _ in range(rng.randrange(most)):
            yield
    def queue():
        yield "passive"
        while True:
            if (yield f.request.valid):
                yield from pause(5)
                yield f.request.ready.eq(1)
                log.append("queued")
                yield
                yield f.request.ready.eq(0)
                yield from pause(20)
                log.append("out")
                yield f.passed.eq(1)
                yield
                yield f.passed.eq(0)
            yield
    simulate(DUTS[engine], [client(0), client(1), queue()], engine)
    names = [entry if isinstance(entry, str) else entry[0] for entry in log]
    assert names == ["queued", "out", "passed"]*40
