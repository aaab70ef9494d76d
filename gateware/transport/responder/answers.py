# SPDX-License-Identifier: BSD-2-Clause
"""Answers that wait: what is kept of each kind, and the packet that it becomes.

A due snapshot (`due_fields`) has room for everything; a row here keeps what its packet needs, with the
differences of PSNs already taken. Source: MRC 1.0 (SETH, CC_STATE, NETH), IBTA volume 1 (AETH).
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.headers import AETH, CC_STATE, NETH, SETH, Opcode

class Kind:
    SACK, ACK, NACK = range(3)

# Rows ---------------------------------------------------------------------------------------------

def sack_fields():
    return [
        ("cack",     24),
        ("trigger",  16),   # PSN of the trigger minus cack, or the probe's id.
        ("offset",   16),   # Base of the bitmap minus cack.
        ("bitmap",   64),
        ("probe",     1),
        ("rtx",       1),
        ("ce",        1),
        ("entropy",  16),
        ("plane",     2),
        ("timestamp",16),
        ("rcvd",     24),
        ("ooo",      16),
    ]

def ack_fields():
    return [("cack", 24), ("msn", 16), ("syndrome", 8), ("entropy", 16), ("plane", 2)]

def nack_fields(config):
    return [("qp", config.qp_bits), ("generation", 8), ("psn", 24), ("reason", 8), ("entropy", 16), ("plane", 2), ("timestamp", 16)]

def fill(module, due, sack, ack, nack):
    """Statements: the rows of a due snapshot."""
    trigger = sized(module, due.psn - due.cack, 16, "trigger")
    offset  = sized(module, due.base - due.cack, 16, "offset")
    same    = lambda row, names: [getattr(row, n).eq(getattr(due, n)) for n in names.split()]
    return [
        *same(sack, "cack bitmap probe rtx ce entropy plane timestamp rcvd ooo"),
        sack.trigger.eq(Mux(due.probe, due.psn[:16], trigger)),
        sack.offset.eq(offset),
        *same(ack, "cack msn syndrome entropy plane"),
        *same(nack, "qp generation psn reason entropy plane timestamp"),
    ]

# Packets ------------------------------------------------------------------------------------------

class AnswerPacket(LiteXModule):
    """Combinational: what the chosen `kind` puts into its packet.

    trigger_plane, trigger_entropy: those of the packet that caused it.
    spdcid, dpdcid: 16 bits each.
    """
    def __init__(self, sack, ack, nack):
        self.kind            = Signal(2)
        self.spdcid          = Signal(16)
        self.dpdcid          = Signal(16)
        self.trigger_plane   = Signal(2)
        self.trigger_entropy = Signal(16)
        self.opcode          = Signal(8)
        self.psn             = Signal(24)
        self.rtx             = Signal()
        self.body            = Signal(8*(SETH.length + CC_STATE.length))
        self.body_length     = Signal(6)

        # # #

        seth, cc, aeth, neth = (Signal(8*h.length) for h in (SETH, CC_STATE, AETH, NETH))
        ids = dict(spdcid=self.spdcid, dpdcid=self.dpdcid)
        self.comb += [
            SETH.encode(seth, m=Cat(sack.ce, C(0, 1)), pr=sack.probe, ack_psn_offset=sack.trigger, entropy=Cat(sack.entropy, C(0, 16)),
                cack_psn=sack.cack, sack_offset=sack.offset, bitmap=sack.bitmap, **ids),
            CC_STATE.encode(cc, tx_timestamp=sack.timestamp, ooo_count=sack.ooo, rcvd_bytes=sack.rcvd),
            AETH.encode(aeth, syndrome=ack.syndrome, msn=Cat(ack.msn, C(0, 8))),
            NETH.encode(neth, reason=nack.reason, entropy=Cat(nack.entropy, C(0, 16)), nack_psn=nack.psn, cc_type=2,
                tx_timestamp=nack.timestamp, **ids),
            Case(self.kind, {
                Kind.SACK: [self.opcode.eq(Opcode.SACK), self.psn.eq(sack.cack), self.rtx.eq(sack.rtx), self.body.eq(Cat(seth, cc)),
                            self.body_length.eq(SETH.length + CC_STATE.length)],
                Kind.ACK:  [self.opcode.eq(Opcode.ACKNOWLEDGE), self.psn.eq(ack.cack), self.body.eq(aeth),
                            self.body_length.eq(AETH.length)],
                "default": [self.opcode.eq(Opcode.NACK), self.psn.eq(nack.psn), self.body.eq(neth), self.body_length.eq(NETH.length)],
            }),
            Case(self.kind, {
                kind: [self.trigger_plane.eq(row.plane), self.trigger_entropy.eq(row.entropy)]
                for kind, row in ((Kind.SACK, sack), (Kind.ACK, ack), ("default", nack))
            }),
        ]
