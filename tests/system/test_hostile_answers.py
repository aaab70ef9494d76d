# SPDX-License-Identifier: BSD-2-Clause
"""Acknowledgements that no honest responder sends: nothing completes, a counter moves, no queue pair ends,
and afterwards the card works as before."""

import pytest

from gateware.common import tables as T
from gateware.common.headers import NackReason, Opcode, Syndrome
from tests.system.bench import LIMIT, addresses, group, moved
from tests.system.hostile import START, control_frame, inject, make, works, write_frame

pytestmark = [group(2), pytest.mark.timeout(300)]

def test_acknowledgements_of_what_was_never_sent_change_nothing(scene):
    c, a, b = scene.fresh(2)
    link, idle = make(c, a, b), make(c, a, b)
    c.fabric.set_loss(1)
    link.post()                             # Three packets, all lost.
    c.step(3000)
    state = link.state()
    assert state["unacked"] == START and state["next"] == START + 3
    for target, next_psn in ((link, START + 3), (idle, START)):
        for beyond in (0, 1, 100, (1 << 23) - 10):
            psn = (next_psn + beyond) & 0xffffff
            for frame in (
                    control_frame(target, Opcode.ACKNOWLEDGE, psn=psn, syndrome=Syndrome.ACK, msn=1),
                    control_frame(target, Opcode.ACKNOWLEDGE, psn=(next_psn - 1) & 0xffffff, syndrome=0x20, msn=1),     # RNR: not in MRC.
                    control_frame(target, Opcode.SACK, psn=psn, cack_psn=psn, bitmap=0),
                    control_frame(target, Opcode.SACK, psn=psn, cack_psn=psn, bitmap=(1 << 64) - 1, sack_offset=1)):
                change, answers = inject(c, a, frame, cycles=400)
                assert change["ack_bad"] == 1, (beyond, change)
                assert not {"messages_completed", "sacks", "acks"} & set(change), change
        state = target.state()
        assert (state["state"], state["error"]) == (T.QpState.RTS, 0) and state["next"] == next_psn & 0xffffff
    assert link.credit["completed"] == 0 and link.state()["unacked"] == START
    c.fabric.set_loss(0)
    link.finish()
    works(idle)

def test_bitmaps_and_counts_that_reach_too_far_do_not_complete_a_message(scene):
    """Bits beyond the last PSN sent, and MSNs that nobody sent."""
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    c.fabric.set_loss(1)
    link.post()
    c.step(3000)
    before = (START - 1) & 0xffffff
    for frame in (
            control_frame(link, Opcode.SACK, psn=before, cack_psn=before, sack_offset=4, bitmap=(1 << 64) - 1),
            control_frame(link, Opcode.SACK, psn=before, cack_psn=before, sack_offset=0x7fff, bitmap=(1 << 64) - 1),
            control_frame(link, Opcode.SACK, psn=before, cack_psn=before, sack_offset=0x8000, bitmap=(1 << 64) - 1),
            control_frame(link, Opcode.ACKNOWLEDGE, psn=before, syndrome=Syndrome.ACK, msn=1),
            control_frame(link, Opcode.ACKNOWLEDGE, psn=before, syndrome=Syndrome.ACK, msn=0xffff)):
        change, _ = inject(c, a, frame, cycles=400)
        assert "messages_completed" not in change and link.credit["completed"] == 0
    state = link.state()
    assert state["unacked"] == START and state["state"] == T.QpState.RTS
    c.fabric.set_loss(0)
    link.finish()
    works(link)

def test_refusals_of_what_was_never_sent_are_ignored(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for reason in (*[v for k, v in vars(NackReason).items() if k[0] != "_"], 0, 0xff):
        for psn in (START, START + 50, START - 1):
            change, answers = inject(c, a, control_frame(link, Opcode.NACK, psn=psn & 0xffffff, nack_psn=psn & 0xffffff, reason=reason,
                cc_type=2), cycles=400)
            assert change == {"plane0_good": 1} and answers == [], (reason, change)
    assert link.state()["state"] == T.QpState.RTS
    works(link)

def test_control_packets_of_another_life_are_ignored(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for dest_qp in (link.qpn(a) ^ 1 << 16, 99, link.qpn(a) ^ 1 << 12):
        for frame in (control_frame(link, Opcode.SACK, dest_qp=dest_qp, cack_psn=START), control_frame(link, Opcode.NACK, dest_qp=dest_qp),
                      control_frame(link, Opcode.ACKNOWLEDGE, dest_qp=dest_qp, syndrome=Syndrome.NAK_REMOTE_ACCESS, psn=START)):
            change, answers = inject(c, a, frame, cycles=400)
            assert change == {"plane0_good": 1, "ack_unknown_qp": 1} and answers == []
    works(link)

def test_a_flood_of_bad_frames_does_not_stop_a_transfer(scene):
    c, a, b = scene.fresh(2)
    link, victim = make(c, a, b, size=20_000), make(c, a, b)
    frames = [write_frame(victim, bytes(500), rkey=victim.rkey ^ 1), write_frame(victim, psn=START + c.config.mpr, plane=1),
        write_frame(victim, dest_qp=15), control_frame(victim, Opcode.PROBE, dest_qp=victim.qpn(b), **addresses(a, b, 1))]
    before = b.counters()
    for slot in range(4):
        link.post(slot=slot)
    for i in range(400):
        c.fabric.inject(b, frames[i % 4], plane=1 if i & 1 else 0)
    link.finish()
    assert victim.untouched()
    c.run(**LIMIT)
    change = moved(before, b.counters())
    assert all(change[name] > 50 for name in ("receive_access", "receive_window", "receive_unknown_qp", "probes")), change
