# SPDX-License-Identifier: BSD-2-Clause
"""The snapshot: what the peer must hear of a packet.

An answer is a snapshot of the queue pair's receive state, which follows the payload and the flags through the
write queue to the control sender. In it, `cack` is the last PSN before the oldest hole; in that of a Transport
NAK, which consists of nothing else, the PSN that is refused. Source: MRC 1.0.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.headers import BTH, DATA_TSETH, ICRC_BYTES, IMMDT, METH, PETH, RETH, TSETH, UDP, Syndrome
from gateware.common.layouts import due_fields
from gateware.transport.responder.sack_bitmap import SackBitmap

NOMINAL = UDP.length + BTH.length + METH.length + RETH.length + ICRC_BYTES + 40    # UDP length + 40, payload and pad left out.

class Snapshot(LiteXModule):
    """Collects what is due of the packet `p` and forms the snapshot `due` (a Record of due_fields).

    sack, ack, nack, syndrome, reason: driven by the acceptor, registers.
    fence:     driven by the acceptor: the job marks a place in the queue, nothing is due with it.
    sacks:     the SACK's bitmap, from the receive state `r` and the bitmap's `row`.
    triggered: a SACK is due for this packet by bytes or bits.    since: bytes since the last SACK, this packet included.
    received:  the count of received bytes, this packet included at its nominal size.
    """
    def __init__(self, config, p, is_probe, plane, has_imm, attributes, r, row):
        self.sack, self.ack, self.nack = Signal(), Signal(), Signal()
        self.syndrome  = Signal(8)
        self.reason    = Signal(8)
        self.due       = due = Record(due_fields())
        self.sacks     = sacks = SackBitmap(config, r, row)
        self.fence     = Signal()
        self.triggered = Signal()
        self.since     = Signal(17)
        self.received  = Signal(32)

        # # #

        # Trigger: a packet counts for at least 1024 bytes.
        size = Signal(13)
        self.comb += [
            size.eq(Mux(p.length < 1024, 1024, p.length)),
            self.since.eq(r.since + size),
            self.triggered.eq((self.since > attributes.sack_trigger) | p.a | p.ce | p.rtx),
        ]

        # Nominal size, as the sender counts it: UDP length + 40.
        pad     = sized(self, 0 - p.length[:2], 2, "pad")
        nominal = sized(self, p.length + pad + NOMINAL + Mux(p.ts, TSETH.length, 0) + Mux(has_imm, IMMDT.length, 0), 13, "nominal")
        self.comb += self.received.eq(r.received + nominal)

        # Snapshot.
        stamp   = Signal(16)
        cack    = sized(self, r.expected - 1, 24, "cack")
        rounded = sized(self, r.received + 255, 32, "received_rounded")
        self.comb += [
            stamp.eq(Mux(is_probe, PETH.field(p.body, "tx_timestamp"),
                     Mux(p.ts, TSETH.field(p.body[8*DATA_TSETH:], "tx_timestamp"), 0))),
            due.qp.eq(p.dest_qp[:16]), due.generation.eq(p.dest_qp[16:]),
            due.sack.eq(self.sack), due.ack.eq(self.ack), due.nack.eq(self.nack),
            due.cack.eq(Mux(self.syndrome == Syndrome.ACK, cack, p.psn)),
            due.base.eq(sacks.base), due.bitmap.eq(sacks.bits),
            due.psn.eq(Mux(is_probe, PETH.field(p.body, "probe_id"), p.psn)),
            due.probe.eq(is_probe), due.rtx.eq(p.rtx), due.ce.eq(p.ce),
            due.entropy.eq(p.entropy), due.plane.eq(plane), due.timestamp.eq(stamp),
            due.msn.eq(r.msn), due.syndrome.eq(self.syndrome), due.reason.eq(self.reason),
            due.rcvd.eq(rounded[8:]), due.ooo.eq(r.ooo), due.fence.eq(self.fence),
        ]
