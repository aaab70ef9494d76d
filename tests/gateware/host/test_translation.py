# SPDX-License-Identifier: BSD-2-Clause
"""Every byte of a region has the bus address that the pages say: all page sizes, any base, hostile rows."""

import random

import pytest
from litex.gen import LiteXModule
from migen import Record, Signal

from gateware.common.tables import REGION
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.host.translation import SHIFTS, Translation
from tests.engines import simulate
from tests.gateware.host.paged import pieces
from tests.gateware.transport.harness import put
from tests.models.regions import bus_pieces

CONFIG = preset("tiny")
ROWS   = CONFIG.translations

class Dut(LiteXModule):
    def __init__(self):
        self.tables = Tables(CONFIG)
        self.region = Record(REGION.layout())
        self.va     = Signal(64)
        self.length = Signal(CONFIG.length_bits)
        self.block  = Translation(CONFIG, self.tables, self.region, self.va, self.length)

DUTS = {}

def dut(engine="verilator"):
    if engine not in DUTS:
        DUTS[engine] = Dut()
    return DUTS[engine]

def page_table(r):
    """Pages anywhere; bits below the page, which nobody should set, are there too."""
    return [r.getrandbits(64) for _ in range(ROWS)]

def run(table, lookups, engine="verilator"):
    """[(mapped, address, beyond, cycles)] of (row, va, length)."""
    bench, results = dut(engine), []
    def main():
        block = bench.block
        for n, bus in enumerate(table):
            yield from put(bench.tables.translation, n, bus=bus)
        for row, va, length in lookups:
            yield [getattr(bench.region, name).eq(row.get(name, 0)) for name, _ in REGION.layout()] + [bench.va.eq(va),
                bench.length.eq(length), block.look.eq(1)]
            yield
            yield block.look.eq(0)
            yield
            cycles = 1
            while not (yield block.done):
                cycles += 1
                yield
            yield
            results.append((*(yield [block.mapped, block.address, block.beyond]), cycles))
    simulate(bench, main(), engine=engine, limit=100000)
    return results

def check(table, lookups, results):
    """Counts the lookups that were mapped."""
    mapped = 0
    for (row, va, length), (there, address, beyond, cycles) in zip(lookups, results, strict=True):
        wanted = bus_pieces(row, table, va, length)
        assert there == (wanted is not None), (row, hex(va), length)
        if there:
            assert pieces(address, beyond, length) == wanted, (row, hex(va), length)
        assert cycles == (3 if row["page_shift"] else 1)
        mapped += there
    return mapped

def any_row(r, shift):
    """A region in any place of its first page, its pages from any row on, and an address in reach."""
    size, first = 1 << shift if shift else 4096, r.randrange(ROWS)
    base = r.choice([r.randrange(2**64 - 20*size), r.randrange(1 << 40), 2**64 - 3*size + r.randrange(size)])
    row  = dict(base=base, bus=r.getrandbits(64), page_shift=shift, first_page=first)
    span = min(2**64 - base, (ROWS - first + 1)*size)
    end  = -base % size                            # Of the first page.
    va   = base + r.choice([0, r.randrange(span), min(span - 1, end), min(span - 1, max(0, end - r.randrange(1, 1024)))])
    return row, va, r.randrange(1, min(CONFIG.max_mtu, 2**64 - va) + 1)

@pytest.mark.parametrize("shift", [0, *SHIFTS])
def test_every_page_size(shift):
    r = random.Random(shift)
    table, lookups = page_table(r), [any_row(r, shift) for _ in range(300)]
    mapped = check(table, lookups, run(table, lookups))
    assert 100 < mapped < 300 if shift else mapped == 300

def test_a_region_at_page_plus_0x234_over_three_pages():
    """Every byte of it, in packets of 1,000 bytes."""
    r = random.Random(1)
    table = page_table(r)
    for shift in (12, 13, 16):
        row     = dict(base=0x7_0000_0234, page_shift=shift, first_page=5)
        lookups = [(row, va, 1000) for va in range(0x7_0000_0234, 0x7_0000_0234 + (2 << shift), 1000)]
        assert check(table, lookups, run(table, lookups)) == len(lookups)

def test_boundaries():
    """Packets that end just before, at and just behind a page's end, which lies in the table or past its last row."""
    r, lookups = random.Random(2), []
    table = page_table(r)
    for shift in (12, 16, 21):
        for first in (0, ROWS - 2, ROWS - 1):
            row = dict(base=5 << 30, page_shift=shift, first_page=first)
            lookups += [(row, (5 << 30) + (k << shift) - before, length) for k in (1, 2) for before in (1, 8, 512)
                for length in (1, before, before + 1, 600) if before or k]
    assert 0 < check(table, lookups, run(table, lookups)) < len(lookups)

def test_hostile_rows_are_not_mapped():
    """Unknown page sizes, first pages past the table, and page numbers of more bits than an index has."""
    r = random.Random(3)
    table   = page_table(r)
    lookups = [(dict(base=0, page_shift=shift), 0, 64) for shift in range(64) if shift not in (0, *SHIFTS)]
    lookups += [(dict(base=0, page_shift=12, first_page=first), 0, 64) for first in (ROWS, 2*ROWS, 0x8000, 0xffff)]
    lookups += [(dict(base=0, page_shift=12, first_page=1), ROWS << bit, 64) for bit in range(12, 60)]
    lookups = [({"first_page": 0, **row}, va, length) for row, va, length in lookups]
    assert check(table, lookups, run(table, lookups)) == 0

def test_both_engines_agree():
    r = random.Random(4)
    table   = page_table(r)
    lookups = [any_row(r, shift) for shift in (0, 12, 15, 16, 21) for _ in range(20)]
    results = [run(table, lookups, engine) for engine in ("migen", "verilator")]
    assert results[0] == results[1]
    check(table, lookups, results[0])
