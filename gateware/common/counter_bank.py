# SPDX-License-Identifier: BSD-2-Clause
"""Counts per queue pair, in block RAM: which of them a block dropped something of, and why.

A block counts with the pulses of its `Counters`; a bank beside it takes some of them apart by the
index that holds in the cycle of the pulse. Counts stay at their highest value and belong to one
life: a new one starts with zeros. Latency from a pulse to its count 4 cycles, 3 per pulse in a row.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import init_endpoint

COUNT_BITS = 16
WAITING    = 8    # Pulses that may wait for their turn.

class CounterBank(LiteXModule):
    """`depth` rows of a count per name.

    counters: the `Counters` of the block whose pulses are taken; names: which of them.
    index:    the row concerned, valid together with a pulse.
    init:     zero a row.
    missed:   pulses that found no room, 16 bits; a block that pulses at most twice in 6 cycles misses none.
    items:    name -> description.
    """
    def __init__(self, depth, counters, names, index):
        layout      = [(name, COUNT_BITS) for name in names]
        self.init   = init_endpoint()
        self.missed = Signal(COUNT_BITS)
        self.items  = {name: counters.items[name][1] for name in names}

        # # #

        self.rows = rows = TableRAM(layout, depth)
        row = rows.reader()

        # Pulses of one cycle wait as one entry.
        self.fifo = fifo = stream.SyncFIFO([("index", len(row.index)), ("pulses", len(names))], WAITING)
        pulses    = Cat(*[counters.pulses[name] for name in names])
        lost      = Signal()
        self.comb += [
            fifo.sink.pulses.eq(pulses),
            fifo.sink.index.eq(index),
            fifo.sink.valid.eq(fifo.sink.pulses != 0),
            lost.eq(fifo.sink.valid & ~fifo.sink.ready & (self.missed != 2**COUNT_BITS - 1)),
        ]
        self.sync += If(lost, self.missed.eq(self.missed + 1))

        # One row at a time: read, add, write.
        place, clear = Signal(len(row.index)), Signal()
        self.comb += [
            place.eq(Mux(clear, self.init.qp, fifo.source.index)),
            row.index.eq(place),
            rows.index.eq(place),
        ]
        for i, name in enumerate(names):
            now   = getattr(row.row, name)
            after = sized(self, now + 1, COUNT_BITS, f"{name}_after")
            full  = sized(self, now == 2**COUNT_BITS - 1, 1, f"{name}_full")
            self.comb += If(~clear, getattr(rows.row, name).eq(Mux(fifo.source.pulses[i] & ~full, after, now)))
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(fifo.source.valid,
                NextState("ADD")
            ).Elif(self.init.valid,
                clear.eq(1),
                rows.we.eq(1),
                self.init.ready.eq(1)
            )
        )
        fsm.act("ADD",
            rows.we.eq(1),
            fifo.source.ready.eq(1),
            NextState("IDLE")
        )

    def reader(self):
        """A reader of the rows (see TableRAM)."""
        return self.rows.reader()
