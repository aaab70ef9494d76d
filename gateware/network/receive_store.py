# SPDX-License-Identifier: BSD-2-Clause
"""Payload store of one plane: a ring of words that keeps a packet only when it has proved good.

Words are written while the packet comes in; the packet's verdict then commits or rolls back all of
them. Nothing that is not committed can be read.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import stored_layout

class ReceiveStore(LiteXModule):
    """Ring of `size` bytes with commit and rollback.

    write, data, last: one word in, in the cycle of `write`; taken only while `full` is 0.
    commit, rollback:  keep or forget all words since the last verdict. A word may not be written in
                       the same cycle; the words before are included.
    source:            committed words in order, `last` ends a packet; 2 cycles after commit.
    full:              no room for another word: the writer must roll its packet back.
    """
    def __init__(self, data_width, size):
        words = size//(data_width//8)
        if words < 4 or words & (words - 1):
            raise ValueError(f"A receive store of {size} bytes has {words} words of {data_width} bits, "
                              "but it must have a power of two, at least 4.")
        self.write    = Signal()
        self.data     = Signal(data_width)
        self.last     = Signal()
        self.commit   = Signal()
        self.rollback = Signal()
        self.source   = source = stream.Endpoint(stored_layout(data_width))

        self.full  = Signal()
        self.empty = Signal() # Nothing committed is left.

        # # #

        # Pointers: one bit more than the address, so that full and empty differ.
        bits      = log2_int(words)
        written   = Signal(bits + 1)
        committed = Signal(bits + 1)
        taken     = Signal(bits + 1)
        following = Signal(bits + 1)
        level     = Signal(bits + 1)
        self.comb += [
            level.eq(written - taken),
            self.full.eq(level == words),
            self.empty.eq(committed == taken),
        ]

        # Write.
        memory = Memory(data_width + 1, words)
        write_port, read_port = memory.get_port(write_capable=True), memory.get_port()
        self.specials += memory, write_port, read_port
        self.comb += [
            write_port.adr.eq(written[:bits]),
            write_port.dat_w.eq(Cat(self.data, self.last)),
            write_port.we.eq(self.write & ~self.full),
        ]
        self.sync += [
            If(self.commit,
                committed.eq(written)
            ).Elif(self.rollback,
                written.eq(committed)
            ).Elif(self.write & ~self.full,
                written.eq(written + 1)
            )
        ]

        # Read: the address runs one word ahead of the one on the output.
        self.comb += [
            following.eq(taken + (source.valid & source.ready)),
            read_port.adr.eq(following[:bits]),
            source.data.eq(read_port.dat_r[:data_width]),
            source.last.eq(read_port.dat_r[data_width]),
        ]
        self.sync += [
            taken.eq(following),
            source.valid.eq(following != committed),
        ]
