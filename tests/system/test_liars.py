# SPDX-License-Identifier: BSD-2-Clause
"""A sending card that hears random control packets: it never sends what it has not to, never completes early, never hangs."""

import random

import pytest

from gateware.common import tables as T
from tests.models.liar import Liar
from tests.system.bench import moved
from tests.system.sending import SendingHall

pytestmark = [pytest.mark.xdist_group(name="card-peers"), pytest.mark.timeout(600)]

GENTLE = dict(lose=0.03, double=0.02)

class Stage(SendingHall):
    """A session in which liars speak to some of the queue pairs, about every `every` cycles."""
    def __init__(self, seed, every, lying=(), **options):
        super().__init__(seed, odds=GENTLE, late=500, **options)
        self.random = random.Random(f"{seed} liar")
        self.liars  = [Liar(self.random, q.far, q.witness) for q in self.lanes]
        self.lying, self.every, self.next, self.strangers, self.told = lying, every, 0, 0, 0
        for n in lying:
            self.lanes[n].witness.ahead = self.lanes[n].witness.end.send_window
        self.lies   = self.speak

    def speak(self, now):
        if now < self.next or self.done:
            return
        self.next = now + self.random.randrange(2*self.every)
        n = self.random.randrange(len(self.lanes))
        plane, frame = self.liars[n].lie() if n in self.lying else self.liars[n].harmless()
        self.s.send(plane, frame)
        self.told += 1

    def reached(self, p, plane, now):
        """Packets of other lives and partitions are nobody's."""
        q = self.by_own.get(p["dest_qp"])
        if q is None or p["p_key"] != q.witness.end.p_key:
            self.strangers += 1
            self.good[p["opcode"]] += 1
        else:
            super().reached(p, plane, now)

def play(seed, every=300, **options):
    stage = Stage(seed, every, **options)
    try:
        stage.finish()
        assert moved(stage.before, stage.s.card.counters()).get("ack_unknown_qp", 0) == stage.strangers
    finally:
        stage.s.close()
    return stage

def betray(seed, every=300):
    """Lies to queue pair 0, nothing but truth to queue pair 1."""
    stage = Stage(seed, every, lying=(0,), messages=30)
    try:
        stage.s.run(lambda: stage.done, 2_000_000)
        stage.s.settle()
        stage.right(stage.lanes[1])
        victim = stage.lanes[0]
        credit, state = stage.s.card.credit(victim.page), stage.s.card.queue_pair_state(victim.index)
        assert credit["completed"] == credit["consumed"] == victim.count
        assert (state["state"] == T.QpState.ERROR) == (credit["error"] != 0) and credit["error"] == state["error"]
    finally:
        stage.s.close()
    return credit["error"]

@pytest.mark.parametrize("seed", range(6))
def test_packets_that_claim_nothing_false_change_nothing(seed):
    stage = play(seed, every=(100, 300, 700)[seed % 3], messages=60)
    assert stage.told > 12

def test_they_change_nothing_where_psns_wrap():
    play(20, starts=(0xffffff, 0xffffe0), messages=30)

def test_lies_end_a_queue_pair_or_pass_and_never_touch_another():
    errors = [betray(seed) for seed in (30, 33)]
    assert any(errors)

@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_many(seed):
    play(seed, every=random.Random(seed).choice([50, 200, 1000]), messages=40, starts=(None, 0xffffff, 0xffffc0))
    betray(seed, every=random.Random(seed).choice([50, 200, 1000]))
