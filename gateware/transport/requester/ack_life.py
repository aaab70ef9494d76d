# SPDX-License-Identifier: BSD-2-Clause
"""States of the acknowledger: a queue pair starts, ends with an error, gives back its messages.

A failed queue pair waits for its flush until the segmenter has left it, so that no message starts
behind the flush. One flush waits at a time; the next error waits for it.
"""

from migen import *

from gateware.common.tables import QpState
from gateware.transport.queue_pair import chunks

class LifeStates:
    """Adds INIT-READ, ERROR-READ and FLUSH-READ with what follows them to the machine of acknowledger `a`.

    flush: a failed queue pair, `flush_qp`, waits for its flush.   flush_now: and the segmenter is elsewhere.
    """
    def __init__(self, a, w, config):
        self.flush     = flush    = Signal()
        self.flush_now = Signal()
        self.flush_qp  = flush_qp = Signal(config.qp_bits)
        self.reason    = reason   = Signal(8)

        # # #

        failed = a.counters.add("messages_failed", "Messages ended with their queue pair.")

        a.comb += self.flush_now.eq(flush & ~(a.segmenter_busy & (a.segmenter_qp == flush_qp)))

        fsm = a.fsm
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            w.scoreboard.we.eq(1),
            NextValue(a.window.piece, a.window.following),
            If(a.window.piece == chunks(config) - 1,
                w.ack_state.row.unacked.eq(w.attributes.row.send_psn),
                w.ack_state.row.msn.eq(0),
                w.ack_state.row.rtt.eq(0),
                w.ack_state.we.eq(1),
                w.status.row.state.eq(w.attributes.row.state),
                w.status.we.eq(1),
                a.guards.row.time.eq(w.attributes.row.guard_time),
                a.guards.row.packets.eq(w.attributes.row.guard_packets),
                a.guards.we.eq(1),
                a.init.ready.eq(1),
                If(flush_qp == w.qp, NextValue(flush, 0)), # It was the former life's.
                NextState("IDLE")
            )
        )
        fsm.act("ERROR-READ", NextState("ERROR"))
        fsm.act("ERROR",
            NextState("IDLE"),
            If((w.life.row.state == QpState.RTS) | (w.life.row.state == QpState.RTR),
                w.status.row.state.eq(QpState.ERROR),
                w.status.row.reason.eq(reason),
                w.status.we.eq(1),
                NextValue(flush, 1)
            )
        )
        fsm.act("FLUSH-READ", NextState("FLUSH-START"))
        fsm.act("FLUSH-START",
            NextValue(flush, 0),
            NextValue(w.unacked, w.send.row.next_psn),
            NextValue(w.rtt,  w.acks.row.rtt),
            NextValue(w.tail, w.acks.row.msn),
            NextValue(w.head, w.send.row.msn),
            NextState("FLUSH-MESSAGE")
        )
        fsm.act("FLUSH-MESSAGE", If(w.flying == 0, NextState("WRITE-BACK")).Else(NextState("FLUSH-CREDIT")))
        fsm.act("FLUSH-CREDIT",
            a.credit.valid.eq(1),
            a.credit.error.eq(reason),
            If(a.credit.ready,
                failed.eq(1),
                NextValue(w.tail, w.next_tail),
                NextState("FLUSH-MESSAGE")
            )
        )
