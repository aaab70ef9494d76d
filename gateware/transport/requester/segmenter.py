# SPDX-License-Identifier: BSD-2-Clause
"""The segmenter: from send rings to packets, one packet per visit of a queue pair.

A visit sends the oldest pending resend, else the next packet of the message in progress, else it
starts the message of the next token: it becomes a record in the message pool, and the record with
its context rebuilds every packet of it, now or in a resend. The limits of what may be in flight (MPR,
congestion window, immediates; send_window.py) are enforced here. The congestion window holds back a
resend, too, but never that of the oldest PSN: it alone moves the window. A visit takes 6 to 9 cycles, a
resend about 25.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from firmware.contract import QpError
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import credit_layout, init_endpoint, message_layout, window_layout
from gateware.transport.requester.send_window import SendWindow

def packet_request_layout(config):
    """One packet to rebuild: its queue pair, its PSN, and the record of its message."""
    return [
        ("qp",      config.qp_bits),
        ("psn",     24),
        ("message", config.message_bits),   # Index in the queue pair's part of the message pool.
        ("msn",     16),
        ("rtx",      1),
        ("lost",     1),                    # A resend: the last transmission was lost by its path.
        ("a",        1),                    # Ask for an acknowledgement.
    ]

class Segmenter(LiteXModule):
    """Chooses the next packet of a queue pair.

    sink:      {qp} from the scheduler.
    source:    packet_request_layout.
    wake:      {valid, qp}: the queue pair has more to do.
    credit:    credit_layout: a token has left its ring (or failed with its queue pair).
    consumed:  {page}: for the doorbell's quota.
    pick:      to `Resend`: valid with `qp`, `unacked`, `next` until `done`; then `found`, `psn`,
               `message`, `msn`, `lost`. `oldest`: give only the oldest PSN of the window.
    waiting:   packets of `busy_qp` that wait to be sent again, one cycle after it.
    window:    {qp, cwnd, digest}: command of the firmware.   windows: the table of what it said.
    init:      clear a queue pair's state (its attributes are already in the table).
    busy, busy_qp: a visit is in progress (the acknowledger waits for its end before it flushes).
    """
    def __init__(self, config, tables, send_state, ack_state, status, doorbell):
        self.sink       = Endpoint([("qp", config.qp_bits)])
        self.source     = Endpoint(packet_request_layout(config))
        self.wake       = Record([("valid", 1), ("qp", config.qp_bits)])
        self.credit     = Endpoint(credit_layout(config))
        self.consumed   = Endpoint([("page", config.page_bits)])
        self.init       = init_endpoint()
        self.pick       = Record([("valid", 1), ("qp", config.qp_bits), ("unacked", 24), ("next", 24), ("done", 1),
                                  ("found", 1), ("psn", 24), ("message", config.message_bits), ("msn", 16), ("lost", 1), ("oldest", 1)])
        self.waiting    = Signal(config.psn_bits + 1)
        self.window     = Endpoint([("qp", config.qp_bits), *window_layout(config)])
        self.windows    = windows = TableRAM(window_layout(config), config.queue_pairs)
        self.messages   = messages = TableRAM(message_layout(config), config.queue_pairs*config.messages)
        self.busy       = Signal()
        self.busy_qp    = Signal(config.qp_bits)
        self.counters   = Counters(self)

        # # #

        started = self.counters.add("messages_started", "Messages started.")
        flushed = self.counters.add("tokens_flushed",   "Tokens dropped because their queue pair had failed.")

        # Tables.
        attributes = tables.queue_pair.reader()
        state      = send_state.reader()
        acks       = ack_state.reader()
        life       = status.reader()
        ring       = doorbell.ring.reader()
        written    = doorbell.written.reader()
        congestion = windows.reader()
        qp         = self.busy_qp
        self.comb += [table.index.eq(qp) for table in (attributes, state, acks, life, written, congestion, windows)]
        self.comb += [ring.index.eq(Cat(state.row.ring[:config.ring_bits], qp)), send_state.index.eq(qp)]

        # What the queue pair can do.
        waiting     = sized(self, written.row.position != state.row.ring, 1, "token_waits")
        pending     = sized(self, self.waiting != 0, 1, "resend_waits")

        # A new message: packets = max(1, ceil(length / MTU)).
        ones      = Signal(12)
        rounded   = sized(self, ring.row.length + ones, 25, "length_rounded_up")
        count     = Signal(17)               # Packets - 1, for length > 0.
        packets   = Signal(17)
        mtu       = Signal(13)
        self.comb += [
            Case(attributes.row.mtu, {
                **{i: [ones.eq((256 << i) - 1), packets.eq(rounded[8 + i:]), mtu.eq(256 << i)] for i in range(5)},
                "default": [ones.eq(255), packets.eq(rounded[8:]), mtu.eq(256)]}),
            count.eq(Mux(ring.row.length == 0, 0, packets - 1)),
        ]
        last_psn   = sized(self, state.row.next_psn + count, 24, "last_psn_of_message")
        next_psn   = sized(self, state.row.next_psn + 1, 24, "next_psn_after")
        next_msn   = sized(self, state.row.msn + 1, 16, "next_msn_after")
        next_rqmsn = sized(self, state.row.rqmsn + ring.row.signal, 16, "next_rqmsn_after")
        next_ring  = sized(self, state.row.ring + 1, config.ring_bits + 1, "next_ring_after")
        last_token = sized(self, next_ring == written.row.position, 1, "last_token")
        this_msn   = sized(self, state.row.msn - 1, 16, "msn_in_progress")

        # The next packet: of the message in progress, or the first of a new one.
        is_last = sized(self, Mux(state.row.active, state.row.next_psn == state.row.last_psn, count == 0), 1, "last_of_message")
        behind  = sized(self, Mux(state.row.active, state.row.rest, ring.row.length), 24, "bytes_of_message")
        rest    = sized(self, behind - mtu, 24, "bytes_after_packet")
        signal  = sized(self, Mux(state.row.active, state.row.signal, ring.row.signal), 1, "signal_of_message")
        self.limits = limits = SendWindow(config, attributes.row, state.row, acks.row, congestion.row)
        self.comb += [
            limits.waiting.eq(self.waiting),
            limits.token_signal.eq(ring.row.signal),
            limits.length.eq(Mux(behind < mtu, behind, mtu)),
            limits.immediate.eq(is_last & signal),
        ]

        # The record of a new message.
        self.comb += [
            messages.index.eq(Cat(state.row.msn[:config.message_bits], qp)),
            *[getattr(messages.row, f).eq(getattr(ring.row, f)) for f in ("context", "page", "signal", "slot", "length", "region")],
            messages.row.first_psn.eq(state.row.next_psn),
            messages.row.last_psn.eq(last_psn),
            messages.row.rqmsn.eq(state.row.rqmsn),
        ]

        # Ask for an acknowledgement: nothing follows, or a window closes. Decided once per visit, since
        # an offered packet must not change when a token or an acknowledgement comes meanwhile.
        ask  = Signal()
        sent = Signal(32)

        # What is left to tell of a token that has left its ring.
        page, context, region = Signal(config.page_bits), Signal(config.context_bits), Signal(config.region_bits)
        failed = Signal()
        self.comb += [
            self.consumed.page.eq(page),
            self.credit.page.eq(page),
            self.credit.consumed.eq(1),
            self.credit.completed.eq(failed),
            self.credit.error.eq(Mux(failed, Mux(life.row.reason == 0, QpError.TOKEN_STATE, life.row.reason), 0)),
            self.credit.qp.eq(qp),
            self.credit.context.eq(context),
            self.credit.region.eq(region),
            self.wake.qp.eq(qp),
            self.source.qp.eq(qp),
            self.pick.qp.eq(qp),
            self.pick.unacked.eq(acks.row.unacked),
            self.pick.next.eq(state.row.next_psn),
            send_state.row.rest.eq(rest),
            send_state.row.signal.eq(signal),
            send_state.row.sent.eq(sent),
            windows.row.digest.eq(self.window.digest),
            windows.row.cwnd.eq(self.window.cwnd),
        ]

        # Unchanged unless a state says otherwise.
        keep = [getattr(send_state.row, f).eq(getattr(state.row, f))
                for f in ("next_psn", "msn", "rqmsn", "ring", "active", "last_psn", "asked")]

        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        fsm.act("IDLE",
            If(self.init.valid,
                NextValue(qp, self.init.qp),
                NextState("INIT-READ")
            ).Elif(self.window.valid,
                NextValue(qp, self.window.qp),
                NextState("WINDOW")
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                NextValue(qp, self.sink.qp),
                NextState("READ")
            )
        )
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            send_state.we.eq(1),
            send_state.row.next_psn.eq(attributes.row.send_psn),
            send_state.row.sent.eq(0),
            windows.we.eq(1),
            windows.row.digest.eq(0),
            windows.row.cwnd.eq(attributes.row.cwnd),
            self.init.ready.eq(1),
            NextState("IDLE")
        )
        fsm.act("WINDOW",                      # The queue pair may go on with a larger window.
            windows.we.eq(1),
            self.window.ready.eq(1),
            NextState("AGAIN")
        )
        fsm.act("READ",      NextState("READ-RING"))
        fsm.act("READ-RING", NextState("DECIDE"))
        fsm.act("DECIDE",
            NextValue(page, ring.row.page), NextValue(context, ring.row.context), NextValue(region, ring.row.region),
            NextValue(failed, 0),
            NextValue(ask, limits.closes | (is_last & Mux(state.row.active, ~waiting, last_token))),
            NextValue(sent, limits.sent),
            NextValue(self.pick.oldest, ~limits.resend_open),
            NextState("IDLE"),
            If(life.row.state != QpState.RTS,
                If(waiting, NextState("FLUSH"))
            ).Elif(pending,
                NextState("RESEND")
            ).Elif(limits.open,
                If(state.row.active,
                    NextState("CONTINUE")
                ).Elif(waiting & limits.room,
                    NextState("START")
                )
            )
        )
        # Resend: the oldest pending PSN that is still missing.
        fsm.act("RESEND",
            self.pick.valid.eq(1),
            If(self.pick.done,
                If(self.pick.found,
                    NextState("SEND-RESEND")
                ).Elif(self.pick.oldest,       # Held back: whoever changes that wakes the queue pair.
                    NextState("IDLE")
                ).Else(
                    NextState("AGAIN")
                )
            )
        )
        fsm.act("SEND-RESEND",
            self.source.valid.eq(1),
            self.source.psn.eq(self.pick.psn),
            self.source.message.eq(self.pick.message),
            self.source.msn.eq(self.pick.msn),
            self.source.rtx.eq(1),
            self.source.lost.eq(self.pick.lost),
            self.source.a.eq(1),
            If(self.source.ready, NextState("AGAIN"))
        )
        # New packet of the message in progress.
        fsm.act("CONTINUE",
            self.source.valid.eq(1),
            self.source.psn.eq(state.row.next_psn),
            self.source.msn.eq(this_msn),
            self.source.message.eq(this_msn[:config.message_bits]),
            self.source.a.eq(ask),
            *keep,
            send_state.row.next_psn.eq(next_psn),
            send_state.row.active.eq(state.row.next_psn != state.row.last_psn),
            send_state.row.asked.eq(ask),
            If(self.source.ready,
                send_state.we.eq(1),
                NextState("AGAIN")
            )
        )
        # First packet of a new message.
        fsm.act("START",
            messages.we.eq(1),
            NextState("SEND-START")
        )
        fsm.act("SEND-START",
            self.source.valid.eq(1),
            self.source.a.eq(ask),
            self.source.psn.eq(state.row.next_psn),
            self.source.msn.eq(state.row.msn),
            self.source.message.eq(state.row.msn[:config.message_bits]),
            send_state.row.next_psn.eq(next_psn),
            send_state.row.msn.eq(next_msn),
            send_state.row.rqmsn.eq(next_rqmsn),
            send_state.row.ring.eq(next_ring),
            send_state.row.active.eq(count != 0),
            send_state.row.last_psn.eq(last_psn),
            send_state.row.asked.eq(ask),
            If(self.source.ready,
                started.eq(1),
                send_state.we.eq(1),
                NextState("CONSUMED")
            )
        )
        # A token of a queue pair that has failed.
        fsm.act("FLUSH",
            *keep,
            send_state.row.ring.eq(next_ring),
            send_state.row.active.eq(0),
            send_state.row.sent.eq(state.row.sent),
            send_state.we.eq(1),
            flushed.eq(1),
            NextValue(failed, 1),
            NextState("CONSUMED")
        )
        fsm.act("CONSUMED",
            self.consumed.valid.eq(1),
            If(self.consumed.ready, NextState("CREDIT"))
        )
        fsm.act("CREDIT",
            self.credit.valid.eq(1),
            If(self.credit.ready, NextState("AGAIN"))
        )
        # Perhaps there is more: the next visit decides.
        fsm.act("AGAIN",
            self.wake.valid.eq(1),
            NextState("IDLE")
        )
