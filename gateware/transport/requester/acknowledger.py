# SPDX-License-Identifier: BSD-2-Clause
"""The acknowledger: what Transport ACKs, SACKs and NACKs mean for the queue pairs that sent.

It owns the scoreboard (two bits per PSN of the window), the oldest unacknowledged PSN, the oldest
unretired message, the queue pair's status and the reorder guard.

  SACK   cack moves the window; the bitmap is ORed into the scoreboard; PSNs that this bitmap shows
         missing are *ripe* when at least `guard packets` below its highest arrival and last sent at
         least `guard time` ago. Ripe holes become one HOLES event; each PSN is reported once until
         it has been sent again.
  ACK    cack moves the window; messages up to MSN are retired: their pages get credit.
  NAK    becomes a NAK event.       NACK  becomes a NACK event; a trimmed PSN counts as reported, too, so
         that neither a SACK nor another NACK reports it again before it has been sent again.

A SACK takes about 20 cycles plus 3 per hole; a hole report that finds the event queue full is left
for the next SACK. Source: MRC 1.0.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import one_hot, sized
from gateware.common.counters import Counters
from gateware.common.headers import Opcode, Syndrome
from gateware.common.layouts import event_layout, received_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import chunk_row, chunks, credit_layout, init_endpoint
from gateware.transport.requester.control_packet import ControlPacket
from gateware.transport.requester.hole_finder import HoleFinder
from gateware.transport.requester.window_piece import WindowPiece

class Acknowledger(LiteXModule):
    """Processes acknowledgements; owns the requester's view of the window.

    sink:     received_layout of ACKNOWLEDGE, SACK and NACK packets.
    event:    HOLES, NACK, NAK.
    credit:   completed tokens.
    wake:     {valid, qp}: a window or the message pool has opened.
    resent:   {qp, psn}: from the packet sender.
    guard:    {qp, time, packets}: command of the firmware.
    error:    {qp, reason}: command of the firmware: end the queue pair, flush its messages.
    init:     start a queue pair's life.
    segmenter_busy, segmenter_qp: a flush waits until the segmenter has left the queue pair.
    sent:     reader of PacketSender.sent, connected by the owner of both.
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
        self.error   = stream.Endpoint([("qp", config.qp_bits), ("reason", 8)])
        self.init    = init_endpoint()
        self.time    = Signal(32)
        self.segmenter_busy = Signal()
        self.segmenter_qp   = Signal(config.qp_bits)
        self.sent_index     = Signal(config.qp_bits + config.psn_bits)
        self.sent_time      = Signal(16)
        self.counters = Counters(self)

        # # #

        foreign  = self.counters.add("ack_unknown_qp", "Control packets for no living queue pair.")
        bad      = self.counters.add("ack_bad",        "Control packets that acknowledge what was never sent.")
        sacks    = self.counters.add("sacks",          "SACKs processed.")
        acks_    = self.counters.add("acks",           "Transport ACKs processed.")
        naks     = self.counters.add("naks",           "Transport NAKs processed.")
        nacks    = self.counters.add("nacks",          "NACKs processed.")
        reports  = self.counters.add("hole_reports",   "HOLES events raised.")
        lost     = self.counters.add("events_lost",    "Events that found the event queue full.")
        retired  = self.counters.add("messages_completed", "Messages acknowledged.")
        failed   = self.counters.add("messages_failed",    "Messages ended with their queue pair.")

        # Tables.
        attributes = tables.queue_pair.reader()
        send       = send_state.reader()
        acks       = ack_state.reader()
        life       = status.reader()
        board      = scoreboard.reader()
        record     = messages.reader()
        self.guards = guards = TableRAM([("time", 16), ("packets", 8)], config.queue_pairs)
        guard      = guards.reader()

        # The packet at hand.
        qp       = Signal(config.qp_bits)
        self.packet = packet = ControlPacket(self.sink)
        opcode, cack, syndrome = packet.opcode, packet.cack, packet.syndrome

        # The window at hand.
        unacked, next_psn = Signal(24), Signal(24)
        tail, head        = Signal(16), Signal(16)
        rtt               = Signal(16)
        self.comb += [
            *[t.index.eq(qp) for t in (attributes, send, acks, life, guard, ack_state, status, guards)],
            record.index.eq(Cat(tail[:config.message_bits], qp)),
            self.credit.page.eq(record.row.page),
            self.credit.completed.eq(1),
            self.credit.qp.eq(qp),
            self.wake.qp.eq(qp),
            ack_state.row.unacked.eq(unacked),
            ack_state.row.msn.eq(tail),
            ack_state.row.rtt.eq(rtt),
        ]
        target  = sized(self, cack + 1, 24, "target")
        ahead   = sized(self, target - unacked, 24, "ahead")
        limit   = sized(self, next_psn - unacked, 24, "limit")
        sample  = sized(self, self.time[:16] - packet.stamp, 16, "rtt_sample")
        refused = sized(self, cack - unacked, 24, "refused_from_unacked") # NACK: cack holds its PSN.
        beyond  = sized(self, ~ahead[23] & (ahead > limit), 1, "beyond")
        strange = sized(self, (opcode == Opcode.ACKNOWLEDGE) & (syndrome[5:] != 0), 1, "strange") # Neither ACK nor NAK.

        # A piece of the window, and the holes that a SACK shows in it.
        self.window = window = WindowPiece()
        self.finder = finder = HoleFinder()
        piece, high_psn, second = window.piece, window.high, finder.second
        arrived = sized(self, finder.arrived & window.inside, 64, "arrived")
        acked   = sized(self, board.row.acked | arrived, 64, "acked")
        self.comb += [
            window.low.eq(unacked),
            finder.base.eq(packet.base), finder.bitmap.eq(packet.bitmap),
            *[t.index.eq(chunk_row(config, window.origin, qp)) for t in (board, scoreboard)],
            finder.missing.eq(~(acked | board.row.reported) & window.inside),
            finder.guard_time.eq(guard.row.time),
            finder.guard_packets.eq(guard.row.packets),
            finder.time.eq(self.time[:16]),
            finder.sent_time.eq(self.sent_time),
            self.sent_index.eq(Cat(finder.sent_psn[:config.psn_bits], qp)),
        ]
        # A PSN by itself: a resend has left, a NACK has come.
        one_psn = Signal(24)
        one_bit = one_hot(self, one_psn[:6], 64, "one_bit")
        known   = sized(self, ((board.row.acked | board.row.reported) & one_bit) != 0, 1, "known")

        # Messages.
        claimed  = sized(self, packet.msn - tail, 16, "messages_claimed")
        flying   = sized(self, head - tail, 16, "messages_flying")
        behind   = sized(self, record.row.last_psn - unacked, 24, "last_psn_from_unacked")
        next_tail = sized(self, tail + 1, 16, "next_tail")

        # A failed queue pair whose messages wait for their flush.
        flush, flush_qp, reason = Signal(), Signal(config.qp_bits), Signal(8)
        flush_now = Signal()
        self.comb += flush_now.eq(flush & ~(self.segmenter_busy & (self.segmenter_qp == flush_qp)))

        self.comb += [
            events.sink.qp.eq(qp),
            events.sink.reason.eq(syndrome),
            events.sink.unacked.eq(unacked),
            events.sink.next.eq(next_psn),
            events.sink.rtt.eq(rtt),
            events.sink.entropy.eq(packet.entropy),
            events.sink.time.eq(self.time),
        ]
        keep_row = [scoreboard.row.acked.eq(board.row.acked), scoreboard.row.reported.eq(board.row.reported)]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(second, 0),
            finder.clear.eq(1),
            If(self.resent.valid,
                self.resent.ready.eq(1),
                NextValue(qp, self.resent.qp),
                NextValue(one_psn, self.resent.psn),
                NextValue(piece, self.resent.psn[6:]),
                NextState("RESENT-READ")
            ).Elif(self.init.valid,
                NextValue(qp, self.init.qp),
                NextValue(piece, 0),
                NextState("INIT-READ")
            ).Elif(flush_now,
                NextValue(qp, flush_qp),
                NextState("FLUSH-READ")
            ).Elif(self.error.valid & ~flush,
                self.error.ready.eq(1),
                NextValue(qp, self.error.qp),
                NextValue(flush_qp, self.error.qp),
                NextValue(reason, self.error.reason),
                NextState("ERROR-READ")
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

        # Life cycle ---------------------------------------------------------------------------------
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            scoreboard.we.eq(1),
            NextValue(piece, window.following),
            If(piece == chunks(config) - 1,
                ack_state.row.unacked.eq(attributes.row.send_psn),
                ack_state.row.msn.eq(0),
                ack_state.row.rtt.eq(0),
                ack_state.we.eq(1),
                status.row.state.eq(attributes.row.state),
                status.we.eq(1),
                guards.row.time.eq(attributes.row.guard_time),
                guards.row.packets.eq(attributes.row.guard_packets),
                guards.we.eq(1),
                self.init.ready.eq(1),
                If(flush_qp == qp, NextValue(flush, 0)), # It was the former life's.
                NextState("IDLE")
            )
        )
        fsm.act("ERROR-READ", NextState("ERROR"))
        fsm.act("ERROR",
            NextState("IDLE"),
            If((life.row.state == QpState.RTS) | (life.row.state == QpState.RTR),
                status.row.state.eq(QpState.ERROR),
                status.row.reason.eq(reason),
                status.we.eq(1),
                NextValue(flush, 1)
            )
        )
        fsm.act("FLUSH-READ", NextState("FLUSH-START"))
        fsm.act("FLUSH-START",
            NextValue(flush, 0),
            NextValue(unacked, send.row.next_psn),
            NextValue(rtt, acks.row.rtt),
            NextValue(tail, acks.row.msn),
            NextValue(head, send.row.msn),
            NextState("FLUSH-MESSAGE")
        )
        fsm.act("FLUSH-MESSAGE", If(flying == 0, NextState("WRITE-BACK")).Else(NextState("FLUSH-CREDIT")))
        fsm.act("FLUSH-CREDIT",
            self.credit.valid.eq(1),
            self.credit.error.eq(reason),
            If(self.credit.ready,
                failed.eq(1),
                NextValue(tail, next_tail),
                NextState("FLUSH-MESSAGE")
            )
        )

        # A resend has left: its hole may be reported again -----------------------------------------
        fsm.act("RESENT-READ", NextState("RESENT"))
        fsm.act("RESENT",
            *keep_row,
            scoreboard.row.reported.eq(board.row.reported & ~one_bit),
            scoreboard.we.eq(1),
            NextState("IDLE")
        )

        # Packets ------------------------------------------------------------------------------------
        fsm.act("READ", NextState("LATCH"))
        fsm.act("LATCH",
            NextValue(unacked, acks.row.unacked),
            NextValue(tail, acks.row.msn),
            NextValue(rtt, acks.row.rtt),
            NextValue(next_psn, send.row.next_psn),
            NextValue(head, send.row.msn),
            If((packet.qpn[:16] >= config.queue_pairs) | (packet.qpn[16:] != attributes.row.generation) |
               (packet.p_key != attributes.row.p_key) | (life.row.state != QpState.RTS),
                foreign.eq(1),
                NextState("IDLE")
            ).Else(
                NextState("SORT")
            )
        )
        fsm.act("SORT",
            NextValue(piece, unacked[6:]),
            NextValue(high_psn, target),
            NextState("ADVANCE-READ"),
            NextValue(one_psn, cack),
            If(opcode == Opcode.NACK,
                NextValue(piece, cack[6:]),
                NextState("IDLE"),
                If(~refused[23] & (refused < limit),
                    nacks.eq(1),
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
                NextValue(high_psn, unacked),
                NextState("ADVANCED")
            )
        )
        fsm.act("NACK-READ", NextState("NACK"))
        fsm.act("NACK",
            *keep_row,
            scoreboard.row.reported.eq(board.row.reported | one_bit),
            scoreboard.we.eq(packet.trimmed & ~known & events.sink.ready),
            If(packet.trimmed & known, NextState("IDLE")).Else(NextState("EVENT"))
        )
        # The window moves over the PSNs up to cack: their bits are cleared, piece by piece.
        fsm.act("ADVANCE-READ", If(unacked == high_psn, NextState("ADVANCED")).Else(NextState("ADVANCE")))
        fsm.act("ADVANCE",
            scoreboard.row.acked.eq(board.row.acked & window.outside),
            scoreboard.row.reported.eq(board.row.reported & window.outside),
            scoreboard.we.eq(1),
            NextValue(piece, window.following),
            If(window.ends,
                NextValue(unacked, high_psn)
            ).Else(
                NextValue(unacked, Cat(C(0, 6), window.following))
            ),
            NextState("ADVANCE-READ")
        )
        fsm.act("ADVANCED",
            NextValue(high_psn, next_psn),
            NextValue(piece, packet.base[6:]),
            If(opcode == Opcode.SACK,
                sacks.eq(1),
                If(~sample[15], NextValue(rtt, sample)),
                NextState("BITMAP-READ")
            ).Else(
                acks_.eq(1),
                NextState("RETIRE-READ")
            )
        )
        # The bitmap: two pieces.
        fsm.act("BITMAP-READ", NextState("BITMAP"))
        fsm.act("BITMAP",
            *keep_row,
            scoreboard.row.acked.eq(acked),
            scoreboard.we.eq(arrived != 0),
            finder.take.eq(1),
            NextValue(second, 1),
            NextValue(piece, window.following),
            If(second, NextState("HOLE")).Else(NextState("BITMAP-READ"))
        )
        # Holes: ripe ones are reported together.
        fsm.act("HOLE",
            finder.start.eq(1),
            NextValue(second, 0),
            NextValue(piece, packet.base[6:]),
            If(finder.done,
                If(finder.ripe != 0, NextState("REPORT")).Else(NextState("WRITE-BACK"))
            )
        )
        fsm.act("REPORT",
            events.sink.valid.eq(1),
            events.sink.kind.eq(EventKind.HOLES),
            events.sink.base.eq(packet.base),
            events.sink.mask_low.eq(finder.ripe[:32]),
            events.sink.mask_high.eq(finder.ripe[32:]),
            If(events.sink.ready,
                reports.eq(1),
                NextState("REPORTED-READ")
            ).Else(
                lost.eq(1),
                NextState("WRITE-BACK")
            )
        )
        fsm.act("REPORTED-READ", NextState("REPORTED"))
        fsm.act("REPORTED",
            *keep_row,
            scoreboard.row.reported.eq(board.row.reported | finder.reported),
            scoreboard.we.eq(1),
            NextValue(second, 1),
            NextValue(piece, window.following),
            If(second, NextState("WRITE-BACK")).Else(NextState("REPORTED-READ"))
        )
        # Messages whose last PSN is acknowledged and whose completion the peer confirms.
        fsm.act("RETIRE-READ", If((claimed == 0) | (claimed > flying), NextState("WRITE-BACK")).Else(NextState("RETIRE")))
        fsm.act("RETIRE",
            If(~behind[23],
                NextState("WRITE-BACK")
            ).Else(
                self.credit.valid.eq(1),
                If(self.credit.ready,
                    retired.eq(1),
                    NextValue(tail, next_tail),
                    NextState("RETIRE-READ")
                )
            )
        )
        fsm.act("EVENT",
            events.sink.valid.eq(1),
            events.sink.kind.eq(Mux(opcode == Opcode.NACK, EventKind.NACK, EventKind.NAK)),
            events.sink.base.eq(cack),
            events.sink.mask_low.eq(1),
            lost.eq(~events.sink.ready),
            NextState("IDLE")
        )
        fsm.act("WRITE-BACK",
            ack_state.we.eq(1),
            self.wake.valid.eq(1),
            NextState("IDLE")
        )
