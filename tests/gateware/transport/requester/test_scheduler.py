# SPDX-License-Identifier: BSD-2-Clause
"""Scheduler: no wake is lost, none is invented, and nobody is served twice while another waits."""

import random

import pytest

from gateware.transport.requester.scheduler import Scheduler
from tests.engines import simulate
from tests.gateware.transport.harness import WINDOWS

@pytest.fixture(scope="module", params=[2, 8, 32, 256])
def dut(request):
    dut = Scheduler(WINDOWS[128].but(queue_pairs=request.param), wakers=3)
    dut.count = request.param
    return dut

@pytest.mark.parametrize("seed", range(3))
def test_every_wake_is_served_after_it_came(dut, seed):
    rng, count = random.Random(seed), dut.count
    due, passed = {}, {}                       # Woken and not served yet; who was served meanwhile.
    taken = []
    def cycle(wakes, ready):
        """One clock: what was driven before counts now."""
        if (yield dut.source.valid) and ready:
            qp = yield dut.source.qp
            assert qp in due, f"queue pair {qp} was served without a wake"
            del due[qp]
            taken.append(qp)
            for waiting, others in passed.items():
                if waiting != qp:
                    assert qp not in others, f"queue pair {qp} was served twice while {waiting} waited"
                    others.add(qp)
            passed.pop(qp, None)
        for qp in wakes:                       # A wake in the cycle of the take wins.
            if qp not in due:
                due[qp] = True
                passed[qp] = set()
    def run():
        wakes, ready = [], 0
        for n in range(3000):
            yield from cycle(wakes, ready)
            rate  = (0.02, 0.3, 0.9)[min(n//800, 2)]
            if not n % 500:                    # Now and then only a few of them are awake.
                low  = rng.randrange(count)
                span = rng.choice((1, 3, count))
            wakes = [(low + rng.randrange(span)) % count for _ in range(3) if rng.random() < rate] if n < 2400 else []
            ready = int(rng.random() < (0.3 if n < 2400 else 1))
            for port, wake in enumerate(dut.wakes):
                there = port < len(wakes)
                yield [wake.valid.eq(there), wake.qp.eq(wakes[port] if there else rng.randrange(count))]
            yield dut.source.ready.eq(ready)
            yield
        assert not due, f"wakes of queue pairs {sorted(due)} were lost"
    simulate(dut, [run()])
    assert len(taken) > 300

def test_backlogged_queue_pairs_share_equally(dut):
    taken = []
    backlogged = sorted(random.Random(dut.count).sample(range(dut.count), min(16, dut.count)))
    def run():
        for qp in backlogged:
            yield [dut.wakes[0].valid.eq(1), dut.wakes[0].qp.eq(qp)]
            yield
        yield [dut.wakes[0].valid.eq(0), dut.source.ready.eq(1)]
        yield
        for _ in range(400):
            took = None
            if (yield dut.source.valid):
                took = yield dut.source.qp
                taken.append(took)
            yield [dut.wakes[1].valid.eq(took is not None), dut.wakes[1].qp.eq(took or 0)]
            yield
    simulate(dut, [run()])
    counts = [taken.count(qp) for qp in backlogged]
    assert sum(counts) == len(taken) and max(counts) - min(counts) <= 1 and len(taken) >= 190
