# SPDX-License-Identifier: BSD-2-Clause
"""Successive SACKs sweep the whole window: what has arrived anywhere above the oldest hole is told, and nothing else."""

import pytest

from gateware.common.headers import Opcode
from gateware.common.layouts import WriteKind
from tests.gateware.transport.responder.model import MASK24, ahead, unpack_due
from tests.gateware.transport.responder.test_acceptor import Run, bench

@pytest.mark.parametrize("highest", [1, 62, 63, 64, 65, 127, 500, 1022, 1023])
def test_sacks_sweep_a_window_of_1024(highest):
    """The expected PSN is missing, a part of those up to `highest` has arrived; duplicates of the highest ask for SACKs."""
    run   = Run(bench(1024), highest, stall=0, idle=0, settle=60)
    there = sorted({highest, *run.random.sample(range(1, highest + 1), max(1, highest*6//10))})
    def script():
        yield from run.regions()
        yield from run.life(2, mtu=0, sack_trigger=0xffff, mpr=8, receive_psn=(1 << 24) - 300)
        first = run.model.lives[2].expected
        def packet(at):
            p = run.traffic.dress(run.traffic.packet(2, Opcode.WRITE_ONLY, (first + at) & MASK24, 8, msn=0, rqmsn=0, immediate=0))
            return {**p, "a": 0, "ce": 0, "rtx": 0}
        yield from run.send(*[packet(at) for at in run.random.sample(there, len(there))])
        yield from run.send(*[packet(highest)]*(2*16 + 2))
    jobs  = run.check(script())                             # Base and bits of each are the model's.
    sacks = [d for d in (unpack_due(j["due"]) for j in jobs if j["kind"] == WriteKind.NOTIFY) if d["sack"]][-(2*16 + 2):]
    first = run.model.lives[2].expected
    def told(some):
        return {ahead(d["base"], first) + i for d in some for i in range(64) if d["bitmap"] >> i & 1}
    round_ = highest//64 + 1                                # SACKs of one sweep.
    assert told(sacks[-round_ - 1:]) == set(there)
    assert all(0 <= ahead(d["base"], first) <= max(0, highest - 63) for d in sacks)
