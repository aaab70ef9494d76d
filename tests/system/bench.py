# SPDX-License-Identifier: BSD-2-Clause
"""What the whole-card tests share: few models, links with guarded buffers, frames made by hand.

Everything goes through PCI Express and XGMII, as in soc/sim; a model is built once per configuration
and kept by the simulation's own cache. Limits in cycles and wall time are in every call.
"""

import contextlib

import pytest

from gateware.common import tables as T
from gateware.common.headers import Opcode
from gateware.config import preset
from soc.sim.cluster import Cluster
from tests.models import wire

GUARD = 256                 # Bytes around a destination that nobody may touch.
LIMIT = dict(limit=3_000_000, wall=120.0)

# Models -------------------------------------------------------------------------------------------

def model(planes=2, broken=""):
    """Configuration of one of the few models; the broken ones are small."""
    return preset("tiny" if broken else "sim", planes=planes, broken=broken)

def group(planes=2, broken=""):
    """Mark of a test that needs this model: such tests stay in one process."""
    name = "card" if (planes, broken) == (1, "") else f"card-{planes}-{broken}"
    return pytest.mark.xdist_group(name=name)

@contextlib.contextmanager
def cluster(planes=2, broken="", **options):
    c = Cluster(config=model(planes, broken), **options)
    try:
        yield c
    finally:
        c.close()

# Links --------------------------------------------------------------------------------------------

class Link:
    """A queue pair from `a` to `b` with a source, a guarded destination, a context and a flag.

    `size` bytes per slot; slot i of the source lies at `source + i*stride`. The destination is filled
    with a pattern that no source has by chance, so that any byte written shows.
    """
    def __init__(self, c, a, b, size=4096, slots=1, mtu=1024, offset=(3, 5), page=None, rights=T.Rights.REMOTE_WRITE, signal=None,
            max_length=None, **connect):
        self.cluster, self.a, self.b, self.size, self.slots, self.mtu = c, a, b, size, slots, mtu
        self.stride  = size + 2*GUARD + 1
        total        = slots*self.stride
        self.source  = a.alloc(total, align=4096, offset=offset[0])
        at           = b.alloc(total + GUARD, align=4096, offset=offset[1])
        self.room    = (at, total + GUARD)
        self.destination = at + GUARD
        b.fill(at, b"\xa5"*(total + GUARD))
        self.qp      = c.connect(a, b, mtu=mtu, **connect)
        self.lkey    = a.register_region(self.source, total, T.Rights.LOCAL_READ)
        self.rkey    = b.register_region(self.destination, total, rights)
        self.signal  = b.signal(qp=self.qp.index[b.index]) if signal is None else signal
        self.page    = a.page() if page is None else page
        self.context = self.add_context(max_length=max_length)
        self.sent    = []           # (slot, bytes) of every message posted.

    def add_context(self, **values):
        """A further context of the link, like its own but for `values`."""
        values = {"local": self.source, "remote": self.destination, "slots": self.slots, "length": self.size, "local_stride": self.stride,
            "remote_stride": self.stride, "lkey": self.lkey, "rkey": self.rkey, "immediate": self.signal.index, "op": 2} | values
        return self.a.context(self.page, values.pop("qp", self.qp.index[self.a.index]), **values)

    def qpn(self, node):
        return self.qp.qpn[node.index]

    def post(self, data=None, slot=0, length=None, **token):
        """Puts `data` (made up unless given) into the slot and posts it; its flag will be expected."""
        data = self.a.random.randbytes(self.size if length is None else length) if data is None else data
        self.a.fill(self.source + slot*self.stride, data)
        self.sent.append((slot, data))
        self.signal.expect(len(self.sent), self.a, self.source + slot*self.stride, self.destination + slot*self.stride, len(data),
            message=len(self.sent))
        self.a.post(self.context, slot=slot, length=len(data), **token)

    def finish(self, **limits):
        """Runs until all flags are up and all tokens are completed, then checks memory."""
        self.signal.target(len(self.sent))
        self.cluster.run(**(LIMIT | limits))
        self.cluster.run_until(lambda: self.credit["completed"] >= len(self.sent), **(LIMIT | limits))
        self.check()

    @property
    def credit(self):
        return self.a.credit(self.page)

    def state(self, node=None):
        node = node or self.a
        return node.queue_pair_state(self.qp.index[node.index])

    def untouched(self):
        """Is the whole destination, guards included, as it was made?"""
        return self.b.bytes_at(*self.room) == b"\xa5"*self.room[1]

    def check(self):
        """Every byte of the destination: what was sent last to it, or what was there before."""
        expected = bytearray(b"\xa5"*self.room[1])
        for slot, data in self.sent:
            at = GUARD + slot*self.stride
            expected[at:at + len(data)] = data
        found = self.b.bytes_at(*self.room)
        if found != bytes(expected):
            wrong = [i for i in range(len(found)) if found[i] != expected[i]]
            raise AssertionError(f"{len(wrong)} bytes around the destination differ, the first at offset {wrong[0] - GUARD}, "
                                 f"the last at {wrong[-1] - GUARD}.")
        assert self.cluster.sim.count(1) == 0, self.cluster.sim.sentences(1)

# Frames -------------------------------------------------------------------------------------------

def addresses(a, b, plane=0):
    """Addresses of a frame from node a to node b."""
    return dict(source_mac=a.macs[plane], destination_mac=b.macs[plane], source_ip=a.ip, destination_ip=b.ip)

class Recorder:
    """A capture for `Cluster(capture=...)` that keeps frames: [(cycle, node, plane, direction, bytes)]."""
    def __init__(self):
        self.frames = []

    def open(self, c):
        self.cluster = c

    def drain(self):
        for cycle, port, data in self.cluster.sim.take_captures():
            node, rest = divmod(port, 2*self.cluster.planes)
            self.frames.append((cycle, node, rest >> 1, ("tx", "rx")[rest & 1], data))

    def close(self):
        pass

    def sent(self, node, since=0, opcode=None):
        """Parsed frames that the card of `node` sent from index `since` on."""
        found = [wire.parse(f) for _, n, _, d, f in self.frames[since:] if n == node.index and d == "tx"]
        return [p for p in found if opcode is None or p["opcode"] == opcode]

def moved(before, after):
    """{name: step} of the counters that changed."""
    return {k: after[k] - before[k] for k in after if after[k] != before[k]}

__all__ = ["GUARD", "LIMIT", "Link", "Opcode", "Recorder", "addresses", "cluster", "group", "model", "moved"]
