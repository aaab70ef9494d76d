# SPDX-License-Identifier: BSD-2-Clause
"""The bitmap of a SACK: which 64 PSNs it speaks of.

A SACK covers 64 PSNs, the window has more, so successive SACKs sweep it (MRC 1.0): each starts
where the last one ended, at the oldest missing PSN again after the highest arrival was covered, and
never so late that it would cover less than 64 PSNs up to the highest arrival.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized

class SackBitmap(LiteXModule):
    """Base, next sweep position and bits from the state `r` of a queue pair.

    begin:   latches `base`. `second` is the first PSN behind what the bitmap covers, `sweep` where the
             next SACK starts.
    keep:    latches `row`, the bitmap row of `base`; `bits` then takes its rest from `row`, that of `second`.
    """
    def __init__(self, config, r, row):
        self.begin, self.keep = Signal(), Signal()
        self.base   = base = Signal(24)
        self.second = Signal(24)
        self.sweep  = Signal(24)
        self.bits   = Signal(64)

        # # #

        ahead   = sized(self, r.sweep - r.expected, 24, "sweep_ahead")
        start   = sized(self, Mux(ahead[23] | (ahead >= config.mpr), r.expected, r.sweep), 24, "sweep_start")
        reach   = sized(self, r.highest - start, 24, "sweep_reach")
        close   = sized(self, r.highest - 63, 24, "highest_minus_63")
        early   = sized(self, close - r.expected, 24, "close_ahead")
        late    = sized(self, Mux(early[23], r.expected, close), 24, "late_start")
        covered = sized(self, r.highest - base, 24, "highest_from_base")
        kept    = Signal(64)
        shifted = sized(self, Cat(kept, row) >> base[:6], 128, "shifted")
        self.sync += [
            If(self.begin, base.eq(Mux((reach[23] == 0) & (reach[6:] != 0), start, late))),
            If(self.keep, kept.eq(row)),
        ]
        self.comb += [
            self.second.eq(base + 64),
            self.sweep.eq(Mux(covered[23] | (covered[6:] == 0), r.expected, self.second)),
            self.bits.eq(shifted[:64]),
        ]
