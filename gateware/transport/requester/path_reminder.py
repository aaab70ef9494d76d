# SPDX-License-Identifier: BSD-2-Clause
"""Which bad path the firmware is reminded of next: peers in turn, and the values of a peer in turn.

One bit per peer says that it may have ASSUMED_BAD values; it is cleared when a visit finds none. Which value was named
last is kept in the peer's row. Source: the design.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import below, lowest_one, one_hot, sized

class PathReminder(LiteXModule):
    """Asks for a visit every `period` ticks of 128 ns while a peer is suspect.

    due, peer:   visit this peer; held until `visit` is 1 for one cycle.
    suspect, cured: {valid}: the peer `at` has an ASSUMED_BAD value, or none.
    assumed:     ASSUMED_BAD values of the peer that is visited; `named`: the one that was named last;
                 `value`: the one to name now, `found`: there is one.
    """
    def __init__(self, config, period):
        self.time    = Signal(32)
        self.due     = Signal()
        self.peer    = Signal(config.peer_bits)
        self.visit   = Signal()
        self.at      = Signal(config.peer_bits)
        self.suspect = Signal()
        self.cured   = Signal()
        self.assumed = Signal(config.evs)
        self.value   = Signal(config.ev_bits)
        self.found   = Signal()
        self.named   = Signal(config.ev_bits)

        # # #

        # Peers.
        suspects = Signal(config.peers)
        this     = one_hot(self, self.at, config.peers, "this_peer")
        others   = sized(self, ~this, config.peers, "other_peers")
        last     = Signal(config.peer_bits)             # Visited last.
        self.sync += [
            If(self.suspect, suspects.eq(suspects | this)).Elif(self.cured, suspects.eq(suspects & others)),
            If(self.visit, last.eq(self.peer)),
        ]
        self.next_of(suspects, last, self.peer, Signal())

        # Values.
        self.next_of(self.assumed, self.named, self.value, self.found)

        # Time.
        start  = Signal(32)
        waited = sized(self, self.time - start, 32, "waited")
        self.comb += self.due.eq((waited >= period) & (suspects != 0))
        self.sync += If(self.visit | (suspects == 0), start.eq(self.time))

    def next_of(self, vector, last, index, found):
        """`index` of the first set bit of `vector` behind `last`, else of its first."""
        count  = len(vector)
        passed = sized(self, last + 1, len(last) + 1, "passed")
        behind = sized(self, vector & ~below(self, passed, count, "up_to_last"), count, "behind")
        high, high_found, low = Signal(len(index)), Signal(), Signal(len(index))
        self.comb += [
            lowest_one(behind, high, high_found), lowest_one(vector, low, found),
            index.eq(Mux(high_found, high, low)),
        ]
