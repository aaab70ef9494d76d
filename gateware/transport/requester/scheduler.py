# SPDX-License-Identifier: BSD-2-Clause
"""Which queue pair sends next: one bit per queue pair, served round robin.

Whoever gives a queue pair something to do (a token, an acknowledgement that opens the window, a
resend, a new life) wakes it. Taking a queue pair clears its bit first, and its state is read after
that, so a wake can never be lost: at worst a queue pair is looked at once too often.
"""

from migen import *

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint

from gateware.common.arithmetic import lowest_one, sized

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
        for i in range(n):
            mine = Signal(name=f"wake{i}")
            self.comb += mine.eq(Cat(*[w.valid & (w.qp == i) for w in self.wakes]) != 0)
            self.sync += [
                If(taken & (self.source.qp == i), awake[i].eq(0)),
                If(mine, awake[i].eq(1)),
            ]

        # Search: first behind `last`, else from 0; registered, so that the pick costs a cycle.
        behind  = Signal(n)
        self.comb += [behind[i].eq(awake[i] & (last < i)) for i in range(n)]
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
