# SPDX-License-Identifier: BSD-2-Clause
"""What acknowledgements say of a path: from the PSN or the probe that an answer names to a change of its path.

    SACK m=SKIP_ONCE, NACK TRIMMED   MARKED      probe answered, m=NONE        CLEAN
    SACK m=ALWAYS_SKIP               AVOID       probe answered, m=SKIP_ONCE   BACK

All other answers say nothing of a path: a clean SACK ends no SKIP, and the other NACKs speak of the last
hop or of the peer. The path is that of the PSN's last transmission, or the one in the probe's number. The answer's
entropy value must be that of the path: if it is not, the PSN has been sent again since, the driver has
given the peer other values, or the peer says what is not so; the answer is counted and forgotten.
Takes 4 cycles. Source: MRC 1.0, SETH and NETH; figure 5.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.headers import NackReason
from gateware.transport.requester.paths import Change, change_layout

class Mark:
    """SETH.m."""
    NONE, SKIP_ONCE, ALWAYS_SKIP = range(3)

def heard_layout(config):
    """An answer of a living queue pair."""
    return [
        ("qp",      config.qp_bits),
        ("psn",     24),                  # What it answers; a probe's number in the lower half.
        ("probe",    1),
        ("mark",     2),                  # SACK: SETH.m.
        ("reason",   8),                  # NACK: its reason; 0 for a SACK.
        ("entropy", 16),                  # Reflected.
    ]

class PathFeedback(LiteXModule):
    """Turns answers into changes.

    heard:   heard_layout; always taken.
    change:  to `Paths`.
    sent:    reader of PacketSender.sent.
    """
    def __init__(self, config, tables, send_state, sent):
        self.heard    = stream.Endpoint(heard_layout(config))
        self.change   = stream.Endpoint(change_layout(config))
        self.counters = Counters(self)

        # # #

        stale   = self.counters.add("path_answers_stale",   "Answers of another path than that of their packet's last transmission.")
        dropped = self.counters.add("path_answers_dropped", "Answers about a path that found no room.")

        # Only those that say something wait.
        self.fifo = fifo = stream.SyncFIFO(heard_layout(config), 4)
        says = Signal()
        self.comb += [
            self.heard.connect(fifo.sink, omit={"valid", "ready"}),
            self.heard.ready.eq(1),
            says.eq((self.heard.mark != Mark.NONE) | self.heard.probe | (self.heard.reason == NackReason.TRIMMED)),
            fifo.sink.valid.eq(self.heard.valid & says),
            dropped.eq(fifo.sink.valid & ~fifo.sink.ready),
        ]

        # The path of the packet.
        answer     = fifo.source
        attributes = tables.queue_pair.reader()
        send       = send_state.reader()
        value      = tables.ev.reader()
        peer       = attributes.row.peer[:config.peer_bits]
        ev         = sized(self, Mux(answer.probe, answer.psn[:config.ev_bits], sent.row.ev), config.ev_bits, "answered_ev")
        age        = sized(self, send.row.next_psn - answer.psn, 24, "age")      # 1: the newest PSN.
        known      = sized(self, answer.probe | ((age != 0) & (age <= config.mpr)), 1, "known")
        kind       = Signal(3)
        self.comb += [
            *[t.index.eq(answer.qp) for t in (attributes, send)],
            sent.index.eq(Cat(answer.psn[:config.psn_bits], answer.qp)),
            value.index.eq(Cat(ev, peer)),
            kind.eq(Change.MARKED),
            If(answer.mark == Mark.ALWAYS_SKIP, kind.eq(Change.AVOID)
            ).Elif(answer.probe, kind.eq(Mux(answer.mark == Mark.NONE, Change.CLEAN, Change.BACK))),
            self.change.qp.eq(answer.qp),
            self.change.peer.eq(peer),
            self.change.ev.eq(ev),
            self.change.kind.eq(kind),
        ]
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE", If(answer.valid, NextState("PACKET")))
        fsm.act("PACKET", NextState("VALUE"))
        fsm.act("VALUE",
            If(known & (value.row.entropy == answer.entropy),
                NextState("CHANGE")
            ).Else(
                stale.eq(1),
                answer.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("CHANGE",
            self.change.valid.eq(1),
            answer.ready.eq(self.change.ready),
            If(self.change.ready, NextState("IDLE"))
        )
