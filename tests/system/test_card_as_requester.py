# SPDX-License-Identifier: BSD-2-Clause
"""Random sessions with the card as requester: what a Python responder receives is what was sent, every PSN has its headers
on every transmission, windows hold, messages retire by a Transport ACK only, and the counters are those of the adversary.
"""

import random

import pytest

from tests.system.sending import ROUGH, SendingHall

pytestmark = [pytest.mark.xdist_group(name="card-peers"), pytest.mark.timeout(600)]

def session(seed, **options):
    hall = SendingHall(seed, **options)
    try:
        hall.finish()
    finally:
        hall.s.close()
    return hall

@pytest.mark.parametrize("seed", range(6))
def test_a_responder_receives_what_was_sent(seed):
    hall = session(seed)
    assert sum(q.witness.counts["resent"] for q in hall.lanes) > 0

@pytest.mark.parametrize("seed", range(100, 103))
def test_it_does_where_psns_wrap(seed):
    session(seed, starts=(0xffffff, 0xfffff8, 0xffffe0))

def test_nothing_is_sent_twice_while_nothing_is_lost():
    hall = session(200, odds={}, late=0, messages=40)
    assert all(q.witness.counts["resent"] == q.witness.counts["probes"] == 0 for q in hall.lanes)
    assert all(len(q.witness.paths) == len(q.witness.end.paths) for q in hall.lanes), "some entropy values carried nothing"

def test_everything_late_and_doubled():
    session(201, odds=dict(double=0.3, lose=0.1), late=4000)

def test_a_quarter_is_trimmed():
    hall = session(202, odds=dict(trim=0.25))
    assert sum(q.far.counters["receive_trimmed"] for q in hall.lanes) > 5

def test_long_messages_fill_the_window():
    """More packets than the window in each message; some are lost."""
    hall = session(203, messages=3, mtus=(256,), shortest=150*256, longest=200*256, odds=dict(lose=0.03, double=0.02), late=1000)
    assert max(n - q.witness.end.send_psn for q in hall.lanes for n in q.witness.times) > 128

@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_sessions(seed):
    r = random.Random(seed)
    session(seed, messages=r.choice([4, 16, 80]), starts=(None, 0xffffff, 0xffffc0), late=r.choice([0, 300, 4000]),
        odds={name: r.choice([0, odds, 3*odds]) for name, odds in ROUGH.items()})
