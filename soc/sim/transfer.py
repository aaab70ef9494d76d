# SPDX-License-Identifier: BSD-2-Clause
"""A transfer of bytes between the cards of a cluster: what `scripts/simulate` runs.

Each flow (sender, receiver) cuts its bytes into messages, one slot of a context each, and hands them
round-robin to its queue pairs; every message is a WRITE that signals. Source and destination begin at
odd addresses drawn from the seed, in one piece or in scattered pages of `page_size` bytes. Limits: a message is
shorter than 16 MiB, a flow has at most 2^24.
"""

from dataclasses import dataclass, field

import numpy as np

from gateware.common import tables as T
from soc.sim.buffer import Buffer, common_pieces
from soc.sim.driver import DriverError

@dataclass
class Lane:
    """One queue pair of a flow."""
    queue_pair: object
    page:       object
    context:    object
    signal:     object
    messages:   list = field(default_factory=list)      # Indices of the flow's messages, in order.
    failed:     bool = False

@dataclass
class Flow:
    sender:      object
    receiver:    object
    data:        bytes
    source:      Buffer = None
    destination: Buffer = None
    lanes:       list = field(default_factory=list)

def pattern(name, nodes):
    """[(sender, receiver)] as node numbers."""
    if name == "pair":
        if nodes % 2:
            raise DriverError(f"The pattern 'pair' needs an even number of cards, not {nodes}.")
        return [(i, i + 1) for i in range(0, nodes, 2)]
    if nodes < 2:
        raise DriverError("The pattern 'ring' needs at least 2 cards.")
    return [(i, (i + 1) % nodes) for i in range(nodes)]

class Transfer:
    """Sets a cluster up for the flows of a pattern; `payload(flow number)` gives a flow's bytes."""
    def __init__(self, cluster, payload, which="pair", message=65536, mtu=4096, queue_pairs=1, page_size=None):
        self.cluster, self.message, self.mtu, self.page_size = cluster, message, mtu, page_size
        pairs = pattern(which, len(cluster.nodes))
        self.flows = [Flow(cluster.nodes[a], cluster.nodes[b], payload(i)) for i, (a, b) in enumerate(pairs)]
        self._place()
        for flow in self.flows:
            self._connect(flow, queue_pairs)
        for n in cluster.nodes:
            n.settle()
        self.start = cluster.cycle
        self.end   = None

    # Set-up ---------------------------------------------------------------------------------------

    def _place(self):
        """Memory: buffers first, so that the ends of the regions are close to them."""
        for flow in self.flows:
            size, random, page = len(flow.data), self.cluster.random, self.page_size
            flow.source      = Buffer(flow.sender, size, page, offset=random.randrange(page or 4096))
            flow.destination = Buffer(flow.receiver, size, page, offset=random.randrange(page or 4096))
            flow.source.fill(flow.data)

    def _lengths(self, flow):
        size = len(flow.data)
        return [min(self.message, size - at) for at in range(0, size, self.message)] or [0]

    def _connect(self, flow, queue_pairs):
        a, b = flow.sender, flow.receiver
        lkey = flow.source.register(T.Rights.LOCAL_READ)
        rkey = flow.destination.register(T.Rights.REMOTE_WRITE)
        lengths = self._lengths(flow)
        for _ in range(queue_pairs):
            qp     = self.cluster.connect(a, b, mtu=self.mtu)
            signal = b.signal(qp=qp.index[b.index])
            page   = a.page(contexts=1)
            context = a.context(page, qp.index[a.index], local=flow.source.address, remote=flow.destination.address, slots=len(lengths),
                length=self.message, max_length=self.message, local_stride=self.message, remote_stride=self.message, lkey=lkey, rkey=rkey,
                immediate=signal.index, op=2)
            flow.lanes.append(Lane(qp, page, context, signal))
        for i, length in enumerate(lengths):
            lane = flow.lanes[i % queue_pairs]
            lane.messages.append(i)
            for at, source, destination, n in common_pieces(flow.source, flow.destination, i*self.message, length):
                lane.signal.expect(len(lane.messages), a, source, destination, n, message=i, at=at)

    # Run ------------------------------------------------------------------------------------------

    def run(self, limit=None, wall=900.0, each=None):
        """Posts everything and runs until all flags are up or their queue pairs have failed."""
        total = sum(len(f.data) for f in self.flows)
        self.start = self.cluster.cycle
        for flow in self.flows:
            lengths = self._lengths(flow)
            for lane in flow.lanes:
                lane.signal.target(len(lane.messages))
                flow.sender.post_many(lane.context, [T.TOKEN.pack(op=2, slot=i, length=lengths[i]) for i in lane.messages])
        limit = limit or 3_000_000 + 20*total
        try:
            self.cluster.run(limit=limit, wall=wall, each=lambda: self._look(each))
            self.cluster.run_until(self._completed, limit=600_000, wall=wall)
        finally:
            self.end = self.cluster.cycle

    def _look(self, each):
        """Between quanta: a queue pair whose credit line shows an error is not waited for any longer."""
        for flow in self.flows:
            for lane in flow.lanes:
                if not lane.failed and flow.sender.credit(lane.page)["error"]:
                    lane.failed = True
                    flow.sender.sim.withdraw(flow.sender.index, lane.page.handle)
                    lane.signal.target(0)
        if each is not None:
            each(self)
        return False

    def _completed(self):
        """Have all senders seen their credit line count every token as completed?"""
        self._look(None)
        return all(lane.failed or flow.sender.credit(lane.page)["completed"] == len(lane.messages)
            for flow in self.flows for lane in flow.lanes)

    @property
    def bytes_signalled(self):
        return self.cluster.sim.count(7)

    # Result ---------------------------------------------------------------------------------------

    def arrived(self, flow):
        return np.frombuffer(flow.destination.read(), np.uint8)

    def differences(self):
        """[(flow number, first byte that differs, bytes that differ)]."""
        out = []
        for i, flow in enumerate(self.flows):
            wrong = np.flatnonzero(self.arrived(flow) != np.frombuffer(flow.data, np.uint8))
            if len(wrong):
                out.append((i, int(wrong[0]), len(wrong)))
        return out

    def strays(self):
        """[(node, address)]: first byte outside of every buffer, flag and credit line that is not 0."""
        out = []
        for n in self.cluster.nodes:
            kept = sorted([(a - n.base, k) for f in self.flows if f.sender is n for a, k in f.source.pieces(0, len(f.data))]
                + [(a - n.base, k) for f in self.flows if f.receiver is n for a, k in f.destination.pieces(0, len(f.data))]
                + [(lane.signal.address - n.base, 8) for f in self.flows if f.receiver is n for lane in f.lanes]
                + [(lane.page.credit - n.base, 16) for f in self.flows if f.sender is n for lane in f.lanes])
            at = 0
            for start, length in [*kept, (min(n.size, n._top + 65536), 0)]:
                gap = n.memory[at:start]
                if gap.any():
                    out.append((n.index, n.base + at + int(np.flatnonzero(gap)[0])))
                    break
                at = start + length
        return out

    def latencies(self):
        """Cycles from token to flag of every message that was signalled."""
        events = self.cluster.sim.flag_event_array()
        out    = []
        for flow in self.flows:
            for lane in flow.lanes:
                mine   = events[events["watch"] == lane.signal.watch]
                posted = flow.sender.post_times(lane.page, len(lane.messages))
                # Message k of the lane is signalled by the first event whose value is k + 1 or more.
                first  = np.searchsorted(np.maximum.accumulate(mine["value"]), np.arange(1, len(posted) + 1)) if len(mine) else []
                out   += [int(mine["cycle"][f]) - int(t) for f, t in zip(first, posted, strict=False) if f < len(mine) and t]
        return out

    def span(self):
        """Cycles from the first token to the last flag."""
        events = self.cluster.sim.flag_event_array()
        mine   = events[events["cycle"] >= self.start]
        posts  = [int(t) for f in self.flows for lane in f.lanes for t in f.sender.post_times(lane.page, len(lane.messages)) if t]
        return int(mine["cycle"].max()) - min(posts) if len(mine) and posts else 0

    def messages(self):
        return [length for f in self.flows for length in self._lengths(f)]
