# SPDX-License-Identifier: BSD-2-Clause
"""The Python endpoints among themselves: requester, adversary and responder without a card, and a witness that objects."""

import random

import pytest

from gateware.common.headers import Dscp, Opcode
from tests.models import wire
from tests.models.adversary import Adversary
from tests.models.endpoint import End, Region, near
from tests.models.requester import Message, Requester
from tests.models.responder import Responder
from tests.models.witness import Witness

MACS = dict(source_mac=1, destination_mac=2, source_ip=3, destination_ip=4)

def ends(mtu=256, start=0xfffff0):
    common = dict(mtu=mtu, p_key=0xffff, trigger=1024, window=64, send_window=64, immediates=8, messages=8,
        addresses={0: MACS, 1: MACS}, paths=[(0xc000 + i, i & 1) for i in range(6)])
    return (End(own_qpn=5, remote_qpn=0x770009, send_psn=start, receive_psn=9, **common),
            End(own_qpn=0x770009, remote_qpn=5, send_psn=9, receive_psn=start, **common))

def messages(r, count, base):
    out, at = [], 0
    for i in range(count):
        data = r.randbytes(r.choice([0, 1, 256, 257, 1000]))
        out.append(Message(base + at, 7, data, i if r.random() < 0.5 else None))
        at += len(data) + 5
    return out, at

def converse(seed, **odds):
    """A conversation; returns (requester, responder, witness)."""
    r = random.Random(seed)
    a, b = ends()
    todo, size = messages(r, 40, 1000)
    requester, witness = Requester(a, r, silence=3000), Witness(a)
    responder = Responder(b, {7: Region(7, 1000, bytearray(size))})
    for m in todo:
        requester.post(m)
        witness.post(m)
    there, back = (Adversary(random.Random(f"{seed} {name}"), delay=50, late=500, **odds) for name in ("there", "back"))
    way, now = [], 0
    while not requester.done:
        now += 20
        assert now < 2_000_000
        out = requester.send(now)
        if out:
            witness.sent(wire.parse(out[1]), out[0], now)
            way += [(x, 1) for x in there.through(out[1], out[0], now)]
        for x, forth in sorted((w for w in way if w[0].time <= now), key=lambda w: w[0].time):
            p = wire.parse(x.frame)
            if x.flip or p["error"]:
                continue
            if forth:
                for answer in responder.take(p, x.plane):
                    way += [(y, 0) for y in back.through(answer.frame(b), x.plane, now)]
            else:
                witness.heard(p, now)
                requester.take(p, now)
        way = [w for w in way if w[0].time > now]
    for m in todo:
        assert bytes(responder.regions[7].data[m.va - 1000:m.va - 1000 + len(m.data)]) == m.data
    assert responder.immediates == [m.immediate for m in todo if m.immediate is not None]
    assert witness.retired == len(todo)
    return requester, responder, witness

@pytest.mark.parametrize("seed", range(20))
def test_a_requester_and_a_responder_understand_each_other(seed):
    _, responder, witness = converse(seed, lose=0.1, double=0.1, trim=0.1, mark=0.1, damage=0.1)
    assert responder.counters["receive_duplicate"] and responder.counters["receive_trimmed"] and witness.counts["resent"]

def test_nothing_is_sent_twice_over_a_good_network():
    a, b = ends()
    requester, responder = Requester(a, random.Random(1), silence=3000), Responder(b, {7: Region(7, 0, bytearray(5000))})
    requester.post(Message(0, 7, bytes(5000), 3))
    for now in range(0, 2000, 20):
        out = requester.send(now)
        for answer in responder.take(wire.parse(out[1]), out[0]) if out else ():
            requester.take(wire.parse(answer.frame(b)), now)
    assert requester.done and responder.counters["receive_accepted"] == 20 and responder.out_of_order == 0
    assert responder.immediates == [3] and responder.flags == [(3, 1)] and responder.received == 5000 + 20*88 + 4

def test_messages_that_complete_at_once_share_the_flag_of_their_signal():
    """Packets arrive last first: the flags of all messages are due when the first one comes. In order, each has its own."""
    def flags(turned):
        a, b = ends()
        requester, responder = Requester(a, random.Random(1), silence=3000), Responder(b, {7: Region(7, 0, bytearray(8))})
        for n, signal in enumerate((3, 3, 5, None, 5, 3)):
            requester.post(Message(n, 7, bytes([n]), signal))
        sent = [out for out in map(requester.send, range(0, 600, 20)) if out]
        for plane, frame in sent[::-1] if turned else sent:
            responder.take(wire.parse(frame), plane)
        assert len(sent) == 6 and responder.immediates == [3, 3, 5, 5, 3] and responder.counters["flags"] == len(responder.flags)
        return responder.flags
    assert flags(True) == [(3, 2), (5, 2), (3, 3)]
    assert flags(False) == [(3, 1), (3, 2), (5, 1), (5, 2), (3, 3)]

def test_numbers_of_the_wire_are_taken_as_the_nearest():
    assert near(5, 0xfffffe) == 0x1000005 and near(0xfffffe, 0x1000005) == 0xfffffe
    assert near(0x800000, 0) == -0x800000 and near(0x7fffff, 0) == 0x7fffff and near(3, 0x1fffe, 16) == 0x20003

def objections():
    """(what is wrong, change of a good packet)."""
    good = dict(opcode=Opcode.WRITE_ONLY, payload=bytes(16), msn=0, rqmsn=0, va=64, rkey=7, psn=0xfffff0, tx_timestamp=0,
        dscp=Dscp.TRIMMABLE)
    return [pytest.param(good | change, id=name) for name, change in {
        "payload": dict(payload=bytes(15) + b"1"), "address": dict(va=65), "key": dict(rkey=8), "message number": dict(msn=1),
        "order number": dict(rqmsn=1), "length": dict(message_length=17), "opcode": dict(opcode=Opcode.WRITE_FIRST),
        "skips a PSN": dict(psn=0xfffff1), "before the first PSN": dict(psn=0xffffef), "says that it is a resend": dict(rtx=1),
        "class": dict(dscp=0), "path": dict(entropy=0xc006),
        "plane": dict(entropy=0xc001), "queue pair": dict(dest_qp=8), "partition": dict(p_key=1), "not ECN capable": dict(ecn=0)}.items()]

@pytest.mark.parametrize("values", objections())
def test_the_witness_objects(values):
    a, _ = ends()
    def sees(**change):
        witness = Witness(a)
        witness.post(Message(64, 7, bytes(16)))
        witness.post(Message(64, 7, bytes(16)))
        witness.sent(wire.parse(wire.build_data(**{"dest_qp": a.remote_qpn, "entropy": 0xc000, **change})), 0, 0)
    sees(**objections()[0].values[0] | {"payload": bytes(16)})
    with pytest.raises(AssertionError):
        sees(**values)

def test_the_witness_objects_to_a_packet_beyond_the_window():
    a, _ = ends()
    witness = Witness(a)
    witness.post(Message(0, 7, bytes(256*65)))
    def packet(i):
        opcode = Opcode.WRITE_LAST if i == 64 else Opcode.WRITE_MIDDLE if i else Opcode.WRITE_FIRST
        return wire.parse(wire.build_data(opcode, bytes(256), va=256*i, rkey=7, message_length=256*65, psn=(0xfffff0 + i) & 0xffffff,
            tx_timestamp=0, dscp=Dscp.TRIMMABLE, dest_qp=a.remote_qpn, entropy=0xc000))
    for i in range(64):
        witness.sent(packet(i), 0, 0)
    with pytest.raises(AssertionError, match="beyond the window"):
        witness.sent(packet(64), 0, 0)
    witness.heard(wire.parse(wire.build_control(Opcode.ACKNOWLEDGE, psn=0xfffff0, syndrome=0x1f, dest_qp=5)), 0)
    witness.sent(packet(64), 0, 0)
