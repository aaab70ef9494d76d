# SPDX-License-Identifier: BSD-2-Clause
"""Arbitration of single-beat requests: in turn, or by rank."""

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *
from migen.genlib.roundrobin import SP_CE, RoundRobin

class RoundRobinArbiter(LiteXModule):
    """`count` sinks of single-beat requests share one source; `grant` says whose beat it is.

    A request that is offered and not taken keeps the grant, so the source is stable. Latency 1 cycle
    to move the grant; a lone requester gets one beat per two cycles.
    """
    def __init__(self, layout, count):
        self.sinks  = [Endpoint(layout) for _ in range(count)]
        self.source = Endpoint(layout)
        self.grant  = Signal(max=max(2, count))

        # # #

        if count == 1:
            self.comb += self.sinks[0].connect(self.source)
            return
        locked = Signal()    # The granted request has been seen.
        self.robin = robin = RoundRobin(count, SP_CE)
        self.comb += [
            robin.request.eq(Cat(*[s.valid for s in self.sinks])),
            robin.ce.eq(~locked),
            self.grant.eq(robin.grant),
        ]
        cases = {}
        for i, sink in enumerate(self.sinks):
            cases[i] = [sink.connect(self.source, omit={"valid", "ready"}),
                        self.source.valid.eq(locked & sink.valid), sink.ready.eq(locked & self.source.ready)]
        self.comb += Case(robin.grant, cases)
        # The grant moves in one cycle; the next one it is fixed if its request is there.
        self.sync += [
            If(locked,
                If(~self.source.valid | self.source.ready, locked.eq(0))
            ).Elif(robin.request != 0,
                locked.eq(1)
            )
        ]

class PriorityArbiter(LiteXModule):
    """`count` sinks of single-beat requests share one source, the first sink goes first.

    A request that was offered and not taken goes before all others, so the source is stable. No latency. The valid
    of each sink but the last must not come out of a block that looks at its ready (it would be a loop).
    """
    def __init__(self, layout, count):
        self.sinks  = [Endpoint(layout) for _ in range(count)]
        self.source = Endpoint(layout)

        # # #

        pick, chosen = Signal(max=max(2, count)), Signal(max=max(2, count))
        held = Signal()                          # The chosen request has been offered.
        statement = pick.eq(count - 1)
        for i in reversed(range(count - 1)):
            statement = If(self.sinks[i].valid, pick.eq(i)).Else(statement)
        self.comb += [
            If(held, pick.eq(chosen)).Else(statement),
            Case(pick, {i: sink.connect(self.source) for i, sink in enumerate(self.sinks)}),
        ]
        self.sync += [chosen.eq(pick), held.eq(self.source.valid & ~self.source.ready)]
