# SPDX-License-Identifier: BSD-2-Clause
"""The control sender: what the responder owes its peers, and the packets that pay it.

What the acceptor found due arrives here behind the payload and the flags it speaks of. A queue pair has
a row for its SACK and one for its Transport ACK, and waits for its turn once at most:

    due -> rows, marks -> turns (queue pairs, in order) --+
        -> nacks (one entry each, bounded) ---------------+-> way back -> packet

  SACK, ACK   a newer snapshot replaces an older one, so a slow transmitter costs nothing but coalescing.
  NAK         stays until it has left; neither an ACK nor another NAK takes its place.
  NACK        one per refused packet, in order; one that finds the queue full is counted and not sent: its
              PSN stays missing, and SACKs or a deadline tell of it.

Receive never waits for transmit: `due` is taken within 8 cycles, whatever `source` does. SACK before ACK;
NACKs and queue pairs take turns. An answer goes back the way of its trigger, or as `reverse_path.py` says.
A packet takes 5 cycles. What is of another generation of its queue pair than the present one is dropped.

Source: MRC 1.0; the design.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.counters import Counters
from gateware.common.headers import Dscp, Syndrome
from gateware.common.layouts import due_fields, send_layout
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import init_endpoint
from gateware.transport.responder.answers import AnswerPacket, Kind, ack_fields, fill, nack_fields, sack_fields
from gateware.transport.responder.reverse_path import ReversePath

class ControlSender(LiteXModule):
    """Keeps what is due and sends it.

    due:       due_fields(); always taken, at most one per 4 cycles.
    init:      forgets what is due of a queue pair.
    source:    send_layout, length 0.
    proved:    {valid, qp, plane, entropy}: an answer to a packet of ours came back this way.
    planes_up: one bit per plane.
    """
    def __init__(self, config, tables):
        self.due       = stream.Endpoint(due_fields())
        self.init      = init_endpoint()
        self.source    = stream.Endpoint(send_layout(config))
        self.proved    = Record([("valid", 1), ("qp", config.qp_bits), ("plane", 2), ("entropy", 16)])
        self.planes_up = Signal(config.planes, reset=2**config.planes - 1)
        self.own_ip    = Signal(32)
        self.own_ip6   = Signal(128)
        self.dscp      = Signal(6, reset=Dscp.CONTROL)
        self.own_macs  = [Signal(48) for _ in range(4)]
        self.udp_port  = Signal(16)
        self.counters  = Counters(self)

        # # #

        sent = {kind: self.counters.add(name, text) for kind, name, text in (
            (Kind.SACK, "sent_sack", "SACKs sent."), (Kind.ACK, "sent_ack", "Transport ACKs and NAKs sent."),
            (Kind.NACK, "sent_nack", "NACKs sent."))}
        full  = self.counters.add("nacks_dropped", "NACKs not sent because too many waited.")
        stale = self.counters.add("due_stale",     "Answers dropped because their queue pair had begun another life.")
        moved = self.counters.add("answers_moved", "Answers sent another way than their trigger's because its plane is down.")

        # State: rows and marks per queue pair, and who waits in which order.
        self.sacks = sacks = TableRAM(sack_fields(), config.queue_pairs)
        self.acks  = acks  = TableRAM(ack_fields(),  config.queue_pairs)
        self.marks = marks = TableRAM([("queued", 1), ("sack", 1), ("ack", 1), ("nak", 1)], config.queue_pairs)
        self.turns = turns = stream.SyncFIFO([("qp", config.qp_bits)], config.queue_pairs, buffered=True)
        self.nacks = nacks = stream.SyncFIFO(nack_fields(config), config.nacks, buffered=True)
        self.way   = way   = ReversePath(config)
        attributes, peer   = tables.queue_pair.reader(), tables.peer.reader()
        sack, ack, mark    = sacks.reader(), acks.reader(), marks.reader()

        qp      = Signal(config.qp_bits)
        d       = Record(due_fields())
        learned = Record(self.proved.layout)               # A way that was proved and is not yet noted.
        self.comb += [
            *[t.index.eq(qp) for t in (attributes, sack, ack, mark, sacks, acks, marks)],
            *[t.eq(attributes.row.peer[:config.peer_bits]) for t in (peer.index, way.peer)],
            turns.sink.qp.eq(qp),
            way.planes_up.eq(self.planes_up),
            fill(self, d, sacks.row, acks.row, nacks.sink),
        ]

        # Packet.
        self.packet = packet = AnswerPacket(sack.row, ack.row, nacks.source)
        kind, plane, entropy = Signal(2), Signal(2), Signal(16)
        mac, own_mac = Signal(48), Signal(48)
        s = self.source
        self.comb += [
            packet.kind.eq(kind),
            packet.spdcid.eq(qp), packet.dpdcid.eq(attributes.row.remote_qp[:16]),
            Case(plane, {i: [mac.eq(getattr(peer.row, f"mac{i}")), own_mac.eq(self.own_macs[i])] for i in range(4)}),
        ]
        take, note, choose, build = Signal(), Signal(), Signal(), Signal()
        self.sync += [
            If(take, *[getattr(d, f).eq(getattr(self.due, f)) for f, _ in due_fields()]),
            If(note, learned.valid.eq(0)).Elif(~learned.valid, learned.raw_bits().eq(self.proved.raw_bits())),
            If(choose, plane.eq(way.to_plane), entropy.eq(way.to_entropy)),
            If(s.ready, s.valid.eq(0)),
            If(build,
                s.valid.eq(1),
                s.plane.eq(plane), s.entropy.eq(entropy),
                s.destination_mac.eq(mac), s.source_mac.eq(own_mac),
                s.ipv6.eq(peer.row.ipv6), s.source_ip.eq(Mux(peer.row.ipv6, self.own_ip6, self.own_ip)), s.destination_ip.eq(peer.row.ip),
                s.udp_port.eq(self.udp_port), s.dscp.eq(self.dscp),
                s.p_key.eq(attributes.row.p_key), s.dest_qp.eq(attributes.row.remote_qp),
                s.opcode.eq(packet.opcode), s.psn.eq(packet.psn), s.rtx.eq(packet.rtx),
                s.body.eq(packet.body), s.body_length.eq(packet.body_length)
            ),
        ]
        self.comb += [If(kind == k, pulse.eq(s.valid & s.ready)) for k, pulse in sent.items()]

        # Way back: the trigger's, or what is learned.
        self.comb += [
            way.plane.eq(packet.trigger_plane), way.entropy.eq(packet.trigger_entropy),
            If(way.heard, way.plane.eq(d.plane), way.entropy.eq(d.entropy)),
            If(way.proved, way.plane.eq(learned.plane), way.entropy.eq(learned.entropy)),
        ]

        nack_next = Signal()                               # A queue pair was served last.
        is_nak    = Signal()
        kept      = Signal()                               # A NAK waits: no other takes its place.
        both      = Signal()
        self.comb += [
            is_nak.eq(d.syndrome[5:7] == Syndrome.NAK_INVALID_REQUEST >> 5),
            kept.eq(mark.row.ack & mark.row.nak),
            both.eq(mark.row.sack & mark.row.ack),
        ]

        self.fsm = fsm = FSM(reset_state="SWEEP")
        # A reset empties the queue, so nothing may be marked as waiting in it.
        fsm.act("SWEEP",
            marks.we.eq(1),
            NextValue(qp, qp + 1),
            If(qp == config.queue_pairs - 1, NextState("IDLE"))
        )
        fsm.act("IDLE",
            If(self.due.valid,
                self.due.ready.eq(1),
                take.eq(1),
                NextValue(qp, self.due.qp),
                NextState("STORE-READ")
            ).Elif(self.init.valid,
                NextValue(qp, self.init.qp),
                NextState("INIT-READ")
            ).Elif(learned.valid,
                NextValue(qp, learned.qp),
                NextState("PROVED-READ")
            ).Elif(~s.valid & nacks.source.valid & (nack_next | ~turns.source.valid),
                NextValue(qp, nacks.source.qp),
                NextState("NACK-READ")
            ).Elif(~s.valid & turns.source.valid,
                turns.source.ready.eq(1),
                NextValue(qp, turns.source.qp),
                NextState("TURN-READ")
            )
        )
        # What is due --------------------------------------------------------------------------------
        fsm.act("STORE-READ", NextState("STORE"))
        fsm.act("STORE",
            NextState("IDLE"),
            If(d.generation != attributes.row.generation,
                stale.eq(1)
            ).Else(
                sacks.we.eq(d.sack),
                acks.we.eq(d.ack & ~kept),
                marks.we.eq(1),
                marks.row.queued.eq(mark.row.queued | d.sack | d.ack),
                marks.row.sack.eq(mark.row.sack | d.sack),
                marks.row.ack.eq(mark.row.ack | d.ack),
                marks.row.nak.eq(kept | (d.ack & is_nak)),
                turns.sink.valid.eq((d.sack | d.ack) & ~mark.row.queued),
                nacks.sink.valid.eq(d.nack),
                full.eq(d.nack & ~nacks.sink.ready),
                If(d.sack | d.ack, NextState("HEARD"))
            )
        )
        fsm.act("HEARD",
            way.heard.eq(1),
            NextState("IDLE")
        )
        # An answer to a packet of ours --------------------------------------------------------------
        fsm.act("PROVED-READ", NextState("PROVED-PEER"))
        fsm.act("PROVED-PEER", NextState("PROVED"))
        fsm.act("PROVED",
            way.proved.eq(1),
            note.eq(1),
            NextState("IDLE")
        )
        # A new life: it is owed nothing. It may still stand in the queue; its turn then ends at once.
        fsm.act("INIT-READ", NextState("INIT"))
        fsm.act("INIT",
            marks.we.eq(1),
            marks.row.queued.eq(mark.row.queued),
            self.init.ready.eq(1),
            NextState("IDLE")
        )
        # Packets ------------------------------------------------------------------------------------
        # A mark is cleared with the reading of its row: a newer snapshot sets it again.
        fsm.act("TURN-READ", NextState("TURN"))
        fsm.act("TURN",
            NextValue(nack_next, 1),
            NextValue(kind, Mux(mark.row.sack, Kind.SACK, Kind.ACK)),
            marks.we.eq(1),
            marks.row.queued.eq(both),
            marks.row.ack.eq(both),
            marks.row.nak.eq(both & mark.row.nak),
            turns.sink.valid.eq(both),
            If(mark.row.sack | mark.row.ack, NextState("PATH")).Else(NextState("IDLE"))
        )
        fsm.act("NACK-READ", NextState("NACK"))
        fsm.act("NACK",
            NextValue(nack_next, 0),
            NextValue(kind, Kind.NACK),
            NextState("PATH"),
            If(nacks.source.generation != attributes.row.generation,
                stale.eq(1),
                nacks.source.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("PATH",
            choose.eq(1),
            moved.eq(way.moved),
            NextState("BUILD")
        )
        fsm.act("BUILD",
            build.eq(1),
            nacks.source.ready.eq(kind == Kind.NACK),
            NextState("IDLE")
        )
