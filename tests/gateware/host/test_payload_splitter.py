# SPDX-License-Identifier: BSD-2-Clause
"""Write TLPs carry every byte once and keep to the link's payload size, whatever the link says that is."""

import random

import pytest

from gateware.config import preset
from gateware.host.payload_splitter import PayloadSplitter
from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes
from tests.engines import simulate
from tests.gateware.host.paged import straight
from tests.gateware.host.tlps import enables

SIZES = {128: 128, 256: 256, 512: 512, 1024: 512, 4096: 512}

@pytest.fixture(scope="module", params=[64, 128])
def block(request):
    config = preset("tiny", host_width=request.param, max_payload=512)
    return config, PayloadSplitter(config)

def tlps_of(beats, width):
    """[(address, bytes that are enabled)], lengths checked."""
    tlps, words = [], []
    for beat in beats:
        words.append(beat)
        if not beat["last"]:
            continue
        head, data = words[0], b"".join(w["dat"].to_bytes(width//8, "little") for w in words)
        assert len(words) == -(-4*head["length"]//(width//8)), "words do not fit the length"
        marks = enables(head["first_be"], head["last_be"], head["length"])
        start = marks.index(True)
        tlps.append((head["address"] + start, data[start:start + sum(marks)]))
        words = []
    assert not words
    return tlps

@pytest.mark.parametrize("size", SIZES)
def test_every_payload_size_of_a_link(block, size):
    config, dut = block
    r, limit, jobs, words, wanted = random.Random(size), SIZES[size], [], [], []
    cases = [(at, n) for at in (0, 1, 3, limit - 1, limit - 4, 4095) for n in (1, 2, 3, 4, 5, limit, limit + 1, 1024)]
    for at, n in cases + [(r.randrange(4096), r.randrange(1, 1025)) for _ in range(20)]:
        offset, address, data = r.randrange(8), r.choice((0x10000, 1 << 40)) + at, r.randbytes(n)
        jobs.append({"offset": offset, "address": address, "beyond": straight(address), "length": n})
        words += beats_of_bytes(r.randbytes(offset) + data + r.randbytes(r.choice((0, 4, 9))), config.host_width)
        wanted.append((address, data))
    source, stored = StreamSource(dut.sink, jobs, idle=0), StreamSource(dut.words, words, seed=size, idle=0.1)
    sink = StreamSink(dut.tlp, seed=size, stall=0.1)
    def main():
        yield dut.max_payload_size.eq(size)
        yield
        yield from source.run()
        yield
        while (yield dut.busy):
            yield
        yield
    simulate(dut, [main(), stored.run(), sink.run()], limit=40000)
    tlps = iter(tlps_of(sink.beats, config.host_width))
    for address, data in wanted:
        while data:
            at, part = next(tlps)
            assert at == address and part == data[:len(part)]
            assert at//limit == (at + len(part) - 1)//limit, "a TLP crosses a boundary of the payload size"
            address, data = address + len(part), data[len(part):]
    assert not list(tlps)
