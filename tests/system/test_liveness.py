# SPDX-License-Identifier: BSD-2-Clause
"""Nobody waits in a circle: what happens to one queue pair does not slow the others.

Three cards: 0 sends to 1 (which gets into trouble) and to 2. What the queue pairs to card 2 move in a window of time is compared
with the same window without the trouble, in which all queue pairs share alike. Figures are printed (`pytest -s`).
"""

import functools

import numpy as np
import pytest

from gateware.common import tables as T
from gateware.common.headers import DATA_BODY_BYTES
from soc.sim.library import Kind
from soc.sim.stalls import arrival
from tests.system.bench import LIMIT, Link, cluster, group, moved

pytestmark = [group(2), pytest.mark.timeout(300)]

MTU     = 1024
SETTLE  = 40_000       # Cycles from the first token, or the trouble, to the window.
WINDOW  = 100_000      # Cycles that are measured, 0.64 ms.
SIZE    = 8*MTU
HEALTHY = 3            # Queue pairs from card 0 to card 2, one more to card 1.

class Scene:
    """Card 0 with queue pairs to both others, all backlogged."""
    def __init__(self, c, slots=60):
        self.c = c
        a, b, d = c.nodes
        self.links   = [Link(c, a, d, size=SIZE, slots=slots, mtu=MTU) for _ in range(HEALTHY)]
        self.trouble = Link(c, a, b, size=SIZE, slots=slots, mtu=MTU)

    def post(self):
        for link in (*self.links, self.trouble):
            for slot in range(link.slots):
                link.post(slot=slot)

    def measure(self):
        """Bytes of payload that came to card 2 in the window, each PSN once, with their bodies."""
        self.c.step(SETTLE)
        start = self.c.cycle
        self.c.step(WINDOW)
        assert self.c.sim.count(0) == 0, self.c.sim.sentences(0)
        assert all(link.credit["completed"] < len(link.sent) for link in self.links), "not backlogged"
        return bytes_to(self.c, 2, start, self.c.cycle)

def bytes_to(c, node, start, end):
    r    = c.fabric.records
    came = arrival(r)
    mine = r[(r["kind"] == Kind.DATA) & (r["node"] == 0) & (r["destination"] == node) & (came > start) & (came <= end)]
    _, first = np.unique(mine[["qpn", "psn"]], return_index=True)
    return int((mine["payload"][first].astype(int) - DATA_BODY_BYTES).sum())

@functools.cache
def share():
    """Bytes that the healthy queue pairs move while all is well."""
    with cluster(nodes=3, seed=1) as c:
        scene = Scene(c)
        scene.post()
        return scene.measure()

def check(name, bytes_):
    part = bytes_/share()
    gbps = 8*bytes_/(WINDOW/156.25e6)*1e-9
    print(f"\n{name}: the others move {gbps:.3f} Gb/s, {100*part:.1f} % of their share of {8*share()/(WINDOW/156.25e6)*1e-9:.3f} Gb/s")
    assert part >= 0.97, f"{name}: {part:.3f}"

# Peers --------------------------------------------------------------------------------------------

def test_a_dead_peer_does_not_slow_the_others():
    with cluster(nodes=3, seed=1) as c:
        scene = Scene(c)
        for plane in range(2):
            c.fabric.plane_down(plane, node=c.nodes[1])
        scene.post()
        check("a dead peer", scene.measure())

def test_a_plane_that_is_dead_at_one_peer_does_not_slow_the_others():
    with cluster(nodes=3, seed=1) as c:
        scene = Scene(c)
        c.fabric.plane_down(1, node=c.nodes[1])
        scene.post()
        check("a dead plane at one peer", scene.measure())

def test_a_host_that_hangs_does_not_slow_the_others_and_loses_nothing():
    """Its card drops and counts what it has no room for, says so, and goes on when the host does."""
    with cluster(nodes=3, seed=1) as c:
        scene = Scene(c)
        before = c.nodes[1].counters()
        scene.post()
        c.step(5000)
        c.nodes[1].stall(1)
        check("a host that hangs", scene.measure())
        c.nodes[1].stall(0)
        for link in (*scene.links, scene.trouble):
            link.finish()
        steps = moved(before, c.nodes[1].counters())
        dropped = sum(n for name, n in steps.items() if name.startswith("plane") and name.endswith(("no_buffer", "store_full")))
        assert dropped > 0 and c.queue_pair_errors() == []
        print(f"its card dropped {dropped} packets for want of room")

# Pages --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("what", ["over its quota", "garbage"])
def test_a_page_that_floods_does_not_slow_the_others(what):
    """A page whose owner heeds no credit: tokens beyond its quota, or of an operation that is none, as fast as its link carries them."""
    with cluster(nodes=3, seed=1) as c:
        scene = Scene(c)
        a, page = c.nodes[0], scene.trouble.page
        scene.post()
        a.sim.page_quota(a.index, page.handle, 1 << 30)
        a.sim.post_interval(a.index, 0)
        op = 2 if what == "over its quota" else 9
        a.post_many(scene.trouble.context, [T.TOKEN.pack(op=op, slot=0, length=SIZE)]*20_000)
        left  = len(scene.trouble.sent)
        check(f"a page that floods, {what}", scene.measure())
        steps = a.counters()
        refused = steps["token_quota"] + steps["token_format"]
        print(f"{refused} tokens were refused")
        assert refused > 2000 and left < a.sim.posted(a.index, page.handle)

# Shares -------------------------------------------------------------------------------------------

def test_sixteen_backlogged_queue_pairs_share_alike():
    with cluster(nodes=2, seed=2) as c:
        a, b  = c.nodes
        links = [Link(c, a, b, size=16*256, slots=16, mtu=256) for _ in range(16)]
        for link in links:
            for slot in range(link.slots):
                link.post(slot=slot)
        c.step(30_000)
        start = c.cycle
        c.step(90_000)
        r = c.fabric.records
        r = r[(r["node"] == 0) & (r["kind"] == Kind.DATA) & (r["cycle"] > start)]
        assert all(link.credit["completed"] < len(link.sent) for link in links), "not backlogged"
        counts = [int(np.count_nonzero(r["qpn"] == link.qpn(b))) for link in links]
        print(f"\npackets of 16 queue pairs: {min(counts)} to {max(counts)}")
        assert min(counts) > 100 and max(counts) - min(counts) <= 0.02*np.mean(counts)
        for link in links:
            link.finish()

# One direction of one plane -----------------------------------------------------------------------

@pytest.mark.parametrize("direction", ["from", "both"])
def test_answers_leave_a_plane_that_its_card_knows_is_dead(direction):
    with cluster(seed=3, paths=2) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=40*MTU, mtu=MTU)
        c.fabric.plane_down(1, node=b, direction=direction, told=True)
        c.step(500)
        assert b.read("nic_planes_up") == 1 and a.read("nic_planes_up") == 3
        since = c.cycle
        link.post()
        link.finish(limit=6_000_000)
        r = c.fabric.records
        r = r[(r["node"] == b.index) & (r["cycle"] > since)]
        assert len(r) and set(r["plane"]) == {0}
        c.fabric.plane_down(1, node=b, down=False)
        c.step(500)
        assert b.read("nic_planes_up") == 3

def test_acknowledgements_survive_the_death_of_their_direction_of_a_plane():
    """The driver has taken the plane away at the responder; what comes in over it is still answered, on the other."""
    with cluster(seed=4, paths=2) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=100*MTU, mtu=MTU)
        c.fabric.plane_down(1, node=b, direction="from")
        b.write("nic_planes_enable", 1)
        b.settle()
        link.post()
        link.finish()
        moved_answers = b.counters()["answers_moved"]
        timeouts      = a.counters()["timeouts"]
        print(f"\n{moved_answers} answers took the other plane, {timeouts} timeouts")
        assert moved_answers > 5 and timeouts == 0

def test_a_direction_that_dies_silently_costs_time_but_no_bytes():
    with cluster(seed=5, paths=2) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=100*MTU, mtu=MTU)
        c.fabric.plane_down(1, node=b, direction="from")
        link.post()
        link.finish(**LIMIT)
        assert link.state()["unacked"] == link.state()["next"]
