# SPDX-License-Identifier: BSD-2-Clause
"""The acknowledger: what Transport ACKs, SACKs and NACKs mean for the queue pairs that sent.

It owns the scoreboard (two bits per PSN of the window), the oldest unacknowledged PSN, the oldest
unretired message, and the reorder guard.

  SACK   cack moves the window; the bitmap is ORed into the scoreboard; PSNs that this bitmap shows
         missing are *ripe* when at least `guard packets` below its highest arrival and last sent at
         least `guard time` ago. Ripe holes become one HOLES event; each PSN is reported once until
         it has been sent again.
  ACK    cack moves the window; messages up to MSN are retired: their pages get credit.
  NAK    becomes a NAK event.       NACK  becomes a NACK event; a trimmed PSN counts as reported, too, so
         that neither a SACK nor another NACK reports it again before it has been sent again.

A SACK takes about 20 cycles plus 3 per hole; a hole report that finds the event queue full is left
for the next SACK.

This file takes work and judges packets. What the states share is named in ack_work.py; the states that
do the work are in ack_window.py (window, scoreboard, holes), ack_messages.py (completions, refusals) and
ack_life.py (start, flush). Source: MRC 1.0.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.headers import Opcode, Syndrome
from gateware.common.layouts import event_layout, received_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import credit_layout, init_endpoint
from gateware.transport.requester.ack_life import LifeStates
from gateware.transport.requester.ack_messages import MessageStates
from gateware.transport.requester.ack_window import WindowStates
from gateware.transport.requester.ack_work import Work
from gateware.transport.requester.control_packet import ControlPacket
from gateware.transport.requester.digest import note_layout
from gateware.transport.requester.hole_finder import HoleFinder
from gateware.transport.requester.path_feedback import heard_layout
from gateware.transport.requester.window_piece import WindowPiece

class Acknowledger(LiteXModule):
    """Processes acknowledgements; owns the requester's view of the window.

    sink:     received_layout of ACKNOWLEDGE, SACK and NACK packets.
    event:    HOLES, NACK, NAK.
    credit:   completed tokens.
    wake:     {valid, qp}: a window or the message pool has opened.
    resent:   {qp, psn}: from the packet sender.
    guard:    {qp, time, packets}: command of the firmware.
    flush:    {qp, reason}: give back the messages of a queue pair that has failed; ready when all are.
    proved:   {valid, qp, entropy}: a packet that left with this entropy value has arrived, a SACK says.
    init:     start a queue pair's life.
    sent_index, sent_time, sent_resent: reader of PacketSender.sent, connected by the owner of both.
    heard:    heard_layout: what an answer says of its path; not held up.
    note:     to the digest: what a SACK or NACK said; never waited for.
    time:     32-bit tick counter.
    """
    def __init__(self, config, tables, send_state, ack_state, status, scoreboard, messages):
        self.sink    = stream.Endpoint(received_layout(config))
        self.events  = events = stream.SyncFIFO(event_layout(), 8)
        self.event   = events.source
        self.credit  = stream.Endpoint(credit_layout(config))
        self.wake    = Record([("valid", 1), ("qp", config.qp_bits)])
        self.resent  = stream.Endpoint([("qp", config.qp_bits), ("psn", 24)])
        self.guard   = stream.Endpoint([("qp", config.qp_bits), ("time", 16), ("packets", 8)])
        self.flush   = stream.Endpoint([("qp", config.qp_bits), ("reason", 8)])
        self.proved  = Record([("valid", 1), ("qp", config.qp_bits), ("entropy", 16)])
        self.init    = init_endpoint()
        self.note    = stream.Endpoint(note_layout(config))
        self.time    = Signal(32)
        self.sent_index  = Signal(config.qp_bits + config.psn_bits)
        self.sent_time   = Signal(16)
        self.sent_resent = Signal(2)
        self.heard       = stream.Endpoint(heard_layout(config))
        self.counters = Counters(self)

        # # #

        foreign = self.counters.add("ack_unknown_qp", "Control packets for no living queue pair.")
        bad     = self.counters.add("ack_bad",        "Control packets that acknowledge what was never sent.")
        naks    = self.counters.add("naks",           "Transport NAKs processed.")
        nacks   = self.counters.add("nacks",          "NACKs processed.")

        self.guards = guards = TableRAM([("time", 16), ("packets", 8)], config.queue_pairs)
        self.packet = packet = ControlPacket(self.sink)
        self.window = window = WindowPiece()
        self.finder = finder = HoleFinder()
        w = Work(self, config, tables, send_state, ack_state, status, scoreboard, messages)
        qp, unacked, next_psn, ahead = w.qp, w.unacked, w.next_psn, w.ahead
        self.at_hand = qp
        opcode, syndrome = packet.opcode, packet.syndrome

        # What a packet says is impossible.
        refused = sized(self, packet.cack - unacked, 24, "refused_from_unacked") # NACK: cack holds its PSN.
        beyond  = sized(self, ~ahead[23] & (ahead > w.limit), 1, "beyond")
        strange = sized(self, (opcode == Opcode.ACKNOWLEDGE) & (syndrome[5:] != 0), 1, "strange") # Neither ACK nor NAK.

        self.comb += [
            self.credit.page.eq(w.record.row.page),
            self.credit.completed.eq(1),
            self.credit.qp.eq(qp),
            self.credit.context.eq(w.record.row.context),
            self.credit.region.eq(w.record.row.region),
            self.wake.qp.eq(qp),
            self.proved.qp.eq(qp),
            self.proved.entropy.eq(packet.entropy),
            self.note.qp.eq(qp),
            self.note.sack.eq(opcode == Opcode.SACK),
            self.note.marked.eq((opcode == Opcode.SACK) & (packet.mark == 1)),
            self.note.bytes.eq(Mux((opcode == Opcode.SACK) & ~w.news[23], w.news, 0)),
            self.note.rtt.eq(w.sample),
            events.sink.qp.eq(qp),
            events.sink.reason.eq(syndrome),
            events.sink.unacked.eq(unacked),
            events.sink.next.eq(next_psn),
            events.sink.life.eq(w.life.row.life),
            events.sink.rtt.eq(w.rtt),
            events.sink.entropy.eq(packet.entropy),
            events.sink.time.eq(self.time),
            self.heard.qp.eq(qp),
            self.heard.psn.eq(packet.trigger),
            self.heard.reason.eq(syndrome),
            *[getattr(self.heard, name).eq(getattr(packet, name)) for name in ("probe", "mark", "entropy")],
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        LifeStates(self, w, config)
        WindowStates(self, w, config)
        MessageStates(self, w)
        fsm.act("IDLE",
            NextValue(finder.second, 0),
            finder.clear.eq(1),
            If(self.resent.valid,
                self.resent.ready.eq(1),
                NextValue(qp, self.resent.qp),
                NextValue(w.one_psn, self.resent.psn),
                NextValue(window.piece, self.resent.psn[6:]),
                NextState("RESENT-READ")
            ).Elif(self.init.valid,
                NextValue(qp, self.init.qp),
                NextValue(window.piece, 0),
                NextState("INIT-READ")
            ).Elif(self.flush.valid,
                NextValue(qp, self.flush.qp),
                NextState("FLUSH-READ")
            ).Elif(self.guard.valid,
                self.guard.ready.eq(1),
                guards.index.eq(self.guard.qp),
                guards.row.time.eq(self.guard.time),
                guards.row.packets.eq(self.guard.packets),
                guards.we.eq(1)
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                NextValue(qp, self.sink.dest_qp[:config.qp_bits]),
                packet.take.eq(1),
                NextState("READ")
            )
        )
        fsm.act("READ", NextState("LATCH"))
        fsm.act("LATCH",
            NextValue(unacked, w.acks.row.unacked),
            NextValue(w.tail, w.acks.row.msn),
            NextValue(w.rtt, w.acks.row.rtt),
            NextValue(w.rqmsn, w.acks.row.rqmsn),
            NextValue(w.received, w.acks.row.received),
            NextValue(w.heard, w.acks.row.heard + 1),
            NextValue(next_psn, w.send.row.next_psn),
            NextValue(w.head, w.send.row.msn),
            If((packet.qpn[:16] >= config.queue_pairs) | (packet.qpn[16:] != w.attributes.row.generation) |
               (packet.p_key != w.attributes.row.p_key) | (w.life.row.state != QpState.RTS),
                foreign.eq(1),
                NextState("IDLE")
            ).Else(
                NextState("SORT")
            )
        )
        fsm.act("SORT",
            NextValue(window.piece, unacked[6:]),
            NextValue(window.high, w.target),
            NextState("ADVANCE-READ"),
            NextValue(w.one_psn, packet.cack),
            If(opcode == Opcode.NACK,
                NextValue(window.piece, packet.cack[6:]),
                NextState("IDLE"),
                If(~refused[23] & (refused < w.limit),
                    nacks.eq(1),
                    self.heard.valid.eq(1),
                    self.note.valid.eq(1),
                    NextState("NACK-READ")
                )
            ).Elif(~beyond & (opcode == Opcode.ACKNOWLEDGE) & (syndrome[5:7] == Syndrome.NAK_INVALID_REQUEST >> 5),
                naks.eq(1),
                NextState("EVENT")
            ).Elif(beyond | strange,
                bad.eq(1),
                NextState("IDLE")
            ).Elif(ahead[23],
                # Older than what we know: nothing to move.
                NextValue(window.high, unacked),
                NextState("ADVANCED")
            )
        )
