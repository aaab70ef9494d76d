# SPDX-License-Identifier: BSD-2-Clause
"""The arbiters: no request lost or doubled, a stalled grant stays, nobody starves."""

import pytest
from litex.soc.interconnect.stream import EndpointDescription

from gateware.common.arbiter import PriorityArbiter, RoundRobinArbiter
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate

LAYOUT = EndpointDescription([("value", 16)])
DUTS   = {}

def arbiter(count):
    if count not in DUTS:
        DUTS[count] = RoundRobinArbiter(LAYOUT, count)
    return DUTS[count]

@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("idle, stall", [(0, 0), (0.5, 0.3), (0.1, 0.7), (0.8, 0)])
def test_every_request_passes_once_and_in_order(count, idle, stall):
    dut, each = arbiter(count), 40
    sources = [StreamSource(e, [{"value": n << 8 | k} for k in range(each)], n, idle) for n, e in enumerate(dut.sinks)]
    sink, grants = StreamSink(dut.source, 99, stall), []
    def watch():
        while len(sink.beats) < count*each:
            before = len(sink.beats)
            grant  = (yield dut.grant)
            yield
            if len(sink.beats) > before:
                grants.append(grant)
    simulate(dut, [*(s.run() for s in sources), sink.run(), watch()])
    values = [b["value"] for b in sink.beats]
    for n in range(count):
        assert [v & 0xff for v in values if v >> 8 == n] == list(range(each))
    if not idle:    # All are backlogged until the first ends: each turn serves each once.
        first = values[:count*(each - 2)]
        assert all(sorted(v >> 8 for v in first[k:k + count]) == list(range(count)) for k in range(0, len(first), count))
    assert len(grants) == len(values)

@pytest.mark.parametrize("idle, stall", [(0, 0.3), (0.5, 0.3), (0.3, 0.8), (0.8, 0)])
def test_the_first_request_goes_first_but_none_is_withdrawn(idle, stall):
    """The sink checks that a stalled beat stays; what is offered first leaves before any other that comes later."""
    if "rank" not in DUTS:
        DUTS["rank"] = PriorityArbiter(LAYOUT, 3)
    dut, each = DUTS["rank"], 60
    sources = [StreamSource(e, [{"value": n << 8 | k} for k in range(each)], n, idle) for n, e in enumerate(dut.sinks)]
    sink, late = StreamSink(dut.source, 99, stall), []
    def watch():
        yield "passive"
        stalled = False
        while True:
            valid = (yield [e.valid for e in dut.sinks])
            taken = (yield [e.ready for e in dut.sinks])
            won   = [v and r for v, r in zip(valid, taken, strict=True)]
            assert sum(won) <= 1
            if any(won) and not stalled and any(valid[:won.index(1)]):
                late.append(won)
            stalled = any(valid) and not any(won)
            yield
    simulate(dut, [*(s.run() for s in sources), sink.run(), watch()])
    values = [b["value"] for b in sink.beats]
    assert not late, "a request went before one of higher rank"
    for n in range(3):
        assert [v & 0xff for v in values if v >> 8 == n] == list(range(each))
