# SPDX-License-Identifier: BSD-2-Clause
"""Two cards move bytes across a lossy multipath fabric: every byte arrives, every flag after its data."""

import random

import pytest

from gateware.common import tables as T
from soc.sim.report import figures
from soc.sim.transfer import Transfer
from tests.system.bench import LIMIT, Link, cluster, group

pytestmark = [group(2), pytest.mark.timeout(300)]

ROUGH = dict(paths=4, loss=0.02, jitter=2000, duplicate=0.01, corrupt=0.005)

def move(size, seed, planes=2, message=65536, mtu=4096, queue_pairs=1, which="pair", nodes=2, limit=None, **fabric):
    with cluster(planes, nodes=nodes, seed=seed, **fabric) as c:
        data = [random.Random(f"{seed} {i}").randbytes(size) for i in range(nodes)]
        transfer = Transfer(c, data.__getitem__, which=which, message=message, mtu=mtu, queue_pairs=queue_pairs)
        transfer.run(limit=limit or 2_000_000 + 20*size, wall=200)
        result = figures(transfer, "mrc")
    return result

def right(result):
    """The promises of every transfer."""
    assert result["ok"], result["problems"]
    assert result["match"] and result["flags_before_data"] == 0
    assert result["qp_errors"] == [] and result["credit_errors"] == []
    assert result["flags_raised"] == result["messages"]

def thrifty(result):
    d = result["packets"]["data"]
    assert d["resent"] <= 1.3*(d["lost"] + d["corrupted"]), d

# Sizes, seeds, faults -----------------------------------------------------------------------------

@pytest.mark.parametrize("size, seed", [(0, 1), (1, 2), (63, 3), (4095, 4), (4096, 14), (4097, 6)])
def test_small_sizes_arrive_over_a_rough_fabric(size, seed):
    right(move(size, seed, **ROUGH))

@pytest.mark.parametrize("seed", range(4))
def test_100001_bytes_arrive_over_a_rough_fabric(seed):
    result = move(100_001, seed, **ROUGH)
    right(result)
    thrifty(result)

@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_all_sizes_arrive_over_a_rough_fabric(seed):
    for size in (0, 1, 63, 4095, 4096, 4097):
        right(move(size, seed, **ROUGH))
    for size in (100_001, 4 << 20):
        result = move(size, seed, **ROUGH)
        right(result)
        thrifty(result)

def test_small_packets_are_resent_thriftily():
    result = move(200_003, 21, mtu=1024, message=30_011, queue_pairs=4, **ROUGH)
    right(result)
    thrifty(result)

def test_nothing_is_resent_while_reordering_stays_below_the_guard():
    result = move(300_000, 5, paths=4, jitter=1000, mtu=1024)
    right(result)
    assert result["packets"]["data"]["reordered"] > 0
    assert result["packets"]["data"]["resent"] == 0 and result["timeouts"] == 0

def test_a_fifth_of_all_frames_lost_both_ways_is_survived():
    right(move(100_001, 8, paths=4, loss=0.2, mtu=1024, message=9001, queue_pairs=2))

def test_damaged_and_doubled_frames_are_survived():
    result = move(100_001, 9, paths=4, duplicate=0.2, corrupt=0.1, jitter=2000, mtu=1024)
    right(result)
    d = result["packets"]["data"]
    assert d["corrupted"] > 0 and d["duplicated"] > 0

def test_two_runs_with_one_seed_are_the_same():
    first, second = (move(50_001, 13, mtu=1024, message=7001, queue_pairs=3, **ROUGH) for _ in range(2))
    assert first == second
    assert move(50_001, 14, mtu=1024, message=7001, queue_pairs=3, **ROUGH) != first

# Shapes -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
def test_every_path_mtu(mtu):
    result = move(40_001, mtu, mtu=mtu, message=10_007, **ROUGH)
    right(result)

def test_sixteen_queue_pairs():
    result = move(200_000, 16, mtu=1024, message=3001, queue_pairs=16, **ROUGH)
    right(result)

def test_a_ring_of_three_cards():
    result = move(30_001, 3, nodes=3, which="ring", mtu=1024, message=5003, queue_pairs=2, **ROUGH)
    right(result)
    assert result["bytes"] == 90_003

def test_every_path_of_every_plane_carries_packets():
    result = move(300_000, 17, paths=4, mtu=1024)
    right(result)
    packets = [p["packets"] for p in result["per_path"]]
    assert len(packets) == 8 and min(packets) > 0.3*max(packets)

def test_lengths_and_alignments_write_nothing_else():
    """Many short messages to every byte alignment on both sides, guard bytes between all of them."""
    rng = random.Random(4)
    with cluster(seed=4, paths=4, jitter=1000) as c:
        a, b  = c.nodes
        links = [Link(c, a, b, size=700, slots=24, mtu=256, offset=(i, 8 - i)) for i in (0, 3)]
        for link in links:
            lengths = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 511, 512, 513, 700]
            lengths += [rng.randrange(701) for _ in range(3)]
            for slot, length in enumerate(lengths):
                link.post(length=length, slot=slot)
        for link in links:
            link.finish()

def test_a_message_may_lie_across_4_KiB_boundaries():
    with cluster(seed=5) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=9000, mtu=4096, offset=(4093, 4091 - 256))
        link.post(length=9000)
        link.finish()

@pytest.mark.parametrize("start", [0xffffff, 0xffffc0, 0xfffff0])
def test_psns_wrap(start):
    with cluster(seed=start, loss=0.02, jitter=1000, paths=4) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=5000, slots=32, mtu=256, psns=(start, start))
        for slot in range(32):
            link.post(slot=slot, length=4000 + slot)
        link.finish()
        state = link.state()
        assert state["unacked"] == state["next"] == (start + 32*16) & 0xffffff

def test_plain_writes_need_no_flag_and_come_before_a_later_one():
    """WRITE without a signal: only `completed` tells; a later WRITE that signals stands for all before it."""
    with cluster(seed=6, loss=0.02, jitter=2000, paths=4) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000, slots=8, mtu=512)
        data = [a.random.randbytes(3000) for _ in range(8)]
        for slot in range(8):
            a.fill(link.source + slot*link.stride, data[slot])
            link.signal.expect(1, a, link.source + slot*link.stride, link.destination + slot*link.stride, 3000, message=slot)
        for slot in range(8):
            a.post(link.context, slot=slot, length=3000, op=2 if slot == 7 else 1)
        link.signal.target(1)
        c.run(**LIMIT)
        c.run_until(lambda: link.credit["completed"] == 8, **LIMIT)
        link.sent = list(enumerate(data))
        link.check()
        assert link.signal.value == 1 and c.sim.count(6) == 8

def test_an_added_flag_counts_on():
    """SignalMode.ADD: a count that goes on across messages of two queue pairs."""
    with cluster(seed=7) as c:
        a, b   = c.nodes
        signal = b.signal(mode=T.SignalMode.ADD)
        links  = [Link(c, a, b, size=1000, slots=4, mtu=256, signal=signal) for _ in range(2)]
        for link in links:
            for slot in range(4):
                data = a.random.randbytes(1000)
                a.fill(link.source + slot*link.stride, data)
                a.post(link.context, slot=slot, length=1000)
                link.sent.append((slot, data))
        signal.target(8)
        c.run(**LIMIT)
        c.run_until(lambda: all(link.credit["completed"] == 4 for link in links), **LIMIT)
        assert signal.value == 8
        for link in links:
            link.check()

def test_both_directions_at_once():
    with cluster(seed=8, loss=0.01, jitter=1000, paths=4) as c:
        a, b  = c.nodes
        links = [Link(c, a, b, size=20_000, mtu=1024), Link(c, b, a, size=20_000, mtu=1024)]
        for link in links:
            link.post()
        for link in links:
            link.finish()

def test_awkward_hosts():
    """Completions of 64 bytes, mixed between reads, late and stalled: the same bytes arrive."""
    with cluster(seed=9, completion_bytes=64, reorder=True, read_jitter=2000, stall=0.2) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=20_001, slots=3, mtu=2048)
        for slot in range(3):
            link.post(slot=slot, length=20_001 - slot)
        link.finish()

# Sizes of the card --------------------------------------------------------------------------------

def test_the_last_context_and_the_last_page_work():
    with cluster(seed=10) as c:
        a, b = c.nodes
        for _ in range(15):
            a.page(contexts=1)
        page = a.page()
        page.contexts = 63
        link = Link(c, a, b, size=3000, page=page)
        assert link.context.index == 1023
        link.post()
        link.finish()

def test_sixty_four_entropy_values_take_turns():
    with cluster(seed=11, paths=8) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=60_000, mtu=256)
        link.post()
        link.finish()
        r = c.fabric.records
        entropies = set(r["entropy"][r["node"] == a.index][:64])
    assert len(entropies) == 64

@pytest.mark.parametrize("plane", [0, 1])
def test_a_plane_that_is_down_all_the_time_costs_packets_but_no_bytes(plane):
    with cluster(seed=12, paths=2) as c:
        a, b = c.nodes
        c.fabric.plane_down(plane, node=b)
        link = Link(c, a, b, size=20_000, mtu=1024)
        link.post()
        link.finish(limit=6_000_000)
