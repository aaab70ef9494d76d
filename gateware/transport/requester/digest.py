# SPDX-License-Identifier: BSD-2-Clause
"""The digest: what the acknowledgements of a queue pair said since the last report, for its congestion control.

Per queue pair: bytes newly received by the peer, SACKs, those with a congestion mark, NACKs, smallest and
largest round-trip time. A walker visits the queue pairs in turn and raises a DIGEST event when the interval
that firmware set (command WINDOW) has passed and at least one SACK came; then the counts start anew. A
report that finds the event queue full is made later and lacks nothing.

Counts stay at their largest value. Latency: an acknowledgement counts within 8 cycles; a report is late by
at most 4 cycles per queue pair. Source: MRC 1.0 (NSCC), the design.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import event_layout
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import init_endpoint

def note_layout(config):
    """What one acknowledgement says."""
    return [
        ("qp",      config.qp_bits),
        ("sack",     1),                  # SACK, else NACK.
        ("marked",   1),
        ("bytes",   24),                  # Newly received, units of 256.
        ("sampled",  1),                  # `rtt` is a valid sample.
        ("rtt",     16),                  # Ticks.
    ]

class Digest(LiteXModule):
    """Counts what the acknowledger notes, reports at intervals.

    sink:   note_layout, at most one note in 5 cycles; always taken.
    event:  DIGEST.
    init:   clear the counts of a queue pair.
    time:   32-bit tick counter.
    """
    def __init__(self, config, send_state, ack_state, status, windows):
        self.sink     = stream.Endpoint(note_layout(config))
        self.events   = events = stream.SyncFIFO(event_layout(), 4)
        self.event    = events.source
        self.init     = init_endpoint()
        self.time     = Signal(32)
        self.counters = Counters(self)

        # # #

        reports = self.counters.add("digests", "DIGEST events raised.")

        send, acks, life, window = (t.reader() for t in (send_state, ack_state, status, windows))
        self.state = state = TableRAM([("start", 32), ("bytes", 24), ("sacks", 16), ("marks", 16), ("nacks", 8), ("shortest", 16),
            ("longest", 16)], config.queue_pairs)
        now  = state.reader()
        qp   = Signal(config.qp_bits)
        scan = Signal(config.qp_bits)
        self.notes = notes = stream.SyncFIFO(note_layout(config), 4)
        note = notes.source
        self.comb += [
            self.sink.connect(notes.sink),
            *[t.index.eq(qp) for t in (send, acks, life, window, state, now)],
        ]

        def more(value, by, name):
            """`value` + `by`, at most its largest value."""
            total = sized(self, value + by, len(value) + 1, name)
            return Mux(total[-1], 2**len(value) - 1, total)

        nack   = sized(self, ~note.sack, 1, "nack")
        waited = sized(self, self.time - now.row.start, 32, "waited")
        self.comb += [
            events.sink.kind.eq(EventKind.DIGEST),
            events.sink.qp.eq(qp),
            events.sink.life.eq(life.row.life),
            events.sink.unacked.eq(acks.row.unacked),
            events.sink.next.eq(send.row.next_psn),
            events.sink.rtt.eq(acks.row.rtt),
            events.sink.time.eq(self.time),
            events.sink.base.eq(now.row.bytes),
            events.sink.reason.eq(now.row.nacks),
            events.sink.mask_low.eq(Cat(now.row.sacks, now.row.marks)),
            events.sink.mask_high.eq(Cat(now.row.shortest, now.row.longest)),
            # A row without counts, from now on.
            state.row.start.eq(self.time),
            state.row.shortest.eq(2**16 - 1),
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(self.init.valid,
                NextValue(qp, self.init.qp),
                NextState("CLEAR")
            ).Elif(note.valid,
                NextValue(qp, note.qp),
                NextState("NOTE-READ")
            ).Else(
                NextValue(qp, scan),
                NextValue(scan, scan + 1),
                NextState("READ")
            )
        )
        fsm.act("CLEAR",
            state.we.eq(1),
            self.init.ready.eq(1),
            NextState("IDLE")
        )
        fsm.act("NOTE-READ", NextState("NOTE"))
        fsm.act("NOTE",
            note.ready.eq(1),
            state.we.eq(1),
            state.row.start.eq(now.row.start),
            state.row.bytes.eq(more(now.row.bytes, note.bytes, "bytes_after")),
            state.row.sacks.eq(more(now.row.sacks, note.sack, "sacks_after")),
            state.row.marks.eq(more(now.row.marks, note.marked, "marks_after")),
            state.row.nacks.eq(more(now.row.nacks, nack, "nacks_after")),
            state.row.shortest.eq(Mux(note.sampled & (note.rtt < now.row.shortest), note.rtt, now.row.shortest)),
            state.row.longest.eq(Mux(note.sampled & (note.rtt > now.row.longest), note.rtt, now.row.longest)),
            NextState("IDLE")
        )
        fsm.act("READ", NextState("LOOK"))
        fsm.act("LOOK",
            NextState("IDLE"),
            If(window.row.digest == 0,
                state.we.eq(1)
            ).Elif((now.row.sacks != 0) & (waited >= window.row.digest),
                events.sink.valid.eq(1),
                If(events.sink.ready,
                    reports.eq(1),
                    state.we.eq(1)
                )
            )
        )
