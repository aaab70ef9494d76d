# SPDX-License-Identifier: BSD-2-Clause
"""A buffer in a node's memory: one range, or pages that lie in any order with gaps between them.

The address of a buffer is what contexts and regions speak of: a bus address, or a virtual address that
the card translates. The host itself uses `pieces`. Nothing here simulates time but `register`.
"""

from gateware.common import tables as T
from soc.sim.driver import DriverError

VIRTUAL = 1 << 47      # Virtual addresses are drawn below it.

class Buffer:
    """`length` bytes of `node`; `offset` is the place in the first page, or after a multiple of 4096."""
    def __init__(self, node, length, page_size=None, offset=0):
        self.node, self.length, self.page_size, self.pages = node, length, page_size, None
        if page_size is None:
            self.address = node.alloc(length, align=4096, offset=offset)
            return
        if page_size not in T.PAGE_SIZES:
            raise DriverError(f"A page has {page_size} bytes, but a card knows pages of {T.PAGE_SIZES[0]} to {T.PAGE_SIZES[-1]} bytes, "
                               "a power of two.")
        count  = (offset + max(length, 1) - 1)//page_size + 1
        spare  = -(-count//8)
        first  = node.alloc((count + spare)*page_size, align=page_size)
        places = node.random.sample(range(count + spare), count)
        self.pages   = [first + page_size*place for place in places]
        self.address = node.random.randrange(page_size, VIRTUAL, page_size) + offset

    def register(self, rights):
        """Key of a region that is this buffer."""
        if self.pages is None:
            return self.node.register_region(self.address, max(1, self.length), rights)
        return self.node.register_region(self.address, max(1, self.length), rights, pages=self.pages, page_size=self.page_size)

    def pieces(self, at, length):
        """[(bus address, bytes)] of `length` bytes from byte `at` on."""
        if self.pages is None or length == 0:
            return [(self.bus(at), length)]
        found = []
        while length:
            n = min(length, self.page_size - (self.address + at) % self.page_size)
            found.append((self.bus(at), n))
            at, length = at + n, length - n
        return found

    def bus(self, at):
        """Bus address of byte `at`."""
        if self.pages is None:
            return self.address + at
        number = (self.address + at)//self.page_size - self.address//self.page_size
        return self.pages[min(number, len(self.pages) - 1)] + (self.address + at) % self.page_size

    def fill(self, data):
        """Puts bytes into it, from its start on."""
        at = 0
        for address, n in self.pieces(0, len(data)):
            self.node.fill(address, data[at:at + n])
            at += n

    def read(self):
        """All of its bytes."""
        return b"".join(self.node.bytes_at(address, n) for address, n in self.pieces(0, self.length))

def common_pieces(source, destination, at, length):
    """[(byte, bus address at `source`, at `destination`, bytes)]: parts that lie in one piece on both sides."""
    found, a, b = [], source.pieces(at, length), destination.pieces(at, length)
    done = 0
    while a and b:
        n = min(a[0][1], b[0][1])
        found.append((done, a[0][0], b[0][0], n))
        done += n
        a = ([(a[0][0] + n, a[0][1] - n)] if a[0][1] > n else []) + a[1:]
        b = ([(b[0][0] + n, b[0][1] - n)] if b[0][1] > n else []) + b[1:]
    return found
