# SPDX-License-Identifier: BSD-2-Clause
"""LitePCIe's depacketizer behind the tail stage delivers every dword of every length."""

import random

import pytest
from litepcie.tlp.depacketizer import LitePCIeTLPDepacketizer
from litex.gen import LiteXModule

from gateware.host.tlp_tail import TLPTail
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.tlps import completion_dwords, request_dwords, words_of

class Receiver(LiteXModule):
    def __init__(self, width, tail=True):
        self.depacketizer = LitePCIeTLPDepacketizer(width, "big", address_mask=0xfffc0000)
        self.sink         = self.depacketizer.sink
        if tail:
            self.tail = TLPTail(width)
            self.sink = self.tail.sink
            self.comb += self.tail.source.connect(self.depacketizer.sink)
        self.request    = self.depacketizer.req_source
        self.completion = self.depacketizer.cmp_source

def receive(dut, width, lengths, seed=1, idle=0.3, stall=0.3):
    """Sends writes, completions and reads of these lengths; returns how many came whole."""
    r = random.Random(seed)
    beats, writes, completions, reads = [], [], [], 0
    for n in lengths:
        data = r.randbytes(4*n)
        kind = r.choice(["write", "completion", "read"])
        if kind == "write":
            beats += words_of(request_dwords(0x10000, data), width)
            writes.append(data)
        elif kind == "completion":
            beats += words_of(completion_dwords(n % 32, data, 4*n, 0), width)
            completions.append(data)
        else:
            beats += words_of(request_dwords(0x20000, length=n), width)
            reads += 1
    source      = StreamSource(dut.sink, beats, seed=seed, idle=idle)
    requests    = StreamSink(dut.request, seed=seed + 1, stall=stall, loose=("dat",))
    answers     = StreamSink(dut.completion, seed=seed + 2, stall=stall, loose=("dat",))
    def rest():
        while source.sent < len(beats):
            yield
        for _ in range(60):
            yield
    simulate(dut, [source.run(), requests.run(), answers.run(), rest()], limit=30000, seed=seed)
    got = {"write": [], "read": [], "completion": []}
    for sink in (requests, answers):
        current = b""
        for beat in sink.beats:
            current += beat["dat"].to_bytes(width//8, "little")
            if beat["last"]:
                kind = "completion" if sink is answers else "write" if beat["we"] else "read"
                got[kind].append(current[:4*beat["len"]])
                current = b""
    assert len(got["read"]) == reads
    return sum(g == w for g, w in zip(got["write"] + got["completion"], writes + completions, strict=True)), len(writes + completions)

@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_every_length_comes_whole(width):
    dut = Receiver(width)
    for seed, idle, stall in ((1, 0, 0), (2, 0.3, 0.3)):
        whole, sent = receive(dut, width, list(range(1, 70)), seed, idle, stall)
        assert whole == sent

def test_without_it_dwords_are_lost():
    """The reason for the stage; when this fails, the stage is no longer needed."""
    whole, sent = receive(Receiver(64, tail=False), 64, [3]*20, idle=0, stall=0)
    assert whole < sent
