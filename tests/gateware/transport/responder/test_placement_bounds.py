# SPDX-License-Identifier: BSD-2-Clause
"""Where a region begins and ends, byte by byte, and which key opens it."""

import pytest

from gateware.common import tables as t
from gateware.common.headers import Opcode
from gateware.common.layouts import WriteKind
from tests.gateware.transport.responder.test_acceptor import Run, bench

BUS = 1 << 45

def packet(run, msn, length, **reth):
    """The next WRITE_ONLY of queue pair 1, with any address and key."""
    regions = run.model.regions
    run.model.regions = {0: dict(valid=1, variant=0, rights=2, base=0, length=1 << 20, bus=0)}   # Traffic makes packets for a region.
    p = run.traffic.packet(1, Opcode.WRITE_ONLY, run.model.lives[1].expected, length, msn=msn, rqmsn=0, immediate=0)
    run.model.regions = regions
    return run.traffic.dress({**p, **reth, "total": length})

def placed(row, writes, key=None):
    """[address or None] of WRITEs of (offset from the base, length) to a card with one region, judged in turn."""
    run, taken = Run(bench(128), 31), []
    row = dict(valid=1, variant=0x5a, rights=2, bus=BUS) | row
    def script():
        run.model.regions = {1: row}
        yield from run.dut.write(t.REGION, 1, **row)
        yield from run.life(1, mtu=0)
        msn = 0
        for offset, length in writes:
            before = len(run.wanted)
            yield from run.send(packet(run, msn, length, va=(row["base"] + offset) % 2**64,
                rkey=1 << 8 | row["variant"] if key is None else key))
            kinds = [j["kind"] for j in run.wanted[before:]]
            taken.append(WriteKind.PAYLOAD in kinds)
            msn += taken[-1]
    jobs = [j["address"] for j in run.check(script()) if j["kind"] == WriteKind.PAYLOAD]
    return [jobs.pop(0) if hit else None for hit in taken]

@pytest.mark.parametrize("base, length", [(0x1000, 300), (0x1001, 257), (2**64 - 300, 300), (0, 256)])
def test_the_last_byte_is_inside_and_the_next_is_not(base, length):
    hits  = [(0, 1), (0, 256), (length - 256, 256), (length - 1, 1), (1, 255)]
    miss  = [(length - 255, 256), (length, 1), (length - 1, 2), (-1, 1), (-1, 256), (length + 2**32, 1), (2**63, 1)]
    found = placed(dict(base=base, length=length), hits + miss)
    assert found == [BUS + at for at, _ in hits] + [None]*len(miss)

@pytest.mark.parametrize("base", [0, 0x1000, 2**64 - 1])
def test_an_empty_region_takes_no_byte(base):
    assert placed(dict(base=base, length=0), [(0, 1), (1, 1), (-1, 1), (0, 256)]) == [None]*4

def test_a_length_of_all_ones_is_no_way_around():
    assert placed(dict(base=0x1000, length=2**64 - 1), [(-1, 1), (-1, 2), (-0x1000, 256)]) == [None]*3

@pytest.mark.parametrize("key", [0x15b, 0x1da, 0x05a, 0x25a, 0x1015a, 0x8000015a])
def test_only_the_exact_key_opens_a_region(key):
    assert placed(dict(base=0x1000, length=300), [(0, 8)], key=0x15a) == [BUS]
    assert placed(dict(base=0x1000, length=300), [(0, 8)], key=key) == [None]

def test_an_empty_write_needs_no_key():
    run = Run(bench(128), 32)
    def script():
        run.model.regions = {}
        yield from run.life(1, mtu=0)
        yield from run.send(packet(run, 0, 0, va=2**64 - 1, rkey=0xdeadbeef))
        assert run.model.lives[1].msn == 1
    run.check(script())
