# SPDX-License-Identifier: BSD-2-Clause
"""The table port: a row lands where it was sent, a new life asks every owner in order, the rest is refused."""

import random

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common import tables as t
from gateware.config import preset
from gateware.host.table_port import TablePort, Tables
from gateware.transport.queue_pair import init_endpoint
from tests.engines import simulate

INITS = 6

class Bench(LiteXModule):
    def __init__(self):
        config = preset("tiny")
        self.tables = tables = Tables(config)
        self.inits  = [init_endpoint() for _ in range(INITS)]
        self.pages  = [Endpoint([("page", 16)]) for _ in range(2)]
        self.signal = Endpoint([("signal", 16)])
        self.port   = TablePort(config, tables, self.inits, self.pages, self.signal)
        self.readers = {table.number: getattr(tables, table.name).reader() for table in t.TABLES}
        self.look, self.rows = Signal(16), {}
        for number, reader in self.readers.items():
            self.rows[number] = Signal(len(reader.row))
            self.comb += [reader.index.eq(self.look), self.rows[number].eq(reader.row.raw_bits())]
        self.depths = {table.number: getattr(tables, table.name).depth for table in t.TABLES}

DUT = Bench()

def start(table, index, row):
    """One request; returns the cycles until it was done."""
    yield [DUT.port.table.eq(table), DUT.port.index.eq(index), DUT.port.row.eq(row), DUT.port.start.eq(1)]
    yield
    yield DUT.port.start.eq(0)
    yield
    cycles = 0
    while (yield DUT.port.busy):
        cycles += 1
        yield
    return cycles

def owner(name, endpoint, field, asked, r):
    """Passive: takes its time, answers for one cycle, and notes that it was asked."""
    yield "passive"
    while True:
        if (yield endpoint.valid):
            value = (yield getattr(endpoint, field))
            for _ in range(r.randrange(8)):
                yield
                assert (yield endpoint.valid) and (yield getattr(endpoint, field)) == value
            yield endpoint.ready.eq(1)
            yield
            yield endpoint.ready.eq(0)
            asked.append((name, value))
        yield

def owners(asked, r):
    return [*(owner(n, e, "qp", asked, r) for n, e in enumerate(DUT.inits)),
        *(owner(f"page {n}", e, "page", asked, r) for n, e in enumerate(DUT.pages)), owner("signal", DUT.signal, "signal", asked, r)]

def test_rows_land_and_owners_are_asked_in_order():
    r, asked, wanted, model = random.Random(1), [], [], {}
    def main():
        for _ in range(200):
            table = r.choice(t.TABLES)
            depth = DUT.depths[table.number]
            index = r.choice([0, depth - 1, r.randrange(depth)])
            row   = r.getrandbits(t.ROW_BITS)
            if table is t.QUEUE_PAIR:
                row = table.pack(**(table.unpack(row) | {"mtu": r.randrange(3)}))     # `tiny` sends up to 1024 bytes.
            yield from start(table.number, index, row)
            assert not (yield DUT.port.refused)
            model[table.number, index] = row & ((1 << table.width) - 1)
            if table is t.QUEUE_PAIR:
                wanted.extend((n, index) for n in range(INITS))
            elif table is t.PAGE:
                wanted.extend([("page 0", index), ("page 1", index)])
            elif table is t.SIGNAL:
                wanted.append(("signal", index))
            assert asked == wanted
        yield from check()
    def check():
        for (number, index), row in model.items():
            yield DUT.look.eq(index)
            yield
            yield
            assert (yield DUT.rows[number]) == row
    simulate(DUT, [main(), *owners(asked, r)], limit=60000)
    assert len({number for number, _ in model}) == len(t.TABLES)

def test_wrong_table_and_index_are_refused_and_write_nothing():
    r, asked = random.Random(2), []
    def main():
        for table in t.TABLES:
            if table not in (t.QUEUE_PAIR, t.PAGE, t.SIGNAL):
                yield from start(table.number, 0, 0)
        for number, index in [*((n, 0) for n in range(len(t.TABLES), 16)), *((n, d) for n, d in DUT.depths.items()),
                *((n, 0x8000) for n in DUT.depths)]:
            cycles = yield from start(number, index, (1 << t.ROW_BITS) - 1)
            assert (yield DUT.port.refused) and cycles <= 2
            yield from start(t.EV.number, 1, 5)
            assert not (yield DUT.port.refused)
        for mtu in range(3, 8):
            yield from start(t.QUEUE_PAIR.number, 0, t.QUEUE_PAIR.pack(state=3, mtu=mtu))
            assert (yield DUT.port.refused)
        for number in DUT.depths:                # Index 0 is where a truncated index would have landed.
            yield DUT.look.eq(0)
            yield
            yield
            assert (yield DUT.rows[number]) == 0
    simulate(DUT, [main(), *owners(asked, r)])
    assert not asked
