# SPDX-License-Identifier: BSD-2-Clause
"""Probes: the firmware asks, the peer answers with a SACK and its Transport ACK.

A probe leaves on the next entropy value of the peer, in the class that no switch trims. Source: MRC 1.0.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.headers import PETH, Dscp, Opcode
from gateware.common.layouts import send_layout
from gateware.common.table_ram import TableRAM

QUEUE_DEPTH = 16    # Commands that wait while the transmitter stands.

class Prober(LiteXModule):
    """Sends a probe for each command; 6 cycles each.

    sink:    {qp}: command of the firmware.
    source:  send_layout, length 0.
    """
    def __init__(self, config, tables):
        self.sink     = stream.Endpoint([("qp", config.qp_bits)])
        self.source   = stream.Endpoint(send_layout(config))
        self.time     = Signal(32)
        self.own_ip   = Signal(32)
        self.own_ip6  = Signal(128)
        self.dscp     = Signal(6, reset=Dscp.DATA)
        self.own_macs = [Signal(48) for _ in range(4)]
        self.udp_port = Signal(16)
        self.counters = Counters(self)

        # # #

        sent = self.counters.add("sent_probe", "Probes sent.")

        self.queue = queue = stream.SyncFIFO([("qp", config.qp_bits)], QUEUE_DEPTH)
        attributes = tables.queue_pair.reader()
        peer       = tables.peer.reader()
        ev         = tables.ev.reader()
        self.cursors = cursors = TableRAM([("cursor", config.ev_bits)], config.peers)
        place      = cursors.reader()
        cursor     = Signal(config.ev_bits)               # Next entropy value of the peer to be probed.
        number     = attributes.row.peer[:config.peer_bits]
        following  = sized(self, cursor + 1, config.ev_bits + 1, "cursor_after")
        qp         = queue.source.qp
        self.comb += [
            self.sink.connect(queue.sink),
            attributes.index.eq(qp), *[t.index.eq(number) for t in (peer, place, cursors)],
            cursor.eq(Mux(place.row.cursor >= peer.row.ev_count, 0, place.row.cursor)),
            ev.index.eq(Cat(cursor, number)),
            cursors.row.cursor.eq(Mux(following >= peer.row.ev_count, 0, following)),
        ]

        # Packet.
        s = self.source
        peth = Signal(8*PETH.length)
        mac, own_mac, build = Signal(48), Signal(48), Signal()
        self.comb += [
            PETH.encode(peth, probe_id=self.time[:16], spdcid=Cat(qp, C(0, 16 - config.qp_bits)), dpdcid=attributes.row.remote_qp[:16],
                tx_timestamp=self.time[:16], ftype=1),
            Case(ev.row.plane, {i: [mac.eq(getattr(peer.row, f"mac{i}")), own_mac.eq(self.own_macs[i])] for i in range(4)}),
        ]
        self.sync += If(s.ready, s.valid.eq(0)), If(build,
            s.valid.eq(1),
            s.plane.eq(ev.row.plane), s.entropy.eq(ev.row.entropy),
            s.destination_mac.eq(mac), s.source_mac.eq(own_mac),
            s.ipv6.eq(peer.row.ipv6), s.source_ip.eq(Mux(peer.row.ipv6, self.own_ip6, self.own_ip)), s.destination_ip.eq(peer.row.ip),
            s.udp_port.eq(self.udp_port), s.dscp.eq(self.dscp),
            s.p_key.eq(attributes.row.p_key), s.dest_qp.eq(attributes.row.remote_qp),
            s.opcode.eq(Opcode.PROBE), s.body.eq(peth), s.body_length.eq(PETH.length)
        )

        self.comb += sent.eq(s.valid & s.ready)

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE", If(queue.source.valid & ~s.valid, NextState("READ")))
        fsm.act("READ", NextState("PEER"))
        fsm.act("PEER", NextState("PATH"))
        fsm.act("PATH", NextState("BUILD"))
        fsm.act("BUILD",
            build.eq(1),
            cursors.we.eq(1),
            queue.source.ready.eq(1),
            NextState("IDLE")
        )
