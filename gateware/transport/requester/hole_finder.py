# SPDX-License-Identifier: BSD-2-Clause
"""The hole finder: which PSNs that a SACK shows missing are ripe.

A PSN is ripe when the SACK's bitmap shows it missing at least `packets` below the highest arrival that
this bitmap shows, and it was last sent at least `time` ago: the reorder guard (MRC 1.0 leaves
the threshold open). Only what this very SACK shows counts, so what it says is never stale.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import below, highest_one, lowest_one, one_hot, sized

class HoleFinder(LiteXModule):
    """Works on one SACK at a time: `base` and `bitmap` are held from `clear` on.

    placed:   the bitmap over two pieces of the window, `second` says which half is meant.
    clear:    forget the last SACK.
    take:     `missing`: bits of this piece that are outstanding, not acknowledged and not reported.
    start:    look at the ages; `done` when no hole is left to look at. 2 cycles per hole.
    ripe:     bit i: PSN base + i is ripe. `reported`: the same over two pieces.
    sent_psn: the PSN whose time of sending is wanted in `sent_time` in the next cycle.
    """
    def __init__(self):
        self.base      = base   = Signal(24)
        self.bitmap    = bitmap = Signal(64)
        self.second    = Signal()
        self.time      = Signal(16)      # Now.
        self.guard_time    = Signal(16)
        self.guard_packets = Signal(8)
        self.clear, self.take, self.start, self.done = Signal(), Signal(), Signal(), Signal()
        self.missing   = Signal(64)
        self.arrived   = Signal(64)
        self.ripe      = ripe = Signal(64)
        self.reported  = Signal(64)
        self.sent_psn  = Signal(24)
        self.sent_time = Signal(16)

        # # #

        # The bitmap over two pieces, and back.
        shift    = base[:6]
        placed   = sized(self, Cat(bitmap, C(0, 64)) << shift, 128, "placed")
        marked   = sized(self, Cat(ripe, C(0, 64)) << shift, 128, "marked")
        spread   = sized(self, Mux(self.second, Cat(C(0, 64), self.missing), Cat(self.missing, C(0, 64))), 128, "spread")
        relative = sized(self, spread >> shift, 128, "relative")
        self.comb += [
            self.arrived.eq(Mux(self.second, placed[64:], placed[:64])),
            self.reported.eq(Mux(self.second, marked[64:], marked[:64])),
        ]

        # Only those far enough below the highest arrival.
        top, any_arrived = Signal(6), Signal()
        self.comb += highest_one(bitmap, top, any_arrived)
        far       = sized(self, top - self.guard_packets, 9, "far_enough")
        far_count = Signal(7)
        self.comb += If(any_arrived & ~far[8], far_count.eq(far[:6] + 1))
        far_mask  = below(self, far_count, 64, "far_mask")

        # One by one: old enough?
        holes, looking = Signal(64), Signal()
        hole, index    = Signal(), Signal(6)
        self.comb += lowest_one(holes, index, hole)
        this   = one_hot(self, index, 64, "this_hole")
        others = sized(self, ~this, 64, "other_holes")
        age    = sized(self, self.time - self.sent_time, 16, "hole_age")
        self.comb += [
            self.sent_psn.eq(base + index),
            self.done.eq(self.start & ~hole),
        ]
        self.sync += [
            If(self.clear, holes.eq(0), ripe.eq(0), looking.eq(0)),
            If(self.take, holes.eq((holes | relative[:64]) & far_mask)),
            If(self.start,
                looking.eq(hole & ~looking),
                If(looking,
                    holes.eq(holes & others),
                    If(age >= self.guard_time, ripe.eq(ripe | this))
                )
            ),
        ]
