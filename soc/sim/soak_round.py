# SPDX-License-Identifier: BSD-2-Clause
"""One round of the soak: two cards, a bad network, traffic both ways, and what must hold at the end.

A round has 16 queue pairs with traffic in both directions, messages of random length, path MTUs of 256 to 1024
bytes, PSNs that wrap for half of them. After it:

  memory     every byte of every destination is as sent, or untouched; no flag was early
  credits    consumed = completed = posted on every page, without an error; no queue pair in ERROR
  the rest   no PSN outstanding, no PCIe read open, no frame under way; no context and no region in use
  timeouts   each lies in a stall that the fabric's record explains (soc/sim/stalls.py)

Every round follows from its mix and its seed alone.
"""

import random
import time
from dataclasses import dataclass

import numpy as np

from firmware.contract import QP_ERROR_TEXT
from firmware.policies import mrc
from gateware.common import tables as T
from gateware.config import preset
from soc.sim.cluster import Cluster, SimulationError
from soc.sim.driver import DriverError
from soc.sim.stalls import stalls

GUARD   = 64            # Bytes between two slots.
LONGEST = 8             # Packets of the longest message.
MEMORY  = 128 << 20

@dataclass(frozen=True)
class Mix:
    """What a round is made of: shares are probabilities per frame, times in ns."""
    packets:     int   = 20_000      # Data packets of one round, about.
    planes:      int   = 4
    paths:       int   = 4
    queue_pairs: int   = 16
    loss:        float = 0.01
    duplicate:   float = 0.005
    corrupt:     float = 0.002
    trim:        float = 0.002
    mark:        float = 0.01
    jitter:      float = 1000
    policy:      str   = "mrc"

# A round ------------------------------------------------------------------------------------------

class Lane:
    """One direction of one queue pair: slots with random lengths, each used once."""
    def __init__(self, cluster, a, b, qp, packets, rng):
        self.a, self.b, self.qp = a, b, qp
        self.lengths, left = [], packets
        longest = qp.mtu*LONGEST
        while left > 0:
            length = rng.choice((0, rng.randrange(1, 64), rng.randrange(qp.mtu), qp.mtu*rng.randrange(1, 5), rng.randrange(longest)))
            self.lengths.append(length)
            left -= max(1, -(-length//qp.mtu))
        self.stride = longest + GUARD
        size = len(self.lengths)*self.stride
        self.source      = a.alloc(size, align=64, offset=rng.randrange(64))
        self.destination = b.alloc(size, align=64, offset=rng.randrange(64))
        self.data = rng.randbytes(size)
        a.fill(self.source, self.data)
        lkey = a.register_region(self.source, size, T.Rights.LOCAL_READ)
        rkey = b.register_region(self.destination, size, T.Rights.REMOTE_WRITE)
        self.regions = (lkey >> 8, rkey >> 8)
        self.signal  = b.signal(qp=qp.index[b.index])
        self.page    = a.page(contexts=1)
        self.context = a.context(self.page, qp.index[a.index], self.source, self.destination, slots=len(self.lengths), length=longest,
            max_length=longest, local_stride=self.stride, remote_stride=self.stride, lkey=lkey, rkey=rkey, immediate=self.signal.index)
        # Some messages only write; the last one signals, so that its flag stands for all before it.
        self.ops, flags = [], 0
        for i, length in enumerate(self.lengths):
            signals = rng.random() < 0.8 or i == len(self.lengths) - 1
            self.ops.append(2 if signals else 1)
            at = i*self.stride
            self.signal.expect(flags + 1, a, self.source + at, self.destination + at, length, message=i)
            flags += signals
        self.flags = flags

    def post(self):
        self.signal.target(self.flags)
        tokens = enumerate(zip(self.lengths, self.ops, strict=True))
        self.a.post_many(self.context, [T.TOKEN.pack(op=op, slot=i, length=length) for i, (length, op) in tokens])

    def wrong_bytes(self):
        """Bytes of the destination, gaps between slots included, that are not as they must be."""
        wanted = np.zeros(len(self.data), np.uint8)
        source = np.frombuffer(self.data, np.uint8)
        for i, n in enumerate(self.lengths):
            wanted[i*self.stride:i*self.stride + n] = source[i*self.stride:i*self.stride + n]
        return int(np.count_nonzero(self.b.view(self.destination, len(wanted)) != wanted))

def run_round(mix, seed, say=lambda text: None, each=lambda packets: None):
    """One round; returns its line of the record."""
    rng, begin = random.Random(f"soak {seed}"), time.monotonic()
    cluster = Cluster(nodes=2, config=preset("sim", planes=mix.planes), paths=mix.paths, loss=mix.loss, duplicate=mix.duplicate,
        corrupt=mix.corrupt, trim=mix.trim, mark=mix.mark, jitter=mix.jitter, seed=seed, policy=None if mix.policy == "mrc" else mix.policy,
        memory=MEMORY, say=say)
    lanes, psns, start = [], [], 0
    try:
        a, b  = cluster.nodes
        for _ in range(mix.queue_pairs):
            first = (rng.choice((rng.randrange(1 << 24), (1 << 24) - rng.randrange(1, 400))), rng.randrange(1 << 24))
            qp    = cluster.connect(a, b, mtu=rng.choice((256, 512, 1024)), psns=first)
            share = max(1, mix.packets//(2*mix.queue_pairs))
            lanes += [Lane(cluster, a, b, qp, share, rng), Lane(cluster, b, a, qp, share, rng)]
            psns  += first
        start = cluster.cycle
        for lane in lanes:
            lane.post()
        cluster.run(limit=4_000_000 + 2000*mix.packets, wall=7200, quantum=20_000, each=lambda: each(cluster.sim.count(8)))
        cluster.run_until(lambda: all(lane.a.credit(lane.page)["completed"] == len(lane.lengths) for lane in lanes), limit=1_000_000,
            wall=600)
        cluster.run_until(lambda: not (cluster.sim.count(4) or cluster.sim.count(9)), limit=1_000_000, wall=600)
        line = _judge(cluster, mix, lanes, psns, start)
    except SimulationError as e:
        line = _line(cluster, lanes, start, [str(e)])
    finally:
        cluster.close()
    return line | {"seed": seed, "wall": round(time.monotonic() - begin, 1)}

def _judge(cluster, mix, lanes, psns, start):
    problems, nodes = [], cluster.nodes
    wrong = sum(lane.wrong_bytes() for lane in lanes)
    early = cluster.sim.count(1)
    if wrong:
        problems.append(f"{wrong} bytes are wrong.")
    if early:
        problems.append(f"{early} flags came before their data; the first at {cluster.sim.sentences(1)[0]}")
    for node, qp, reason in cluster.queue_pair_errors():
        problems.append(f"Queue pair {qp} of card {node} ended in error: {QP_ERROR_TEXT.get(reason, reason)}.")
    problems += _left(cluster, lanes)
    counters = [n.counters() for n in nodes]
    interval = int(mrc.MIN_INTERVAL)*cluster.config.tick_cycles
    records  = cluster.fabric.records
    records  = records[records["cycle"] >= start]
    found    = [[], []]
    for lane, first in zip(lanes, psns, strict=True):
        s, r = lane.a.index, lane.b.index
        found[s] += [(lane, x) for x in stalls(records, s, r, lane.qp.qpn[r], lane.qp.qpn[s], first, interval, cluster.cycle)]
    why, unexplained = {}, 0
    for node in (0, 1):
        timeouts = counters[node]["timeouts"]
        unexplained += max(0, timeouts - sum(x.timeouts(interval) for _, x in found[node] if x.why))
        for _, x in found[node]:
            why[x.why or "unexplained"] = why.get(x.why or "unexplained", 0) + 1
    if unexplained:
        suspects = [f"queue pair {lane.qp.index[lane.a.index]} of card {lane.a.index} at PSN {x.psn}, cycles {x.start} to {x.end}"
                    for lane, x in found[0] + found[1] if not x.why]
        problems.append(f"{unexplained} timeouts lie in no stall that a lost frame explains; suspects: "
                        f"{'; '.join(suspects[:4]) or 'none'}.")
    return _line(cluster, lanes, start, problems, timeouts=sum(c["timeouts"] for c in counters), unexplained=unexplained, stalls=why,
        wrong_bytes=wrong)

def _line(cluster, lanes, start, problems, timeouts=0, unexplained=0, stalls=None, wrong_bytes=0):
    """A round's line of the record; one that was stopped has what the fabric knows."""
    stats = cluster.fabric.statistics(start)
    return {
        "problems": problems, "cycles": cluster.cycle - start, "bytes": sum(sum(lane.lengths) for lane in lanes),
        "messages": sum(len(lane.lengths) for lane in lanes), "packets": stats["data"]["sent"], "data": stats["data"],
        "control": stats["control"], "timeouts": timeouts, "unexplained": unexplained, "stalls": stalls or {},
        "flags_early": cluster.sim.count(1), "wrong_bytes": wrong_bytes,
    }

def _left(cluster, lanes):
    """What is not given back: sentences."""
    problems = []
    for lane in lanes:
        node, credit = lane.a, lane.a.credit(lane.page)
        posted = cluster.sim.posted(node.index, lane.page.handle)
        if (credit["consumed"], credit["completed"], credit["error"]) != (posted, posted, 0) or posted != len(lane.lengths):
            problems.append(f"Page {lane.page.number} of card {node.index}: {posted} of {len(lane.lengths)} tokens posted, "
                            "{consumed} consumed, {completed} completed, error {error}.".format(**credit))
        state = node.queue_pair_state(lane.qp.index[node.index])
        if state["unacked"] != state["next"]:
            problems.append(f"Queue pair {lane.qp.index[node.index]} of card {node.index} has PSNs outstanding: {state}.")
    for what, count in (("flags are not raised", 2), ("tokens are not posted", 3), ("frames are under way", 4), ("PCIe reads are open", 9)):
        if cluster.sim.count(count):
            problems.append(f"{cluster.sim.count(count)} {what}.")
    # A row that is in use may not be taken away: a card that counts uses refuses it.
    for lane in lanes:
        there, here = (lane.b, T.REGION, lane.regions[1]), (lane.a, T.REGION, lane.regions[0])
        for node, table, index in ((lane.a, T.CONTEXT, lane.context.index), here, there):
            try:
                node.write_row(table, index)
            except DriverError as e:
                problems.append(f"Not taken back: {e}")
    return problems
