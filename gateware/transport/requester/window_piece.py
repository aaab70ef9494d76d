# SPDX-License-Identifier: BSD-2-Clause
"""A piece of a window: which of 64 aligned PSNs lie in [low, high), across the wrap at 2^24.

Bitmaps of a window are rows of 64 PSNs in block RAM; whoever works on one row asks here which of its
bits mean PSNs that are outstanding.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import below, sized

class WindowPiece(LiteXModule):
    """Combinational. `piece` is a PSN without its lowest 6 bits.

    origin:  first PSN of the piece.           following: the next piece.
    under:   bits below `low`.                 upto:      bits below `high`.
    inside:  bits in [low, high).              outside:   the others.
    ends:    `high` lies within the piece (or at its first PSN).
    """
    def __init__(self):
        self.piece     = Signal(18)
        self.low       = Signal(24)
        self.high      = Signal(24)
        self.origin    = Signal(24)
        self.following = Signal(18)
        self.under, self.upto, self.inside, self.outside = (Signal(64) for _ in range(4))
        self.ends      = Signal()

        # # #

        def clipped(psn, name):
            """Distance from the origin, clipped to 0..64."""
            distance = sized(self, psn - self.origin, 24, f"{name}_distance")
            count    = Signal(7, name=f"{name}_count")
            self.comb += If(distance[23], count.eq(0)).Elif(distance[6:23] != 0, count.eq(64)).Else(count.eq(distance[:7]))
            return distance, count

        _, low_count         = clipped(self.low, "low")
        distance, high_count = clipped(self.high, "high")
        self.comb += [
            self.origin.eq(Cat(C(0, 6), self.piece)),
            self.following.eq(self.piece + 1),
            self.under.eq(below(self, low_count, 64, "piece_under")),
            self.upto.eq(below(self, high_count, 64, "piece_upto")),
            self.inside.eq(~self.under & self.upto),
            self.outside.eq(~self.inside),
            self.ends.eq(distance[6:] == 0),
        ]
