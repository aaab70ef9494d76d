# SPDX-License-Identifier: BSD-2-Clause
"""Path health of whole cards: traffic leaves a path that loses, comes back to one that works again, and never stops.

Firmware, probes and fabric are all real; the fabric alone says which path a frame took.
"""

import pytest

from firmware.contract import PathState
from gateware.common.headers import Opcode
from soc.sim.library import Fate, Kind
from tests.system.bench import Link, cluster, group

pytestmark = group()
LONG = dict(limit=6_000_000, wall=250.0)

def stream(link, count):
    """Posts `count` messages and runs until all of them are there."""
    for _ in range(count):
        link.post(slot=len(link.sent))
    link.signal.target(len(link.sent))
    link.cluster.run(**LONG)

def share(c, a, path, start):
    """Of the data frames that card `a` sent from cycle `start` on: the share on `path`."""
    r = c.fabric.records
    r = r[(r["cycle"] >= start) & (r["node"] == a.index) & (r["kind"] == Kind.DATA)]
    return sum(r["path"] == path)/len(r)

def states(node, count):
    return [p["state"] for p in node.paths()][:count]

def test_traffic_leaves_a_silently_dead_path_and_returns_to_it():
    with cluster(seed=30, paths=4) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=32_768, slots=40, mtu=1024, evs=32)
        stream(link, 4)
        assert share(c, a, 2, 0) > 0.1
        # Dead, in both directions, without a word.
        c.fabric.set_loss(1.0, path=2)
        stream(link, 12)
        moved = c.cycle
        stream(link, 12)
        assert share(c, a, 2, moved) < 0.02
        bad = [p for p in a.paths() if p["state"] == PathState.ASSUMED_BAD]
        assert len(bad) > 3 and all(p["lost"] for p in bad)
        before = c.fabric.statistics(moved)["data"]
        assert before["lost"] <= 0.02*before["sent"]
        # Alive again: probes find out, one path after the other.
        c.fabric.set_loss(0.0, path=2)
        c.run_until(lambda: PathState.ASSUMED_BAD not in states(a, 32), quantum=20_000, **LONG)
        back = c.cycle
        stream(link, 4)
        assert share(c, a, 2, back) > 0.1
        link.finish(**LONG)
        assert not c.queue_pair_errors()

def test_one_direction_of_one_plane_is_dead():
    """What card `b` answers on plane 1 is lost: its data arrive, and the other plane's answers speak of them."""
    with cluster(seed=31, paths=2) as c:
        a, b = c.nodes
        c.fabric.plane_down(1, node=b, direction="from")
        link = Link(c, a, b, size=20_000, slots=8, mtu=1024)
        for slot in range(4):
            link.post(slot=slot)
        link.finish(**LONG)
        r = c.fabric.records
        lost = r[(r["fate"] & Fate.LOST) != 0]
        assert len(lost) and set(lost["node"]) == {b.index} and set(lost["plane"]) == {1}
        assert not c.queue_pair_errors()

def test_random_loss_disables_no_path_for_long():
    with cluster(seed=32, paths=4, loss=0.02, jitter=1000) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=60_000, slots=8, mtu=1024)
        stream(link, 8)
        assert a.counters()["paths_lost"] > 3
        c.fabric.set_loss(0.0)
        link.finish(**LONG)
        c.run_until(lambda: set(states(a, 64)) == {PathState.GOOD}, quantum=20_000, **LONG)
        counters = a.counters()
        assert counters["paths_returned"] == counters["paths_lost"]
        lost = sum(p["lost"] for p in a.paths())
        assert lost >= counters["paths_lost"] > 0

def test_a_trimmed_packet_marks_its_path():
    with cluster(seed=33, trim=0.05) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=60_000, slots=8, mtu=1024)
        stream(link, 4)
        link.finish(**LONG)
        r = c.fabric.records
        trimmed = sum((r["fate"] & Fate.TRIMMED) != 0)
        marked  = sum(p["marked"] for p in a.paths())
        assert 0 < marked < trimmed                 # What the last hop trims does not count.
        assert sum(p["lost"] for p in a.paths()) <= 0.2*trimmed
        assert PathState.ASSUMED_BAD not in states(a, 64)

@pytest.mark.parametrize("up", [1, 2])
def test_a_plane_that_is_taken_out_gets_no_packet(up):
    with cluster(seed=34) as c:
        a, b = c.nodes
        a.write("nic_planes_enable", up)
        link = Link(c, a, b, size=20_000, mtu=1024)
        link.post()
        link.finish(**LONG)
        r = c.fabric.records
        data = r[(r["node"] == a.index) & (r["kind"] == Kind.DATA)]
        assert set(data["plane"]) == {up >> 1} and Opcode.SACK in r["opcode"]
