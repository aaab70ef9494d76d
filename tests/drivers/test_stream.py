# SPDX-License-Identifier: BSD-2-Clause
"""The stream driver and monitor: every beat arrives once, and the monitor catches a breach of the law."""

import random

import pytest
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes, packets
from tests.engines import ENGINES, passive, simulate

LAYOUT = stream.EndpointDescription([("data", 64)], [("tag", 5)])

class Fifo(LiteXModule):
    def __init__(self):
        self.fifo = stream.SyncFIFO(LAYOUT, 4)
        self.sink, self.source = self.fifo.sink, self.fifo.source

class Faulty(LiteXModule):
    """Passes beats on, but breaks the law while stalled: changes the data, or withdraws the beat."""
    def __init__(self, fault):
        self.sink   = stream.Endpoint(LAYOUT)
        self.source = stream.Endpoint(LAYOUT)
        toggle = Signal()
        self.sync += toggle.eq(~toggle)
        self.comb += self.sink.connect(self.source, omit={"data"} if fault == "change" else {"valid", "data"})
        if fault == "change":
            self.comb += self.source.data.eq(self.sink.data ^ toggle)
        else:
            self.comb += [self.source.valid.eq(self.sink.valid & toggle), self.source.data.eq(self.sink.data)]

FIFO = {engine: Fifo() for engine in ENGINES}

@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("idle, stall", [(0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.9, 0.1)])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_beat_arrives_once_and_in_order(engine, idle, stall, seed):
    rng   = random.Random(seed)
    dut   = FIFO[engine]
    sent  = [bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40))) for _ in range(20)]
    beats = [b for n, data in enumerate(sent) for b in beats_of_bytes(data, 64, tag=n)]
    source, sink = StreamSource(dut.sink, beats, seed, idle), StreamSink(dut.source, seed + 1, stall)
    cycles = simulate(dut, [source.run(), sink.run(), sink.wait(len(beats))], engine=engine, seed=seed)
    assert sink.beats == beats
    assert [b"".join(w.to_bytes(8, "little") for w in p)[:len(d)] for p, d in zip(packets(sink), sent, strict=True)] == sent
    if not idle and not stall:
        assert cycles < len(beats) + 10

@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault, sentence", [("change", "changed before it was taken"), ("withdraw", "withdrawn")])
def test_breach_of_the_handshake_law_is_caught(engine, fault, sentence):
    dut = Faulty(fault)
    source, sink = StreamSource(dut.sink, [{"data": n} for n in range(50)]), StreamSink(dut.source, stall=0.8)
    with pytest.raises(AssertionError, match=sentence):
        simulate(dut, [source.run(), sink.run()], engine=engine)

@pytest.mark.parametrize("beat, sentence", [({"dat": 1}, "no field dat"), ({"tag": 32}, "it has 5 bits")])
def test_wrong_beat_is_refused(beat, sentence):
    dut = FIFO["migen"]
    with pytest.raises(ValueError, match=sentence):
        simulate(dut, [StreamSource(dut.sink, [beat]).run()], engine="migen")

def test_unfinished_packet_is_an_error():
    dut  = FIFO["migen"]
    sink = StreamSink(dut.source)
    @passive
    def idle():
        while True:
            yield
    simulate(dut, [StreamSource(dut.sink, [{"data": 1}]).run(), sink.run(), sink.wait(1), idle()], engine="migen")
    with pytest.raises(AssertionError, match="within a packet of 1 beats"):
        packets(sink)
