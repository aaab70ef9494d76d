# SPDX-License-Identifier: BSD-2-Clause
"""Counts per queue pair: every pulse counts where its index says, counts do not wrap, a new life starts with zeros."""

import random

import pytest
from litex.gen import LiteXModule
from migen import *

from gateware.common.counter_bank import COUNT_BITS, WAITING, CounterBank
from gateware.common.counters import Counters
from tests.engines import ENGINES, simulate

NAMES, DEPTH = ("dropped_early", "dropped_late", "refused"), 8

class Bench(LiteXModule):
    def __init__(self):
        self.counters = Counters(self)
        self.index    = Signal(3)
        self.fire     = Signal(len(NAMES))
        pulses        = [self.counters.add(name, f"Counts {name}.") for name in NAMES]
        self.comb    += [pulse.eq(self.fire[i]) for i, pulse in enumerate(pulses)]
        self.bank     = CounterBank(DEPTH, self.counters, NAMES, self.index)
        self.look, self.row = Signal(3), Signal(len(NAMES)*COUNT_BITS)
        reader        = self.bank.reader()
        self.comb    += [reader.index.eq(self.look), self.row.eq(reader.row.raw_bits())]

def rows(dut):
    found = []
    for index in range(DEPTH):
        yield dut.look.eq(index)
        yield
        yield
        row = (yield dut.row)
        found.append([row >> (COUNT_BITS*i) & (2**COUNT_BITS - 1) for i in range(len(NAMES))])
    return found

def clear(dut, index):
    yield [dut.bank.init.qp.eq(index), dut.bank.init.valid.eq(1)]
    yield
    while not (yield dut.bank.init.ready):
        yield
    yield dut.bank.init.valid.eq(0)
    yield

def fire(dut, index, pulses):
    yield [dut.index.eq(index), dut.fire.eq(pulses)]
    yield
    yield [dut.fire.eq(0), dut.index.eq(0)]

def wait(cycles):
    for _ in range(cycles):
        yield

@pytest.mark.parametrize("engine", ENGINES)
def test_every_pulse_counts_in_its_row_and_a_new_life_starts_with_zeros(engine):
    dut = Bench()
    r, model = random.Random(5), [[0]*len(NAMES) for _ in range(DEPTH)]
    def bench():
        for index in range(DEPTH):
            yield from clear(dut, index)
        for _ in range(300):
            if r.random() < 0.05:
                index = r.randrange(DEPTH)
                yield from clear(dut, index)
                model[index] = [0]*len(NAMES)
                continue
            index = r.randrange(DEPTH)
            for _ in range(r.choice((1, 1, 2, WAITING))):       # Some in a row, then room to work them off.
                pulses = r.randrange(1, 1 << len(NAMES))
                yield from fire(dut, index, pulses)
                model[index] = [count + (pulses >> i & 1) for i, count in enumerate(model[index])]
            yield from wait(r.randrange(2*WAITING, 3*WAITING))
        yield from wait(3*WAITING)
        assert (yield from rows(dut)) == model
        assert (yield dut.bank.missed) == 0
    simulate(dut, bench(), engine=engine, limit=40_000, seed=5)

def test_a_count_stays_at_its_highest_value():
    dut, top = Bench(), 2**COUNT_BITS - 1
    def bench():
        yield from clear(dut, 2)
        for _ in range(top + 3):
            yield from fire(dut, 2, 0b101)
            yield
            yield
        yield from wait(10)
        assert (yield from rows(dut))[2] == [top, 0, top]
    simulate(dut, bench(), limit=5*top, wall=300)

def test_pulses_that_find_no_room_are_counted():
    dut = Bench()
    def bench():
        yield from clear(dut, 1)
        yield [dut.index.eq(1), dut.fire.eq(2)]
        yield from wait(100)
        yield dut.fire.eq(0)
        yield from wait(3*WAITING)
        counted, missed = (yield from rows(dut))[1][1], (yield dut.bank.missed)
        assert missed > 0 and counted + missed == 100
    simulate(dut, bench())
