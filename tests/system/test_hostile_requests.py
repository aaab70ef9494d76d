# SPDX-License-Identifier: BSD-2-Clause
"""Data packets and probes that no honest requester sends: no byte is written, a counter moves, the right
answer goes back, and afterwards the card works as before."""

import pytest

from gateware.common import tables as T
from gateware.common.headers import NackReason, Opcode, Syndrome
from tests.system.bench import addresses, group
from tests.system.hostile import START, control_frame, inject, make, works, write_frame

pytestmark = [group(2), pytest.mark.timeout(300)]

def test_unknown_queue_pairs_lives_and_partitions_are_ignored(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    qpn  = link.qpn(b)
    for values in (dict(dest_qp=15), dict(dest_qp=qpn & 0xff0000 | 99), dict(dest_qp=qpn & 0xff0000 | 0xffff), dict(dest_qp=qpn ^ 1 << 16),
                   dict(dest_qp=qpn ^ 1 << 23), dict(dest_qp=qpn ^ 1 << 8), dict(p_key=0x7fff), dict(p_key=0)):
        for frame in (write_frame(link, **values), control_frame(link, Opcode.PROBE, **({"dest_qp": qpn} | addresses(a, b) | values))):
            change, answers = inject(c, b, frame, cycles=600)
            assert change == {"plane0_good": 1, "receive_unknown_qp": 1} and answers == [], values
    assert link.untouched()
    works(link)

def nak_cases(link):
    """(name, syndrome, values of a good frame that are changed)."""
    access, invalid = Syndrome.NAK_REMOTE_ACCESS, Syndrome.NAK_INVALID_REQUEST
    end = link.destination + link.slots*link.stride
    return [
        ("wrong variant",       access,  dict(rkey=link.rkey ^ 1)),
        ("no such region",      access,  dict(rkey=63 << 8 | 1)),
        ("key out of range",    access,  dict(rkey=link.rkey | 1 << 31)),
        ("one past the end",    access,  dict(va=end - 99)),
        ("far past the end",    access,  dict(va=end + (1 << 40))),
        ("one before the start",access,  dict(va=link.destination - 1)),
        ("address 0",           access,  dict(va=0)),
        ("end of addresses",    access,  dict(va=(1 << 64) - 50)),
        ("wraps to the start",  access,  dict(va=(1 << 64) - 1)),
        ("no such signal",      access,  dict(immediate=link.signal.index + 17)),
        ("signal out of range", access,  dict(immediate=1 << 16 | link.signal.index)),
        ("longer than message", access,  dict(message_length=99)),
        ("short middle packet", invalid, dict(opcode=Opcode.WRITE_MIDDLE)),
        ("short first packet",  invalid, dict(opcode=Opcode.WRITE_FIRST)),
        ("empty last packet",   invalid, dict(opcode=Opcode.WRITE_LAST, payload=b"")),
        ("longer than the MTU", invalid, dict(payload=bytes(1028))),
        ("RQMSN out of range",  invalid, dict(rqmsn=0x8000)),
    ]

def test_wrong_rights_bounds_and_shapes_are_refused_with_a_nak(scene):
    c, a, b  = scene.fresh(2)
    good     = make(c, a, b)
    names    = [name for name, _, _ in nak_cases(good)]
    victim   = make(c, b, a)
    for i, name in enumerate(names):
        name, syndrome, values = nak_cases(victim)[i]
        psn = START + (i & 1)       # Both at the edge of the window and inside.
        change, answers = inject(c, a, write_frame(victim, **({"psn": psn} | values)))
        counter = "receive_access" if syndrome == Syndrome.NAK_REMOTE_ACCESS else "receive_length"
        assert change[counter] == 1 and "receive_accepted" not in change, (name, change)
        assert victim.untouched() and victim.signal.value == 0, name
        naks = [p for p in answers if p["opcode"] == Opcode.ACKNOWLEDGE]
        assert len(naks) == 1 and naks[0]["AETH"]["syndrome"] == syndrome and naks[0]["dest_qp"] == victim.qpn(b), (name, answers)
        assert a.queue_pair_state(victim.qp.index[a.index])["state"] == T.QpState.RTS, name
    works(good)

def test_a_region_without_the_right_is_refused(scene):
    c, a, b = scene.fresh(2)
    good, bad = make(c, a, b), make(c, a, b, rights=T.Rights.LOCAL_READ | T.Rights.REMOTE_READ)
    change, answers = inject(c, b, write_frame(bad))
    assert change["receive_access"] == 1 and bad.untouched()
    assert [p["AETH"]["syndrome"] for p in answers if p["opcode"] == Opcode.ACKNOWLEDGE] == [Syndrome.NAK_REMOTE_ACCESS]
    works(good)

def test_psns_outside_of_the_window_are_refused_with_a_nack(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for ahead in (c.config.mpr, c.config.mpr + 1, 8*c.config.mpr, (1 << 23) - 1):
        psn = (START + ahead) & 0xffffff
        change, answers = inject(c, b, write_frame(link, psn=psn, entropy=0xc123))
        assert change["receive_window"] == 1 and "receive_accepted" not in change and link.untouched(), (ahead, change)
        nacks = [p for p in answers if p["opcode"] == Opcode.NACK]
        assert len(nacks) == 1 and len(answers) == 1, answers
        n = nacks[0]["NETH"]
        assert (n["reason"], n["nack_psn"], n["entropy"]) == (NackReason.PSN_OOR_WINDOW, psn, 0xc123)
        assert nacks[0]["dest_qp"] == link.qpn(a) and nacks[0]["psn"] == psn
    works(link)

def test_psns_behind_the_window_are_answered_but_not_written(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for behind in (1, 2, 200, 1 << 23):
        psn = (START - behind) & 0xffffff
        change, answers = inject(c, b, write_frame(link, psn=psn))
        assert change["receive_duplicate"] == 1 and "receive_accepted" not in change and link.untouched(), (behind, change)
        assert sorted(p["opcode"] for p in answers) == [Opcode.ACKNOWLEDGE, Opcode.SACK]
        assert all(p["psn"] == (START - 1) & 0xffffff for p in answers)
    works(link)

def test_duplicates_are_never_written_again(scene):
    """In order and ahead of a hole; memory is overwritten in between. Each is answered, and no answer reaches over the hole."""
    c, a, b = scene.fresh(2)
    link, good = make(c, a, b), make(c, a, b)
    fresh = b"\xa5"*link.room[1]
    for psn in (START, START + 77):
        frame = write_frame(link, psn=psn, rqmsn=int(psn != START))
        change, _ = inject(c, b, frame)
        assert change["receive_accepted"] == 1 and not link.untouched()
        assert b.bytes_at(link.destination, 100) == bytes(range(100))
        b.fill(link.room[0], fresh)
        for copies in (1, 4):
            change, answers = inject(c, b, *[frame]*copies, plane=0)
            assert change["receive_duplicate"] == copies and "receive_accepted" not in change and link.untouched()
            assert {p["opcode"] for p in answers} == {Opcode.ACKNOWLEDGE, Opcode.SACK}
            assert all(p["psn"] == START for p in answers)
    assert link.signal.value == 1
    works(good)

def test_two_copies_back_to_back_are_written_once(scene):
    c, a, b = scene.fresh(2)
    link, good = make(c, a, b), make(c, a, b)
    for i in range(8):
        change, _ = inject(c, b, *[write_frame(link, bytes([i])*64, psn=START + i, rqmsn=i, msn=i)]*2)
        assert change["receive_accepted"] == change["receive_duplicate"] == 1 and change["flags"] == 1
    assert link.signal.value == 8
    works(good)

def test_a_probe_is_answered_with_sack_and_acknowledgement(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    probe = control_frame(link, Opcode.PROBE, dest_qp=link.qpn(b), probe_id=0x1234, tx_timestamp=0x55aa, **addresses(a, b))
    change, answers = inject(c, b, probe)
    by = {p["opcode"]: p for p in answers}
    assert change["probes"] == 1 and len(answers) == 2 and link.untouched()
    seth = by[Opcode.SACK]["SETH"]
    assert (seth["pr"], seth["ack_psn_offset"], seth["cack_psn"]) == (1, 0x1234, START - 1)
    assert by[Opcode.SACK]["CC_STATE"]["tx_timestamp"] == 0x55aa
    assert by[Opcode.ACKNOWLEDGE]["AETH"]["syndrome"] == Syndrome.ACK
    works(link)
