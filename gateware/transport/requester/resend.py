# SPDX-License-Identifier: BSD-2-Clause
"""Pending resends: one bit per PSN of the window, set by firmware, taken oldest first.

A bit is set only for a PSN that is outstanding and not acknowledged, and is looked at again when it
is taken. The segmenter takes all pending bits of a queue pair before it sends a new PSN there, so a
bit can never come to mean a later PSN of the same place in the window. A second bit says that the PSN
counts as lost by the path on which it was sent last; the packet sender acts on it when the resend leaves.
The bits of a queue pair are counted: a search ends where none is left, and the count says how many packets
wait to be sent again.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common.arithmetic import lowest_one, one_hot, ones, sized
from gateware.common.counters import Counters
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import CHUNK, chunk_row, chunks, init_endpoint
from gateware.transport.requester.window_piece import WindowPiece

class Resend(LiteXModule):
    """The pending bits of all queue pairs.

    sink:   {qp, base, mask, lost}: mark base + i for each bit i of the 64-bit mask; about 10 cycles.
    pick:   see Segmenter; `done` for one cycle, values are held until the next pick. About 20 cycles, 2 more per
            64 PSNs of the window before the one that is taken.
    counts: TableRAM, pending bits per queue pair.
    wake:   {valid, qp}: a queue pair has got pending bits.
    init:   clear a queue pair.
    """
    def __init__(self, config, send_state, ack_state, scoreboard, messages, pick):
        self.sink     = Endpoint([("qp", config.qp_bits), ("base", 24), ("mask", 64), ("lost", 1)])
        self.counts   = counts = TableRAM([("count", config.psn_bits + 1)], config.queue_pairs)
        self.wake     = Record([("valid", 1), ("qp", config.qp_bits)])
        self.init     = init_endpoint()
        self.counters = Counters(self)

        # # #

        marked  = self.counters.add("resends_marked",  "Words of resend commands that marked at least one PSN.")
        dropped = self.counters.add("resends_dropped", "Pending resends dropped because their PSN had been acknowledged.")

        rows       = chunks(config)
        pending    = TableRAM([("bits", CHUNK), ("lost", CHUNK)], config.queue_pairs*rows)
        self.pending = pending
        now   = pending.reader()
        acked = scoreboard.reader()
        state = send_state.reader()
        acks  = ack_state.reader()
        record = messages.reader()
        counted = counts.reader()
        waiting = Signal(config.psn_bits + 1)           # Pending bits of the queue pair at hand.

        # The piece of the window that is looked at: a queue pair and 64 aligned PSNs.
        qp    = Signal(config.qp_bits)
        self.window = window = WindowPiece()
        piece, unacked, next_psn = window.piece, window.low, window.high
        missing = sized(self, ~acked.row.acked, 64, "missing")
        wanted  = sized(self, now.row.bits & window.inside & missing, 64, "wanted")
        self.comb += [
            *[t.index.eq(chunk_row(config, window.origin, qp)) for t in (now, acked, pending)],
            *[t.index.eq(qp) for t in (state, acks, counts, counted)],
        ]
        found, index = Signal(), Signal(6)
        self.comb += lowest_one(wanted, index, found)

        # Marking.
        mask, base = Signal(64), Signal(24)
        shift   = base[:6]
        shifted = Signal(128)
        self.comb += shifted.eq(mask << shift)
        second  = Signal()
        bits    = Signal(64)
        self.comb += bits.eq(Mux(second, shifted[64:], shifted[:64]) & window.inside & missing)
        lost       = Signal()
        after_mark = now.row.bits | bits
        lost_mark  = (now.row.lost & now.row.bits) | (bits & Replicate(lost, 64))
        news    = ones(self, bits & ~now.row.bits, "newly_pending")
        more    = sized(self, waiting + news, len(waiting), "waiting_after_mark")

        # Taking. Bits below the window's start in its first piece are those of its other end: they stay.
        pieces     = Signal(max=rows + 2)
        other_end  = Signal(64)
        taken      = one_hot(self, index, 64, "taken")
        others     = sized(self, ~taken, 64, "others")
        after_take = Signal(64)
        self.comb += [
            other_end.eq(Mux(pieces == 0, now.row.bits & window.under, 0)),
            after_take.eq(other_end | Mux(found, wanted & others, 0)),
        ]
        gone = ones(self, now.row.bits & ~after_take, "no_longer_pending")
        left = sized(self, waiting - gone, len(waiting), "waiting_after_take")
        held = Signal()                                 # Only the oldest PSN of the window may go, and it is not pending.
        self.comb += held.eq(pick.oldest & found & (Cat(index, piece) != unacked))

        # Search of the message: the last record whose first PSN is not after the PSN.
        psn      = Signal(24)
        bottom, top = Signal(16), Signal(16)            # Messages [bottom, top).
        width    = sized(self, top - bottom, 16, "search_width")
        half     = Signal(16)
        middle   = sized(self, bottom + half, 16, "search_middle")
        self.comb += [half.eq(width >> 1), record.index.eq(Cat(middle[:config.message_bits], qp))]
        distance = sized(self, psn - record.row.first_psn, 24, "psn_after_first")

        # Its message may have been retired since the bit was seen: then no record holds the PSN.
        rest       = sized(self, record.row.last_psn - psn, 24, "psns_to_the_end")
        inside     = sized(self, ~distance[23] & ~rest[23], 1, "psn_is_inside")

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(second, 0),
            NextValue(pieces, 0),
            NextValue(waiting, 0),
            If(self.init.valid,
                NextValue(qp, self.init.qp),
                NextValue(piece, 0),
                NextState("CLEAR")
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                NextValue(qp, self.sink.qp),
                NextValue(base, self.sink.base),
                NextValue(mask, self.sink.mask),
                NextValue(lost, self.sink.lost),
                NextValue(piece, self.sink.base[6:]),
                NextState("MARK-STATE")
            ).Elif(pick.valid & ~pick.done,
                NextValue(qp, pick.qp),
                NextValue(unacked, pick.unacked),
                NextValue(next_psn, pick.next),
                NextValue(piece, pick.unacked[6:]),
                NextState("TAKE-READ")
            )
        )
        fsm.act("CLEAR",
            pending.we.eq(1),
            pending.row.bits.eq(0),
            NextValue(piece, window.following),
            counts.we.eq(1),
            If(piece == rows - 1,
                self.init.ready.eq(1),
                NextState("IDLE")
            )
        )
        # Mark: at most two pieces.
        fsm.act("MARK-STATE", NextState("MARK-WINDOW"))
        fsm.act("MARK-WINDOW",
            NextValue(unacked, acks.row.unacked),
            NextValue(next_psn, state.row.next_psn),
            NextValue(waiting, counted.row.count),
            NextState("MARK-READ")
        )
        fsm.act("MARK-READ", NextState("MARK"))
        fsm.act("MARK",
            pending.row.bits.eq(after_mark),
            pending.row.lost.eq(lost_mark),
            pending.we.eq(bits != 0),
            marked.eq(bits != 0),
            NextValue(waiting, more),
            NextValue(second, 1),
            NextValue(piece, window.following),
            If(second, NextState("MARKED")).Else(NextState("MARK-READ"))
        )
        fsm.act("MARKED",
            counts.we.eq(1),
            self.wake.valid.eq(1),
            NextState("IDLE")
        )
        self.comb += [self.wake.qp.eq(qp), counts.row.count.eq(waiting)]
        # Take: from the piece of the oldest PSN on, until none is pending: what is no longer wanted is cleared on
        # the way, also where the window has passed, before a new PSN can take its place.
        fsm.act("TAKE-READ", NextState("TAKE-FIRST"))
        fsm.act("TAKE-FIRST",
            NextValue(waiting, counted.row.count),
            NextState("TAKE")
        )
        fsm.act("TAKE-NEXT", NextState("TAKE"))
        fsm.act("TAKE",
            pending.row.bits.eq(after_take),
            pending.row.lost.eq(now.row.lost & after_take),
            NextValue(pick.found, 0),
            If(held,
                NextState("DONE")
            ).Else(
                pending.we.eq(1),
                NextValue(waiting, left),
                NextValue(pick.lost, (now.row.lost & taken) != 0),
                dropped.eq((now.row.bits & window.inside & acked.row.acked) != 0),
                NextValue(psn, Cat(index, piece)),
                NextValue(piece, window.following),
                NextValue(pieces, pieces + 1),
                If(found,
                    NextState("SEARCH-START")
                ).Elif((left == 0) | (pieces == rows),  # The first row once more, now as the window's other end.
                    NextState("DONE")
                ).Else(
                    NextState("TAKE-NEXT")
                )
            )
        )
        # Binary search in the queue pair's messages, in PSN order.
        fsm.act("SEARCH-START",
            NextValue(bottom, acks.row.msn),
            NextValue(top, state.row.msn),
            NextState("SEARCH-READ")
        )
        fsm.act("SEARCH-READ", NextState("SEARCH"))
        fsm.act("SEARCH",
            If(width <= 1,
                NextValue(pick.found, (width == 1) & inside),
                NextValue(pick.psn, psn),
                NextValue(pick.msn, bottom),
                NextValue(pick.message, bottom[:config.message_bits]),
                NextState("DONE")
            ).Else(
                If(distance[23],
                    NextValue(top, middle)
                ).Else(
                    NextValue(bottom, middle)
                ),
                NextState("SEARCH-READ")
            )
        )
        fsm.act("DONE",
            counts.we.eq(1),
            pick.done.eq(1),
            NextState("IDLE")
        )
