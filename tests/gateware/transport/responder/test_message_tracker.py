# SPDX-License-Identifier: BSD-2-Clause
"""One filled hole and a whole window behind it: every message completes in order, and soon enough that no store fills up."""

import pytest
from litex.gen import LiteXModule
from migen import If

from gateware.common.table_ram import TableRAM
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.transport.queue_pair import arrivals_layout, chunks
from gateware.transport.responder.message_tracker import MessageTracker
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import put

CONFIG = preset("tiny", mpr=1024, max_wimm=1024)
STORE  = 2048                     # Cycles of 8 bytes that a receive store of 16 KiB holds.

class Dut(LiteXModule):
    """The tracker and the bitmap that it walks; `start` to `done` as the acceptor does."""
    def __init__(self):
        self.tables = Tables(CONFIG)
        self.bits   = TableRAM(arrivals_layout(), CONFIG.queue_pairs*chunks(CONFIG))
        self.load   = TableRAM(arrivals_layout(), CONFIG.queue_pairs*chunks(CONFIG))         # The test's own writes.
        self.block  = block = MessageTracker(CONFIG, self.tables, self.bits)
        for name in ("we", "index"):
            self.comb += getattr(self.bits, name).eq(getattr(self.load, name))
        self.comb += [
            self.bits.row.raw_bits().eq(self.load.row.raw_bits()),
            If(block.bits_we,
                self.bits.we.eq(1),
                self.bits.index.eq(block.bits_index),
                self.bits.row.raw_bits().eq(block.bits_row.raw_bits())
            ),
        ]

@pytest.fixture(scope="module")
def dut():
    return Dut()

def run(dut, first, packets, stall=0):
    """Walks over `packets` [(last, signal or None)] that have arrived from PSN `first` on, None is a hole.

    Returns (flags, cycles, outcome, rows written).
    """
    block, outcome, cycles = dut.block, {}, 0
    jobs, written = StreamSink(block.jobs, stall=stall), {}
    def main():
        nonlocal cycles
        for n in (4, 5):
            yield from put(dut.tables.signal, n, valid=1, any_qp=1, address=4096*n)
        yield block.qp.eq(1)
        rows = {}
        for i, (last, number) in ((i, p) for i, p in enumerate(packets) if p is not None):
            row = rows.setdefault((first + i)//64 % chunks(CONFIG), dict(arrived=0, last=0, imm=0))
            for name, value in (("arrived", 1), ("last", last), ("imm", number is not None)):
                row[name] |= value << (first + i) % 64
        for n, row in rows.items():
            yield from put(dut.load, chunks(CONFIG) + n, **row)
        named = [p[1] for p in packets if p is not None and p[1] is not None]
        for rqmsn, number in enumerate(named):
            yield [block.stash.eq(1), block.stash_rqmsn.eq((50 + rqmsn) & 0xffff), block.stash_signal.eq(number)]
            yield
        yield [block.stash.eq(0), block.from_expected.eq(first), block.from_msn.eq(0xfff0), block.from_rqmsn.eq(50), block.start.eq(1)]
        yield
        yield block.start.eq(0)
        yield
        while not (yield block.done):
            if (yield block.bits_we):
                written[(yield block.bits_index)] = yield block.bits_row.arrived
            cycles += 1
            yield
        names = ("expected", "msn", "rqmsn", "completed")
        outcome.update(zip(names, (yield [getattr(block, n) for n in names]), strict=True))
        yield
    simulate(dut, [main(), jobs.run()], limit=60000)
    return [(b["address"]//4096, b["word"]) for b in jobs.beats], cycles, outcome, written

@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("name, packets, flags, limit", [
    ("plain packets of one message", [(0, None)]*1023 + [(1, None)], [], 150),
    ("messages without an immediate", [(1, None)]*1024, [], 1100),
    ("messages of two packets", [(0, None), (1, None)]*512, [], 1100),
    ("signalled messages", [(1, 4)]*1024, [(4, 1024)], 1150),
    ("signalled messages of 8 packets", ([(0, None)]*7 + [(1, 4)])*128, [(4, 128)], 350),
    ("two runs of signals", [(1, 4)]*500 + [(1, 5)]*524, [(4, 500), (5, 524)], 1150),
])
def test_a_window_of_1024_packets_is_walked_before_a_store_fills(dut, name, packets, flags, limit, stall):
    seen, cycles, outcome, written = run(dut, (1 << 24) - 100, packets, stall)
    done = sum(last for last, _ in packets)
    assert seen == flags, name
    named = sum(number is not None for _, number in packets)
    assert outcome == dict(expected=1024 - 100, msn=(0xfff0 + done) & 0xffff, rqmsn=50 + named, completed=1)
    assert cycles <= limit + (20 if stall else 0) < STORE, f"{name}: {cycles} cycles"
    assert len(written) == 16 and not any(written.values())

def test_signals_in_turn_get_a_flag_each(dut):
    """The worst case: 64 messages, as many as the preset `sim` can stash, with another signal each time."""
    seen, cycles, outcome, _ = run(dut, 77, [(1, 4 + i % 2) for i in range(64)])
    assert seen == [(4 + i % 2, i//2 + 1) for i in range(64)]
    assert outcome["rqmsn"] == 114 and cycles <= 64*6 + 20

def test_the_walk_stops_at_the_next_hole_and_keeps_what_lies_behind_it(dut):
    """Bits above the hole stay, in the row of the hole and in those that wrap round to below the start."""
    packets = [(1, None)]*100
    holes   = {100, 1019}                       # From the first PSN; 1020 to 1023 share a row with 1000.
    seen, _, outcome, written = run(dut, 1000, [packets[0] if i not in holes else None for i in range(1024)])
    assert outcome["expected"] == 1100 and seen == []
    assert written == {16 + 15: ((1 << 40) - 1) & ~(1 << (1000 + 1019) % 64), 16: 0, 16 + 1: (1 << 64) - (1 << 1101 % 64)}
