# SPDX-License-Identifier: BSD-2-Clause
"""Sessions with the card as requester: messages posted at its doorbell, a Python responder at the far end, a witness of
every frame that the card sends.
"""

import random
from collections import Counter

from gateware.common import tables as T
from gateware.common.headers import PACKET_TYPES, Opcode
from tests.models.adversary import Adversary
from tests.models.endpoint import Region
from tests.models.requester import Message
from tests.models.responder import Responder
from tests.models.witness import Witness
from tests.system.bench import moved
from tests.system.far import Session

GUARD = 64
ROUGH = dict(lose=0.05, double=0.05, trim=0.05, mark=0.05, damage=0.06)

class Sending:
    """A queue pair whose requester is the card: source, context, page, the responder that it talks to, and a witness."""
    def __init__(self, s, mtu, messages, longest=None, shortest=None, start=None, page=None, **connect):
        r, card = s.random, s.card
        psn = r.getrandbits(24) if start is None else start
        own, far, self.index = s.connect(mtu=mtu, psns=(psn, r.getrandbits(24)), sack_trigger=r.choice([1, 1024, 4*mtu]), **connect)
        longest = 6*mtu if longest is None else longest
        local, remote = longest + r.randrange(64), longest + GUARD + r.randrange(64)
        self.source  = card.alloc(messages*local + longest, align=4096, offset=r.randrange(4096))
        base, rkey   = r.getrandbits(64) >> 1, r.getrandbits(32)
        self.region  = Region(rkey, base, bytearray(b"\xa5"*(messages*remote + longest + 2*GUARD)))
        self.far     = Responder(far, {rkey: self.region})
        self.witness = Witness(own)
        self.page    = card.page() if page is None else page
        signal       = r.getrandbits(32)
        lkey = card.register_region(self.source, messages*local + longest, T.Rights.LOCAL_READ)
        self.context = card.context(self.page, self.index, local=self.source, remote=base + GUARD, slots=messages, length=longest,
            local_stride=local, remote_stride=remote, lkey=lkey, rkey=rkey, immediate=signal)
        self.expected, self.immediates, tokens = bytearray(self.region.data), [], []
        for slot in range(messages):
            edges = [0, 1, 3, mtu - 1, mtu, mtu + 1, 2*mtu, r.randrange(longest + 1)]
            data  = r.randbytes(min(longest, r.choice(edges)) if shortest is None else r.randrange(shortest, longest + 1))
            imm  = r.random() < 0.5
            card.fill(self.source + slot*local, data)
            at = GUARD + slot*remote
            self.expected[at:at + len(data)] = data
            self.immediates += [signal]*imm
            self.witness.post(Message(base + at, rkey, data, signal if imm else None))
            tokens.append(T.TOKEN.pack(op=2 if imm else 1, slot=slot, length=len(data)))
        self.count, self.tokens = messages, tokens

    def post(self, card):
        card.post_many(self.context, self.tokens)

class SendingHall:
    """A session with several such queue pairs, each on a page of its own."""
    def __init__(self, seed, queue_pairs=2, messages=20, mtus=(256, 512, 1024), starts=(None,), longest=None, shortest=None, odds=None,
            late=None, **options):
        self.s = s = Session(seed, ordered=False, ipv6=bool(seed & 1), **options)
        odds = ROUGH if odds is None else odds
        late = s.random.choice([0, 500, 4000]) if late is None else late
        s.back = Adversary(random.Random(f"{seed} back"), delay=80, late=late, **odds)
        s.to   = Adversary(random.Random(f"{seed} to"), delay=80, late=late, **{k: v for k, v in odds.items() if k not in ("trim", "mark")})
        self.lanes  = [Sending(s, s.random.choice(mtus), messages, longest, shortest, s.random.choice(starts)) for _ in range(queue_pairs)]
        self.by_own = {q.witness.end.own_qpn: q for q in self.lanes}
        self.by_far = {q.witness.end.remote_qpn: q for q in self.lanes}
        self.good   = Counter()
        self.lies   = lambda now: None      # For a test: called at each step.
        s.on_card, s.on_sent, s.on_far, s.on_step = self.reached, self.sent, self.heard, self.look
        self.before = s.card.counters()
        for q in self.lanes:
            q.post(s.card)

    def sent(self, p, plane, now):
        self.by_far[p["dest_qp"]].witness.sent(p, plane, now)

    def heard(self, p, plane, now):
        for answer in self.by_far[p["dest_qp"]].far.take(p, plane):
            self.s.send(plane, answer.frame(self.by_far[p["dest_qp"]].far.end))

    def reached(self, p, plane, now):
        self.good[p["opcode"]] += 1
        if p["dest_qp"] in self.by_own and not PACKET_TYPES[p["opcode"]].data:
            self.by_own[p["dest_qp"]].witness.heard(p, now)

    def look(self, now):
        """At each step: no message is completed before its acknowledgement came."""
        for q in self.lanes:
            credit = self.s.card.credit(q.page)
            assert credit["error"] or credit["completed"] <= q.witness.retired, "a message completed without an acknowledgement"
        self.lies(now)

    @property
    def done(self):
        return all(self.s.card.credit(q.page)["completed"] >= q.count for q in self.lanes)

    # Verdict --------------------------------------------------------------------------------------

    def finish(self, limit=3_000_000):
        s = self.s
        s.run(lambda: self.done, limit)
        s.to.gentle()
        s.back.gentle()
        s.settle()
        for q in self.lanes:
            self.right(q)
        self.counters()

    def right(self, q):
        """All of a queue pair's messages have arrived, and it lives."""
        credit = self.s.card.credit(q.page)
        assert (credit["consumed"], credit["completed"], credit["error"]) == (q.count, q.count, 0)
        assert bytes(q.region.data) == bytes(q.expected), "what the responder received is not what was sent"
        assert q.far.immediates == q.immediates
        assert q.far.msn == q.witness.retired == q.count
        state = self.s.card.queue_pair_state(q.index)
        assert state["state"] == T.QpState.RTS and state["unacked"] == state["next"] == q.witness.next & 0xffffff

    def counters(self):
        s, change = self.s, moved(self.before, self.s.card.counters())
        seen = Counter()
        for q in self.lanes:
            seen.update(q.witness.counts)
        found = {name: change.get(name, 0) for name in ("data_new", "data_resent", "sacks", "acks", "naks", "ack_bad",
            "messages_started", "messages_completed")}
        total = sum(q.count for q in self.lanes)
        assert found == dict(data_new=seen["new"], data_resent=seen["resent"], sacks=seen["sacks"],
            acks=seen["acks"], naks=seen["naks"], ack_bad=seen["bad"], messages_started=total, messages_completed=total)
        s.step()        # A probe of an idle path may have left while the counters were read.
        probes = sum(q.witness.counts["probes"] for q in self.lanes)
        assert seen["probes"] <= change.get("sent_probe", 0) <= probes
        assert change.get("nacks", 0) <= self.good[Opcode.NACK]
        planes = lambda name: sum(change.get(f"plane{i}_{name}", 0) for i in range(s.planes))
        assert planes("good") == sum(self.good.values())
        assert planes("bad_fcs") == s.to.fates["damage_fcs"] and planes("bad_icrc") == s.to.fates["damage_icrc"]
