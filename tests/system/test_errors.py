# SPDX-License-Identifier: BSD-2-Clause
"""Errors stay where they belong: the queue pair or the token concerned ends, its owner reads why in its
credit line, no byte goes astray, and everything else works on."""

import pytest

from firmware.contract import QpError
from gateware.common import tables as T
from gateware.common.headers import Opcode, Syndrome
from tests.system.bench import LIMIT, Link, Recorder, cluster, group, moved

pytestmark = [group(2), pytest.mark.timeout(300)]

MS = 156_250    # Cycles.

def works(*links, count=3):
    """A transfer on each of the links arrives."""
    for link in links:
        for i in range(count):
            link.post(slot=i % link.slots)
    for link in links:
        link.finish()

def ends(c, link, reason, limit=600_000):
    """Runs until the link's page shows an error, and looks at all places that must tell the same."""
    c.run_until(lambda: link.credit["error"], limit=limit, wall=100)
    c.step(20_000)
    assert link.credit["error"] == reason
    assert link.credit["error_qp"] == link.qp.index[link.a.index]
    state = link.state()
    assert (state["state"], state["error"]) == (T.QpState.ERROR, reason)
    assert link.signal.value == 0

# Retry budget -------------------------------------------------------------------------------------

def test_a_dead_fabric_ends_the_queue_pair_within_3_ms():
    with cluster(seed=1, loss=1.0) as c:
        a, b  = c.nodes
        dead, other = Link(c, a, b, size=5000), Link(c, a, b, size=5000)
        dead.post()
        begin = c.cycle
        c.run_until(lambda: dead.credit["error"], limit=4*MS, wall=100)
        assert c.cycle - begin <= 3*MS
        ends(c, dead, QpError.RETRY_EXCEEDED)
        assert dead.credit["completed"] == dead.credit["consumed"] == 1
        assert dead.untouched() and other.state()["state"] == T.QpState.RTS
        # Silence after the end; a later token fails at once and says why.
        c.step(5000)
        frames = len(c.fabric.records)
        a.post(dead.context, length=10)
        c.run_until(lambda: dead.credit["completed"] == 2, **LIMIT)
        c.step(5000)
        assert len(c.fabric.records) == frames and dead.credit["error_count"] == 2
        c.fabric.set_loss(0)
        works(other)

def test_a_lost_last_acknowledgement_is_asked_for():
    """Data, flag and SACK arrive, the Transport ACK is lost: the probe's answer brings it, nothing is resent."""
    with cluster(seed=2) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000)
        c.fabric.drop(node=b, opcode=Opcode.ACKNOWLEDGE, count=1)
        link.post()
        link.finish(limit=400_000)
        assert c.fabric.statistics()["data"]["resent"] == 0

@pytest.mark.parametrize("opcode", [Opcode.SACK, Opcode.ACKNOWLEDGE])
def test_twenty_lost_acknowledgements_are_survived(opcode):
    with cluster(seed=3) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=10_000, slots=2)
        c.fabric.drop(node=b, opcode=opcode, count=20)
        link.post(slot=0)
        link.post(slot=1)
        link.finish(limit=800_000)

# Tokens -------------------------------------------------------------------------------------------

def bad_tokens(c):
    """{name: (reason, page, function that posts)}, each on a page of its own."""
    a, b = c.nodes
    def link(**values):
        return Link(c, a, b, size=500, slots=2, max_length=400, **values)
    def post(context, **values):
        return lambda: a.post(context, **values)
    def store(page, offset, *words):
        return lambda: a.store(T.BAR0_DOORBELL + page.number*4096 + offset, list(words))
    first = link()
    def on(**values):
        """A further page with a context that differs from the first link's in `values`."""
        page = a.page(contexts=2)
        return page, a.context(page, values.pop("qp", first.qp.index[a.index]), **({"local": first.source, "remote": first.destination,
            "slots": 2, "length": 500, "max_length": 400, "local_stride": 600, "remote_stride": 600, "lkey": first.lkey,
            "rkey": first.rkey, "immediate": first.signal.index} | values))
    plain, context = on()
    yield "context", "no such context", QpError.TOKEN_CONTEXT, plain, store(plain, 64, 100, 0)
    yield "context", "outside of the page", QpError.TOKEN_CONTEXT, plain, store(plain, 2*64, 100, 0)
    plain, context = on()
    yield "slot", "slot", QpError.TOKEN_SLOT, plain, post(context, slot=2, length=1)
    yield "slot", "largest slot", QpError.TOKEN_SLOT, plain, post(context, slot=0xffffff, length=1)
    plain, context = on()
    yield "length", "length", QpError.TOKEN_LENGTH, plain, post(context, length=401)
    yield "length", "default length", QpError.TOKEN_LENGTH, plain, post(context)
    plain, context = on()
    yield "format", "operation", QpError.TOKEN_FORMAT, plain, post(context, length=1, op=3)
    yield "format", "flags", QpError.TOKEN_FORMAT, plain, store(plain, 0, 1, 1 << 20)
    plain, context = on()
    yield "format", "half", QpError.TOKEN_FORMAT, plain, store(plain, 4, 0)
    plain, context = on(lkey=first.lkey ^ 1)
    yield "region", "variant of the key", QpError.TOKEN_REGION, plain, post(context, length=1)
    plain, context = on(lkey=63 << 8)
    yield "region", "no such region", QpError.TOKEN_REGION, plain, post(context, length=1)
    plain, context = on(lkey=a.register_region(first.source, 1000, T.Rights.REMOTE_WRITE))
    yield "region", "right", QpError.TOKEN_REGION, plain, post(context, length=1)
    plain, context = on(local=first.source + 2*first.stride - 399)
    yield "region", "end of the region", QpError.TOKEN_REGION, plain, post(context, length=400)
    plain, context = on(local=first.source - 1)
    yield "region", "start of the region", QpError.TOKEN_REGION, plain, post(context, length=1)
    plain, context = on(local=(1 << 64) - 5)
    yield "region", "end of all addresses", QpError.TOKEN_REGION, plain, post(context, length=400)
    plain, context = on(qp=c.config.queue_pairs - 1)
    yield "state", "queue pair not ready", QpError.TOKEN_STATE, plain, post(context, length=1)

def test_bad_tokens_are_dropped_counted_and_told():
    with cluster(seed=4) as c:
        a, b = c.nodes
        good = Link(c, a, b, size=3000, slots=3)
        seen = {}
        for counter, what, reason, page, post in bad_tokens(c):
            before, credit = a.counters(), a.credit(page)
            post()
            c.run_until(lambda page=page, credit=credit: a.credit(page)["error_count"] > credit["error_count"], limit=50_000)
            c.step(300)
            change, now = moved(before, a.counters()), a.credit(page)
            assert change.pop(f"token_{counter}") == 1, (what, change)
            assert set(change) <= {"credit_lines"}, (what, change)
            assert now["error"] == reason, (what, now)
            assert now["consumed"] == now["completed"] == credit["consumed"] + 1, (what, now)
            seen[what] = now
        assert len(c.fabric.records) == 0
        works(good)

def test_a_page_over_its_quota_loses_its_own_tokens_only():
    with cluster(seed=5, loss=1.0) as c:
        a, b = c.nodes
        page = a.page(quota=4)
        flood, good = Link(c, a, b, size=100, page=page), Link(c, a, b, size=3000, slots=3)
        a.sim.page_quota(a.index, page.handle, 1 << 30)     # A GPU that does not look at its credit.
        before = a.counters()
        a.post_many(flood.context, [T.TOKEN.pack(length=100)]*300)
        c.run_until(lambda: a.sim.count(3) == 0, **LIMIT)
        c.step(5000)
        change = moved(before, a.counters())
        assert change["token_quota"] > 0 and change["token_quota"] + change["tokens"] == 300
        assert a.credit(page)["error"] == QpError.TOKEN_QUOTA
        c.fabric.set_loss(0)
        works(good)

def test_a_token_in_two_halves_is_one_token():
    with cluster(seed=6) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=3000)
        data = a.random.randbytes(3000)
        a.fill(link.source, data)
        token = T.TOKEN.pack(length=3000)
        for alias in (0, 5):        # The alias does not matter, nor what lies between the halves.
            a.store(T.BAR0_DOORBELL + link.context.offset + 8*alias, [token & 0xffffffff])
            a.read("nic_time")
            a.store(T.BAR0_DOORBELL + link.context.offset + 8*alias + 4, [token >> 32])
        c.run_until(lambda: link.credit["completed"] == 2, **LIMIT)
        link.sent = [(0, data)]
        link.check()
        assert link.signal.value == 2

# Reads --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("status", [1, 4])
def test_a_failed_read_ends_its_queue_pair_only(status):
    with cluster(seed=7) as c:
        a, b = c.nodes
        bad, good = Link(c, a, b, size=20_000, slots=2), Link(c, a, b, size=20_000, slots=2)
        a.sim.fail_reads(a.index, bad.source + 9000, bad.source + 9004, status)
        for slot in range(2):
            bad.post(slot=slot)
            good.post(slot=slot)
        ends(c, bad, QpError.READ_FAILED)
        good.finish()
        assert a.counters()["read_errors"] > 0
        # What had been read before may have arrived, nothing else.
        found, (slot, data) = b.bytes_at(bad.destination, 20_000), bad.sent[0]
        assert slot == 0 and all(f in (0xa5, d) for f, d in zip(found, data, strict=True))
        assert bad.credit["completed"] == bad.credit["consumed"] == 2
        works(good, count=6)

# Rights -------------------------------------------------------------------------------------------

def refused(c, link, **context):
    """Posts one token of a context with wrong values; expects a NAK and the end of the queue pair."""
    a, b   = link.a, link.b
    wrong  = link.add_context(**context)
    before = b.counters()
    a.post(wrong, length=1500)
    ends(c, link, QpError.REMOTE_ACCESS)
    assert moved(before, b.counters()).get("receive_access", 0) > 0
    assert link.untouched()
    naks = [p for p in c.capture.sent(b, opcode=Opcode.ACKNOWLEDGE) if p["AETH"]["syndrome"] == Syndrome.NAK_REMOTE_ACCESS]
    assert naks and {p["dest_qp"] for p in naks} >= {link.qpn(a)}
    assert b.queue_pair_state(link.qp.index[b.index])["state"] == T.QpState.RTS

def test_wrong_keys_bounds_and_rights_are_refused():
    with cluster(seed=8, capture=Recorder()) as c:
        a, b = c.nodes
        good = Link(c, a, b, size=3000, slots=3)
        for wrong in (lambda link: dict(rkey=link.rkey ^ 1), lambda link: dict(rkey=(60 << 8) | 5),
                      lambda link: dict(rkey=link.rkey | 1 << 20),
                      lambda link: dict(remote=link.destination + 2*link.stride - 100),
                      lambda link: dict(remote=link.destination - 1024 - 1500), lambda link: dict(remote=(1 << 64) - 100)):
            link = Link(c, a, b, size=2000, slots=2, mtu=1024)
            refused(c, link, **wrong(link))
        refused(c, Link(c, a, b, size=2000, rights=T.Rights.LOCAL_READ | T.Rights.REMOTE_READ))
        works(good)

def test_unregistered_signals_are_refused():
    with cluster(seed=9, capture=Recorder()) as c:
        a, b = c.nodes
        good = Link(c, a, b, size=3000, slots=3)
        def signal_refused(immediate):
            """One packet, so that the first bytes do not arrive before the immediate does."""
            link = Link(c, a, b, size=2000, mtu=4096)
            refused(c, link, immediate=immediate)
        signal_refused(200)                     # Not valid.
        signal_refused(256 + good.signal.index) # Past the end of the table.
        signal_refused(good.signal.index)       # Of another queue pair.
        assert good.signal.value == 0
        works(good)

# The soft core ------------------------------------------------------------------------------------

def test_a_stopped_core_stalls_but_never_corrupts():
    with cluster(seed=10, loss=0.05, paths=4, jitter=2000) as c:
        a, b  = c.nodes
        links = [Link(c, a, b, size=30_000, slots=2, mtu=512) for _ in range(3)]
        for n in c.nodes:
            n.write("ctrl_reset", n.HOLD_CORE)
        for link in links:
            link.post(slot=0)
            link.post(slot=1)
        c.step(150_000, stop=1)
        assert c.sim.count(0) == 0 and c.sim.count(1) == 0
        assert any(link.signal.value < 2 for link in links), "nothing was lost, the test says nothing"
        for link in links:      # What is there is right.
            found = b.bytes_at(*link.room)
            assert found[:256] == b"\xa5"*256
            for slot, data in link.sent:
                at = 256 + slot*link.stride
                assert all(f in (0xa5, d) for f, d in zip(found[at:at + len(data)], data, strict=True))
        for n in c.nodes:
            n.write("ctrl_reset", 0)
        for link in links:
            link.finish()
        assert all(n.read("nic_firmware_alive") == 1 for n in c.nodes)

@pytest.mark.slow
def test_a_stopped_core_shows_in_the_watchdog():
    with cluster(seed=11) as c:
        a, b = c.nodes
        a.write("ctrl_reset", a.HOLD_CORE)
        c.step((1 << 16)*c.config.tick_cycles + 1000)
        assert a.read("nic_firmware_alive") == 0 and b.read("nic_firmware_alive") == 1
        works(Link(c, a, b, size=3000))
