# SPDX-License-Identifier: BSD-2-Clause
"""Sized sums, masks and priority encoders agree with Python in both engines; counters count pulses."""

import random

import pytest
from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import below, highest_one, lowest_one, ones, sized
from gateware.common.counters import Counters
from tests.engines import ENGINES, simulate

WIDTH = 12

class Dut(LiteXModule):
    """All helpers on one vector, and a counter of odd vectors."""
    def __init__(self):
        self.a, self.b = Signal(8), Signal(8)
        self.count     = Signal(max=WIDTH + 1)
        self.vector    = Signal(WIDTH)
        self.low, self.low_found, self.high, self.high_found = Signal(4), Signal(), Signal(4), Signal()
        self.sum       = sized(self, self.a + self.b, 8, "total")
        self.behind    = sized(self, self.a - self.b, 8, "behind")
        self.mask      = below(self, self.count, WIDTH, "mask")
        self.ones      = ones(self, self.vector, "ones")
        counters       = Counters(self)
        odd            = counters.add("odd", "odd vectors")
        self.odd       = counters.items["odd"][0]
        self.comb += [
            *lowest_one(self.vector, self.low, self.low_found),
            *highest_one(self.vector, self.high, self.high_found),
            odd.eq(self.vector[0]),
        ]

@pytest.mark.parametrize("engine", ENGINES)
def test_helpers_agree_with_python(engine):
    dut, rng = Dut(), random.Random(5)
    def run():
        odd = 0
        for n in range(300):
            a, b, count = rng.getrandbits(8), rng.getrandbits(8), rng.randrange(WIDTH + 1)
            vector = (0, 1, 1 << (WIDTH - 1), (1 << WIDTH) - 1)[n] if n < 4 else rng.getrandbits(WIDTH) & rng.getrandbits(WIDTH)
            yield [dut.a.eq(a), dut.b.eq(b), dut.count.eq(count), dut.vector.eq(vector)]
            yield
            assert (yield dut.sum) == (a + b) % 256 and (yield dut.behind) == (a - b) % 256
            assert (yield dut.mask) == (1 << count) - 1
            assert (yield dut.low_found) == (yield dut.high_found) == (vector != 0)
            assert (yield dut.ones) == vector.bit_count()
            if vector:
                assert (yield dut.low) == (vector & -vector).bit_length() - 1
                assert (yield dut.high) == vector.bit_length() - 1
            assert (yield dut.odd) == odd
            odd += vector & 1
    simulate(dut, [run()], engine=engine)
