# SPDX-License-Identifier: BSD-2-Clause
"""A received acknowledgement, decoded: the fields of ACK, SACK and NACK under one set of names.

Source: MRC 1.0 (AETH, SETH, CC_STATE, NETH).
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.headers import AETH, CC_STATE, NETH, SETH, NackReason, Opcode

class ControlPacket(LiteXModule):
    """Registers the packet on `sink` (an endpoint of received_layout) when `take` is 1.

    qpn, p_key, opcode: as on the wire.       cack:     cumulative PSN; NACK: the refused PSN.
    base, bitmap:  SACK.                      stamp:    SACK: reflected timestamp.
    msn:           ACK: messages completed.   syndrome: ACK: AETH syndrome; NACK: the reason.
    entropy:       entropy value of the trigger, 0 for an ACK.
    trimmed:       NACK: the packet was trimmed by a switch.
    trigger:       PSN of the packet that is answered; a probe's number in the lower half if `probe`.
    mark:          SACK: SETH.m.              rtx:      SACK: the packet that is answered was sent again.
    received:      SACK: bytes that the peer has received, units of 256.
    """
    def __init__(self, sink):
        self.take     = Signal()
        self.qpn      = Signal(24)
        self.p_key    = Signal(16)
        self.opcode   = Signal(8)
        self.cack     = Signal(24)
        self.base     = Signal(24)
        self.bitmap   = Signal(64)
        self.stamp    = Signal(16)
        self.msn      = Signal(16)
        self.syndrome = Signal(8)
        self.entropy  = Signal(16)
        self.trimmed  = Signal()
        self.trigger  = Signal(24)
        self.probe    = Signal()
        self.mark     = Signal(2)
        self.rtx      = Signal()
        self.received = Signal(24)

        # # #

        aeth, neth, seth = sink.body, sink.body, sink.body
        offset = SETH.field(seth, "sack_offset")
        number = SETH.field(seth, "ack_psn_offset")
        base   = sized(self, SETH.field(seth, "cack_psn") + Cat(offset, Replicate(offset[15], 8)), 24, "sack_base")
        self.comb += self.trimmed.eq((self.syndrome == NackReason.TRIMMED) | (self.syndrome == NackReason.TRIMMED_LASTHOP))
        self.sync += If(self.take,
            self.qpn.eq(sink.dest_qp),
            self.p_key.eq(sink.p_key),
            self.opcode.eq(sink.opcode),
            self.base.eq(base),
            self.bitmap.eq(SETH.field(seth, "bitmap")),
            self.stamp.eq(CC_STATE.field(sink.body[8*SETH.length:], "tx_timestamp")),
            self.received.eq(CC_STATE.field(sink.body[8*SETH.length:], "rcvd_bytes")),
            self.msn.eq(AETH.field(aeth, "msn")[:16]),
            self.rtx.eq(sink.rtx),
            self.probe.eq(0),
            self.mark.eq(0),
            If(sink.opcode == Opcode.SACK,
                self.cack.eq(SETH.field(seth, "cack_psn")),
                self.syndrome.eq(0),
                self.entropy.eq(SETH.field(seth, "entropy")[:16]),
                self.probe.eq(SETH.field(seth, "pr")),
                self.mark.eq(SETH.field(seth, "m")),
                self.trigger.eq(Mux(SETH.field(seth, "pr"), number, SETH.field(seth, "cack_psn") + Cat(number, Replicate(number[15], 8))))
            ).Elif(sink.opcode == Opcode.NACK,
                self.cack.eq(NETH.field(neth, "nack_psn")),
                self.syndrome.eq(NETH.field(neth, "reason")),
                self.entropy.eq(NETH.field(neth, "entropy")[:16]),
                self.trigger.eq(NETH.field(neth, "nack_psn"))
            ).Else(
                self.cack.eq(sink.psn),
                self.syndrome.eq(AETH.field(aeth, "syndrome")),
                self.entropy.eq(0)
            )
        )
