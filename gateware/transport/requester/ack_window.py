# SPDX-License-Identifier: BSD-2-Clause
"""States of the acknowledger: the window moves, and a SACK's bitmap goes into the scoreboard.

ADVANCE-READ takes the window to `window.high`, clearing the bits that it passes, a piece of 64 PSNs in
two cycles. BITMAP-READ ORs the bitmap into the scoreboard, looks for ripe holes and reports them in one
event. RESENT-READ makes a PSN that was sent again reportable again.
"""

from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import sized
from gateware.common.headers import Opcode
from gateware.transport.queue_pair import chunk_row

class WindowStates:
    """Adds the states to the machine of acknowledger `a`."""
    def __init__(self, a, w, config):
        window, finder, packet, board, scoreboard = a.window, a.finder, a.packet, w.board, w.scoreboard

        # # #

        sacks   = a.counters.add("sacks",        "SACKs processed.")
        acks    = a.counters.add("acks",         "Transport ACKs processed.")
        reports = a.counters.add("hole_reports", "HOLES events raised.")

        # A piece of the window, and the holes that a SACK shows in it.
        arrived = sized(a, finder.arrived & window.inside, 64, "arrived")
        acked   = sized(a, board.row.acked | arrived, 64, "acked")
        a.comb += [
            window.low.eq(w.unacked),
            finder.base.eq(packet.base), finder.bitmap.eq(packet.bitmap),
            *[t.index.eq(chunk_row(config, window.origin, w.qp)) for t in (board, scoreboard)],
            finder.missing.eq(~(acked | board.row.reported) & window.inside),
            finder.guard_time.eq(w.guard.row.time),
            finder.guard_packets.eq(w.guard.row.packets),
            finder.time.eq(a.time[:16]),
            finder.sent_time.eq(a.sent_time),
            a.sent_index.eq(Cat(Mux(finder.start, finder.sent_psn[:config.psn_bits], packet.trigger[:config.psn_bits]), w.qp)),
        ]
        # A round-trip time counts only if it is known which transmission is answered: the first, or the only other one.
        clear = sized(a, ~w.sample[15] & (packet.probe | (a.sent_resent == packet.rtx)), 1, "sample_is_clear")
        a.comb += a.note.sampled.eq(clear & (packet.opcode == Opcode.SACK))

        fsm = a.fsm
        # A resend has left: its hole may be reported again.
        fsm.act("RESENT-READ", NextState("RESENT"))
        fsm.act("RESENT",
            *w.keep_row,
            scoreboard.row.reported.eq(board.row.reported & ~w.one_bit),
            scoreboard.we.eq(1),
            NextState("IDLE")
        )
        # The window moves over the PSNs up to cack: their bits are cleared, piece by piece.
        fsm.act("ADVANCE-READ", If(w.unacked == window.high, NextState("ADVANCED")).Else(NextState("ADVANCE")))
        fsm.act("ADVANCE",
            scoreboard.row.acked.eq(board.row.acked & window.outside),
            scoreboard.row.reported.eq(board.row.reported & window.outside),
            scoreboard.we.eq(1),
            NextValue(window.piece, window.following),
            If(window.ends,
                NextValue(w.unacked, window.high)
            ).Else(
                NextValue(w.unacked, Cat(C(0, 6), window.following))
            ),
            NextState("ADVANCE-READ")
        )
        fsm.act("ADVANCED",
            NextValue(window.high, w.next_psn),
            NextValue(window.piece, packet.base[6:]),
            If(packet.opcode == Opcode.SACK,
                sacks.eq(1),
                a.proved.valid.eq(1),
                a.heard.valid.eq(1),
                a.note.valid.eq(1),
                If(clear, NextValue(w.rtt, w.sample)),
                If(~w.news[23], NextValue(w.received, packet.received)), # Else an older SACK that was overtaken.
                NextState("BITMAP-READ")
            ).Else(
                acks.eq(1),
                NextState("RETIRE-READ")
            )
        )
        # The bitmap: two pieces.
        fsm.act("BITMAP-READ", NextState("BITMAP"))
        fsm.act("BITMAP",
            *w.keep_row,
            scoreboard.row.acked.eq(acked),
            scoreboard.we.eq(arrived != 0),
            finder.take.eq(1),
            NextValue(finder.second, 1),
            NextValue(window.piece, window.following),
            If(finder.second, NextState("HOLE")).Else(NextState("BITMAP-READ"))
        )
        # Holes: ripe ones are reported together.
        fsm.act("HOLE",
            finder.start.eq(1),
            NextValue(finder.second, 0),
            NextValue(window.piece, packet.base[6:]),
            If(finder.done,
                If(finder.ripe != 0, NextState("REPORT")).Else(NextState("WRITE-BACK"))
            )
        )
        event = a.events.sink
        fsm.act("REPORT",
            event.valid.eq(1),
            event.kind.eq(EventKind.HOLES),
            event.base.eq(packet.base),
            event.mask_low.eq(finder.ripe[:32]),
            event.mask_high.eq(finder.ripe[32:]),
            If(event.ready,
                reports.eq(1),
                NextState("REPORTED-READ")
            ).Else(
                w.lost.eq(1),
                NextState("WRITE-BACK")
            )
        )
        fsm.act("REPORTED-READ", NextState("REPORTED"))
        fsm.act("REPORTED",
            *w.keep_row,
            scoreboard.row.reported.eq(board.row.reported | finder.reported),
            scoreboard.we.eq(1),
            NextValue(finder.second, 1),
            NextValue(window.piece, window.following),
            If(finder.second, NextState("WRITE-BACK")).Else(NextState("REPORTED-READ"))
        )
