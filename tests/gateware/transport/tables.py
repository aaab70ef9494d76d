# SPDX-License-Identifier: BSD-2-Clause
"""Tables for block tests: the driver's tables behind their port, and RAMs that a test may poke."""

from contextlib import contextmanager

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common.table_ram import TableRAM, TableReader
from gateware.host.table_port import TablePort, Tables
from gateware.transport.queue_pair import status_layout

class OneLife(LiteXModule):
    """In place of the life cycle: every wish is granted, the row is written, all owners are asked in order."""
    def __init__(self, port, inits):
        step, ready = Signal(max=len(inits) + 2), Signal()  # 0: nothing is asked; i + 1: owner i is.
        self.comb += [
            *[[init.qp.eq(port.change.qp), init.valid.eq(step == i + 1)] for i, init in enumerate(inits)],
            Case(step, {i + 1: ready.eq(init.ready) for i, init in enumerate(inits)}),
            port.change_write.eq(port.change.valid & (step == 0)),
            port.change.ready.eq(ready & (step == len(inits))),
        ]
        self.sync += If(port.change.ready, step.eq(0)).Elif(ready | port.change_write, step.eq(step + 1))

class TableBench(LiteXModule):
    """Tables, their port, and the status table (`status`, driven by the test).

    Nothing is in flight here: every row may be changed, every barrier is passed at once.

    `add_port` makes the port once the blocks that have init endpoints are there.
    """
    def __init__(self, config):
        self.config = config
        self.tables = Tables(config)
        self.status = TableRAM(status_layout(), config.queue_pairs)

    def add_port(self, qp_inits=(), page_inits=(), signal_init=None, peer_init=None):
        def ready(name):                      # An init that nobody needs is done at once.
            endpoint = Endpoint([(name, 16)])
            self.comb += endpoint.ready.eq(1)
            return endpoint
        drain     = Record([("start", 1), ("done", 1)])
        self.port = port = TablePort(self.config, self.tables, list(page_inits) or [ready("page")], signal_init or ready("signal"),
            peer_init or ready("peer"), drain)
        self.life = OneLife(port, list(qp_inits) or [ready("qp")])
        self.comb += [signal.eq(1) for signal in (drain.done, port.bell_idle, port.quiet, port.fence.ready)]

    def write(self, table, index, **values):
        """Generator: write one row and wait until it is done."""
        yield [self.port.row.eq(table.pack(**values)), self.port.table.eq(table.number), self.port.index.eq(index),
               self.port.start.eq(1)]
        yield
        yield self.port.start.eq(0)
        yield
        while (yield self.port.busy):
            yield

    def set_state(self, qp, state):
        """Generator: write the status of a queue pair."""
        yield [self.status.index.eq(qp), self.status.row.state.eq(state), self.status.we.eq(1)]
        yield
        yield self.status.we.eq(0)
        yield

class PokedRAM(TableRAM):
    """A table that the test may write behind its owner's back: `poke`, `poke_index`, `poke_row`."""
    def __init__(self, layout, depth):
        super().__init__(layout, depth)
        self.poke       = Signal()
        self.poke_index = Signal(len(self.index))
        self.poke_row   = Signal(len(self.row))

    def reader(self):
        port   = TableReader(self.layout, self.depth)
        memory = Memory(len(self.row), self.depth)
        write  = memory.get_port(write_capable=True, mode=READ_FIRST)
        read   = memory.get_port(mode=READ_FIRST)
        self.specials += memory, write, read
        self.comb += [
            write.we.eq(self.we | self.poke),
            write.adr.eq(Mux(self.poke, self.poke_index, self.index)),
            write.dat_w.eq(Mux(self.poke, self.poke_row, self.row.raw_bits())),
            read.adr.eq(port.index),
            port.row.raw_bits().eq(read.dat_r),
        ]
        return port

    def set(self, index, **values):
        """Generator: write one row."""
        row, at = 0, 0
        for name, width in self.layout:
            row |= values.pop(name, 0) << at
            at  += width
        assert not values, f"The table has no column {', '.join(values)}."
        yield [self.poke.eq(1), self.poke_index.eq(index), self.poke_row.eq(row)]
        yield
        yield self.poke.eq(0)
        yield

@contextmanager
def poked_tables(module):
    """While it is active, a block of `module` makes its tables as PokedRAMs."""
    saved, module.TableRAM = module.TableRAM, PokedRAM
    try:
        yield
    finally:
        module.TableRAM = saved

def counts_of(block):
    """{name: Signal} of a block's counters, for a public attribute of the bench."""
    return {name: count for name, (count, _) in block.counters.items.items()}
