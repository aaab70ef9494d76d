# SPDX-License-Identifier: BSD-2-Clause
"""What a responder does with one packet, line by line: where its PSN lies, in which state its queue pair is, what it asks for."""

import pytest

from gateware.common import tables as t
from gateware.common.headers import NackReason, Opcode, Syndrome
from gateware.common.layouts import Verdict, WriteKind
from tests.gateware.transport.responder.model import MASK24, unpack_due
from tests.gateware.transport.responder.test_acceptor import Run, bench

MPR = 128

# (name, PSN from the expected one, changes of the packet, kinds of jobs that follow, what is due).
PLACED, DROPPED, SAID = WriteKind.PAYLOAD, WriteKind.DISCARD, WriteKind.NOTIFY
SACK, BOTH = dict(sack=1, ack=0, nack=0), dict(sack=1, ack=1, nack=0)
def nack(reason): return dict(sack=0, ack=0, nack=1, reason=reason)
def nak(syndrome): return dict(sack=0, ack=1, nack=0, syndrome=syndrome)
LOST = dict(stored=0)
TABLE = [
    ("new, the expected one",      0,   {}, [PLACED, SAID], dict(sack=0, ack=1, nack=0, syndrome=Syndrome.ACK)),
    ("new, last of the window",    127, {}, [PLACED], None),
    ("new, with A",                127, dict(a=1), [PLACED, SAID], SACK),
    ("new, with an ECN mark",      127, dict(ce=1), [PLACED, SAID], SACK | dict(ce=1)),
    ("new, with rtx",              127, dict(rtx=1), [PLACED, SAID], SACK | dict(rtx=1)),
    ("duplicate, just below",      -1,  {}, [DROPPED, SAID], BOTH),
    ("duplicate, 2^23 below",      -(1 << 23), {}, [DROPPED, SAID], BOTH),
    ("duplicate, marked",          2,   {}, [DROPPED, SAID], BOTH),
    ("first above the window",     128, {}, [DROPPED, SAID], nack(NackReason.PSN_OOR_WINDOW)),
    ("2^23 - 1 above",             (1 << 23) - 1, {}, [DROPPED, SAID], nack(NackReason.PSN_OOR_WINDOW)),
    ("trimmed",                    1,   LOST | dict(verdict=Verdict.TRIMMED), [SAID], nack(NackReason.TRIMMED)),
    ("trimmed at the last hop",    1,   LOST | dict(verdict=Verdict.TRIMMED_LASTHOP), [SAID], nack(NackReason.TRIMMED_LASTHOP)),
    ("no room in the store",       1,   LOST | dict(verdict=Verdict.NO_BUFFER), [SAID], nack(NackReason.NO_PKT_BUFFER)),
    ("trimmed duplicate, below",   -1,  LOST | dict(verdict=Verdict.TRIMMED), [SAID], BOTH),
    ("trimmed duplicate, marked",  2,   LOST | dict(verdict=Verdict.TRIMMED), [SAID], BOTH),
    ("trimmed above the window",   200, LOST | dict(verdict=Verdict.TRIMMED), [SAID], nack(NackReason.PSN_OOR_WINDOW)),
    ("a MIDDLE that is too short", 1,   dict(opcode=Opcode.WRITE_MIDDLE), [DROPPED, SAID], nak(Syndrome.NAK_INVALID_REQUEST)),
    ("another life's key",         1,   dict(key=1), [DROPPED, SAID], nak(Syndrome.NAK_REMOTE_ACCESS)),
    ("probe",                      0,   LOST | dict(opcode=Opcode.PROBE, length=0), [SAID], BOTH | dict(probe=1)),
    ("another generation",         1,   dict(generation=1), [DROPPED], None),
    ("another partition",          1,   dict(partition=1), [DROPPED], None),
]

def packet(run, qp, at, length=64, key=0, generation=0, partition=0, **changes):
    """A WRITE ONLY of `length` bytes, `at` from the expected PSN."""
    q = run.model.lives[qp]
    p = run.traffic.dress(run.traffic.packet(qp, Opcode.WRITE_ONLY, (q.expected + at) & MASK24, 64, msn=0, rqmsn=0, immediate=0))
    p.update(a=0, ce=0, rtx=0, length=length)
    p["rkey"]    ^= key
    p["dest_qp"] ^= generation << 16
    p["p_key"]   ^= partition
    return {**p, **changes}

def kinds(jobs):
    return [j["kind"] for j in jobs]

@pytest.mark.parametrize("engine", ["verilator", "migen"])
def test_every_line_of_the_table(engine):
    """Each line on a fresh life in which PSN expected + 2 has arrived."""
    run   = Run(bench(MPR, engine), 21, stall=0, idle=0, settle=50)
    spans = []
    def script():
        yield from run.regions()
        for _, at, changes, *_ in TABLE:
            yield from run.life(1, mtu=0, sack_trigger=0xffff, mpr=1)
            yield from run.send(packet(run, 1, 2))
            start = len(run.jobs.beats)
            yield from run.send(packet(run, 1, at, **changes))
            spans.append((start, len(run.jobs.beats)))
    jobs = run.check(script(), engine)
    for (name, _, _, wanted, said), (start, end) in zip(TABLE, spans, strict=True):
        assert kinds(jobs[start:end]) == wanted, name
        if said is not None:
            due = unpack_due(jobs[end - 1]["due"])
            assert {k: due[k] for k in said} == said, name

STATES = [
    (t.QpState.RESET, {}, None), (t.QpState.INIT, {}, NackReason.NO_RESOURCE), (t.QpState.ERROR, {}, NackReason.UNEXP_EVENT),
    (t.QpState.INIT, dict(generation=1), None), (t.QpState.ERROR, dict(generation=1), None), (t.QpState.ERROR, dict(partition=1), None),
    (t.QpState.INIT, LOST | dict(verdict=Verdict.TRIMMED), NackReason.NO_RESOURCE),
    (t.QpState.ERROR, LOST | dict(verdict=Verdict.TRIMMED), None),
    (t.QpState.ERROR, LOST | dict(verdict=Verdict.NO_BUFFER), NackReason.UNEXP_EVENT),
    (t.QpState.INIT, LOST | dict(opcode=Opcode.PROBE, length=0), None), (t.QpState.ERROR, LOST | dict(opcode=Opcode.PROBE, length=0), None),
]

def test_queue_pairs_that_do_not_receive_say_so_and_stay_as_they_are():
    """INIT: come again later; ERROR: end at once; RESET and other lives: silence. Nothing is placed, no state moves."""
    run   = Run(bench(MPR), 22, stall=0, idle=0, settle=50)
    spans = []
    def script():
        yield from run.regions()
        for state, changes, _ in STATES:
            yield from run.life(2, state, mtu=0)
            start = len(run.jobs.beats)
            yield from run.send(packet(run, 2, 0, **changes))
            spans.append((start, len(run.jobs.beats)))
            yield from run.dut.set_state(2, t.QpState.RTR)       # Nothing of it has touched the state.
            run.model.lives[2].state = t.QpState.RTR
            yield from run.send(packet(run, 2, 0, a=1))
    jobs = run.check(script())
    for (state, changes, reason), (start, end) in zip(STATES, spans, strict=True):
        said = [unpack_due(j["due"]) for j in jobs[start:end] if j["kind"] == SAID]
        assert [d["reason"] for d in said if d["nack"]] == ([reason] if reason else []), (state, changes)
        assert all(not d["sack"] and not d["ack"] for d in said) and len(said) == (reason is not None)

@pytest.mark.parametrize("units, built", [(1, 1024), (2, 1024), (8, 1024), (0, 1024), (2, 128), (255, 128)])
def test_the_window_of_a_queue_pair_and_the_bitmap_of_the_card(units, built):
    """Above the queue pair's own window: PSN_OOR_WINDOW; inside of it, but above what the card keeps track of: NO_BITMAP."""
    run    = Run(bench(built), 23, stall=0, idle=0, settle=50)
    window = 128*units or built
    places = sorted({0, 1, *(edge + d for edge in (window, built) for d in (-1, 0, 1)), 40_000})
    def script():
        yield from run.regions()
        yield from run.life(0, mpr=units, mtu=0, sack_trigger=0xffff)
        for at in places[::-1]:
            if at:
                yield from run.send(packet(run, 0, at))
    jobs = run.check(script())
    said = [unpack_due(j["due"])["reason"] for j in jobs if j["kind"] == SAID]
    assert said == [NackReason.PSN_OOR_WINDOW if at >= window else NackReason.NO_BITMAP
        for at in places[::-1] if at >= min(window, built)]

def test_refused_packets_are_told_once_each_to_peer_firmware_and_page():
    """A Transport NAK names the PSN that it refuses; every arrival is answered once."""
    run = Run(bench(MPR), 24, stall=0, idle=0, settle=50)
    def script():
        yield from run.regions()
        yield from run.life(1, mtu=0, page=1)
        yield from run.life(2, mtu=0, page=200)                  # A page that is not there.
        for qp in (1, 1, 2):
            yield from run.send(packet(run, qp, 3, key=1), packet(run, qp, 3, key=1), packet(run, qp, 5, opcode=Opcode.WRITE_FIRST))
    jobs = run.check(script())
    due  = [unpack_due(j["due"]) for j in jobs if j["kind"] == SAID]
    told = [(d["qp"], (d["cack"] - run.model.lives[d["qp"]].expected) & MASK24) for d in due]
    assert told == [(qp, at) for qp in (1, 1, 2) for at in (3, 3, 5)]
    assert [b["error"] for b in run.credits.beats] == [23, 23, 24]*2 and len(run.events.beats) == 9

@pytest.mark.parametrize("name", ["empty_region", "past_2_64", "wrapping_region", "past_table"])
def test_hostile_bounds_are_refused_every_time(name):
    """A region of length 0, and address + length at and past 2^64: no DMA, also not for a copy or a resend."""
    run = Run(bench(MPR), 25, settle=100)
    def script():
        yield from run.regions()
        yield from run.life(3, mtu=2)
        whole = len(run.model.regions)
        row   = dict(valid=1, variant=1, rights=7, base=0, length=2**64 - 1, bus=1 << 40, page_shift=0, first_page=0, usable=0)
        run.model.regions[whole] = row
        yield from run.dut.write(t.REGION, whole, **{k: v for k, v in row.items() if k != "usable"})
        for i in range(20):
            p = run.traffic.spoil(3, packet(run, 3, i % 5 + 1), name)
            if name == "past_2_64":
                p.update(va=0xffff_ffff_ffff_fc00, length=0x400, total=0x400, rkey=whole << 8 | 1)
            yield from run.send(p, {**p, "rtx": 1}, p)
    jobs = run.check(script())
    assert kinds(jobs) == [DROPPED, SAID]*60
