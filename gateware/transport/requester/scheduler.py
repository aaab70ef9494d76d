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

WORD = 16   # Queue pairs that are searched at once.

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

        # Search, in words of 16: behind `last` in its word, else in the words behind it, else from 0; registered.
        size   = min(n, WORD)
        slices = [awake[i:i + size] for i in range(0, n, size)]
        place, number = last[:log2_int(size)], Signal(max(1, config.qp_bits - log2_int(size)))
        if n > size:
            self.comb += number.eq(last[log2_int(size):])
        def word(index, name):
            bits = Signal(size, name=name)
            self.comb += Case(index, {i: bits.eq(s) for i, s in enumerate(slices)})
            return bits
        some   = sized(self, Cat(*[s != 0 for s in slices]), len(slices), "words_awake")
        served = sized(self, place + 1, len(place) + 1, "served")
        here   = sized(self, word(number, "word_of_last") & ~below(self, served, size, "up_to_last"), size, "here")
        beyond = sized(self, some & ~below(self, sized(self, number + 1, len(number) + 1, "words_served"), len(slices), "words_up_to_last"),
            len(slices), "words_behind")
        index, found   = Signal(len(place)), Signal()
        first, low     = Signal(len(number)), Signal()
        behind, high   = Signal(len(number)), Signal()
        chosen = sized(self, Mux(here != 0, number, Mux(high, behind, first)), len(number), "chosen_word")
        self.comb += [
            lowest_one(some, first, low),
            lowest_one(beyond, behind, high),
            lowest_one(Mux(here != 0, here, word(chosen, "word_chosen")), index, found),
        ]
        self.sync += [
            If(taken,
                self.source.valid.eq(0),
                last.eq(self.source.qp)
            ).Elif(~self.source.valid & low,
                self.source.valid.eq(1),
                self.source.qp.eq(Cat(index, chosen))
            )
        ]
