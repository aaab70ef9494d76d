# SPDX-License-Identifier: BSD-2-Clause
"""Reliability probes: on the next path of a peer, or on one that the firmware names.

A probe asks the peer for a SACK, so it serves two ends: it brings lost acknowledgements again, and its
answer shows that its path works. Its number holds the path, so that nothing has to be remembered: entropy
value in bits 7:0, time in bits 15:8. A probe uses no PSN, is never repeated by itself, and goes in the class
of the data whose path it tries. About 10 cycles. Source: MRC 1.0, reliability probe, PETH.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.counters import Counters
from gateware.common.headers import PETH, Dscp, Opcode
from gateware.common.layouts import send_layout
from gateware.transport.requester.paths import choose_layout

QUEUE_DEPTH = 16    # Commands that wait while the transmitter stands.

class Prober(LiteXModule):
    """Sends probes.

    sink:    {qp, given, ev}: on value `ev` of its peer if `given`, else on the next one.
    choose, chosen: to `Paths`.
    source:  send_layout, length 0.
    time, own_ip, udp_port, own_macs: constants of the card and time.
    """
    def __init__(self, config, tables, chosen):
        self.sink     = stream.Endpoint([("qp", config.qp_bits), ("given", 1), ("ev", config.ev_bits)])
        self.choose   = choose = stream.Endpoint(choose_layout(config))
        self.source   = stream.Endpoint(send_layout(config))
        self.time     = Signal(32)
        self.own_ip   = Signal(32)
        self.own_ip6  = Signal(128)
        self.dscp     = Signal(6, reset=Dscp.DATA)
        self.own_macs = [Signal(48) for _ in range(4)]
        self.udp_port = Signal(16)
        self.counters = Counters(self)

        # # #

        count = self.counters.add("sent_probe", "Probes sent.")

        attributes = tables.queue_pair.reader()
        peer       = tables.peer.reader()
        self.queue = queue = stream.SyncFIFO(self.sink.description, QUEUE_DEPTH)
        qp         = queue.source.qp
        number     = attributes.row.peer[:config.peer_bits]
        self.comb += [
            self.sink.connect(queue.sink),
            attributes.index.eq(qp),
            peer.index.eq(number),
            choose.qp.eq(qp), choose.peer.eq(number), choose.given.eq(queue.source.given), choose.ev.eq(queue.source.ev),
        ]

        # Header values.
        peth = Signal(8*PETH.length)
        identity = Signal(16)                           # The entropy value, and when.
        mac, own_mac = Signal(48), Signal(48)
        self.comb += [
            identity[:config.ev_bits].eq(chosen.ev),
            identity[8:].eq(self.time[:8]),
            PETH.encode(peth, probe_id=identity, spdcid=Cat(qp, C(0, 16 - config.qp_bits)),
                dpdcid=attributes.row.remote_qp[:16], tx_timestamp=self.time[:16], ftype=1),
            Case(chosen.plane, {i: [mac.eq(getattr(peer.row, f"mac{i}")), own_mac.eq(self.own_macs[i])] for i in range(4)}),
        ]
        s, latch = self.source, Signal()
        self.comb += count.eq(s.valid & s.ready)
        self.sync += If(s.ready, s.valid.eq(0)), If(latch,
            s.valid.eq(1),
            s.plane.eq(chosen.plane), s.entropy.eq(chosen.entropy),
            s.destination_mac.eq(mac), s.source_mac.eq(own_mac),
            s.ipv6.eq(peer.row.ipv6), s.source_ip.eq(Mux(peer.row.ipv6, self.own_ip6, self.own_ip)), s.destination_ip.eq(peer.row.ip),
            s.udp_port.eq(self.udp_port), s.dscp.eq(self.dscp), s.opcode.eq(Opcode.PROBE),
            s.p_key.eq(attributes.row.p_key), s.dest_qp.eq(attributes.row.remote_qp),
            s.body.eq(peth), s.body_length.eq(PETH.length)
        )

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE", If(queue.source.valid & ~s.valid, NextState("READ")))
        fsm.act("READ", NextState("PEER"))
        fsm.act("PEER", NextState("PATH"))
        fsm.act("PATH",
            choose.valid.eq(1),
            If(choose.ready,
                latch.eq(1),
                queue.source.ready.eq(1),
                NextState("IDLE")
            )
        )
