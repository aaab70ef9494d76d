# SPDX-License-Identifier: BSD-2-Clause
"""States of the acknowledger: a queue pair starts, or gives back its messages because it has failed.

The life cycle (gateware/transport/life.py) asks for both; when it asks for the messages, no new one can
start, and no packet of theirs is on its way any more.
"""

from migen import *

from gateware.transport.queue_pair import chunks

class LifeStates:
    """Adds INIT-READ and FLUSH-READ with what follows them to the machine of acknowledger `a`."""
    def __init__(self, a, w, config):
        failed = a.counters.add("messages_failed", "Messages ended with their queue pair.")

        flushing = Signal()
        fsm = a.fsm
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            w.scoreboard.we.eq(1),
            NextValue(a.window.piece, a.window.following),
            If(a.window.piece == chunks(config) - 1,
                w.ack_state.row.unacked.eq(w.attributes.row.send_psn),
                w.ack_state.row.msn.eq(0),
                w.ack_state.row.rtt.eq(0),
                w.ack_state.row.rqmsn.eq(0),
                w.ack_state.row.received.eq(0),
                w.ack_state.row.heard.eq(0),
                w.ack_state.we.eq(1),
                a.guards.row.time.eq(w.attributes.row.guard_time),
                a.guards.row.packets.eq(w.attributes.row.guard_packets),
                a.guards.we.eq(1),
                a.init.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("FLUSH-READ", NextState("FLUSH-START"))
        fsm.act("FLUSH-START",
            NextValue(flushing, 1),
            NextValue(w.unacked, w.send.row.next_psn),
            NextValue(w.rtt,  w.acks.row.rtt),
            NextValue(w.rqmsn, w.send.row.rqmsn),
            NextValue(w.received, w.acks.row.received),
            NextValue(w.tail, w.acks.row.msn),
            NextValue(w.head, w.send.row.msn),
            NextState("FLUSH-MESSAGE")
        )
        fsm.act("FLUSH-MESSAGE", If(w.flying == 0, NextState("WRITE-BACK")).Else(NextState("FLUSH-CREDIT")))
        fsm.act("FLUSH-CREDIT",
            a.credit.valid.eq(1),
            a.credit.error.eq(a.flush.reason),
            If(a.credit.ready,
                failed.eq(1),
                NextValue(w.tail, w.next_tail),
                NextState("FLUSH-MESSAGE")
            )
        )
        fsm.act("WRITE-BACK",
            w.ack_state.we.eq(1),
            a.wake.valid.eq(1),
            a.flush.ready.eq(flushing),
            NextValue(flushing, 0),
            NextState("IDLE")
        )
