# SPDX-License-Identifier: BSD-2-Clause
"""Parts of a read cover its bytes once and keep to the link's request size, whatever the link says that is."""

import random

import pytest

from gateware.config import preset
from gateware.host.request_splitter import RequestSplitter
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.paged import straight

# What a link may be set to, and what this card makes of it: never more than its slots hold.
SIZES = {128: 128, 256: 256, 512: 512, 1024: 512, 2048: 512, 4096: 512}

@pytest.fixture(scope="module", params=[64, 128])
def block(request):
    config = preset("tiny", host_width=request.param, max_mtu=4096, receive_store=8192, payload_store=8192)
    return config, RequestSplitter(config)

@pytest.mark.parametrize("size", SIZES)
def test_every_request_size_of_a_link(block, size):
    config, dut = block
    r, step, limit = random.Random(size), config.host_width//8, SIZES[size]
    requests = [{"address": base + at, "length": n} for base in (0, 1 << 32, (1 << 64) - 8192) for at in (0, 1, limit - 1, limit, 4095)
                for n in (1, 2, limit - 1, limit, limit + 1, 4096)]
    requests += [{"address": r.randrange(1 << 44), "length": r.randrange(1, 4097)} for _ in range(20)]
    requests.insert(5, {"address": 77, "length": 0})             # Gives no part, and does not stop the next.
    requests = [{**request, "beyond": straight(request["address"])} for request in requests]
    source = StreamSource(dut.sink, requests, seed=size, idle=0.2)
    sink   = StreamSink(dut.source, seed=size + 1, stall=0.2)
    def main():
        yield dut.max_request_size.eq(size)
        yield
        yield from source.run()
        for _ in range(200):
            yield
    simulate(dut, [main(), sink.run()], limit=40000)
    parts = iter(sink.beats)
    for request in requests:
        if not request["length"]:
            continue
        at, end = request["address"]//step*step, request["address"] + request["length"]
        while True:
            part  = next(parts)
            first = at % 512//step
            words = part["last_word"] - part["first_word"] + 1
            assert part["address"] == at and part["first_word"] == first and words >= 1
            assert at//limit == (at + words*step - 1)//limit, "a part crosses a boundary of the request size"
            at += words*step
            if part["last"]:
                break
        assert at - step < end <= at, "the parts do not cover the bytes"
    assert not list(parts)
