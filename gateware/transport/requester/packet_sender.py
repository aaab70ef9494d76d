# SPDX-License-Identifier: BSD-2-Clause
"""The packet sender: a path for every packet, chosen when the packet leaves.

Takes the next descriptor when its whole payload is stored, looks once more whether the packet is
still wanted (a resend may have been acknowledged meanwhile, the queue pair may have failed), asks
`Paths` for a path, and hands the header values to the packet builder. A resend whose PSN counts as
lost first says so of the path that had it, and then gets another one.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import bit_of, sized
from gateware.common.counters import Counters
from gateware.common.headers import (
    DATA_BODY_BYTES,
    DATA_IMMDT,
    DATA_METH,
    DATA_RETH,
    DATA_TSETH,
    IMMDT,
    METH,
    PACKET_TYPES,
    RETH,
    TSETH,
    Dscp,
)
from gateware.common.layouts import event_layout, payload_layout, send_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import chunk_row, sent_layout
from gateware.transport.requester.paths import Change, change_layout, choose_layout
from gateware.transport.requester.wqe import packet_descriptor_layout

# Payload gate -------------------------------------------------------------------------------------

class PayloadGate(LiteXModule):
    """Lets the payload of a packet pass to the builder, or drops it, in the order of the verdicts.

    verdicts: {drop}, one per packet of `sink`.
    """
    def __init__(self, config):
        self.verdicts = stream.Endpoint([("drop", 1)])
        self.sink     = stream.Endpoint(payload_layout(config.network_width))
        self.source   = stream.Endpoint(payload_layout(config.network_width))

        # # #

        self.fifo = fifo = stream.SyncFIFO([("drop", 1)], 4)
        end = Signal()
        self.comb += [
            self.verdicts.connect(fifo.sink),
            self.sink.connect(self.source, omit={"valid", "ready"}),
            self.source.valid.eq(self.sink.valid & fifo.source.valid & ~fifo.source.drop),
            self.sink.ready.eq(fifo.source.valid & (fifo.source.drop | self.source.ready)),
            end.eq(self.sink.valid & self.sink.ready & self.sink.last),
            fifo.source.ready.eq(end),
        ]

# Packet sender ------------------------------------------------------------------------------------

class PacketSender(LiteXModule):
    """Sends the packets whose payload is stored.

    sink:      packet_descriptor_layout.
    packets:   {error}, one per packet whose payload is stored, in the same order.
    payload, to_builder: the payload stream through the gate.
    source:    send_layout.
    event:     READ_ERROR events.
    resent:    {qp, psn}: a resend has left: its hole may be reported again.
    choose, chosen, change: to `Paths`.
    sent:      TableRAM, index = queue pair * mpr + PSN modulo mpr: time and path of the last
               transmission, and how often it has been sent again.
    idle:      no packet is at hand.
    time:      32-bit tick counter; own_ip, own_ip6, udp_port, own_macs, dscp: constants of the card.
    """
    def __init__(self, config, tables, ack_state, status, scoreboard, chosen):
        self.sink       = stream.Endpoint(packet_descriptor_layout(config))
        self.packets    = stream.Endpoint([("error", 1)])
        self.payload    = stream.Endpoint(payload_layout(config.network_width))
        self.to_builder = stream.Endpoint(payload_layout(config.network_width))
        self.source     = stream.Endpoint(send_layout(config))
        self.events     = events = stream.SyncFIFO(event_layout(), 4)
        self.event      = events.source
        self.resent     = stream.Endpoint([("qp", config.qp_bits), ("psn", 24)])
        self.choose     = choose = stream.Endpoint(choose_layout(config))
        self.change     = change = stream.Endpoint(change_layout(config))
        self.sent       = sent = TableRAM(sent_layout(config), config.queue_pairs*config.mpr)
        self.idle       = Signal()
        self.time       = Signal(32)
        self.own_ip     = Signal(32)
        self.own_ip6    = Signal(128)
        self.dscp       = Signal(6, reset=Dscp.TRIMMABLE)
        self.own_macs   = [Signal(48) for _ in range(4)]
        self.udp_port   = Signal(16)
        self.counters   = Counters(self)

        # # #

        new_count = self.counters.add("data_new",     "Data packets sent for the first time.")
        rtx_count = self.counters.add("data_resent",  "Data packets sent again.")
        drop      = self.counters.add("data_dropped",
            "Data packets dropped before sending: acknowledged meanwhile, queue pair failed, or read failed.")

        self.gate = gate = PayloadGate(config)
        self.comb += [self.payload.connect(gate.sink), gate.source.connect(self.to_builder)]

        lost      = self.counters.add("events_lost_read", "READ_ERROR events that found the event queue full.")

        # Tables.
        attributes = tables.queue_pair.reader()
        acks       = ack_state.reader()
        life       = status.reader()
        acked      = scoreboard.reader()
        peer       = tables.peer.reader()
        before     = sent.reader()
        d          = Record(packet_descriptor_layout(config))
        self.at_hand = d.qp
        error      = Signal()
        number     = attributes.row.peer[:config.peer_bits]
        psn_index  = d.psn[:config.psn_bits]
        self.comb += [
            *[t.index.eq(d.qp) for t in (attributes, acks, life)],
            acked.index.eq(chunk_row(config, d.psn, d.qp)),
            peer.index.eq(number),
            *[t.index.eq(Cat(psn_index, d.qp)) for t in (sent, before)],
        ]

        # The path: of the last transmission, and of this one.
        ev = Signal(config.ev_bits)
        self.comb += [
            choose.qp.eq(d.qp), choose.peer.eq(number),
            change.qp.eq(d.qp), change.peer.eq(number), change.ev.eq(before.row.ev), change.kind.eq(Change.LOST),
            sent.row.time.eq(self.time[:16]),
            sent.row.ev.eq(ev),
            If(d.rtx, sent.row.resent.eq(before.row.resent + (before.row.resent != 3))),
        ]

        # Still wanted?
        age     = sized(self, d.psn - acks.row.unacked, 24, "psn_from_unacked")
        is_acked = bit_of(self, acked.row.acked, d.psn[:6], "is_acked")
        unwanted = Signal()
        self.comb += unwanted.eq((life.row.state != QpState.RTS) | age[23] | is_acked)

        # Header values.
        body = Signal(8*DATA_BODY_BYTES)
        meth, tseth, reth, immdt = (Signal(8*h.length) for h in (METH, TSETH, RETH, IMMDT))
        self.comb += [
            METH.encode(meth, rqmsn=d.rqmsn, msn=d.msn),
            TSETH.encode(tseth, tx_timestamp=self.time[:16], ftype=1),
            RETH.encode(reth, va=d.va, rkey=d.rkey, length=Cat(d.total, C(0, 8))),
            IMMDT.encode(immdt, immediate=d.immediate),
            *[body[8*at:8*at + len(vector)].eq(vector) for at, vector in (
                (DATA_METH, meth), (DATA_TSETH, tseth), (DATA_RETH, reth), (DATA_IMMDT, immdt))],
        ]
        s = self.source
        sizes = {t.opcode: t.body + TSETH.length for t in PACKET_TYPES.values() if t.data}
        mac, own_mac = Signal(48), Signal(48)
        self.comb += [
            Case(chosen.plane, {i: [mac.eq(getattr(peer.row, f"mac{i}")), own_mac.eq(self.own_macs[i])] for i in range(4)}),
        ]
        header = [
            (s.plane, chosen.plane), (ev, chosen.ev), (s.destination_mac, mac), (s.source_mac, own_mac),
            (s.ipv6, peer.row.ipv6), (s.source_ip, Mux(peer.row.ipv6, self.own_ip6, self.own_ip)), (s.destination_ip, peer.row.ip),
            (s.dscp, self.dscp),
            (s.entropy, chosen.entropy), (s.udp_port, self.udp_port), (s.opcode, d.opcode),
            (s.p_key, attributes.row.p_key), (s.dest_qp, attributes.row.remote_qp), (s.a, d.a), (s.rtx, d.rtx), (s.ts, 1),
            (s.psn, d.psn), (s.length, d.length), (s.body, body),
        ]

        self.comb += [
            events.sink.kind.eq(EventKind.READ_ERROR),
            events.sink.qp.eq(d.qp),
            events.sink.base.eq(d.psn),
            events.sink.unacked.eq(acks.row.unacked),
            events.sink.life.eq(life.row.life),
            events.sink.time.eq(self.time),
            self.resent.qp.eq(d.qp),
            self.resent.psn.eq(d.psn),
        ]

        # Descriptor and header are latched outside of the machine: their many bits are then looked at only when needed.
        take, latch = Signal(), Signal()
        self.sync += [
            If(take,
                *[getattr(d, f[0]).eq(getattr(self.sink, f[0])) for f in packet_descriptor_layout(config)],
                error.eq(self.packets.error | self.sink.void)
            ),
            If(latch,
                *[target.eq(value) for target, value in header],
                Case(d.opcode, {o: s.body_length.eq(n) for o, n in sizes.items()})
            ),
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += self.idle.eq(fsm.ongoing("IDLE"))
        fsm.act("IDLE",
            If(self.sink.valid & self.packets.valid,
                self.sink.ready.eq(1),
                self.packets.ready.eq(1),
                take.eq(1),
                NextState("READ")
            )
        )
        fsm.act("READ", NextState("PEER"))
        fsm.act("PEER", NextState("CHOOSE"))
        fsm.act("CHOOSE",
            If(unwanted, NextState("DROP"))
            .Elif(error, NextState("FAILED"))
            .Elif(d.lost, NextState("LOST"))
            .Else(NextState("PATH"))
        )
        fsm.act("LOST",
            change.valid.eq(1),
            If(change.ready, NextState("PATH"))
        )
        fsm.act("PATH",
            choose.valid.eq(1),
            If(choose.ready,
                latch.eq(1),
                NextState("PASS")
            )
        )
        # The payload first: the builder takes a header only when its payload has begun to come.
        fsm.act("PASS",
            gate.verdicts.valid.eq(1),
            gate.verdicts.drop.eq(d.length == 0),
            If(gate.verdicts.ready, NextState("SEND"))
        )
        fsm.act("SEND",
            s.valid.eq(1),
            If(s.ready,
                sent.we.eq(1),
                new_count.eq(~d.rtx),
                rtx_count.eq(d.rtx),
                If(d.rtx, NextState("RESENT")).Else(NextState("IDLE"))
            )
        )
        fsm.act("RESENT",
            self.resent.valid.eq(1),
            If(self.resent.ready, NextState("IDLE"))
        )
        # An event that finds no room is not waited for: the PSN stays missing, its timeout reads again.
        fsm.act("FAILED",
            events.sink.valid.eq(1),
            lost.eq(~events.sink.ready),
            NextState("DROP")
        )
        fsm.act("DROP",
            gate.verdicts.valid.eq(1),
            gate.verdicts.drop.eq(1),
            If(gate.verdicts.ready,
                drop.eq(1),
                NextState("IDLE")
            )
        )
