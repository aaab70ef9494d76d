# SPDX-License-Identifier: BSD-2-Clause
"""Table RAM: a reader sees the row of one cycle before, and a write at the same time not yet."""

import random

import pytest
from litex.gen import LiteXModule

from gateware.common.table_ram import TableRAM
from tests.engines import ENGINES, simulate

class Dut(LiteXModule):
    """A table with two readers."""
    def __init__(self):
        self.table   = TableRAM([("low", 24), ("high", 70)], 12)
        self.readers = [self.table.reader() for _ in range(2)]
        self.indices = [r.index for r in self.readers]
        self.rows    = [r.row for r in self.readers]

@pytest.mark.parametrize("engine", ENGINES)
def test_readers_follow_the_writer(engine):
    dut, rng = Dut(), random.Random(4)
    rows, expected = [(0, 0)]*12, [None, None]
    def run():
        for _ in range(400):
            we, index, low, high = rng.getrandbits(1), rng.randrange(12), rng.getrandbits(24), rng.getrandbits(70)
            reads = [rng.choice((index, rng.randrange(12))) for _ in range(2)]
            yield [dut.table.we.eq(we), dut.table.index.eq(index), dut.table.row.low.eq(low), dut.table.row.high.eq(high)]
            yield [s.eq(n) for s, n in zip(dut.indices, reads, strict=True)]
            yield
            for row, value in zip(dut.rows, expected, strict=True):
                if value is not None:
                    assert ((yield row.low), (yield row.high)) == value
            expected[:] = [rows[n] for n in reads]
            if we:
                rows[index] = (low, high)
    simulate(dut, [run()], engine=engine)
