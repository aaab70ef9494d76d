# SPDX-License-Identifier: BSD-2-Clause
"""What a responder refuses is told on both sides: NAK or NACK to the peer, an error word to this side's pollers."""

import pytest

from gateware.common import tables as T
from tests.system.bench import LIMIT, Link, cluster, group

pytestmark = [group(2), pytest.mark.timeout(300)]

def rewrite(link, state):
    """The receiver's queue pair in another state, all else as `connect` has made it."""
    a, b = link.a, link.b
    b.write_row(T.QUEUE_PAIR, link.qp.index[b.index], state=state, generation=link.qpn(b) >> 16, remote_qp=link.qpn(a), peer=a.index, mtu=2,
        p_key=0xffff, send_psn=7, receive_psn=5, sack_trigger=4096, timeout=2000, guard_time=100, guard_packets=3, page=255)

def test_a_refused_packet_shows_in_the_credit_lines_of_both_cards():
    with cluster(seed=31) as c:
        a, b = c.nodes
        page = b.page(contexts=1)
        link = Link(c, a, b, size=1000, rights=T.Rights.LOCAL_READ, pages=(None, page))
        a.post(link.context, length=1000)
        c.run_until(lambda: link.credit["completed"] == 1, **LIMIT)
        assert link.credit["error"] == 3 and link.untouched()
        c.run_until(lambda: b.credit(page)["error"], **LIMIT)
        told = b.credit(page)
        assert told["error"] == 23 and told["error_qp"] == link.qp.index[b.index] and told["consumed"] == told["completed"] == 0
        assert link.state(b)["state"] == T.QpState.RTS

def test_a_queue_pair_that_is_not_ready_is_asked_again_until_it_is():
    """INIT answers NO_RESOURCE; nothing is placed before RTR, everything after it."""
    with cluster(seed=32) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000, psns=(5, 7))
        for state in (T.QpState.RESET, T.QpState.INIT):
            rewrite(link, state)
        link.post()
        c.run_until(lambda: b.counters()["receive_not_ready"] > 0 and b.counters()["sent_nack"] > 0, quantum=5000, **LIMIT)
        assert link.untouched() and link.state()["state"] == T.QpState.RTS
        rewrite(link, T.QpState.RTR)
        link.finish()

def test_a_queue_pair_in_error_ends_its_peers_at_once():
    """ERROR answers UNEXP_EVENT: remote operation error, long before any retry budget is used up."""
    with cluster(seed=33) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000, psns=(5, 7))
        rewrite(link, T.QpState.ERROR)
        start = c.cycle
        link.a.post(link.context, length=3000)
        c.run_until(lambda: link.credit["error"], **LIMIT)
        assert link.credit["error"] == 4 and link.untouched() and b.counters()["receive_ended"] > 0
        assert c.cycle - start < 20_000
