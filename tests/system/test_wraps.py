# SPDX-License-Identifier: BSD-2-Clause
"""Everything that counts in a small card comes round: PSN, MSN, RQMSN, rings, the message pool, timestamps, error counts."""

import numpy as np
import pytest

from gateware.common import tables as T
from gateware.common.headers import Opcode
from tests.system.bench import LIMIT, Link, moved
from tests.system.loop import looped

pytestmark = [pytest.mark.xdist_group(name="card-peers"), pytest.mark.timeout(900)]

MESSAGES = 66_500
PLAIN    = 500          # So many without an immediate: RQMSN comes round later than MSN.
TURN     = 65536*20     # Cycles in which a timestamp of 16 bits comes round.

def test_msn_and_rqmsn_come_round():
    """At full rate, some packets lost; ring and message pool of 8 come round thousands of times."""
    with looped(seed=1, delay=0, loss=0.0005, paths=4) as (c, a, b):
        link  = Link(c, a, b, size=64, slots=64, mtu=256, psns=(0xff0000, 0xff0000))
        datas = [a.random.randbytes(64) for _ in range(64)]
        for slot, data in enumerate(datas):
            a.fill(link.source + slot*link.stride, data)
        lengths = [a.random.choice([0, 0, 1, 7, 8, 64]) for _ in range(MESSAGES)]
        before, begin = a.counters(), c.cycle
        a.post_many(link.context, [T.TOKEN.pack(op=1 if i < PLAIN else 2, slot=i & 63, length=n) for i, n in enumerate(lengths)])
        c.run_until(lambda: link.credit["completed"] == MESSAGES, limit=20_000_000, wall=600, quantum=5000)
        change = moved(before, a.counters())
        assert link.credit["consumed"] == MESSAGES and link.credit["error"] == 0
        assert link.state()["unacked"] == link.state()["next"] == (0xff0000 + MESSAGES) & 0xffffff
        assert change["messages_started"] == change["messages_completed"] == change["receive_messages"] == change["data_new"] == MESSAGES
        assert change["receive_accepted"] == MESSAGES and change["data_resent"] > 0
        assert link.signal.value == MESSAGES - PLAIN
        events = c.sim.flag_event_array()
        values = events["value"][events["watch"] == link.signal.watch].astype(np.int64)
        steps  = np.diff(values, prepend=0)     # Messages of each flag: those that complete at once share one.
        assert change["flags"] == len(values) and values[-1] == MESSAGES - PLAIN and steps.min() == 1, "flags in order"
        # Behind a lost packet wait as many messages as may be in flight; a short one that overtakes on the other plane waits alone.
        assert steps.max() == c.config.messages and np.count_nonzero(steps > 2) <= change["data_resent"]
        for slot, data in enumerate(datas):
            link.sent.append((slot, data[:max(lengths[slot::64])]))
        link.check()
        assert (c.cycle - begin)/MESSAGES < 120, "cycles per message"

@pytest.mark.parametrize("idle", [TURN - 400, *(pytest.param(n, marks=pytest.mark.slow) for n in (TURN, TURN - 5000, 2*TURN - 300))])
def test_a_queue_pair_resumes_after_its_timestamps_have_come_round(idle):
    """Idle for a turn of the 16-bit clock, 8.4 ms, or nearly, or two: a loss after it is repaired as soon as before, and nothing
    is resent that was not lost."""
    with looped(seed=2) as (c, a, b):
        link = Link(c, a, b, size=4000, slots=8, mtu=256)
        def transfer(slot):
            start, before = c.cycle, a.counters()
            c.fabric.drop(opcode=Opcode.WRITE_MIDDLE, skip=3)
            link.post(slot=slot)
            link.finish()
            change = moved(before, a.counters())
            assert change["data_resent"] == 1 and change["data_new"] == 16, change
            return c.cycle - start
        usual = max(transfer(0), transfer(1))
        c.step(idle, stop=1)
        assert transfer(2) < 2*usual and transfer(3) < 2*usual
        assert link.state()["state"] == T.QpState.RTS

def test_the_error_count_stays_at_its_end():
    with looped(seed=3) as (c, a, b):
        link = Link(c, a, b, size=100, slots=2, mtu=256)
        a.post_many(link.context, [T.TOKEN.pack(op=1, slot=2, length=1)]*300)
        c.run_until(lambda: link.credit["completed"] == 300, **LIMIT)
        credit = link.credit
        assert credit["error_count"] == 255 and credit["consumed"] == 300 and credit["error"] != 0
        assert link.untouched() and a.counters()["token_slot"] == 300
        link.post(slot=1)
        c.run(**LIMIT)
        c.run_until(lambda: link.credit["completed"] == 301, **LIMIT)
        link.check()
