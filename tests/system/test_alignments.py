# SPDX-License-Identifier: BSD-2-Clause
"""Every alignment of source and destination, every length up to three packets: the bytes arrive, and none beside them.

A card that talks to itself, MTU 256. Slot s of the source begins s bytes after a multiple of 64; context k of the
destination k bytes after one. A pass sends one message for each of the 64 x 64 pairs and compares all memory around them.
All lengths of all pairs are 769 passes.
"""

import random

import numpy as np
import pytest

from gateware.common import tables as T
from tests.system.bench import LIMIT
from tests.system.loop import looped

pytestmark = [pytest.mark.xdist_group(name="card-peers"), pytest.mark.timeout(600)]

LONGEST, STRIDE, GUARD = 3*256, 1024, 64
EDGES = sorted({n + d for n in (0, 8, 16, 64, 128, 256, 512, 768) for d in (-1, 0, 1) if 0 <= n + d <= LONGEST} | {2, 3, 4, 5})

class Half:
    """A queue pair and a page with the contexts of 32 alignments of the destination."""
    def __init__(self, c, a, b, first):
        self.c, self.node, self.first = c, a, first
        self.source = a.alloc(64*(STRIDE + 1) + 64, align=4096)
        self.size   = 64*STRIDE + 2*GUARD + 64
        self.area   = a.alloc(self.size, align=4096, offset=64*a.random.randrange(64))
        self.data   = a.random.randbytes(64*(STRIDE + 1) + 64)
        a.fill(self.source, self.data)
        qp   = c.connect(a, b, mtu=256)
        lkey = a.register_region(self.source, len(self.data), T.Rights.LOCAL_READ)
        rkey = a.register_region(self.area, self.size, T.Rights.REMOTE_WRITE)
        self.page = a.page()
        self.contexts = [a.context(self.page, qp.index[0], local=self.source, remote=self.area + GUARD + first + k, slots=64,
            length=LONGEST, local_stride=STRIDE + 1, remote_stride=STRIDE, lkey=lkey, rkey=rkey, op=1) for k in range(32)]
        self.posted = 0

    def post(self, k, lengths):
        """A message from every slot to alignment `first + k`."""
        self.lengths, self.k = lengths, self.first + k
        self.node.fill(self.area, b"\xa5"*self.size)
        self.node.post_many(self.contexts[k], [T.TOKEN.pack(op=1, slot=s, length=n) for s, n in enumerate(lengths)])
        self.posted += 64

    @property
    def done(self):
        return self.node.credit(self.page)["completed"] == self.posted

    def check(self):
        wanted = np.full(self.size, 0xa5, np.uint8)
        for s, n in enumerate(self.lengths):
            at, start = GUARD + self.k + s*STRIDE, s*(STRIDE + 1)
            wanted[at:at + n] = np.frombuffer(self.data[start:start + n], np.uint8)
        wrong = np.flatnonzero(self.node.view(self.area, self.size) != wanted)
        assert not len(wrong), (f"{len(wrong)} bytes are wrong, the first at {wrong[0] - GUARD - self.k} from slot 0; "
            f"destination at {self.k} of 64, lengths {self.lengths}")

def sweep(passes):
    """`passes`: functions (source alignment, destination alignment) -> length."""
    with looped(seed=1, delay=0) as (c, a, b):
        halves = [Half(c, a, b, first) for first in (0, 32)]
        for length in passes:
            for k in range(32):
                for h in halves:
                    h.post(k, [length(s, h.first + k) for s in range(64)])
                c.run_until(lambda: all(h.done for h in halves), quantum=400, **LIMIT)
                for h in halves:
                    h.check()
                    assert a.credit(h.page)["error"] == 0
        return c.cycle

def spread(p):
    """Pass p: every length occurs about five times; each pair has all of them in 769 passes."""
    return lambda s, k: (p + 12*(64*s + k)) % (LONGEST + 1)

def test_all_alignments_with_lengths_of_all_kinds():
    rng = random.Random(1)
    sweep([spread(rng.randrange(LONGEST + 1)), lambda s, k: rng.choice(EDGES)])

@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(0, LONGEST + 1, 32))
def test_all_alignments_with_all_lengths(first):
    sweep([spread(p) for p in range(first, min(first + 32, LONGEST + 1))])
