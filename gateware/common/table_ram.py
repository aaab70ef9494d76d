# SPDX-License-Identifier: BSD-2-Clause
"""Tables in block RAM with one writer and any number of readers.

The hazard rule of the card: a table has one owner, an FSM that reads, changes and writes a row
before it takes the next request. Readers elsewhere get their own copy and may see a row one
operation late; every use of such a value must be safe when it is old (a window that is smaller than
the real one, a message that is retired a little later).
"""

from litex.gen import LiteXModule
from migen import *

from gateware.config import bits_for_index

# Table RAM ----------------------------------------------------------------------------------------

class TableRAM(LiteXModule):
    """`depth` rows of `layout`; one write port, a block RAM per reader.

    write: `we`, `index`, `row` (a Record of `layout`), takes effect with the clock edge.
    `reader()`: an object with `index` and `row`; `row` is that of the `index` one cycle before; a
    write in that same cycle is not seen (read first).
    """
    def __init__(self, layout, depth):
        self.layout = [(f[0], f[1]) for f in layout]
        self.depth  = depth
        self.we     = Signal()
        self.index  = Signal(bits_for_index(depth))
        self.row    = Record(self.layout)

    def reader(self):
        port   = TableReader(self.layout, self.depth)
        memory = Memory(len(self.row), self.depth)
        write  = memory.get_port(write_capable=True, mode=READ_FIRST)
        read   = memory.get_port(mode=READ_FIRST)
        self.specials += memory, write, read
        self.comb += [
            write.we.eq(self.we),
            write.adr.eq(self.index),
            write.dat_w.eq(self.row.raw_bits()),
            read.adr.eq(port.index),
            port.row.raw_bits().eq(read.dat_r),
        ]
        return port

class TableReader:
    def __init__(self, layout, depth):
        self.index = Signal(bits_for_index(depth))
        self.row   = Record(layout)
