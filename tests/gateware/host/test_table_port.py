# SPDX-License-Identifier: BSD-2-Clause
"""The table port: a row lands where it was sent, or is refused with its code; what uses it is waited for."""

import random

import pytest
from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common import tables as t
from gateware.common.tables import QpState, Refusal
from gateware.config import preset
from gateware.host.table_port import TablePort, Tables
from tests.engines import simulate

GUARDED = (t.CONTEXT, t.REGION, t.PAGE)

class Bench(LiteXModule):
    def __init__(self):
        config = preset("tiny")
        self.tables = tables = Tables(config)
        self.pages  = [Endpoint([("page", 16)]) for _ in range(2)]
        self.signal = Endpoint([("signal", 16)])
        self.peer   = Endpoint([("peer", 16)])
        self.drain  = Record([("start", 1), ("done", 1)])
        self.port   = TablePort(config, tables, self.pages, self.signal, self.peer, self.drain)
        self.used   = {t.CONTEXT: self.port.contexts_used, t.REGION: self.port.regions_used, t.PAGE: self.port.pages_used}
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

def row_of(table, index):
    yield DUT.look.eq(index)
    yield
    yield
    return (yield DUT.rows[table.number])

class Owners:
    """Everyone whom the port asks; `asked` tells who was, in order."""
    def __init__(self, seed):
        self.random, self.asked, self.refuse = random.Random(seed), [], lambda qp, state: False

    def run(self, main, *others, limit=60_000):
        owners = [*(self.owner(f"page {n}", e, "page") for n, e in enumerate(DUT.pages)), self.owner("signal", DUT.signal, "signal"),
            self.owner("peer", DUT.peer, "peer"),
            self.owner("fence", DUT.port.fence, None), self.life(), self.drain()]
        simulate(DUT, [self.quiet(main), *others, *owners], limit=limit)

    def quiet(self, main):
        yield [DUT.port.bell_idle.eq(1), DUT.port.quiet.eq(1)]
        yield
        yield from main

    def owner(self, name, endpoint, field):
        """Takes its time, answers for one cycle, and notes that it was asked."""
        yield "passive"
        while True:
            if (yield endpoint.valid):
                value = (yield getattr(endpoint, field)) if field else None
                for _ in range(self.random.randrange(8)):
                    yield
                    assert (yield endpoint.valid)
                yield endpoint.ready.eq(1)
                yield
                yield endpoint.ready.eq(0)
                self.asked.append((name, value))
            yield

    def life(self):
        yield "passive"
        c = DUT.port.change
        while True:
            if (yield c.valid):
                qp, state = yield [c.qp, c.state]
                refuse = self.refuse(qp, state)
                for _ in range(self.random.randrange(8)):
                    yield
                if not refuse and state in (QpState.INIT, QpState.RTR, QpState.RTS):
                    yield DUT.port.change_write.eq(1)
                    yield
                    yield DUT.port.change_write.eq(0)
                yield [c.ready.eq(1), DUT.port.change_refused.eq(refuse)]
                yield
                yield c.ready.eq(0)
                self.asked.append(("life", qp, state))
            yield

    def drain(self):
        yield "passive"
        while True:
            if (yield DUT.drain.start):
                yield DUT.drain.done.eq(0)
                for _ in range(self.random.randrange(30)):
                    yield
                yield DUT.drain.done.eq(1)
                self.asked.append(("drain", None))
            yield

# Writing ------------------------------------------------------------------------------------------

def asked_for(table, index, state):
    """Who is asked for a row that is written."""
    return {t.QUEUE_PAIR: [("life", index, state)], t.PAGE: [("page 0", index), ("page 1", index)],
        t.SIGNAL: [("fence", None), ("signal", index)], t.PEER: [("peer", index)], t.CONTEXT: [("drain", None)],
        t.REGION: [("drain", None), ("fence", None)]}.get(table, [])

def test_rows_land_and_owners_are_asked_in_order():
    owners, model, wanted = Owners(1), {}, []
    r = owners.random
    def main():
        for _ in range(200):
            table = r.choice(t.TABLES)
            depth = DUT.depths[table.number]
            index = r.choice([0, depth - 1, r.randrange(depth)])
            row   = r.getrandbits(t.ROW_BITS)
            state = r.randrange(5)
            if table is t.QUEUE_PAIR:
                row = table.pack(**(table.unpack(row) | {"state": state, "mtu": r.randrange(3)}))     # `tiny` sends up to 1024 bytes.
            yield from start(table.number, index, row)
            assert (yield DUT.port.refused) == Refusal.NONE
            # Of a queue pair that ends, the row says no more than that.
            if table is not t.QUEUE_PAIR or state not in (QpState.RESET, QpState.ERROR):
                model[table, index] = row & ((1 << table.width) - 1)
            wanted.extend(asked_for(table, index, state))
            assert owners.asked == wanted
        for (table, index), row in model.items():
            assert (yield from row_of(table, index)) == row
    owners.run(main())
    assert len({table for table, _ in model}) == len(t.TABLES)

# Refusals -----------------------------------------------------------------------------------------

def test_wrong_tables_indices_and_values_are_refused_and_write_nothing():
    owners = Owners(2)
    def main():
        for number, index in [*((n, 0) for n in range(len(t.TABLES), 16)), *((n, d) for n, d in DUT.depths.items()),
                *((n, 0x8000) for n in DUT.depths)]:
            cycles = yield from start(number, index, (1 << t.ROW_BITS) - 1)
            assert (yield DUT.port.refused) == Refusal.NO_ROW and cycles <= 2
            yield from start(t.EV.number, 1, 5)
            assert not (yield DUT.port.refused)
        for values in (*(dict(state=QpState.RTS, mtu=mtu) for mtu in range(3, 8)), *(dict(state=state) for state in range(5, 8))):
            yield from start(t.QUEUE_PAIR.number, 0, t.QUEUE_PAIR.pack(**values))
            assert (yield DUT.port.refused) == Refusal.VALUE
        for table in t.TABLES:                   # Index 0 is where a truncated index would have landed.
            assert (yield from row_of(table, 0)) == 0
    owners.run(main())
    assert not owners.asked

def test_a_transition_that_the_life_cycle_refuses_writes_nothing():
    owners = Owners(3)
    owners.refuse = lambda qp, state: qp == 2
    def main():
        for qp in (1, 2, 1):
            yield from start(t.QUEUE_PAIR.number, qp, t.QUEUE_PAIR.pack(state=QpState.RTS, p_key=7))
            assert (yield DUT.port.refused) == (Refusal.TRANSITION if qp == 2 else Refusal.NONE)
        assert (yield from row_of(t.QUEUE_PAIR, 2)) == 0
        assert (yield from row_of(t.QUEUE_PAIR, 1)) != 0
    owners.run(main())

@pytest.mark.parametrize("table", GUARDED, ids=lambda table: table.name)
def test_a_row_in_use_is_neither_changed_nor_invalidated(table):
    owners, r = Owners(4), random.Random(5)
    def main():
        first = r.getrandbits(table.width) | 1
        yield from start(table.number, 1, first)
        asked = len(owners.asked)
        yield DUT.used[table].eq(1)
        for row in (r.getrandbits(table.width), 0):
            yield from start(table.number, 1, row)
            assert (yield DUT.port.refused) == Refusal.IN_USE
            assert (yield from row_of(table, 1)) == first and len(owners.asked) == asked
        for other, signal in DUT.used.items():   # The use of others does not matter.
            yield signal.eq(other is not table)
        yield from start(table.number, 1, 0)
        assert not (yield DUT.port.refused)
        assert (yield from row_of(table, 1)) == 0
    owners.run(main())

# Waiting ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("table", GUARDED, ids=lambda table: table.name)
def test_the_use_of_a_row_is_looked_at_when_no_token_is_on_its_way(table):
    """The doorbell has judged a token by the old row: its count must be seen."""
    owners = Owners(6)
    def main():
        p = DUT.port
        yield from start(table.number, 0, 3)
        yield [p.bell_idle.eq(0), p.quiet.eq(0)]
        yield [p.table.eq(table.number), p.index.eq(0), p.row.eq(0), p.start.eq(1)]
        yield
        yield p.start.eq(0)
        for signal in (p.bell_idle, p.quiet):
            for _ in range(20):
                yield
            assert (yield p.hold) and (yield p.busy)
            yield signal.eq(1)
        yield DUT.used[table].eq(1)
        while (yield p.busy):
            assert (yield p.hold)
            yield
        assert (yield p.refused) == Refusal.IN_USE and not (yield p.hold)
        assert (yield from row_of(table, 0)) == 3
    owners.run(main())

@pytest.mark.parametrize("table", (t.CONTEXT, t.REGION), ids=lambda table: table.name)
def test_a_row_that_is_replaced_is_invalid_until_nothing_can_use_the_old_one(table):
    owners, seen = Owners(7), []
    def watch():
        yield "passive"
        yield DUT.look.eq(0)
        while True:
            value = yield DUT.rows[table.number]
            if not seen or seen[-1][0] != value:
                seen.append((value, len(owners.asked)))
            yield
    def main():
        yield from start(table.number, 0, 0b111)
        for _ in range(3):
            yield
        del seen[:-1]
        owners.asked.clear()
        yield from start(table.number, 0, 0b101)
        for _ in range(3):
            yield
    owners.run(main(), watch())
    assert [value for value, _ in seen] == [0b111, 0b100, 0b101]
    assert seen[1][1] == 0 and seen[2][1] == len(asked_for(table, 0, 0))
