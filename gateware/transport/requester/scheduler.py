# SPDX-License-Identifier: BSD-2-Clause
"""Which queue pair sends next: one bit per queue pair, served round robin.

Whoever gives a queue pair something to do (a token, an acknowledgement that opens the window, a
resend, a new life) wakes it. Taking a queue pair clears its bit first, and its state is read after
that, so a wake can never be lost: at worst a queue pair is looked at once too often.
"""

from functools import reduce
from operator import or_

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common.arithmetic import below, lowest_one, one_hot, sized

class Scheduler(LiteXModule):
    """Round-robin choice among the queue pairs that were woken.

    wakes:   `wakers` ports {valid, qp}; each wakes a queue pair in the cycle in which valid is 1.
    source:  {qp}; valid while somebody is awake. Latency from wake to source 2 cycles.
    """
    def __init__(self, config, wakers):
        self.wakes  = [Record([("valid", 1), ("qp", config.qp_bits)]) for _ in range(wakers)]
        self.source = Endpoint([("qp", config.qp_bits)])

        # # #

        n     = config.queue_pairs
        awake = Signal(n)
        last  = Signal(config.qp_bits)        # Taken last: the search starts behind it.
        taken = Signal()
        self.comb += taken.eq(self.source.valid & self.source.ready)

        # Wake and take; a wake wins over a take of the same cycle.
        sleeps = sized(self, Mux(taken, one_hot(self, self.source.qp, n, "taken_bit"), 0), n, "sleeps")
        woken = sized(self, reduce(or_, [Mux(w.valid, one_hot(self, w.qp, n, f"wake_bit{i}"), 0)
                      for i, w in enumerate(self.wakes)]), n, "woken")
        self.sync += awake.eq((awake & ~sleeps) | woken)

        # Search: first behind `last`, else from 0; registered, so that the pick costs a cycle.
        served = sized(self, last + 1, config.qp_bits + 1, "served")
        behind = sized(self, awake & ~below(self, served, n, "up_to_last"), n, "behind")
        high, high_found, low, low_found = Signal(config.qp_bits), Signal(), Signal(config.qp_bits), Signal()
        self.comb += lowest_one(behind, high, high_found), lowest_one(awake, low, low_found)
        pick = sized(self, Mux(high_found, high, low), config.qp_bits, "pick")
        self.sync += [
            If(taken,
                self.source.valid.eq(0),
                last.eq(self.source.qp)
            ).Elif(~self.source.valid & low_found,
                self.source.valid.eq(1),
                self.source.qp.eq(pick)
            )
        ]
