# SPDX-License-Identifier: BSD-2-Clause
"""Packets that arrive without their payload, trimmed by a switch or too many for the receive store: the
receiver says why it asks again, nothing of them is placed, and they are resent once."""

import random

import pytest

from gateware.common.headers import Dscp, NackReason, Opcode
from soc.sim.report import figures
from soc.sim.transfer import Transfer
from tests.models import wire
from tests.system.bench import Link, Recorder, addresses, cluster, group, moved

pytestmark = [group(1), pytest.mark.timeout(300)]

def move(size, seed, **fabric):
    seen = Recorder()
    with cluster(1, seed=seed, paths=4, capture=seen, **fabric) as c:
        transfer = Transfer(c, lambda flow: random.Random(seed + flow).randbytes(size), message=30_011, mtu=1024, queue_pairs=4)
        transfer.run(limit=2_000_000 + 20*size, wall=200)
        return figures(transfer, "mrc"), [p["NETH"] for p in seen.sent(c.nodes[1], opcode=Opcode.NACK)]

def test_trimmed_packets_are_resent_at_once_and_once():
    result, nacks = move(400_000, 31, trim=0.05, jitter=1000)
    d, (a, b) = result["packets"]["data"], result["counters"]
    assert result["ok"], result["problems"]
    assert d["trimmed"] > 10 and d["resent"] == d["trimmed"] and d["spurious"] == d["lost"] == 0
    assert a["nacks"] + a["hole_reports"] == a["command_resend"] == d["trimmed"]     # Each was reported once; no timeout resent any.
    assert result["timeouts"] <= d["trimmed"]//4
    assert b["plane0_trimmed"] == b["receive_trimmed"] == d["trimmed"] and a["plane0_trimmed"] == 0
    assert {n["reason"] for n in nacks} == {NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP}
    assert 0.8*d["trimmed"] <= len(nacks) <= d["trimmed"]      # A newer one may replace one that is due.

def test_trimming_and_everything_else():
    result, nacks = move(200_003, 32, trim=0.05, loss=0.02, duplicate=0.01, corrupt=0.01, jitter=2000)
    d = result["packets"]["data"]
    assert result["ok"], result["problems"]
    assert d["trimmed"] > 0 and d["lost"] > 0 and nacks
    assert d["resent"] <= 1.3*(d["lost"] + d["corrupted"] + d["trimmed"]), d

def test_a_fabric_that_trims_everything_ends_the_queue_pair():
    result, _ = move(20_000, 33, trim=1.0)
    assert not result["ok"] and result["flags_raised"] == 0 and result["packets"]["data"]["delivered"] == 0
    assert {e["reason"] for e in result["qp_errors"]} == {"retry budget used up"}

@pytest.fixture(scope="module")
def flooded():
    """A burst at line rate to a card whose host takes next to nothing: what became of it."""
    count, start, seen = 64, 0xffffe0, Recorder()
    with cluster(1, seed=34, stall=0.9, capture=seen) as c:
        a, b  = c.nodes
        link  = Link(c, a, b, size=4096, slots=count, mtu=4096, psns=(start, start))
        data  = [a.random.randbytes(4096) for _ in range(count)]
        ways  = addresses(a, b)
        def frame(i, **values):
            return wire.build_data(Opcode.WRITE_ONLY, data[i], msn=i, va=link.destination + i*link.stride, rkey=link.rkey,
                psn=(start + i) & 0xffffff, dest_qp=link.qpn(b), tx_timestamp=i, **ways, **values)
        before = b.counters()
        for i in range(count):
            c.fabric.inject(b, frame(i))
        c.step(80_000)
        burst   = moved(before, b.counters())
        placed  = [i for i in range(count) if b.bytes_at(link.destination + i*link.stride, 4096) == data[i]]
        link.sent = [(i, data[i]) for i in placed]
        link.check()                       # Nothing else was touched.
        nacks   = [p["NETH"] for p in seen.sent(b, opcode=Opcode.NACK)]
        for i in set(range(count)) - set(placed):
            c.fabric.inject(b, frame(i, rtx=1))
            c.step(6000)
        link.sent = list(enumerate(data))
        link.check()
        messages = moved(before, b.counters())["receive_messages"]
        yield dict(count=count, burst=burst, placed=placed, nacks=nacks, start=start, messages=messages)

def test_without_room_the_receiver_says_so(flooded):
    f = flooded
    refused = {(f["start"] + i) & 0xffffff for i in set(range(f["count"])) - set(f["placed"])}
    assert f["burst"]["plane0_no_buffer"] == f["burst"]["receive_no_buffer"] > 5
    assert f["burst"]["plane0_good"] == f["burst"]["receive_accepted"] == len(f["placed"])
    assert f["burst"]["plane0_no_buffer"] + f["burst"].get("plane0_store_full", 0) == len(refused)
    assert f["nacks"] and {n["reason"] for n in f["nacks"]} == {NackReason.NO_PKT_BUFFER}
    assert {n["nack_psn"] for n in f["nacks"]} <= refused

def test_what_found_no_room_is_placed_when_it_comes_again(flooded):
    assert flooded["messages"] == flooded["count"]

def test_a_trimmed_packet_is_never_placed_even_if_it_is_whole():
    seen = Recorder()
    with cluster(1, seed=35, capture=seen) as c:
        a, b = c.nodes
        link, above = Link(c, a, b, size=1024, mtu=1024, psns=(7, 7)), 7 + c.config.mpr
        for psn, dscp in ((7, Dscp.TRIMMED), (9, Dscp.TRIMMED_LASTHOP), (above, Dscp.TRIMMED), (6, Dscp.TRIMMED)):
            frame = wire.build_data(Opcode.WRITE_ONLY, bytes(1024), va=link.destination, rkey=link.rkey, psn=psn, dest_qp=link.qpn(b),
                tx_timestamp=1, dscp=dscp, **addresses(a, b))
            c.fabric.inject(b, frame)
            c.step(2000)
        assert link.untouched()
        nacks = [(p["NETH"]["nack_psn"], p["NETH"]["reason"]) for p in seen.sent(b, opcode=Opcode.NACK)]
        assert nacks == [(7, NackReason.TRIMMED), (9, NackReason.TRIMMED_LASTHOP), (above, NackReason.PSN_OOR_WINDOW)]
        assert len(seen.sent(b, opcode=Opcode.SACK)) == len(seen.sent(b, opcode=Opcode.ACKNOWLEDGE)) == 1
