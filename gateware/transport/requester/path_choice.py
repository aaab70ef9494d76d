# SPDX-License-Identifier: BSD-2-Clause
"""The choice of a path: the next plane in turn, and in it the next entropy value that may be used.

    row -> [planes with a usable value] -> plane in turn -> [values of that plane] -> value at or behind its cursor

Row n of a peer's EV table belongs to plane n modulo the planes (rounded up to a power of two), so the
planes share the packets equally. A plane that is down, or has neither a GOOD nor a SKIP value, is passed
over. In a plane a GOOD value comes before a SKIP one. If no plane has either, ASSUMED_BAD ones are used:
a sender never stops for want of a path. Combinational but for one register, between the two steps.
Source: MRC 1.0, entropy value selection; the order of what is left when nothing is good is the design's.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import below, lowest_one, one_hot, sized
from gateware.config import bits_for_index

def paths_layout(config):
    """Owned by `Paths`, a row per peer: a PathState per entropy value, as two vectors of bits, and the rotation."""
    return [
        ("low",  config.evs),             # Bit n: bit 0 of the state of value n.
        ("high", config.evs),
        *[(f"cursor{p}", bits_for_index(config.evs//config.plane_shares)) for p in range(config.planes)],
        ("turn", bits_for_index(config.plane_shares)),   # Plane of the next packet.
        ("qp",   config.qp_bits),         # Queue pair that sent the last packet.
        ("named", config.ev_bits),        # ASSUMED_BAD value that the firmware was reminded of last.
    ]

class PathChoice(LiteXModule):
    """Chooses from `row`, which is held for both cycles; `step` is 1 in the first of them.

    planes_up:   bit per plane that may be used; with none it is taken as all.
    plane, ev:   the choice, in the second cycle.
    poor:        the choice is ASSUMED_BAD, or every value is denied: then it is value 0 of plane 0.
    low_after, cursor_after, turn_after: of the row, in the second cycle. The first SKIP value that the rotation
                 meets becomes GOOD, but is passed over if there is a GOOD one: one per packet.
    """
    def __init__(self, config, row):
        self.step         = Signal()
        self.planes_up    = Signal(config.planes)
        self.plane        = Signal(2)
        self.ev           = Signal(config.ev_bits)
        self.poor         = Signal()
        self.low_after    = Signal(config.evs)
        self.cursor_after = Signal(len(row.cursor0))
        self.turn_after   = Signal(len(row.turn))

        # # #

        planes, shares = config.planes, config.plane_shares
        places = config.evs//shares                     # Values of one plane.

        # First step: the plane.
        good    = sized(self, ~row.high & ~row.low, config.evs, "good")
        skip    = sized(self, ~row.high &  row.low, config.evs, "skip")
        assumed = sized(self,  row.high & ~row.low, config.evs, "assumed_bad")
        mine    = lambda vector, p: Cat(*[vector[n] for n in range(p, config.evs, shares)])
        usable  = Cat(*[(mine(good, p) | mine(skip, p)) != 0 for p in range(planes)])
        poor    = Cat(*[mine(assumed, p) != 0 for p in range(planes)])
        up      = sized(self, Mux(self.planes_up == 0, 2**planes - 1, self.planes_up), planes, "up")
        choices = [sized(self, vector, planes, name) for name, vector in (
            ("usable_up", usable & up), ("poor_up", poor & up), ("usable_down", usable), ("poor_down", poor))]
        open_   = Signal(planes)                        # Planes that may have the packet.
        bad, nothing = Signal(), Signal()
        self.comb += [
            If(choices[0] != 0, open_.eq(choices[0]))
            .Elif(choices[1] != 0, open_.eq(choices[1]), bad.eq(1))
            .Elif(choices[2] != 0, open_.eq(choices[2]))
            .Elif(choices[3] != 0, open_.eq(choices[3]), bad.eq(1))
            .Else(open_.eq(1), nothing.eq(1)),
        ]
        later = sized(self, open_ & ~below(self, row.turn, planes, "before_turn"), planes, "open_later")
        next_, next_found, first, first_found = Signal(2), Signal(), Signal(2), Signal()
        self.comb += lowest_one(later, next_, next_found), lowest_one(open_, first, first_found)
        from_bad, none = Signal(), Signal()
        self.sync += If(self.step,
            self.plane.eq(Mux(next_found, next_, first)),
            from_bad.eq(bad),
            none.eq(nothing)
        )
        self.comb += self.turn_after.eq(self.plane + 1), self.poor.eq(from_bad | none)

        # Second step: the value.
        fine, second, last = Signal(places), Signal(places), Signal(places)
        cursor = Signal(len(row.cursor0))
        self.comb += Case(self.plane, {p: [
            fine.eq(mine(good, p)), second.eq(mine(skip, p)), last.eq(mine(assumed, p)), cursor.eq(getattr(row, f"cursor{p}")),
        ] for p in range(planes)})
        passed = below(self, cursor, places, "passed")
        wanted = sized(self, Mux(from_bad, last, Mux(fine != 0, fine, second)), places, "wanted")
        met    = sized(self, Mux(from_bad, 0, fine | second), places, "met")
        place,  _ = self.rotate(wanted, passed, "place")
        lapse, some = self.rotate(met, passed, "lapse")
        lapsed = sized(self, one_hot(self, lapse, places, "lapse_bit") & second & Replicate(some, places), places, "lapsed")
        self.comb += [
            self.ev.eq(Cat(self.plane[:log2_int(shares)], place) if shares > 1 else place),
            If(none, self.ev.eq(0)),
            self.cursor_after.eq(place + 1),
            *[self.low_after[n].eq(row.low[n] & ~(lapsed[n//shares] & (self.plane == n % shares))) for n in range(config.evs)],
        ]

    def rotate(self, vector, passed, name):
        """Index of the first bit of `vector` that is not `passed`, else of its first; and whether there is one."""
        index, found = Signal(max=max(2, len(vector)), name=name), Signal(name=f"{name}_found")
        rest = sized(self, vector & ~passed, len(vector), f"{name}_rest")
        high, high_found, low, low_found = Signal(len(index)), Signal(), Signal(len(index)), Signal()
        self.comb += [
            lowest_one(rest, high, high_found), lowest_one(vector, low, low_found),
            index.eq(Mux(high_found, high, low)), found.eq(low_found),
        ]
        return index, found
