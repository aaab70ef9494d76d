# SPDX-License-Identifier: BSD-2-Clause
"""States of the acknowledger: messages retire, refusals become events.

RETIRE-READ gives credit for the messages whose last PSN is acknowledged and whose completion the peer
confirms. NACK-READ and EVENT raise the event of a NACK or NAK; a trimmed PSN counts as reported.
"""

from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import sized
from gateware.common.headers import Opcode

class MessageStates:
    """Adds the states to the machine of acknowledger `a`."""
    def __init__(self, a, w):
        retired = a.counters.add("messages_completed", "Messages acknowledged.")

        packet  = a.packet
        claimed = sized(a, packet.msn - w.tail, 16, "messages_claimed")
        behind  = sized(a, w.record.row.last_psn - w.unacked, 24, "last_psn_from_unacked")
        signals = sized(a, w.rqmsn + w.record.row.signal, 16, "rqmsn_after")
        known   = sized(a, ((w.board.row.acked | w.board.row.reported) & w.one_bit) != 0, 1, "known")

        fsm = a.fsm
        # Messages whose last PSN is acknowledged and whose completion the peer confirms.
        fsm.act("RETIRE-READ", If((claimed == 0) | (claimed > w.flying), NextState("WRITE-BACK")).Else(NextState("RETIRE")))
        fsm.act("RETIRE",
            If(~behind[23],
                NextState("WRITE-BACK")
            ).Else(
                a.credit.valid.eq(1),
                If(a.credit.ready,
                    retired.eq(1),
                    NextValue(w.tail, w.next_tail),
                    NextValue(w.rqmsn, signals),
                    NextState("RETIRE-READ")
                )
            )
        )
        # Refusals.
        event = a.events.sink
        fsm.act("NACK-READ", NextState("NACK"))
        fsm.act("NACK",
            *w.keep_row,
            w.scoreboard.row.reported.eq(w.board.row.reported | w.one_bit),
            w.scoreboard.we.eq(packet.trimmed & ~known & event.ready),
            If(packet.trimmed & known, NextState("IDLE")).Else(NextState("EVENT"))
        )
        fsm.act("EVENT",
            event.valid.eq(1),
            event.kind.eq(Mux(packet.opcode == Opcode.NACK, EventKind.NACK, EventKind.NAK)),
            event.base.eq(packet.cack),
            event.mask_low.eq(1),
            w.lost.eq(~event.ready),
            NextState("IDLE")
        )
