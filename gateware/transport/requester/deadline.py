# SPDX-License-Identifier: BSD-2-Clause
"""Deadlines: one per queue pair, set by firmware, watched by a walker that visits them in turn.

A queue pair is late when packets or messages are outstanding and no answer (SACK, Transport ACK) has come
for the interval: since it last heard, since the last new packet began to ask for an answer, or since
firmware armed the deadline. As long as nobody has asked (no A bit in the last new packet, no probe since),
the peer answers when its own trigger says so, and the queue pair waits four intervals. (All packets may be
acknowledged by a SACK while the Transport ACK of the last message is lost: a probe brings it again.)

It is reported once; firmware arms the deadline again. The walker compares what it sees with what it saw,
so nobody has to start or stop a timer. Lateness of a report: at most 3 cycles per queue pair.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import event_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import init_endpoint

UNASKED = 2     # A queue pair that has not asked waits 2^UNASKED intervals.

class Deadline(LiteXModule):
    """Watches the progress of every queue pair.

    sink:   {qp, interval}: arm, in ticks of 128 ns from now.
    event:  TIMEOUT.
    init:   arm with the interval of the queue pair's attributes.
    time:   32-bit tick counter.
    """
    def __init__(self, config, tables, send_state, ack_state, status):
        self.sink     = stream.Endpoint([("qp", config.qp_bits), ("interval", 32)])
        self.events   = events = stream.SyncFIFO(event_layout(), 4)
        self.event    = events.source
        self.init     = init_endpoint()
        self.time     = Signal(32)
        self.counters = Counters(self)

        # # #

        timeouts = self.counters.add("timeouts", "TIMEOUT events raised.")

        attributes = tables.queue_pair.reader()
        send       = send_state.reader()
        acks       = ack_state.reader()
        life       = status.reader()
        self.state = state = TableRAM([("unacked", 24), ("heard", 8), ("asked", 1), ("probed", 1), ("start", 32), ("interval", 32),
            ("fired", 1)], config.queue_pairs)
        now        = state.reader()
        qp         = Signal(config.qp_bits)
        scan       = Signal(config.qp_bits)
        interval   = Signal(32)
        self.comb += [t.index.eq(qp) for t in (attributes, send, acks, life, state, now)]

        waited = sized(self, self.time - now.row.start, 32, "waited")
        patient = sized(self, now.row.interval << UNASKED, 32 + UNASKED, "patient_interval")
        idle, moved, late, asked = Signal(), Signal(), Signal(), Signal()
        self.comb += [
            idle.eq(((acks.row.unacked == send.row.next_psn) & (acks.row.msn == send.row.msn)) | (life.row.state != QpState.RTS)),
            moved.eq((acks.row.unacked != now.row.unacked) | (acks.row.heard != now.row.heard) | (send.row.asked & ~now.row.asked)),
            asked.eq(send.row.asked | now.row.probed),
            late.eq(~now.row.fired & (waited >= Mux(asked, now.row.interval, patient))),
            state.row.unacked.eq(acks.row.unacked),
            state.row.heard.eq(acks.row.heard),
            state.row.asked.eq(send.row.asked),
            state.row.start.eq(self.time),
            state.row.interval.eq(now.row.interval),
            events.sink.kind.eq(EventKind.TIMEOUT),
            events.sink.qp.eq(qp),
            events.sink.unacked.eq(acks.row.unacked),
            events.sink.next.eq(send.row.next_psn),
            events.sink.life.eq(life.row.life),
            events.sink.base.eq(acks.row.unacked),
            events.sink.mask_low.eq(1),
            events.sink.rtt.eq(acks.row.rtt),
            events.sink.time.eq(self.time),
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(self.init.valid,
                NextValue(qp, self.init.qp),
                NextState("INIT-READ")
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                NextValue(qp, self.sink.qp),
                NextValue(interval, self.sink.interval),
                NextState("ARM-READ")
            ).Else(
                NextValue(qp, scan),
                NextValue(scan, scan + 1),
                NextState("READ")
            )
        )
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            state.row.interval.eq(attributes.row.timeout),
            state.we.eq(1),
            self.init.ready.eq(1),
            NextState("IDLE")
        )
        fsm.act("ARM-READ", NextState("ARM"))
        fsm.act("ARM",
            state.row.interval.eq(interval),
            state.row.probed.eq(1),
            state.we.eq(1),
            NextState("IDLE")
        )
        fsm.act("READ", NextState("LOOK"))
        fsm.act("LOOK",
            NextState("IDLE"),
            If(idle | moved,
                state.we.eq(1)
            ).Elif(now.row.asked & ~send.row.asked,
                state.row.start.eq(now.row.start),
                state.row.probed.eq(now.row.probed),
                state.row.fired.eq(now.row.fired),
                state.we.eq(1)
            ).Elif(late,
                events.sink.valid.eq(1),
                state.row.start.eq(now.row.start),
                state.row.probed.eq(now.row.probed),
                state.row.fired.eq(1),
                If(events.sink.ready,
                    timeouts.eq(1),
                    state.we.eq(1)
                )
            )
        )
