# SPDX-License-Identifier: BSD-2-Clause
"""May this packet be placed? Length rules, memory region and signal of one data packet.

FIRST and MIDDLE packets are exactly the path MTU long, LAST 1 to MTU, ONLY 0 to MTU. The bytes must
lie in a region with the right to be written and with all of their pages in the table; bounds are
checked without a sum that could wrap past 2^64.
A message with an immediate must name a signal of its queue pair, and its RQMSN must be within
what the responder can stash. Sources: IBTA volume 1, chapter 9.4.1; MRC 1.0.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.headers import DATA_IMMDT, DATA_METH, DATA_RETH, IMMDT, METH, PACKET_TYPES, RETH
from gateware.common.tables import Rights
from gateware.host.translation import Translation

class PlacementCheck(LiteXModule):
    """Judges the packet `p` (a Record of received_layout) with the rows of its tables.

    Two strobes a cycle apart: `look` when the region's row is there, `measure` after it; the verdicts
    are valid from the cycle after `measure`, or after `done` if the region has pages (`paged`).

    well_formed: length and RQMSN fit.       permitted: region and signal allow it.
    address, beyond: bus address of the first byte; where the bytes go on (see `Translation`).
    """
    def __init__(self, config, tables, p, mtu_code, next_rqmsn, region, signal):
        self.look, self.measure = Signal(), Signal()
        self.well_formed = Signal()
        self.permitted   = Signal()
        self.is_last     = Signal()
        self.has_imm     = Signal()
        self.rkey        = RETH.field(p.body[8*DATA_RETH:], "rkey")
        self.rqmsn       = METH.field(p.body[8*DATA_METH:], "rqmsn")
        self.immediate   = immediate = IMMDT.field(p.body[8*DATA_IMMDT:], "immediate")

        # # #

        va, total = (RETH.field(p.body[8*DATA_RETH:], f) for f in ("va", "length"))
        self.pages = pages = Translation(config, tables, region, va, p.length)
        self.address, self.beyond, self.paged, self.done = pages.address, pages.beyond, pages.paged, pages.done
        is_first  = Signal()
        types     = [t for t in PACKET_TYPES.values() if t.data]
        self.comb += Case(p.opcode, {t.opcode: [is_first.eq(t.first), self.is_last.eq(t.last), self.has_imm.eq(t.imm)] for t in types})

        # Form.
        mtu         = Signal(13)
        good_length = Signal()
        ahead       = sized(self, self.rqmsn - next_rqmsn, 16, "rqmsn_ahead")
        self.comb += [
            Case(mtu_code, {**{i: mtu.eq(256 << i) for i in range(5)}, "default": mtu.eq(256)}),
            If(self.is_last,
                good_length.eq((p.length <= mtu) & ((p.length != 0) | is_first))
            ).Else(
                good_length.eq(p.length == mtu)
            ),
            self.well_formed.eq(good_length & (~self.has_imm | (ahead < config.max_wimm))),
        ]

        # Memory: offset in the region (bit 64: below its base), room after it (bit 64: none), end (2^64 at most).
        into, rest = Signal(65), Signal(65)
        into_next  = sized(self, va - region.base, 65, "into_next")
        rest_next  = sized(self, region.length - into[:64], 65, "rest_next")
        end        = sized(self, va + p.length, 65, "end")
        wraps      = sized(self, end[64] & (end[:64] != 0), 1, "wraps")
        in_region, may_signal = Signal(), Signal()
        self.sync += [If(self.look, into.eq(into_next)), If(self.measure, rest.eq(rest_next))]
        self.comb += [
            pages.look.eq(self.look),
            in_region.eq((p.length == 0) |
                (region.valid & (region.variant == self.rkey[:8]) & (self.rkey[8 + config.region_bits:] == 0) &
                 region.rights[log2_int(Rights.REMOTE_WRITE)] &
                 ~into[64] & ~rest[64] & (rest[:64] >= p.length) & (total >= p.length) & ~wraps & pages.mapped)),
            # Signal.
            may_signal.eq(~self.has_imm | (signal.valid & (signal.any_qp | (signal.qp == p.dest_qp[:16])) &
                (immediate[config.signal_bits:] == 0))),
            self.permitted.eq(in_region & may_signal),
        ]
