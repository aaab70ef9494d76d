# SPDX-License-Identifier: BSD-2-Clause
"""Barriers: waiting until everything that is now on its way has passed.

The card's two queues that act on memory are in order: packets from the segmenter through the payload
reads to the packet sender, and write jobs from the acceptor to the write port. So whoever changes
what their entries depend on (a region, a life) changes it first and then waits for those ahead of it.
"""

from functools import reduce
from operator import or_

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized

class Drain(LiteXModule):
    """Packets between segmenter and packet sender.

    entered: a packet has left the segmenter (one cycle).   sender_busy: the sender has one at hand.
    start:   for one cycle; `done` is 1 from the next cycle on when all that had entered have gone.
    """
    def __init__(self):
        self.entered     = Signal()
        self.sender_busy = Signal()
        self.start       = Signal()
        self.done        = Signal()

        # # #

        was_busy, left   = Signal(), Signal()
        inside, ahead    = Signal(16), Signal(16)   # All; those ahead of the mark.
        after = sized(self, inside + self.entered - left, 16, "inside_after")
        less  = sized(self, ahead - 1, 16, "ahead_less")
        self.comb += [
            left.eq(was_busy & ~self.sender_busy),
            self.done.eq(ahead == 0),
        ]
        self.sync += [
            was_busy.eq(self.sender_busy),
            inside.eq(after),
            If(self.start,
                ahead.eq(after)
            ).Elif(left & ~self.done,
                ahead.eq(less)
            ),
        ]

def fence_record():
    """`valid` until `ready`, which comes when all write jobs queued before have been handed to the link."""
    return Record([("valid", 1, DIR_M_TO_S), ("ready", 1, DIR_S_TO_M)])

class Fence(LiteXModule):
    """Write jobs between acceptor and write port, for clients that take turns.

    clients: fence_record(); request: to the acceptor, which queues a job for it when it has no packet at hand;
    passed:  that job has come out (one cycle).
    """
    def __init__(self, clients):
        self.clients = [fence_record() for _ in range(clients)]
        self.request = fence_record()
        self.passed  = Signal()

        # # #

        self.fsm = fsm = FSM(reset_state="IDLE")
        grant = Signal(max=max(2, clients))
        fsm.act("IDLE",
            *[If(client.valid, NextValue(grant, i)) for i, client in enumerate(self.clients)],
            If(reduce(or_, [client.valid for client in self.clients]), NextState("REQUEST"))
        )
        fsm.act("REQUEST",
            self.request.valid.eq(1),
            If(self.request.ready, NextState("WAIT"))
        )
        fsm.act("WAIT",
            If(self.passed, NextState("PASSED"))
        )
        fsm.act("PASSED",
            Case(grant, {i: client.ready.eq(1) for i, client in enumerate(self.clients)}),
            NextState("IDLE")
        )
