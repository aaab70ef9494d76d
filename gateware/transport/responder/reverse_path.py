# SPDX-License-Identifier: BSD-2-Clause
"""The way back: which plane and entropy value an answer takes when the plane it belongs on is down.

An answer belongs on the plane and entropy value of the packet that caused it. If that plane is down, it
takes the way that last worked towards this peer; if that plane is down too, the next one that is up.

A way is *proved* when an answer to a packet of our own comes back. Where traffic goes one way only, the
packets that come from the peer stand in for it: what came in over a plane that is up. A proved way is
kept for 15 of those, so that a peer that no longer answers does not bind us to a way that has died.

Source: the design; MRC 1.0 leaves the set of ways back to the implementation.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import bit_of, sized
from gateware.common.table_ram import TableRAM

TRUST_BITS = 4

class ReversePath(LiteXModule):
    """A way per peer, and the choice. Its owner's state machine times it: `peer` in one cycle, the rest in the next.

    planes_up: one bit per plane.
    peer:      index of the peer.
    plane, entropy: where the answer belongs, or (with `heard` or `proved`) what is learned.
    heard:     a good packet came this way.    proved: an answer to a packet of ours came this way.
    to_plane, to_entropy: where the answer goes.  moved: not where it belongs.
    """
    def __init__(self, config):
        self.planes_up  = Signal(config.planes)
        self.peer       = Signal(config.peer_bits)
        self.plane      = Signal(2)
        self.entropy    = Signal(16)
        self.heard      = Signal()
        self.proved     = Signal()
        self.to_plane   = Signal(2)
        self.to_entropy = Signal(16)
        self.moved      = Signal()

        # # #

        self.ways = ways = TableRAM([("known", 1), ("trust", TRUST_BITS), ("plane", 2), ("entropy", 16)], config.peers)
        way = ways.reader()
        self.comb += [way.index.eq(self.peer), ways.index.eq(self.peer)]

        # Choice.
        belongs_up = bit_of(self, self.planes_up, self.plane, "belongs_up")
        way_up     = sized(self, way.row.known & bit_of(self, self.planes_up, way.row.plane, "way_plane_up"), 1, "way_up")
        after      = Signal(2)                                   # The next plane that is up.
        cases      = {}
        for plane in range(config.planes):
            statement = None
            for step in range(1, config.planes):
                other, assign = (plane + step) % config.planes, after.eq((plane + step) % config.planes)
                statement = If(self.planes_up[other], assign) if statement is None else statement.Elif(self.planes_up[other], assign)
            cases[plane] = [after.eq(plane)] + ([statement] if statement is not None else [])
        self.comb += [
            Case(self.plane, cases),
            self.to_plane.eq(self.plane),
            self.to_entropy.eq(self.entropy),
            self.moved.eq(~belongs_up & (self.planes_up != 0)),
            If(self.moved,
                self.to_plane.eq(after),
                If(way_up,
                    self.to_plane.eq(way.row.plane),
                    self.to_entropy.eq(way.row.entropy)
                )
            ),
        ]

        # What is learned.
        trust = sized(self, way.row.trust - 1, TRUST_BITS, "trust_after")
        keep  = sized(self, way_up & (way.row.trust != 0), 1, "keep")
        self.comb += [
            ways.row.known.eq(1),
            ways.row.plane.eq(self.plane),
            ways.row.entropy.eq(self.entropy),
            If(self.proved,
                ways.row.trust.eq(2**TRUST_BITS - 1)
            ).Elif(keep,
                ways.row.trust.eq(trust),
                ways.row.plane.eq(way.row.plane),
                ways.row.entropy.eq(way.row.entropy)
            ),
            ways.we.eq((self.heard | self.proved) & belongs_up),
        ]
