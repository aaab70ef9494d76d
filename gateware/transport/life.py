# SPDX-License-Identifier: BSD-2-Clause
"""The life of a queue pair: the only writer of its status, and what every change of it entails.

    RESET -> INIT, RTR, RTS   a new life: every owner clears what it holds, the status comes last
    INIT -> RTR               the same (nothing was received before)
    RTR -> RTS                the sending half alone (nothing was sent before)
    any -> ERROR              by the driver (FLUSHED) or the firmware, with its reason
    any -> RESET              over ERROR; ends the life

ERROR: status first, so that the doorbell refuses and the segmenter stops; the queue pair's page is
told; packets between segmenter and sender drain (they are dropped there), so that nobody reads a
source buffer any more when its message is given back; then messages and waiting tokens are given
back with the reason. RESET also waits until the write queue has handed on what the former life had
in it, drops the answers that are due, and begins the next life's number: commands for an
earlier one are dropped (`CommandDispatcher`), events carry it. Rows are written only when RESET, INIT
or RTR allow it, never under a queue pair that sends.

Every wait ends by itself: reads time out, the write queue moves as the link does. A change takes
about 40 cycles, an end as long as the reads in flight and 15 per message and token. Source: IBTA
volume 1, chapter 10.3.1; the order is the design's.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind, QpError
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import event_layout
from gateware.common.tables import QpState
from gateware.transport.queue_pair import credit_layout, init_endpoint

def change_endpoint():
    """A wish of the driver; ready for one cycle when it is done or refused."""
    return stream.Endpoint([("qp", 16), ("state", 3)])

class Life(LiteXModule):
    """Changes the state of one queue pair at a time.

    change:   the driver's wish; with its ready, `refused` says that there is no such transition.
    write:    for one cycle: the row that comes with the wish enters its table.
    error:    {qp, reason, life}: the firmware's; taken at once or when the change at hand is done.
    credit:   to the queue pair's page, which need not have a message in flight.
    event:    START.
    flush:    {qp, reason} to the acknowledger: give the messages back; ready when all are.
    wake:     {valid, qp}: the segmenter shall look at the ring.
    forget:   init_endpoint of the control sender: nothing is due any more.
    fence, drain: what is on its way through the write queue, and from the segmenter to the sender (barriers.py).
    segmenter_busy, segmenter_qp, bell_idle, commands_idle: who may still act on the status that it has read.
    """
    def __init__(self, config, tables, send_state, written, status, sender_inits, receiver_inits, drain, fence):
        self.change   = change_endpoint()
        self.refused  = Signal()
        self.write    = Signal()
        self.error    = stream.Endpoint([("qp", config.qp_bits), ("reason", 8), ("life", 8)])
        self.credit   = stream.Endpoint(credit_layout(config))
        self.events   = events = stream.SyncFIFO(event_layout(), 4)
        self.event    = events.source
        self.flush    = stream.Endpoint([("qp", config.qp_bits), ("reason", 8)])
        self.wake     = Record([("valid", 1), ("qp", config.qp_bits)])
        self.forget   = init_endpoint()
        self.time     = Signal(32)
        self.segmenter_busy = Signal()
        self.segmenter_qp   = Signal(config.qp_bits)
        self.bell_idle      = Signal()
        self.commands_idle  = Signal()
        self.counters = Counters(self)

        # # #

        began = self.counters.add("lives_begun",  "Lives of queue pairs begun.")
        ended = self.counters.add("lives_ended",  "Lives of queue pairs ended by a reset.")
        errs  = self.counters.add("lives_failed", "Queue pairs that have entered ERROR.")
        lost  = self.counters.add("events_lost_start", "START events that found the event queue full.")

        # Tables.
        attributes = tables.queue_pair.reader()
        send       = send_state.reader()
        ring       = written.reader()
        now        = status.reader()
        qp         = Signal(config.qp_bits)
        reason     = Signal(8)
        tag        = Signal(8)                  # The life that a command is meant for.
        command    = Signal()                   # The firmware asks, not the driver.
        leave      = Signal()                   # On through ERROR to RESET.
        following  = sized(self, now.row.life + 1, 8, "life_after")
        self.comb += [
            *[t.index.eq(qp) for t in (attributes, send, ring, now, status)],
            self.flush.qp.eq(qp),
            self.flush.reason.eq(reason),
            self.wake.qp.eq(qp),
            self.forget.qp.eq(qp),
            self.credit.page.eq(attributes.row.page),
            self.credit.error.eq(reason),
            self.credit.qp.eq(qp),
            events.sink.kind.eq(EventKind.START),
            events.sink.qp.eq(qp),
            events.sink.life.eq(now.row.life),
            events.sink.time.eq(self.time),
            status.row.life.eq(now.row.life),
        ]
        state, wish = now.row.state, self.change.state
        fresh  = sized(self, (state == QpState.RESET) & (wish >= QpState.INIT) & (wish <= QpState.RTS), 1, "fresh")
        ready_to_receive = sized(self, (state == QpState.INIT) & (wish == QpState.RTR), 1, "ready_to_receive")
        ready_to_send    = sized(self, (state == QpState.RTR) & (wish == QpState.RTS), 1, "ready_to_send")
        living = sized(self, (state >= QpState.INIT) & (state <= QpState.RTS), 1, "living")
        empty  = sized(self, ring.row.position == send.row.ring, 1, "ring_empty")
        visit  = sized(self, self.segmenter_busy & (self.segmenter_qp == qp), 1, "visited")
        heard  = sized(self, attributes.row.page < config.pages, 1, "page_hears")

        # Owners: those of the sending half first.
        inits = [*sender_inits, *receiver_inits]
        step  = Signal(max=max(2, len(inits)))
        half  = Signal()                        # The sending half alone.
        last  = Signal(max=max(2, len(inits)))
        self.comb += [
            last.eq(Mux(half, len(sender_inits) - 1, len(inits) - 1)),
            *[init.qp.eq(qp) for init in inits],
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(step, 0),
            NextValue(half, 0),
            NextValue(leave, 0),
            NextValue(command, self.error.valid),
            If(self.error.valid,
                self.error.ready.eq(1),
                NextValue(qp, self.error.qp),
                NextValue(reason, self.error.reason),
                NextValue(tag, self.error.life),
                NextState("READ")
            ).Elif(self.change.valid,
                NextValue(qp, self.change.qp),
                NextValue(reason, QpError.FLUSHED),
                NextValue(self.refused, 0),
                NextState("READ")
            )
        )
        fsm.act("READ", NextState("DECIDE"))
        fsm.act("DECIDE",
            If(command,
                If(living & (tag == now.row.life), NextState("ENTER-ERROR")).Else(NextState("IDLE"))
            ).Elif(wish == QpState.ERROR,
                If(state == QpState.ERROR, NextState("ANSWER")).Else(NextState("ENTER-ERROR"))
            ).Elif(wish == QpState.RESET,
                NextValue(leave, 1),
                If(state == QpState.RESET,
                    NextState("ANSWER")
                ).Elif(state == QpState.ERROR,
                    NextState("QUIET-BELL")
                ).Else(
                    NextState("ENTER-ERROR")
                )
            ).Elif(fresh | ready_to_receive | ready_to_send,
                NextValue(half, ready_to_send),
                NextState("WRITE")
            ).Else(
                NextValue(self.refused, 1),
                NextState("ANSWER")
            )
        )
        fsm.act("ANSWER",
            self.change.ready.eq(1),
            NextState("IDLE")
        )

        # A life begins, or goes on -------------------------------------------------------------------
        fsm.act("WRITE",
            self.write.eq(1),
            NextState("BEGIN")
        )
        fsm.act("BEGIN",
            Case(step, {i: [
                init.valid.eq(1),
                If(init.ready,
                    NextValue(step, i + 1 if i < len(inits) - 1 else 0),
                    If(step == last, NextState("BEGUN"))
                )] for i, init in enumerate(inits)})
        )
        fsm.act("BEGUN",
            status.row.state.eq(wish),
            status.we.eq(1),
            If(state == QpState.RESET,
                began.eq(1),
                events.sink.valid.eq(1),
                lost.eq(~events.sink.ready)
            ),
            NextState("ANSWER")
        )

        # The queue pair fails or is ended ------------------------------------------------------------
        fsm.act("ENTER-ERROR",
            errs.eq(1),
            status.row.state.eq(QpState.ERROR),
            status.row.reason.eq(reason),
            status.we.eq(1),
            NextState("TELL")
        )
        fsm.act("TELL",
            self.credit.valid.eq(heard),
            If(~heard | self.credit.ready, NextState("QUIET-BELL"))
        )
        # Whoever began with the old status ends now; whoever begins later sees the new one.
        fsm.act("QUIET-BELL",
            If(self.bell_idle, NextState("QUIET-SEGMENTER"))
        )
        fsm.act("QUIET-SEGMENTER",
            If(~visit,
                drain.start.eq(1),
                NextState("DRAIN")
            )
        )
        fsm.act("DRAIN",
            If(drain.done, NextState("FLUSH"))
        )
        fsm.act("FLUSH",
            self.flush.valid.eq(1),
            If(self.flush.ready, NextState("RING-WAKE"))
        )
        fsm.act("RING-WAKE",
            self.wake.valid.eq(1),
            NextState("RING-READ")
        )
        fsm.act("RING-READ", NextState("RING-LOOK"))
        fsm.act("RING-LOOK",
            If(~empty | visit,
                NextState("RING-READ")
            ).Elif(leave,
                NextState("FENCE")
            ).Elif(command,
                NextState("IDLE")
            ).Else(
                NextState("ANSWER")
            )
        )

        # The life is over -----------------------------------------------------------------------------
        fsm.act("FENCE",
            fence.valid.eq(1),
            If(fence.ready, NextState("FORGET"))
        )
        fsm.act("FORGET",
            self.forget.valid.eq(1),
            If(self.forget.ready, NextState("LEAVE"))
        )
        fsm.act("LEAVE",
            ended.eq(1),
            status.row.state.eq(QpState.RESET),
            status.row.life.eq(following),
            status.we.eq(1),
            NextState("COMMANDS")
        )
        # A command that had been let pass for the former life is carried out now; one that waits here is looked at again.
        fsm.act("COMMANDS",
            If(self.commands_idle | self.error.valid, NextState("ANSWER"))
        )
