# SPDX-License-Identifier: BSD-2-Clause
"""Frames that no honest card sends: no byte is written, a counter moves, the right answer goes back or
none, and afterwards the card works as before."""

import random

import pytest

from gateware.common import tables as T
from gateware.common.headers import ETH, IPV4, PREFIX_BYTES, UDP, NackReason, Opcode, Syndrome
from gateware.network.icrc import icrc
from tests.models import wire
from tests.system.bench import LIMIT, Link, Recorder, addresses, cluster, group, moved

pytestmark = [group(2), pytest.mark.timeout(300)]

START = 0xfffff0        # First PSN of every link here: the window wraps.

@pytest.fixture(scope="module")
def scene():
    """A cluster for all tests of the file, replaced when its queue pairs are used up."""
    class Scene:
        c = None
        def fresh(self, links):
            """(cluster, a, b) with room for so many more queue pairs."""
            if self.c is None or self.c.nodes[0]._used.get("queue pairs", 0) + links > 15:
                self.close()
                self.c = cluster_manager().__enter__()
            return self.c, *self.c.nodes
        def close(self):
            if self.c is not None:
                self.c.close()
                self.c = None
    def cluster_manager():
        s.keep = cluster(seed=1, capture=Recorder())
        return s.keep
    s = Scene()
    yield s
    s.close()

def make(c, a, b, **values):
    return Link(c, a, b, **({"size": 3000, "slots": 4, "mtu": 1024, "psns": (START, START)} | values))

def write_frame(link, payload=bytes(range(100)), opcode=Opcode.WRITE_ONLY_IMM, psn=START, plane=0, **values):
    """A good frame of the link's requester, but for `values`."""
    a, b = link.a, link.b
    return wire.build_data(opcode, payload, **({"va": link.destination, "rkey": link.rkey, "immediate": link.signal.index,
        "dest_qp": link.qpn(b), "psn": psn & 0xffffff, "tx_timestamp": 7, "minimum": 60} | addresses(a, b, plane) | values))

def control_frame(link, opcode, plane=0, **values):
    """A control frame of the link's responder to its requester."""
    a, b = link.a, link.b
    return wire.build_control(opcode, **({"dest_qp": link.qpn(a), "minimum": 60} | addresses(b, a, plane) | values))

def reseal(frame):
    """IP checksum and ICRC made right again, where the lengths say that they are."""
    frame = bytearray(frame)
    frame[24:26] = b"\0\0"
    frame[24:26] = wire.ip_checksum(bytes(frame[14:34])).to_bytes(2, "big")
    end = ETH.length + int.from_bytes(frame[16:18], "big") - 4
    if PREFIX_BYTES <= end <= len(frame) - 4:
        frame[end:end + 4] = icrc(bytes(frame[14:end]))
    return bytes(frame)

def poke(frame, header, field, value, at):
    """The frame with one header field changed; `at`: where the header begins."""
    values = header.unpack(frame[at:]) | {field: value}
    return frame[:at] + header.pack(**values) + frame[at + header.length:]

def inject(c, node, *frames, plane=0, fcs_error=0, cycles=2500):
    """Sends frames to a card; returns (counters that moved, answers of the card)."""
    c.step(500, stop=1)
    before, since = node.counters(), len(c.capture.frames)
    for f in frames:
        c.fabric.inject(node, f, plane=plane, fcs_error=fcs_error)
    c.run_until(lambda: c.sim.count(4) == 0, limit=200_000, quantum=200)
    c.step(cycles, stop=1)
    assert c.sim.count(0) == 0, c.sim.sentences(0)
    return moved(before, node.counters()), c.capture.sent(node, since)

def works(*links):
    for link in links:
        link.post(slot=link.slots - 1, length=2999)
    for link in links:
        link.finish()

# Refused in the receive path: silence ---------------------------------------------------------------

def bad_lengths(link):
    good = write_frame(link, bytes(100))
    yield poke(good, UDP, "length", UDP.unpack(good[34:])["length"] - 4, 34)
    yield poke(good, IPV4, "total_length", 1480, 14)
    yield poke(good, IPV4, "total_length", 30, 14)
    yield poke(poke(good, IPV4, "total_length", 56, 14), UDP, "length", 36, 34)
    yield write_frame(link, bytes(4100))
    yield write_frame(link, bytes(200))[:150]
    ip = IPV4.unpack(good[14:])["total_length"]
    yield poke(poke(good, IPV4, "total_length", ip - 1, 14), UDP, "length", ip - 21, 34)      # Not a multiple of four.
    empty = bytearray(write_frame(link, b""))
    empty[43] |= 0x30                                                                         # A pad without payload.
    yield bytes(empty)
    yield control_frame(link, Opcode.PROBE, dest_qp=link.qpn(link.b), **addresses(link.a, link.b), ) + bytes(0)

def test_bad_lengths_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    *frames, _ = bad_lengths(link)
    for i, frame in enumerate(frames):
        change, answers = inject(c, b, reseal(frame))
        assert answers == [] and link.untouched(), i
        assert sum(change.values()) == 1 and change.keys() <= {"plane0_bad_length", "plane0_bad_icrc"}, (i, change)
        if i < 4 or i > 5:
            assert change == {"plane0_bad_length": 1}, (i, change)
    works(link)

def test_a_bad_fcs_is_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for size in range(100, 110):        # The last word of the frame holds 0 to 7 bytes.
        for error in (1, 1 << 31, 0xffffffff):
            change, answers = inject(c, b, write_frame(link, bytes(size)), fcs_error=error, cycles=300)
            assert change == {"plane0_bad_fcs": 1} and answers == []
    assert link.untouched()
    works(link)

def test_a_bad_icrc_is_dropped(scene):
    """Single bits of everything that the ICRC covers, with a right FCS."""
    c, a, b = scene.fresh(1)
    link  = make(c, a, b)
    frame = write_frame(link, bytes(range(64)))
    rng   = random.Random(3)
    covered = [at for at in range(54, len(frame))] + [34, 35]       # BTH's extension headers to ICRC, the entropy value.
    for at in rng.sample(covered, 40):
        bad = bytearray(frame)
        bad[at] ^= 1 << rng.randrange(8)
        change, answers = inject(c, b, bytes(bad), plane=0, cycles=300)
        assert change == {"plane0_bad_icrc": 1} and answers == [], at
    assert link.untouched()
    works(link)

def test_unknown_opcodes_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for opcode in (0x00, 0x0a, 0xc0, 0xc5, 0xcc, 0xd0, 0xd8, 0xdf, 0xff):
        frame = bytearray(write_frame(link))
        frame[42] = opcode
        change, answers = inject(c, b, reseal(frame), cycles=300)
        assert change == {"plane0_bad_opcode": 1} and answers == [], opcode
    assert link.untouched()
    works(link)

def test_frames_for_others_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    good = write_frame(link)
    frames = [
        write_frame(link, destination_ip=0x0a0000ff), write_frame(link, udp_port=4792), write_frame(link, destination_mac=0x020000000199),
        poke(good, ETH, "ethertype", 0x0806, 0), poke(good, ETH, "ethertype", 0x86dd, 0), poke(good, ETH, "ethertype", 0x8100, 0),
        poke(good, IPV4, "version", 6, 14), poke(good, IPV4, "ihl", 6, 14), poke(good, IPV4, "protocol", 6, 14),
        poke(good, IPV4, "flags", 1, 14), poke(good, IPV4, "fragment", 1, 14),
        good[:43] + bytes([good[43] | 1]) + good[44:],              # Transport version 1.
    ]
    for i, frame in enumerate(frames):
        change, answers = inject(c, b, reseal(frame), cycles=300)
        assert change == {"plane0_bad_header": 1} and answers == [], (i, change)
    wrong_sum = poke(good, IPV4, "checksum", IPV4.unpack(good[14:])["checksum"] ^ 1, 14)
    change, answers = inject(c, b, wrong_sum, cycles=300)
    assert change == {"plane0_bad_header": 1} and answers == []
    assert link.untouched()
    works(link)

def test_noise_is_dropped(scene):
    """Random bytes, truncated and flipped frames, back to back on both planes."""
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    rng  = random.Random(5)
    for plane in (0, 1):
        frames = []
        for i in range(60):
            if i % 3 == 0:
                frames.append(rng.randbytes(rng.randrange(60, 1600)))
            else:
                bad = bytearray(write_frame(link, rng.randbytes(rng.randrange(1, 1025)), plane=plane))
                for _ in range(rng.randrange(1, 6)):
                    bad[rng.randrange(54, len(bad))] ^= rng.randrange(1, 256)
                frames.append(bytes(bad[:rng.randrange(60, len(bad))] if i % 3 == 1 else bad))
        change, answers = inject(c, b, *frames, plane=plane)
        assert answers == [] and sum(change.values()) == len(frames), change
        assert all(name.startswith(f"plane{plane}_bad_") for name in change), change
    assert link.untouched()
    works(link)

# Refused by the responder -----------------------------------------------------------------------------

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
    c, a, b  = scene.fresh(15)
    good     = make(c, a, b)
    names    = [name for name, _, _ in nak_cases(good)]
    victim   = make(c, b, a)        # Its requester never sends: NAKs do not end it... its peer is the judge here.
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
    for ahead in (128, 129, 1000, (1 << 23) - 1):
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
    """In order and ahead of a hole; memory is overwritten in between."""
    c, a, b = scene.fresh(2)
    link, good = make(c, a, b), make(c, a, b)
    fresh = b"\xa5"*link.room[1]
    for psn, wanted in ((START, {Opcode.ACKNOWLEDGE, Opcode.SACK}), (START + 77, {Opcode.SACK})):
        frame = write_frame(link, psn=psn, rqmsn=int(psn != START))
        change, _ = inject(c, b, frame)
        assert change["receive_accepted"] == 1 and not link.untouched()
        assert b.bytes_at(link.destination, 100) == bytes(range(100))
        b.fill(link.room[0], fresh)
        for copies in (1, 4):
            change, answers = inject(c, b, *[frame]*copies, plane=0)
            assert change["receive_duplicate"] == copies and "receive_accepted" not in change and link.untouched()
            assert {p["opcode"] for p in answers} == wanted
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

# Refused by the requester -----------------------------------------------------------------------------

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
    frames = [write_frame(victim, bytes(500), rkey=victim.rkey ^ 1), write_frame(victim, psn=START + 500), write_frame(victim, dest_qp=15),
        control_frame(victim, Opcode.PROBE, dest_qp=victim.qpn(b), **addresses(a, b))]
    for slot in range(4):
        link.post(slot=slot)
    for i in range(400):
        c.fabric.inject(b, frames[i % 4], plane=1 if i & 1 else 0)
    link.finish()
    assert victim.untouched()
    c.run(**LIMIT)
