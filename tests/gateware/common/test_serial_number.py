# SPDX-License-Identifier: BSD-2-Clause
"""Serial numbers: Python's rules hold on the whole circle, and the gateware follows them in both engines."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litex.gen import LiteXModule
from migen import *

from gateware.common import serial_number as sn
from tests.engines import ENGINES, simulate

WIDTHS = (4, 16, 24)

# Python -------------------------------------------------------------------------------------------

@given(st.integers(0, 2**24 - 1), st.integers(0, 2**23 - 1))
def test_what_lies_ahead_less_than_half_a_circle_is_after(a, ahead):
    b = sn.serial_advance(a, ahead, 24)
    assert sn.serial_distance(b, a, 24) == sn.serial_signed(b, a, 24) == ahead
    assert sn.serial_not_after(a, b, 24) and not sn.serial_before(b, a, 24)
    assert sn.serial_before(a, b, 24) == (ahead > 0) == (not sn.serial_not_after(b, a, 24))

@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 128), st.integers(0, 255))
def test_order_and_window_do_not_depend_on_where_the_circle_starts(a, b, size, turn):
    moved = [sn.serial_advance(x, turn, 8) for x in (a, b)]
    assert sn.serial_before(a, b, 8) == sn.serial_before(*moved, 8)
    assert sn.serial_in_window(a, b, size, 8) == sn.serial_in_window(*moved, size, 8)
    assert sn.serial_in_window(a, b, size, 8) == (a in [(b + n) % 256 for n in range(size)])

# Gateware -----------------------------------------------------------------------------------------

class Helpers(LiteXModule):
    """Every helper at every width of `WIDTHS`."""
    def __init__(self):
        self.a, self.b, self.size = Signal(24), Signal(24), Signal(8)
        self.results = []
        for w in WIDTHS:
            a, b = self.a[:w], self.b[:w]
            self.results += [
                sn.distance(self, a, b),
                sn.advance(self, a, self.size),
                sn.before(self, a, b),
                sn.not_after(self, a, b),
                sn.in_window(self, a, b, self.size),
                sn.in_window(self, a, 5, 7),
                sn.distance(self, self.a, self.b, width=w),
            ]

def expected(a, b, size):
    results = []
    for w in WIDTHS:
        x, y = a % 2**w, b % 2**w
        results += [sn.serial_distance(x, y, w), sn.serial_advance(x, size, w), sn.serial_before(x, y, w),
            sn.serial_not_after(x, y, w), sn.serial_in_window(x, y, size, w), sn.serial_in_window(x, 5, 7, w),
            sn.serial_distance(x, y, w)]
    return results

@pytest.mark.parametrize("engine", ENGINES)
def test_gateware_follows_python(engine):
    dut, rng = Helpers(), random.Random(1)
    def run():
        for n in range(600):
            a    = rng.choice((0, 1, 2**23, 2**24 - 1, rng.getrandbits(24)))
            b    = (a + rng.choice((0, 1, -1, 7, 8, -8, 127, 128, 2**15, 2**23 - 1, 2**23, rng.getrandbits(24)))) % 2**24
            size = rng.choice((0, 1, 8, 128, 255, n % 256))
            yield [dut.a.eq(a), dut.b.eq(b), dut.size.eq(size)]
            yield
            assert (yield dut.results) == expected(a, b, size), (a, b, size)
    simulate(dut, [run()], engine=engine)

# Refusals -----------------------------------------------------------------------------------------

def test_circles_of_two_widths_are_refused():
    with pytest.raises(ValueError, match="16, 24 bits cannot be compared; name the width"):
        sn.before(LiteXModule(), Signal(24), Signal(16))
    with pytest.raises(ValueError, match=r"of 16 bits cannot be compared modulo 2\^24"):
        sn.before(LiteXModule(), Signal(24), Signal(16), width=24)
