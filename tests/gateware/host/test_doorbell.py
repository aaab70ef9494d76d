# SPDX-License-Identifier: BSD-2-Clause
"""The doorbell: every token that is good reaches its ring once, every other one is refused with its reason."""

import random

import pytest
from migen import *

from firmware.contract import QpError
from gateware.common import tables as t
from gateware.common.table_ram import TableRAM
from gateware.config import preset
from gateware.host import doorbell
from gateware.transport.queue_pair import send_state_layout
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.tables import TableBench, counts_of

class Bench(TableBench):
    """The doorbell, its tables, and a look into the rings."""
    def __init__(self):
        super().__init__(preset("tiny"))
        self.send = TableRAM(send_state_layout(self.config), self.config.queue_pairs)
        self.bell = bell = doorbell.Doorbell(self.config, self.tables, self.send, self.status)
        self.add_port([bell.init], [bell.init_page])
        self.entry, self.written = bell.ring.reader(), bell.written.reader()
        self.entry_index, self.written_index = Signal(len(self.entry.index)), Signal(len(self.written.index))
        self.entry_row, self.position = self.entry.row, self.written.row
        self.comb += [self.entry.index.eq(self.entry_index), self.written.index.eq(self.written_index)]
        self.counts = counts_of(bell)

DUT    = Bench()
CONFIG = DUT.config
REASON = {"context": QpError.TOKEN_CONTEXT, "format": QpError.TOKEN_FORMAT, "slot": QpError.TOKEN_SLOT, "length": QpError.TOKEN_LENGTH,
    "quota": QpError.TOKEN_QUOTA, "region": QpError.TOKEN_REGION, "state": QpError.TOKEN_STATE}

# Model --------------------------------------------------------------------------------------------

class Model:
    """What the driver wrote, the rings and the pages' counts, as lists."""
    def __init__(self, random):
        self.random = random
        self.pages = [dict(valid=1, first=4, count=40, quota=5), dict(valid=1, first=40, count=30, quota=7)]
        self.regions = [
            dict(valid=1, variant=7,  rights=1, base=0x1000, length=0x10000, bus=0),
            dict(valid=1, variant=8,  rights=7, base=2**64 - 0x1000, length=0x1000, bus=0),
            dict(valid=1, variant=9,  rights=6, base=0, length=2**63, bus=0),
            dict(valid=0, variant=10, rights=7, base=0, length=2**63, bus=0)]
        self.contexts = [self.context(n) for n in range(CONFIG.contexts)]
        self.states   = [t.QpState.RTS]*4
        self.rings    = [[] for _ in range(4)]   # Entries that wait.
        self.heads    = [0]*4                    # Ring read positions.
        self.tails    = [0]*4
        self.stored   = {}                       # (queue pair, place) -> entry.
        self.waiting  = [0, 0]
        self.halves   = {}                       # (page, place on it) -> low half.

    def context(self, n):
        r, region = self.random, self.random.randrange(2)
        row, slots = self.regions[region], self.random.randrange(1, 9)
        stride = r.choice([0, 64, row["length"]//16])
        length = r.choice([0, 1, row["length"]//16])
        good = dict(valid=1, qp=n % 4, op=r.choice([1, 2]), length=length, max_length=row["length"]//16, slots=slots, local_stride=stride,
            local_base=row["base"] + r.randrange(row["length"]//4), lkey=region << 8 | row["variant"])
        spoiled = [
            {}, {}, {}, {}, {"valid": 0}, {"qp": r.choice([4, 1 << 15])}, {"op": r.choice([0, 3, 15])}, {"lkey": 2 << 8 | 9},
            {"lkey": 3 << 8 | 10},
            {"lkey": good["lkey"] ^ 1}, {"lkey": good["lkey"] | 1 << r.randrange(10, 32)}, {"local_base": row["base"] - 1},
            {"local_base": 2**64 - 16, "local_stride": 2**32 - 1, "slots": 2**24 - 1},
            {"local_base": (row["base"] + row["length"] - 8) % 2**64, "max_length": 2**24 - 1},
            {"slots": 2**24 - 1, "local_stride": 2**32 - 1}, {"slots": 0}]
        return good | spoiled[n % len(spoiled)]

    def judge(self, page, place, raw):
        """Reason of a refusal, or the ring entry and its queue pair."""
        token = t.TOKEN.unpack(raw)
        c  = self.contexts[self.pages[page]["first"] + place]
        op = token["op"] or c["op"]
        length = c["length"] if token["flag_default"] else token["length"]
        start  = c["local_base"] + token["slot"]*c["local_stride"]
        row    = self.regions[(c["lkey"] >> 8) & 3]
        inside = length == 0 or (c["lkey"] >> 8 < 4 and row["valid"] and row["variant"] == c["lkey"] & 0xff and row["rights"] & 1 and
            row["base"] <= start and start + length <= row["base"] + row["length"])
        qp = c["qp"]
        for reason, wrong in (("context", not c["valid"] or qp >= 4), ("format", op not in (1, 2) or token["flags"]),
                ("slot", token["slot"] >= c["slots"]), ("length", length > c["max_length"]), ("region", not inside),
                ("state", qp < 4 and self.states[qp] != t.QpState.RTS),
                ("quota", self.waiting[page] >= self.pages[page]["quota"] or (qp < 4 and len(self.rings[qp]) >= CONFIG.ring_depth))):
            if wrong:
                return reason, None, qp
        return None, dict(context=self.pages[page]["first"] + place, page=page, signal=int(op == 2), slot=token["slot"], length=length,
            region=(c["lkey"] >> 8) % CONFIG.regions), qp

    def store(self, page, place, data, dwords):
        """One store: None (nothing happens yet), or (reason or None, entry, queue pair)."""
        row, key = self.pages[page], (page, place)
        held = self.halves.get(key)
        if dwords == 1:
            self.halves[key] = data & 0xffffffff
        else:
            self.halves.pop(key, None)
        if not row["valid"] or place >= row["count"] or row["first"] + place >= CONFIG.contexts:
            return "context", None, 0
        if dwords == 1:
            return ("format", None, 0) if held is not None else None
        if (dwords == 2) != (held is not None):
            return "format", None, 0
        return self.judge(page, place, data if dwords == 3 else data & ~0xffffffff | held)

    def push(self, qp, entry):
        self.rings[qp].append(entry)
        self.stored[qp, self.tails[qp] % CONFIG.ring_depth] = entry
        self.tails[qp] = (self.tails[qp] + 1) % (2*CONFIG.ring_depth)
        self.waiting[entry["page"]] += 1

# Driver -------------------------------------------------------------------------------------------

class Run:
    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.model  = Model(self.random)
        self.credit = StreamSink(DUT.bell.credit, seed + 1, 0.4)
        self.flight = StreamSink(DUT.bell.in_flight, seed + 2, 0.2)
        self.flying = []
        self.wakes, self.refusals, self.wanted_wakes = [], [], []
        self.tally  = dict.fromkeys(REASON, 0) | {"accepted": 0}

    def watch(self):
        yield "passive"
        while True:
            if (yield DUT.bell.wake.valid):
                self.wakes.append((yield DUT.bell.wake.qp))
            yield

    def set_up(self):
        m = self.model
        for table, rows in ((t.PAGE, m.pages), (t.REGION, m.regions), (t.CONTEXT, m.contexts)):
            for n, row in enumerate(rows):
                yield from DUT.write(table, n, **row)
        for qp in range(4):
            yield from DUT.set_state(qp, m.states[qp])

    def store(self, page, place, data, dwords=3):
        """One store, its effect in the model, and time for the card to act."""
        beat = {"address": page << 12 | place << 6 | self.random.randrange(8) << 3, "data": data, "dwords": dwords}
        yield from StreamSource(DUT.bell.sink, [beat], self.random.getrandbits(20), 0.2).run()
        result = self.model.store(page, place, data, dwords)
        if result is None:
            return
        reason, entry, qp = result
        self.tally[reason or "accepted"] += 1
        if reason:
            self.refusals.append((page, REASON[reason], qp))
        else:
            self.model.push(qp, entry)
            self.wanted_wakes.append(qp)
            self.flying.append({name: entry[name] for name in ("context", "page", "region")})

    def settle(self):
        for _ in range(30):
            yield

    def leave(self, qp):
        """The segmenter takes the oldest entry of a ring."""
        m = self.model
        yield from self.settle()
        entry = m.rings[qp].pop(0)
        m.heads[qp] = (m.heads[qp] + 1) % (2*CONFIG.ring_depth)
        m.waiting[entry["page"]] -= 1
        yield [DUT.send.index.eq(qp), DUT.send.row.ring.eq(m.heads[qp]), DUT.send.we.eq(1)]
        yield
        yield DUT.send.we.eq(0)
        yield from StreamSource(DUT.bell.consumed, [{"page": entry["page"]}], idle=0).run()

    def check_rings(self):
        """The rings hold what the model holds, entry for entry."""
        m = self.model
        yield from self.settle()
        for qp in range(4):
            yield DUT.written_index.eq(qp)
            yield
            yield
            assert (yield DUT.position.position) == m.tails[qp], f"write position of queue pair {qp} (seed {self.seed})"
            for place in range(CONFIG.ring_depth):
                if (qp, place) in m.stored:
                    yield DUT.entry_index.eq(qp*CONFIG.ring_depth + place)
                    yield
                    yield
                    entry = {}
                    for k in m.stored[qp, place]:
                        entry[k] = (yield getattr(DUT.entry_row, k))
                    assert entry == m.stored[qp, place]

    def check(self, script):
        counts = {}
        def main():
            yield from self.set_up()
            yield from script
            yield from self.check_rings()
            for name, signal in DUT.counts.items():
                counts[name] = (yield signal)
        simulate(DUT, [main(), self.credit.run(), self.flight.run(), self.watch()], limit=200000, seed=self.seed)
        assert [(b["page"], b["error"], b["qp"]) for b in self.credit.beats] == self.refusals
        assert all(b["consumed"] and b["completed"] for b in self.credit.beats)
        assert [{name: b[name] for name in ("context", "page", "region")} for b in self.flight.beats] == self.flying
        assert self.wakes == self.wanted_wakes
        assert counts == {f"token_{n}": self.tally[n] for n in REASON} | {"tokens": self.tally["accepted"]}

def token(r):
    """A random token."""
    return t.TOKEN.pack(length=r.choice([0, 1, 16, 256, 257, 4096, r.getrandbits(24)]),
        slot=r.choice([0, 0, 1, r.randrange(9), r.getrandbits(24)]),
        flag_default=int(r.random() < 0.3), flags=0 if r.random() < 0.97 else 1 << r.randrange(11),
        op=r.choice([0, 0, 1, 2, 1, 2, r.randrange(16)]))

# Tests --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_random_tokens_are_judged_as_the_model_does(seed):
    run = Run(seed)
    def script():
        r, m = run.random, run.model
        for n in range(600):
            page  = r.randrange(2)
            place = r.choice([*range(12), r.randrange(64)])
            raw   = token(r)
            if r.random() < 0.8:
                yield from run.store(page, place, raw)
            else:                                 # Halves, often both, sometimes with another token in between.
                if r.random() < 0.9:
                    yield from run.store(page, place, raw & 0xffffffff | (raw & 0xffffffff) << 32, 1)
                if r.random() < 0.3:
                    yield from run.store(1 - page, place, token(r))
                if r.random() < 0.9:
                    yield from run.store(page, place, raw >> 32 | raw >> 32 << 32, 2)
            waiting = [qp for qp in range(4) if m.rings[qp]]
            if waiting and r.random() < 0.12:
                yield from run.leave(r.choice(waiting))
            if n % 100 == 99:
                yield from run.check_rings()
                qp = r.randrange(4)
                m.states[qp] = r.choice([t.QpState.ERROR, t.QpState.RTR]) if n % 200 == 99 else t.QpState.RTS
                yield from DUT.set_state(qp, m.states[qp])
    run.check(script())
    assert all(n for name, n in run.tally.items() if name != "quota"), run.tally      # Quota: the next test.

def test_full_ring_and_quota_refuse_without_a_change():
    run = Run(9)
    def script():
        m, qp = run.model, 0
        m.pages[0]["quota"] = 100
        m.pages[1]["quota"] = 2
        for n in range(2):
            yield from DUT.write(t.PAGE, n, **m.pages[n])
        good = next(p for p in range(40) if m.judge(0, p, t.TOKEN.pack(op=1))[0] is None and m.contexts[4 + p]["qp"] == qp)
        for turn in range(3):                     # The ring wraps, with its wrap bit.
            for _ in range(CONFIG.ring_depth + 3):
                yield from run.store(0, good, t.TOKEN.pack(op=1))
            yield from run.check_rings()
            for _ in range(CONFIG.ring_depth - turn):
                yield from run.leave(qp)
        other = next(p for p in range(30) if m.judge(1, p, t.TOKEN.pack(op=2))[0] is None)
        for _ in range(4):
            yield from run.store(1, other, t.TOKEN.pack(op=2))
        yield from run.store(0, good, t.TOKEN.pack(op=1))  # One page's flood does not touch the other.
        yield from run.settle()
        yield from DUT.write(t.PAGE, 1, **m.pages[1])     # A new life of the page: its count starts at 0.
        m.waiting[1] = 0
        yield from run.store(1, other, t.TOKEN.pack(op=2))
    run.check(script())
    assert run.tally["accepted"] == CONFIG.ring_depth + (CONFIG.ring_depth) + (CONFIG.ring_depth - 1) + 2 + 1 + 1

def test_new_life_empties_a_ring():
    run = Run(10)
    def script():
        m = run.model
        good = next(p for p in range(40) if m.judge(0, p, t.TOKEN.pack(op=1))[0] is None)
        qp   = m.contexts[4 + good]["qp"]
        for _ in range(3):
            yield from run.store(0, good, t.TOKEN.pack(op=1))
        yield from run.settle()
        yield from DUT.write(t.QUEUE_PAIR, qp)
        m.rings[qp], m.tails[qp], m.stored = [], 0, {}
        yield from run.check_rings()
        yield from run.store(0, good, t.TOKEN.pack(op=2))
    run.check(script())

def test_new_owner_of_a_page_finds_no_half_token():
    run = Run(11)
    def script():
        m = run.model
        good = next(p for p in range(40) if m.judge(0, p, t.TOKEN.pack(op=1))[0] is None)
        yield from run.store(0, good, 0, 1)
        yield from run.settle()
        yield from DUT.write(t.PAGE, 0, **m.pages[0])
        m.halves.clear()
        yield from run.store(0, good, t.TOKEN.pack(op=1), 2)       # A high half alone.
    run.check(script())
    assert run.tally == dict.fromkeys(REASON, 0) | {"accepted": 0, "format": 1}

def test_a_held_doorbell_begins_no_token_and_loses_none():
    run, idle = Run(13), []
    def script():
        m = run.model
        good = next(p for p in range(40) if m.judge(0, p, t.TOKEN.pack(op=1))[0] is None)
        m.pages[0]["quota"] = 100
        yield from DUT.write(t.PAGE, 0, **m.pages[0])
        for _ in range(3):
            yield from run.store(0, good, t.TOKEN.pack(op=1))
            yield DUT.bell.hold.eq(1)
            yield from run.settle()
            assert (yield DUT.bell.idle) and len(run.wakes) == len(run.wanted_wakes)
            yield [DUT.bell.sink.valid.eq(1), DUT.bell.sink.address.eq(good << 6), DUT.bell.sink.data.eq(t.TOKEN.pack(op=1)),
                DUT.bell.sink.dwords.eq(3)]
            for _ in range(run.random.randrange(10, 30)):
                yield
                idle.append((yield DUT.bell.idle))
                assert not (yield DUT.bell.sink.ready)
            yield DUT.bell.hold.eq(0)
            yield
            while not (yield DUT.bell.sink.ready):
                yield
            yield DUT.bell.sink.valid.eq(0)
            _, entry, qp = m.store(0, good, t.TOKEN.pack(op=1), 3)
            m.push(qp, entry)
            run.tally["accepted"] += 1
            run.wanted_wakes.append(qp)
            run.flying.append({name: entry[name] for name in ("context", "page", "region")})
    run.check(script())
    assert all(idle)

def test_store_outside_of_the_pages_does_nothing():
    run = Run(12)
    def script():
        for page in (2, 15):
            yield from StreamSource(DUT.bell.sink, [{"address": page << 12, "data": t.TOKEN.pack(op=1), "dwords": 3}]).run()
        yield from run.settle()
    run.check(script())
