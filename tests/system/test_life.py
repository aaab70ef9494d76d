# SPDX-License-Identifier: BSD-2-Clause
"""Lives of queue pairs, regions and contexts on whole cards: they end under traffic, every token gets its
credit, the next one works at once, and what is late of the former one changes nothing."""

import pytest

from firmware.contract import QpError
from gateware.common import tables as T
from soc.sim.driver import Refused
from tests.system.bench import LIMIT, Link, cluster, group, moved

pytestmark = [group(2), pytest.mark.timeout(400)]

def works(*links, count=2):
    """Transfers on the links arrive; their flags and credits go on from where they are."""
    for link in links:
        before, flag = link.credit["completed"], link.signal.value
        for i in range(count):
            data = link.a.random.randbytes(link.size)
            link.a.fill(link.source + (i % link.slots)*link.stride, data)
            link.a.post(link.context, slot=i % link.slots)
        link.cluster.run_until(lambda link=link, before=before: link.credit["completed"] == before + count, **LIMIT)
        assert link.signal.value == flag + count
        at = link.destination + ((count - 1) % link.slots)*link.stride
        assert link.b.bytes_at(at, link.size) == data

def posted(link):
    return link.a.sim.posted(link.a.index, link.page.handle)

# Queue pairs --------------------------------------------------------------------------------------

def test_fifty_lives_in_a_row_end_under_traffic():
    with cluster(seed=1, loss=0.02, paths=2, jitter=1000) as c:
        a, b  = c.nodes
        link, other = Link(c, a, b, size=6000, slots=4), Link(c, b, a, size=3000, slots=2)
        before = a.counters(), b.counters()
        psns   = set()
        for _ in range(50):
            for _ in range(a.random.randrange(1, 12)):
                a.post(link.context, slot=a.random.randrange(4), length=a.random.choice([0, 1, 1500, 6000]))
            c.step(a.random.choice([a.random.randrange(300), a.random.randrange(4000)]))
            c.disconnect(link.qp)
            c.run_until(lambda: a.sim.count(3) == 0, **LIMIT)
            c.run_until(lambda: link.credit["completed"] == posted(link), **LIMIT)
            credit = link.credit
            assert credit["consumed"] == credit["completed"] == posted(link)
            assert {link.state(n)["state"] for n in c.nodes} == {T.QpState.RESET}
            c.reconnect(link.qp)
            state = link.state()
            assert state["state"] == T.QpState.RTS and state["unacked"] == state["next"] == link.qp.rows[a.index]["send_psn"]
            psns.add(state["next"])
            works(link, count=1)
        works(other)
        change = [moved(old, n.counters()) for old, n in zip(before, c.nodes, strict=True)]
        assert len(psns) == 50
        assert all(m["lives_begun"] == m["lives_ended"] == 50 for m in change)
        assert sum(m.get("receive_unknown_qp", 0) + m.get("ack_unknown_qp", 0) for m in change) > 20, "nothing came late"
        assert change[0]["messages_failed"] + change[0].get("tokens_flushed", 0) > 50
        assert c.sim.count(0) == 0 and c.queue_pair_errors() == []

def test_an_end_of_one_queue_pair_leaves_the_others_alone_and_its_page_hears_of_it():
    with cluster(seed=2) as c:
        a, b  = c.nodes
        link, good = Link(c, a, b, size=20_000, slots=2), Link(c, a, b, size=20_000, slots=2)
        page  = b.page()
        c.disconnect(link.qp)
        link.qp.rows[b.index]["page"] = page.number
        c.reconnect(link.qp)
        for slot in range(2):
            good.post(slot=slot)
            a.post(link.context, slot=slot)
        c.step(2000)
        b.modify(link.qp.index[b.index], T.QpState.ERROR)      # It has no message of its own.
        c.run_until(lambda: b.credit(page)["error"], **LIMIT)
        credit = b.credit(page)
        assert (credit["error"], credit["error_qp"], credit["completed"]) == (QpError.FLUSHED, link.qp.index[b.index], 0)
        assert link.state(b) == link.state(b) | {"state": T.QpState.ERROR, "error": QpError.FLUSHED}
        good.finish()
        # Its peer hears of it by the NACK of a packet that comes now, and ends without using up its retries.
        c.run_until(lambda: link.credit["completed"] == 2, limit=200_000, wall=200)
        assert link.state() == link.state() | {"state": T.QpState.ERROR, "error": QpError.REMOTE_OPERATION}
        assert b.counters()["receive_ended"] > 0 and link.credit["error"] == QpError.REMOTE_OPERATION
        c.disconnect(link.qp)
        c.reconnect(link.qp)
        works(link, good)

def test_the_next_life_has_the_whole_retry_budget():
    with cluster(seed=3) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=500)
        def silence(cycles=None):
            """Posts into the void; cycles until the queue pair gives up."""
            c.fabric.set_loss(1.0)
            a.post(link.context)
            begin = c.cycle
            if cycles is not None:
                c.step(cycles)
                return 0
            c.run_until(lambda: link.state()["state"] == T.QpState.ERROR, limit=800_000, wall=200)
            return c.cycle - begin
        whole = silence()
        for used in (whole//2, 3*whole//4):
            c.disconnect(link.qp)
            c.reconnect(link.qp)
            silence(used)
            assert link.state()["state"] == T.QpState.RTS
        c.disconnect(link.qp)
        c.reconnect(link.qp)
        assert abs(silence() - whole) < whole//20
        c.fabric.set_loss(0)
        c.disconnect(link.qp)
        c.reconnect(link.qp)
        works(link)

def test_a_queue_pair_comes_up_in_steps_and_impossible_ones_are_refused_with_a_sentence():
    with cluster(seed=4) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000)
        index, row = link.qp.index[b.index], link.qp.rows[b.index]
        c.disconnect(link.qp)
        c.reconnect(link.qp)
        for state in (T.QpState.INIT, T.QpState.RTR, T.QpState.RTS):
            with pytest.raises(Refused, match="the queue pair's state cannot change like that") as refused:
                b.modify(index, **(row | {"state": state}))
            assert refused.value.code == T.Refusal.TRANSITION
        works(link)                                            # The refused rows changed nothing.
        b.modify(index, T.QpState.RESET)
        a.modify(link.qp.index[a.index], T.QpState.RESET)
        c.reconnect(link.qp)
        b.modify(index, T.QpState.RESET)
        b.modify(index, **(row | {"state": T.QpState.INIT, "receive_psn": 0, "remote_qp": 0}))
        a.post(link.context)
        c.step(3000)
        assert link.credit["completed"] < posted(link)         # INIT receives nothing.
        b.modify(index, **(row | {"state": T.QpState.RTR}))
        c.run_until(lambda: link.credit["completed"] == posted(link), **LIMIT)
        b.modify(index, **(row | {"state": T.QpState.RTS}))
        works(link)

# Contexts and regions -----------------------------------------------------------------------------

def test_what_messages_use_is_not_taken_away_and_indices_are_used_again():
    with cluster(seed=5, loss=1.0) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000)
        a.post(link.context)
        c.step(3000)
        for take in (lambda: a.release_context(link.context), lambda: a.deregister_region(link.lkey),
                     lambda: a.write_row(T.PAGE, link.page.number)):
            with pytest.raises(Refused, match="messages in flight use it"):
                take()
        c.fabric.set_loss(0)
        c.run_until(lambda: link.credit["completed"] == 1, **LIMIT)
        a.release_context(link.context)
        a.deregister_region(link.lkey)
        key = a.register_region(link.source, link.stride, T.Rights.LOCAL_READ)
        assert key >> 8 == link.lkey >> 8 and key != link.lkey
        stale = link.add_context()                             # The key with the old variant.
        assert stale.index == link.context.index and stale.generation != link.context.generation
        a.post(stale)
        c.run_until(lambda: link.credit["error"] == QpError.TOKEN_REGION, **LIMIT)
        a.release_context(stale)
        link.context = link.add_context(lkey=key)
        works(link)

def test_nothing_is_written_to_a_region_after_it_was_taken_away():
    with cluster(seed=6) as c:
        a, b = c.nodes
        for _ in range(8):
            link = Link(c, a, b, size=30_000, slots=2)
            good = Link(c, a, b, size=3000)
            for slot in (0, 1):
                a.fill(link.source + slot*link.stride, a.random.randbytes(30_000))
                a.post(link.context, slot=slot)
            c.step(3000 + a.random.randrange(4000))
            b.deregister_region(link.rkey)
            found = b.bytes_at(*link.room)
            assert found != b"\xa5"*len(found), "nothing had been written, the test says nothing"
            key = b.register_region(link.destination, 2*link.stride, T.Rights.REMOTE_WRITE)      # The same index again.
            assert key >> 8 == link.rkey >> 8
            c.run_until(lambda link=link: link.credit["error"], **LIMIT)
            c.step(20_000)
            assert link.credit["error"] == QpError.REMOTE_ACCESS
            assert b.bytes_at(*link.room) == found
            works(good)
            for each in (link, good):
                c.release(each.qp)
                a.release_context(each.context)
                a.deregister_region(each.lkey)
            b.deregister_region(key)
            b.deregister_region(good.rkey)
        assert c.sim.count(0) == 0
