# SPDX-License-Identifier: BSD-2-Clause
"""Path feedback: an answer changes the path that had its packet, or nothing."""

import random

import pytest

from gateware.common.headers import NackReason
from gateware.common.table_ram import TableRAM
from gateware.config import preset
from gateware.transport.queue_pair import sent_layout
from gateware.transport.requester.path_feedback import Mark, PathFeedback
from gateware.transport.requester.paths import Change
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, Bench, ahead, put, request, wait

CONFIG = preset("tiny", evs=16)

class Dut(Bench):
    def __init__(self, config):
        super().__init__(config)
        self.sent  = TableRAM(sent_layout(config), config.queue_pairs*config.mpr)
        self.block = PathFeedback(config, self.tables, self.send_state, self.sent.reader())
        self.stale, _ = self.block.counters.items["path_answers_stale"]
        self.dropped, _ = self.block.counters.items["path_answers_dropped"]

DUTS = {}

class World:
    def __init__(self, seed, engine="verilator"):
        self.dut, self.engine, self.rng = DUTS.setdefault(engine, Dut(CONFIG)), engine, random.Random(seed)
        rng = self.rng
        self.peers   = [rng.randrange(CONFIG.peers) for _ in range(CONFIG.queue_pairs)]
        self.next    = [rng.choice((5, PSN - 3, rng.getrandbits(24))) for _ in self.peers]
        self.entropy = [[rng.randrange(200) for _ in range(CONFIG.evs)] for _ in range(CONFIG.peers)]
        self.sent    = [[rng.randrange(CONFIG.evs) for _ in range(CONFIG.mpr)] for _ in self.peers]
        self.sink    = StreamSink(self.dut.block.change, seed=seed, stall=0.5)

    def setup(self):
        d = self.dut
        for n, peer in enumerate(self.peers):
            yield from put(d.tables.queue_pair, n, peer=peer)
            yield from put(d.send_state, n, next_psn=self.next[n])
            for place, ev in enumerate(self.sent[n]):
                yield from put(d.sent, n*CONFIG.mpr + place, ev=ev)
        for peer, row in enumerate(self.entropy):
            for ev, entropy in enumerate(row):
                yield from put(d.tables.ev, peer*CONFIG.evs + ev, entropy=entropy)

    def answer(self):
        rng = self.rng
        qp  = rng.randrange(CONFIG.queue_pairs)
        probe = int(rng.random() < 0.4)
        nack  = not probe and rng.random() < 0.4
        psn   = rng.getrandbits(16) if probe else (self.next[qp] - rng.choice((1, CONFIG.mpr, CONFIG.mpr + 1, rng.randrange(-2, 90),
            rng.getrandbits(24)))) % PSN
        ev    = psn % CONFIG.evs if probe else self.sent[qp][psn % CONFIG.mpr]
        right = self.entropy[self.peers[qp]][ev]
        return dict(qp=qp, psn=psn, probe=probe, mark=0 if nack else rng.choice((Mark.NONE, Mark.SKIP_ONCE, Mark.ALWAYS_SKIP)),
            reason=rng.choice((NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP, NackReason.NO_PKT_BUFFER)) if nack else 0,
            entropy=right if rng.random() < 0.7 else right ^ 1 << rng.randrange(16))

    def expected(self, a):
        """The change that an answer means, None for none; "stale" if it must be counted as such."""
        if a["reason"] != NackReason.TRIMMED and a["mark"] == Mark.NONE and not a["probe"]:
            return None
        ev = a["psn"] % CONFIG.evs if a["probe"] else self.sent[a["qp"]][a["psn"] % CONFIG.mpr]
        if not a["probe"] and not 1 <= ahead(self.next[a["qp"]], a["psn"]) <= CONFIG.mpr:
            return "stale"
        peer = self.peers[a["qp"]]
        if self.entropy[peer][ev] != a["entropy"]:
            return "stale"
        kind = Change.AVOID if a["mark"] == Mark.ALWAYS_SKIP else Change.MARKED if not a["probe"] \
            else Change.BACK if a["mark"] else Change.CLEAN
        return dict(qp=a["qp"], peer=peer, ev=ev, kind=kind)

def run(world, answers, gap, stall=0.5):
    counts, world.sink.stall = [], stall
    def drive():
        yield from world.setup()
        before = yield [world.dut.stale, world.dut.dropped]
        for a in answers:
            yield from request(world.dut.block.heard, **a)
            yield from wait(gap)
        yield from wait(100)
        after = yield [world.dut.stale, world.dut.dropped]
        counts.extend(b - a for a, b in zip(before, after, strict=True))
    simulate(world.dut, [drive(), world.sink.run()], engine=world.engine, limit=60000)
    return [{n: b[n] for n in ("qp", "peer", "ev", "kind")} for b in world.sink.beats], counts

@pytest.mark.parametrize("seed", range(2))
def test_an_answer_changes_the_path_that_had_its_packet_or_nothing(seed):
    world   = World(seed)
    answers = [world.answer() for _ in range(400)]
    got, counts = run(world, answers, gap=20)
    expected = [world.expected(a) for a in answers]
    changes  = [e for e in expected if isinstance(e, dict)]
    assert got == changes and counts == [expected.count("stale"), 0]
    assert {c["kind"] for c in changes} == {Change.MARKED, Change.AVOID, Change.CLEAN, Change.BACK} and expected.count("stale") > 20

def test_answers_that_find_no_room_are_counted_and_hold_nothing_up():
    world   = World(7)
    answers = [a for a in (world.answer() for _ in range(60)) if isinstance(world.expected(a), dict)][:12]
    got, (stale, dropped) = run(world, answers, gap=0, stall=1)
    assert (got, stale, dropped) == ([], 0, len(answers) - 4)

def test_both_engines_agree():
    results = []
    for engine in ("migen", "verilator"):
        world = World(3, engine)
        results.append(run(world, [world.answer() for _ in range(40)], gap=15))
    assert results[0] == results[1] and results[0][0]
