# SPDX-License-Identifier: BSD-2-Clause
"""Buffers in scattered pages: every byte has one place, inside of its page, and two buffers share none."""

import random

import pytest

from soc.sim.buffer import Buffer, common_pieces
from soc.sim.driver import DriverError

class Host:
    """The memory of a node."""
    def __init__(self, seed):
        self.memory, self.top, self.random = bytearray(1 << 23), 0, random.Random(seed)

    def alloc(self, length, align=64, offset=0):
        at = -(-self.top//align)*align + offset
        self.top = at + length
        return at

    def fill(self, address, data):
        self.memory[address:address + len(data)] = data

    def bytes_at(self, address, length):
        return bytes(self.memory[address:address + length])

@pytest.mark.parametrize("page_size", [None, 4096, 65536])
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_001])
def test_bytes_come_back_from_their_pages(size, page_size):
    rng  = random.Random(size)
    host = Host(size)
    buffers = [(Buffer(host, size, page_size, offset=offset), rng.randbytes(size)) for offset in (0, 0x234, 4095)]
    for buffer, data in buffers:
        buffer.fill(data)
    for buffer, data in buffers:
        assert buffer.read() == data
        for at in {0, size//2, max(0, size - 1)}:
            assert size == 0 or host.bytes_at(buffer.bus(at), 1)[0] == data[at]
        if page_size:
            assert all(address//page_size == (address + max(n, 1) - 1)//page_size for address, n in buffer.pieces(0, size))
            assert buffer.pages != sorted(buffer.pages) or len(buffer.pages) < 4

def test_common_pieces_copy_a_message():
    rng = random.Random(1)
    a, b = Host(1), Host(2)
    for sizes in ((4096, 65536), (None, 4096), (4096, 4096), (None, None)):
        source, destination = (Buffer(h, 70_000, s, offset=rng.randrange(4096)) for h, s in zip((a, b), sizes, strict=True))
        data = rng.randbytes(70_000)
        source.fill(data)
        parts = common_pieces(source, destination, 5, 60_000)
        assert [p[0] for p in parts] == [sum(q[3] for q in parts[:i]) for i in range(len(parts))]
        for _, origin, target, n in parts:
            b.fill(target, a.bytes_at(origin, n))
        assert destination.read()[5:60_005] == data[5:60_005]

def test_unknown_page_sizes_are_refused():
    for size in (1, 2048, 5000, 1 << 22):
        with pytest.raises(DriverError, match="4096 to 2097152"):
            Buffer(Host(1), 100, size)
