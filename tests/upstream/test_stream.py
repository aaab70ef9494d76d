# SPDX-License-Identifier: BSD-2-Clause
"""What all blocks rely on in LiteX's streams: FIFOs and buffers keep the handshake law, order and levels."""

import random

import pytest
from litex.gen import LiteXModule
from litex.soc.interconnect import stream

from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import ENGINES, simulate

LAYOUT = stream.EndpointDescription([("data", 16)], [("tag", 4)])

class Chain(LiteXModule):
    """A FIFO and a buffer behind it."""
    def __init__(self, depth, buffered):
        self.fifo   = stream.SyncFIFO(LAYOUT, depth, buffered=buffered)
        self.buffer = stream.Buffer(LAYOUT)
        self.sink, self.source = self.fifo.sink, self.buffer.source
        self.comb += self.fifo.source.connect(self.buffer.sink)

@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth, buffered", [(2, False), (4, False), (4, True), (8, True)])
def test_fifo_keeps_order_law_and_level(engine, depth, buffered):
    dut   = Chain(depth, buffered)
    rng   = random.Random(depth)
    beats = [{"data": rng.getrandbits(16), "tag": n % 16, "first": n % 3 == 0, "last": n % 3 == 2} for n in range(120)]
    for idle, stall in ((0, 0), (0.5, 0.1), (0.1, 0.6)):
        source, sink = StreamSource(dut.sink, beats, 1, idle), StreamSink(dut.source, 2, stall)
        levels = []
        def watch(sink=sink, levels=levels):
            while len(sink.beats) < len(beats):
                levels.append((yield dut.fifo.level))
                yield
        cycles = simulate(dut, [source.run(), sink.run(), watch()], engine=engine)
        assert sink.beats == beats
        assert max(levels) <= depth + buffered
        if stall == 0.6:
            assert max(levels) >= depth
        if not idle:
            assert cycles < len(beats) + 12 or stall
