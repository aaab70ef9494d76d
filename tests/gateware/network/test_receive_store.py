# SPDX-License-Identifier: BSD-2-Clause
"""Receive store against a list: commit, rollback, full ring, in both engines."""

import random

import pytest

from gateware.network.receive_store import ReceiveStore
from tests.drivers.stream import StreamSink
from tests.engines import ENGINES, simulate

_verilated = []
def dut_of(engine):
    """16 words, so that the pointers wrap many times. Verilog is built once, Migen's simulator uses its block up."""
    if engine == "migen":
        return ReceiveStore(64, 128)
    if not _verilated:
        _verilated.append(ReceiveStore(64, 128))
    return _verilated[0]

@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_only_committed_packets_come_out(engine, seed):
    block, rng  = dut_of(engine), random.Random(seed)
    sink        = StreamSink(block.source, seed=seed, stall=(0.0, 0.3, 0.7)[seed - 1])
    kept, fulls = [], 0
    def drive():
        nonlocal fulls
        for _ in range(120):
            words, whole = [(rng.getrandbits(64), 0) for _ in range(rng.randrange(0, 10))], True
            words = words[:-1] + [(words[-1][0], 1)] if words else []
            for data, last in words:
                while rng.random() < 0.2:
                    yield
                yield [block.write.eq(1), block.data.eq(data), block.last.eq(last)]
                yield
                # The write strobe is seen by the ring in the cycle that begins now.
                if (yield block.full):
                    whole = False
                yield block.write.eq(0)
            if not words:
                yield
            good   = whole and rng.random() < 0.7
            fulls += not whole
            yield [block.commit.eq(good), block.rollback.eq(not good)]
            if good:
                kept.extend(words)
            yield
            yield [block.commit.eq(0), block.rollback.eq(0)]
        for _ in range(120):
            yield
        assert (yield block.empty)
    simulate(block, [drive(), sink.run()], engine=engine, limit=20000)
    assert [(beat["data"], beat["last"]) for beat in sink.beats] == kept
    assert len(kept) > 100 and (fulls > 0) == (seed == 3)

def test_a_store_that_is_no_power_of_two_is_refused():
    with pytest.raises(ValueError, match="power of two"):
        ReceiveStore(64, 24)
