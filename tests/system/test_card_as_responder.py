# SPDX-License-Identifier: BSD-2-Clause
"""Random sessions with the card as responder: a Python requester, an adversary between them, and a Python responder
that hears exactly what the card hears. Memory, flags and their order, counters, and the answers agree with that twin's.
"""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from gateware.common import tables as T
from gateware.common.headers import Opcode
from tests.models import wire
from tests.models.adversary import Adversary
from tests.models.endpoint import Region
from tests.models.requester import Message, Requester
from tests.models.responder import Responder, seen_of
from tests.system.bench import moved
from tests.system.far import Session

pytestmark = [pytest.mark.xdist_group(name="card-peers"), pytest.mark.timeout(600)]

SENT = {Opcode.SACK: "sent_sack", Opcode.ACKNOWLEDGE: "sent_ack", Opcode.NACK: "sent_nack"}
ROUGH = dict(lose=0.05, double=0.05, trim=0.05, mark=0.05, damage=0.06)

class Receiving:
    """A queue pair whose responder is the card: its memory, the requester that talks to it and its twin."""
    def __init__(self, s, mtu, messages, start=None):
        r, card = s.random, s.card
        self.session = s
        psn = r.getrandbits(24) if start is None else start
        twin, far, self.index = s.connect(mtu=mtu, psns=(r.getrandbits(24), psn), sack_trigger=r.choice([1, 1024, 4*mtu, 3000]))
        lengths = [r.choice([0, 1, 3, mtu - 1, mtu, mtu + 1, 2*mtu, r.randrange(6*mtu)]) for _ in range(messages)]
        gaps    = [r.randrange(1, 70) for _ in range(messages + 1)]
        self.size = sum(lengths) + sum(gaps)
        self.address = card.alloc(self.size, align=4096, offset=r.randrange(4096))
        self.source  = card.alloc(self.size, offset=r.randrange(64))      # A copy that the harness compares with at each flag.
        card.fill(self.address, b"\xa5"*self.size)
        base = r.getrandbits(64) >> 1
        rkey = card.register_region(self.address, self.size, T.Rights.REMOTE_WRITE, base=base)
        self.twin    = Responder(twin, {rkey: Region(rkey, base, bytearray(b"\xa5"*self.size))})
        self.region  = self.twin.regions[rkey]
        self.signals = [card.signal(qp=self.index) for _ in range(2)]
        self.sender  = Requester(far, r, silence=6000)
        at, raised   = gaps[0], Counter()
        for length, gap in zip(lengths, gaps[1:], strict=True):
            data, signal = r.randbytes(length), r.choice([None, *self.signals])
            card.fill(self.source + at, data)
            self.sender.post(Message(base + at, rkey, data, signal and signal.index))
            if signal:
                raised[signal.index] += 1
                signal.expect(raised[signal.index], card, self.source + at, self.address + at, length, message=at)
            at += length + gap
        self.due  = defaultdict(list)       # Opcode -> what the twin answered, in order.
        self.seen = Counter()               # Opcode -> answers of the twin up to the last one that the card gave.
        self.last = {}                      # Opcode -> the card's last answer.
        self.nacks = []                     # The card's NACKs: each leaves by itself.

    def take(self, p, plane):
        for a in self.twin.take(p, plane):
            self.due[a.opcode].append(a.seen())

    def answered(self, p):
        """The card's answer is one of the twin's, not older than the one before: a newer one may have replaced others,
        and one that became due while its row was being read leaves twice."""
        if p["opcode"] == Opcode.NACK:
            self.nacks.append(seen_of(p))
        mine, at = seen_of(p), max(0, self.seen[p["opcode"]] - 1)
        due = self.due[p["opcode"]]
        assert mine in due[at:], f"the card answers {p['name']} {mine}; the twin's answers since its last one: {due[at:][-4:]}"
        self.seen[p["opcode"]], self.last[p["opcode"]] = at + due[at:].index(mine) + 1, mine

class Hall:
    """A session with several such queue pairs.

    `ordered`: the card takes frames in the order in which they end at its ports. Else all planes speak at once: the twin, which
    takes them in the order of their ends, may hear a duplicate or a SACK's trigger before the card does, so only what must come
    of any order is compared: memory, flags, packets and messages accepted, and the last cumulative PSN and MSN.
    """
    def __init__(self, seed, queue_pairs=2, messages=20, mtus=(256, 512, 1024), starts=(None,), strays=0.0, ordered=True, **odds):
        self.s = s = Session(seed, ordered=ordered, ipv6=bool(seed & 1))
        odds   = odds or ROUGH
        s.to   = Adversary(random.Random(f"{seed} to"), delay=80, late=s.random.choice([0, 500, 4000]), **odds)
        s.back = Adversary(random.Random(f"{seed} back"), delay=80, late=s.random.choice([0, 500]), lose=odds.get("lose", 0),
            double=odds.get("double", 0), damage=odds.get("damage", 0))
        self.lanes = [Receiving(s, s.random.choice(mtus), messages, s.random.choice(starts)) for _ in range(queue_pairs)]
        self.by_own, self.by_far = ({q.twin.end.own_qpn: q for q in self.lanes}, {q.twin.end.remote_qpn: q for q in self.lanes})
        self.strays = strays
        self.good, self.answers, self.free = Counter(), Counter(), 0
        s.on_card, s.on_sent, s.on_far, s.on_step = self.reached, self.sent, self.heard, self.send
        self.before = s.card.counters()

    def reached(self, p, plane, now):
        self.good[plane, bool(p["verdict"])] += 1
        self.by_own[p["dest_qp"]].take(p, plane)

    def sent(self, p, plane, now):
        self.answers[p["opcode"]] += 1
        if self.s.ordered:
            self.by_far[p["dest_qp"]].answered(p)
        else:
            self.by_far[p["dest_qp"]].last[p["opcode"]] = seen_of(p)

    def heard(self, p, plane, now):
        self.by_far[p["dest_qp"]].sender.take(p, now)

    def send(self, now):
        """The requesters take turns on a line that carries a frame at a time; several packets keep to one plane."""
        for q in self.s.random.sample(self.lanes, len(self.lanes)):
            while now >= self.free and self.plane_fits(q):
                out = q.sender.send(now)
                if out is None:
                    break
                self.emit(out, now)
            if now >= self.free and self.plane_fits(q) and self.strays and self.s.random.random() < self.strays:
                self.emit(self.stray(q, now), now)

    def emit(self, out, now):
        if out:
            self.s.send(*out)
            self.free = max(self.free, now - 200) + max(40, len(out[1])//8 + 4)

    def stray(self, q, now):
        """What no honest requester sends: a packet from just above the window, or of a PSN long done with."""
        r, sender = self.s.random, q.sender
        if r.random() < 0.6:
            return sender.early(now, r.choice([0, 0, 1, 5]))
        entropy, plane = sender.path()
        return plane, wire.build_data(Opcode.WRITE_ONLY, b"\x11"*64, psn=(sender.unacked - r.choice([1, 2, 300, 1 << 22])) & 0xffffff,
            va=q.region.base, rkey=q.region.rkey, tx_timestamp=r.getrandbits(16), **sender.end.frame_values(plane, entropy))

    def plane_fits(self, q):
        """Entropy values are skipped until one of the plane in use comes, most of the time."""
        if not self.s.ordered or self.s.random.random() < 0.03:
            return True
        for _ in range(len(q.sender.end.paths)):
            if q.sender.end.paths[q.sender.cursor % len(q.sender.end.paths)][1] == self.s.last_plane:
                return True
            q.sender.cursor += 1
        return True

    # Verdict --------------------------------------------------------------------------------------

    def finish(self, limit=3_000_000):
        s = self.s
        s.run(lambda: all(q.sender.done for q in self.lanes), limit)
        self.strays = 0         # The answer to one sent at the very end would be counted, but not yet be on the wire.
        s.to.gentle()
        s.back.gentle()
        s.settle()
        for q in self.lanes:
            s.send(*q.sender.probe(s.now))
            s.settle()
            if s.ordered:
                for opcode in (Opcode.SACK, Opcode.ACKNOWLEDGE):
                    assert q.last[opcode] == q.due[opcode][-1], "the last answer is not the twin's last"
                assert q.nacks == q.due[Opcode.NACK]
            else:
                assert q.last[Opcode.ACKNOWLEDGE] == q.due[Opcode.ACKNOWLEDGE][-1], "the last answer is not the twin's last"
            self.memory(q)
        assert s.c.sim.count(1) == 0, s.c.sim.sentences(1)
        self.flags()
        self.counters()

    def memory(self, q):
        found, wanted = self.s.card.view(q.address, q.size), np.frombuffer(bytes(q.region.data), np.uint8)
        wrong = np.flatnonzero(found != wanted)
        assert not len(wrong), f"{len(wrong)} bytes differ from the twin's memory, the first at {wrong[0]}"
        for m in q.sender.messages:
            at = m.va - q.region.base
            assert bytes(q.region.data[at:at + len(m.data)]) == m.data

    def flags(self):
        """Every flag counts each message once, in the order that the twin has them, and is written when the twin's is.

        Messages that complete at once and name one signal share a flag. With all planes at once, the card may hear what closes a
        hole before or after what lies behind it: then which ones share is its own affair, but not what their flags count."""
        events, written = self.s.c.sim.flag_event_array(), 0
        for q in self.lanes:
            watch  = {signal.watch: signal.index for signal in q.signals}
            found  = [(watch[int(e["watch"])], int(e["value"])) for e in events if int(e["watch"]) in watch]
            counted, raised = [], Counter()
            for signal, value in found:
                assert value > raised[signal], "a flag is written that counts nothing new"
                counted += [signal]*(value - raised[signal])
                raised[signal] = value
            assert counted == q.twin.immediates
            if self.s.ordered:
                assert found == q.twin.flags
            written += len(found)
            for signal in q.signals:
                assert signal.value == q.twin.immediates.count(signal.index)
        assert moved(self.before, self.s.card.counters()).get("flags", 0) == written

    def counters(self):
        s, fates = self.s, self.s.to.fates
        change, twin = moved(self.before, s.card.counters()), Counter()
        for q in self.lanes:
            twin.update(q.twin.counters)
        for name, value in twin.items():
            if not s.ordered and name not in ("receive_accepted", "receive_messages", "probes"):
                continue
            assert change.get(name, 0) == value, (name, change.get(name, 0), value)
        for opcode, name in SENT.items():
            assert change.get(name, 0) == self.answers[opcode], name
        planes = lambda name: sum(change.get(f"plane{i}_{name}", 0) for i in range(s.planes))
        assert planes("bad_fcs") == fates["damage_fcs"] and planes("bad_icrc") == fates["damage_icrc"]
        assert planes("trimmed") == sum(n for (_, cut), n in self.good.items() if cut)
        for plane in range(s.planes):
            assert change.get(f"plane{plane}_good", 0) == self.good[plane, False]
        assert not planes("no_buffer") and not planes("store_full")
        ports    = {f"plane{i}_{n}" for i in range(s.planes) for n in ("good", "bad_fcs", "bad_icrc", "trimmed")}
        expected = {*twin, *SENT.values(), *ports}
        assert not set(change) - expected, f"counters moved that should not: {set(change) - expected}"

def session(seed, **options):
    hall = Hall(seed, **options)
    try:
        hall.finish()
    finally:
        hall.s.close()
    return hall

@pytest.mark.parametrize("seed", range(6))
def test_the_card_and_its_twin_agree(seed):
    hall = session(seed)
    assert sum(q.sender.done for q in hall.lanes) == 2

@pytest.mark.parametrize("seed", range(100, 103))
def test_they_agree_where_psns_wrap(seed):
    session(seed, starts=(0xffffff, 0xfffff8, 0xffffe0))

def test_they_agree_when_everything_is_late_and_doubled():
    session(200, double=0.3, lose=0.1)

def test_they_agree_when_a_quarter_is_trimmed():
    session(201, trim=0.25)

@pytest.mark.parametrize("seed", range(300, 303))
def test_they_agree_at_the_edges_of_the_window(seed):
    """Sessions of more than two windows with many holes; packets from above the window and from far below it."""
    hall = session(seed, messages=200, mtus=(256,), strays=0.2, lose=0.15, mark=0.02)
    assert sum(q.twin.counters["receive_window"] for q in hall.lanes) > 5
    assert sum(q.twin.counters["receive_duplicate"] for q in hall.lanes) > 20

@pytest.mark.parametrize("seed", range(400, 403))
def test_all_planes_at_once(seed):
    session(seed, ordered=False, messages=60, mtus=(256, 512))

@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_sessions(seed):
    r = random.Random(seed)
    session(seed, queue_pairs=r.randrange(1, 4), messages=r.choice([4, 16, 80]), strays=r.choice([0, 0.1]),
        ordered=r.random() < 0.7, starts=(None, 0xffffff, 0xffffc0), **{name: r.choice([0, odds, 3*odds]) for name, odds in ROUGH.items()})
