# SPDX-License-Identifier: BSD-2-Clause
"""Messages in flight: what is counted up comes down, a row is used as long as a message uses it."""

import random

import pytest
from litex.gen import LiteXModule

from gateware.config import preset
from gateware.host.in_flight import InFlight
from tests.drivers.stream import StreamSink
from tests.engines import ENGINES, simulate
from tests.gateware.transport.harness import request

CONFIG = preset("tiny")

class Bench(LiteXModule):
    def __init__(self):
        self.block = InFlight(CONFIG, 2)

DUTS = {engine: Bench() for engine in ENGINES}

def run(engine, seed, count):
    rng, block = random.Random(seed), DUTS[engine].block
    sink    = StreamSink(block.source, seed, 0.3)
    flying  = []
    log, sent = [], []
    def look():
        """Nothing moves: the block tells of each row whether it is used."""
        for _ in range(20):
            yield
        assert (yield block.quiet)
        found = []
        for index in range(8):
            yield block.index.eq(index)
            for _ in range(3):
                yield
            used = yield [block.contexts_used, block.pages_used, block.regions_used]
            for kind, value, depth in zip(("context", "page", "region"), used, (8, CONFIG.pages, CONFIG.regions), strict=True):
                assert index >= depth or value == any(m[kind] == index for m in flying), (kind, index, flying)
            found.append(used)
        log.append(found)
    def credit(port, **values):
        sent.append(values)
        yield from request(block.sinks[port], **{"consumed": 0, "completed": 0, "error": 0, "qp": 0} | values)
    def main():
        for step in range(count):
            if flying and (rng.random() < 0.5 or len(flying) > 8):
                message = flying.pop(rng.randrange(len(flying)))
                yield from credit(rng.randrange(2), completed=1, consumed=rng.randrange(2), error=rng.randrange(7), qp=rng.randrange(4),
                    **message)
            else:
                message = dict(context=rng.randrange(8), page=rng.randrange(CONFIG.pages), region=rng.randrange(CONFIG.regions))
                flying.append(message)
                yield from request(block.up, **message)
                if rng.random() < 0.5:
                    yield from credit(0, consumed=1, **message)          # A token that leaves its ring counts nothing.
            if step % 5 == 0:
                yield from look()
        for _ in range(50):
            yield
    simulate(DUTS[engine], [main(), sink.run()], engine, limit=100_000, seed=seed)
    assert len(sink.beats) == len(sent)
    return log

@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_used_from_the_token_to_the_credit(seed):
    run("verilator", seed, 300)

def test_both_engines_agree():
    assert run("verilator", 7, 60) == run("migen", 7, 60)

def test_the_credit_passes_only_after_it_was_counted():
    """Whoever sees the credit line may change the row at once."""
    block, seen = DUTS["verilator"].block, []
    def main():
        yield block.source.ready.eq(1)
        for _ in range(20):
            yield from request(block.up, context=3, page=1, region=2)
            yield block.index.eq(3)
            yield [getattr(block.sinks[0], n).eq(v) for n, v in dict(context=3, page=1, region=2, completed=1, valid=1).items()]
            yield
            while not (yield block.sinks[0].ready):
                yield
            yield block.sinks[0].valid.eq(0)
            while not (yield block.quiet):             # As the table port does.
                yield
            for _ in range(3):
                yield
            seen.append((yield block.contexts_used))
    simulate(DUTS["verilator"], main())
    assert seen == [0]*20
