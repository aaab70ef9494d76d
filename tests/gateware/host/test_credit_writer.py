# SPDX-License-Identifier: BSD-2-Clause
"""Credit lines: no count is lost, the first error stays, and no line lags for longer than the timer."""

import random

import pytest

from gateware.common import tables as t
from gateware.config import preset
from gateware.host.credit_writer import FLUSH_TICKS, CreditWriter
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.tables import TableBench, counts_of

CLIENTS = 3

class Bench(TableBench):
    def __init__(self):
        super().__init__(preset("tiny", pages=4))
        self.writer = CreditWriter(self.config, self.tables, CLIENTS)
        self.add_port(page_inits=[self.writer.init_page])
        self.counts = counts_of(self.writer)

DUT   = Bench()
PAGES = [dict(valid=1, count=1, credit=16*(1 << 20 | n), credit_every=every) for n, every in enumerate((1, 4, 200))] + [dict(valid=0)]

def ticks(every):
    """Passive: a tick in each `every`-th cycle, none if it is 0."""
    yield "passive"
    n = 0
    while True:
        n += 1
        yield DUT.writer.tick.eq(int(every and n % every == 0))
        yield

def rest(cycles):
    for _ in range(cycles):
        yield

def lines(sink):
    """{page: [line]} of all written lines, in order."""
    seen = {n: [] for n in range(4)}
    for beat in sink.beats:
        page = next(n for n, row in enumerate(PAGES) if row.get("credit") == beat["address"])
        seen[page].append(t.CREDIT.unpack(beat["data"]))
    return seen

def set_up():
    for n, row in enumerate(PAGES):
        yield from DUT.write(t.PAGE, n, **row)

def events(r, count, errors=0.05):
    return [dict(page=r.randrange(4), consumed=r.getrandbits(1), completed=r.getrandbits(1), qp=r.getrandbits(16),
        error=r.randrange(1, 23) if r.random() < errors else 0) for _ in range(count)]

@pytest.mark.parametrize("seed, idle, stall", [(1, 0, 0), (2, 0.5, 0.5), (3, 0.9, 0.95)])
def test_no_count_is_lost_between_clients(seed, idle, stall):
    r     = random.Random(seed)
    given = [events(r, 200) for _ in range(CLIENTS)]
    clients = [StreamSource(s, g, seed + n, idle) for n, (s, g) in enumerate(zip(DUT.writer.sinks, given, strict=True))]
    sink, written = StreamSink(DUT.writer.source, seed + 9, stall), []
    def main():
        yield from set_up()
        runs = [c.run() for c in clients]
        while runs:                              # All clients at once, step by step.
            for run in list(runs):
                try:
                    request = next(run)
                    while request is not None:
                        request = run.send((yield request))
                except StopIteration:
                    runs.remove(run)
            yield
        yield from rest(3*FLUSH_TICKS*4)
        written.append((yield DUT.counts["credit_lines"]))
    simulate(DUT, [main(), ticks(4), sink.run()], limit=100000, seed=seed)
    seen, all_events = lines(sink), [e for g in given for e in g]
    assert not seen[3] and written == [len(sink.beats)]
    for page in range(3):
        mine = [e for e in all_events if e["page"] == page]
        last = seen[page][-1]
        assert last["consumed"] == sum(e["consumed"] for e in mine) and last["completed"] == sum(e["completed"] for e in mine)
        bad  = [e for e in mine if e["error"]]
        assert last["error_count"] == min(len(bad), 255)
        assert (last["error"], last["error_qp"]) in [(e["error"], e["qp"]) for e in bad]
        assert [line["sequence"] for line in seen[page]] == list(range(1, len(seen[page]) + 1))
        for a, b in zip(seen[page], seen[page][1:], strict=False):
            assert a["consumed"] <= b["consumed"] and a["completed"] <= b["completed"]
            if a["error"]:                       # The first error stays.
                assert (a["error"], a["error_qp"]) == (b["error"], b["error_qp"])

def test_line_is_written_at_the_threshold_after_an_error_and_by_the_timer():
    sink  = StreamSink(DUT.writer.source, stall=0)
    event = dict(page=1, consumed=1, completed=0, error=0, qp=3)
    seen  = []
    def main():
        yield from set_up()
        for n in range(9):
            yield from StreamSource(DUT.writer.sinks[n % CLIENTS], [event], idle=0).run()
            yield from rest(20)
            seen.append(len(sink.beats))
        yield from StreamSource(DUT.writer.sinks[0], [event | {"error": 7, "consumed": 0}], idle=0).run()
        yield from rest(20)
        seen.append(len(sink.beats))
        yield from StreamSource(DUT.writer.sinks[0], [event], idle=0).run()
        yield from rest(20)
        seen.append(len(sink.beats))
        for _ in range(FLUSH_TICKS):
            yield DUT.writer.tick.eq(1)
            yield
            yield DUT.writer.tick.eq(0)
            yield
        yield from rest(50)
        seen.append(len(sink.beats))
        for _ in range(2*FLUSH_TICKS):           # Nothing lags: no line.
            yield DUT.writer.tick.eq(1)
            yield
        yield DUT.writer.tick.eq(0)
        yield from rest(50)
        seen.append(len(sink.beats))
    simulate(DUT, [main(), sink.run()])
    assert seen == [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4]
    values = lines(sink)[1]
    assert [v["consumed"] for v in values] == [4, 8, 9, 10]
    assert [(v["error"], v["error_qp"], v["error_count"]) for v in values] == [(0, 0, 0), (0, 0, 0), (7, 3, 1), (7, 3, 1)]

def test_error_count_stays_at_255_and_a_new_page_starts_at_0():
    sink  = StreamSink(DUT.writer.source, stall=0)
    event = dict(page=0, consumed=1, completed=1, error=9, qp=1)
    def main():
        yield from set_up()
        yield from StreamSource(DUT.writer.sinks[1], [event]*300, idle=0).run()
        yield from rest(100)
        yield from DUT.write(t.PAGE, 0, **PAGES[0])
        yield from StreamSource(DUT.writer.sinks[2], [event | {"error": 0}], idle=0).run()
        yield from rest(100)
    simulate(DUT, [main(), sink.run()])
    *old, new = lines(sink)[0]
    assert len(old) == 300 and old[-1]["consumed"] == 300 and old[-1]["error_count"] == 255 and old[254]["error_count"] == 255
    assert new == dict(consumed=1, completed=1, error=0, error_qp=0, error_count=0, sequence=1)

def test_page_with_a_large_threshold_waits_for_it():
    sink  = StreamSink(DUT.writer.source, stall=0)
    event = dict(page=2, consumed=1, completed=0, error=0, qp=1)
    def main():
        yield from set_up()
        yield from StreamSource(DUT.writer.sinks[0], [event]*199, idle=0).run()
        yield from rest(50)
        assert not sink.beats
        yield from StreamSource(DUT.writer.sinks[0], [event], idle=0).run()
        yield from rest(50)
    simulate(DUT, [main(), sink.run()])
    assert [v["consumed"] for v in lines(sink)[2]] == [200]
