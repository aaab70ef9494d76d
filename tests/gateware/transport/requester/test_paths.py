# SPDX-License-Identifier: BSD-2-Clause
"""Paths: any order of choices and changes means what the lists say, and a packet always gets a path."""

import random

import pytest
from litex.gen import LiteXModule

from firmware.contract import PathChange, PathState, path_word
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.transport.requester.paths import Change, Paths
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import Mirror, put, request, wait
from tests.gateware.transport.requester.path_model import PathModel

CONFIGS = {planes: preset("tiny", planes=planes, evs=evs) for planes, evs in ((1, 8), (2, 16), (3, 16), (4, 4))}
PERIOD  = 40
NEVER   = 1 << 16 # More ticks than a test has.

class Dut(LiteXModule):
    def __init__(self, config, period):
        self.tables = Tables(config)
        self.block  = Paths(config, self.tables, period=period)

DUTS = {}

def dut_of(planes, period=NEVER, engine="verilator"):
    key = planes, period, engine
    if key not in DUTS:
        DUTS[key] = Dut(CONFIGS[planes], period)
    return DUTS[key]

class World:
    def __init__(self, planes, seed, period=NEVER, engine="verilator"):
        self.config, self.rng = CONFIGS[planes], random.Random(seed)
        self.dut, self.engine = dut_of(planes, period, engine), engine
        config = self.config
        self.entropies = [[self.rng.getrandbits(16) for _ in range(config.evs)] for _ in range(config.peers)]
        self.model  = PathModel(config, self.entropies)
        self.event  = StreamSink(self.dut.block.event, seed=seed, stall=0.3)
        self.states = Mirror(self.dut.block.states)
        self.counts = Mirror(self.dut.block.counts)
        self.up, self.time, self.log = 2**planes - 1, self.rng.choice((0, 2**32 - 50)), []

    def clock(self):
        yield "passive"
        while True:
            self.time = (self.time + 1) % 2**32
            yield self.dut.block.time.eq(self.time)
            yield

    def setup(self, counts=None):
        for peer, row in enumerate(self.entropies):
            for n, entropy in enumerate(row):
                yield from put(self.dut.tables.ev, peer*self.config.evs + n, entropy=entropy)
        yield self.dut.block.planes_up.eq(self.up)
        for peer in range(self.config.peers):
            yield from self.start(peer, self.config.evs if counts is None else counts[peer])

    def start(self, peer, ev_count):
        yield from put(self.dut.tables.peer, peer, ev_count=ev_count)
        yield from request(self.dut.block.init, peer=peer)
        yield from wait(2)
        self.model.start(peer, ev_count)

    # Operations.
    def choose(self, qp, peer, given=None, client=0):
        """The chosen value; checks its plane and entropy, and how long it took."""
        block  = self.dut.block
        choose = block.chooses[client]
        yield [choose.valid.eq(1), choose.qp.eq(qp), choose.peer.eq(peer), choose.given.eq(int(given is not None)),
            choose.ev.eq(given or 0)]
        yield
        cycles = 1
        while not (yield choose.ready):
            yield
            cycles += 1
            assert cycles <= 20, "a choice waits too long"
        ev, plane, entropy = yield [block.chosen.ev, block.chosen.plane, block.chosen.entropy]
        yield choose.valid.eq(0)
        yield
        assert plane == ev % self.config.plane_shares and entropy == self.entropies[peer][ev]
        return ev, cycles

    def random_choice(self):
        qp, peer = self.rng.randrange(self.config.queue_pairs), self.rng.randrange(self.config.peers)
        if not self.rng.randrange(5):
            given = self.rng.randrange(self.config.evs)
            ev, _ = yield from self.choose(qp, peer, given, client=1)
            assert ev == given                 # And nothing moves.
        else:
            ev, cycles = yield from self.choose(qp, peer, client=self.rng.randrange(2))
            wanted = self.model.choose(qp, peer, self.up)
            assert ev == wanted, f"value {ev}, expected {wanted}"
            assert cycles <= 4
        self.log.append((peer, ev))

    def random_change(self):
        rng, config = self.rng, self.config
        change = dict(qp=rng.randrange(config.queue_pairs), peer=rng.randrange(config.peers), ev=rng.randrange(config.evs),
            kind=rng.choice((Change.LOST, Change.MARKED, Change.MARKED, Change.AVOID, Change.CLEAN, Change.BACK, Change.SET, Change.SET)),
            state=rng.choice((PathState.GOOD,)*6 + (PathState.SKIP, PathState.ASSUMED_BAD, PathState.DENIED)))
        yield from self.change(**change)

    def change(self, **change):
        self.event.beats.clear()
        yield from request(rng_choice(self.rng, self.dut.block.changes), **change)
        event = self.model.change(**change)
        yield from wait(12)
        assert [{name: beat[name] for name in event or ()} for beat in self.event.beats] == ([event] if event else [])
        self.log.append(event)

    def compare(self):
        config, model = self.config, self.model
        for peer in range(config.peers):
            row = self.states.rows[peer]
            assert [(row["low"] >> n & 1) | (row["high"] >> n & 1) << 1 for n in range(config.evs)] == model.states[peer]
            assert [self.counts.rows[peer*config.evs + n] for n in range(config.evs)] == model.counts[peer]

    def drive(self, steps):
        yield from self.setup()
        for _ in range(steps):
            what = self.rng.random()
            if what < 0.6:
                yield from self.random_choice()
            elif what < 0.97:
                yield from self.random_change()
            elif what < 0.976:
                yield from self.start(self.rng.randrange(self.config.peers), self.rng.choice((0, 3, 511) + (self.config.evs,)*6))
            else:
                self.up = self.rng.getrandbits(self.config.planes)
                yield self.dut.block.planes_up.eq(self.up)
                yield
            self.compare()

    def run(self, *generators, limit=60000):
        parts = [self.event.run(), self.states.run(), self.counts.run(), self.clock()]
        return simulate(self.dut, [*generators, *parts], engine=self.engine, limit=limit)

def rng_choice(rng, items):
    return items[rng.randrange(len(items))]

@pytest.mark.parametrize("planes", CONFIGS)
@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_choices_and_changes_means_what_the_lists_say(planes, seed):
    world = World(planes, seed)
    world.run(world.drive(700))
    events = [entry["reason"] for entry in world.log if isinstance(entry, dict)]
    assert events.count(PathChange.LOST) >= 10 and events.count(PathChange.RETURNED) >= 4

@pytest.mark.parametrize("planes", (1, 3))
def test_both_engines_agree(planes):
    logs = []
    for engine in ("migen", "verilator"):
        world = World(planes, 5, engine=engine)
        world.run(world.drive(60))
        logs.append(world.log)
    assert logs[0] == logs[1]

@pytest.mark.parametrize("planes", (2, 3, 4))
def test_planes_get_equal_shares_whatever_their_values_do(planes):
    world = World(planes, 3)
    def drive():
        yield from world.setup()
        sent = [0]*planes
        for n in range(200):
            ev, _ = yield from world.choose(0, 0)
            sent[ev % world.config.plane_shares] += 1
            assert max(sent) - min(sent) <= 1
            if not n % 3:                      # Marks and losses, but a plane always keeps one value.
                victim = world.rng.randrange(world.config.evs)
                if victim >= world.config.plane_shares:
                    kind = world.rng.choice((Change.LOST, Change.MARKED))
                    yield from request(world.dut.block.changes[0], qp=0, peer=0, ev=victim, kind=kind)
    world.run(drive())

def test_a_plane_without_link_is_passed_over_and_taken_up_again():
    world = World(2, 4)
    def drive():
        yield from world.setup()
        for up, expected in ((0b11, {0, 1}), (0b10, {1}), (0b11, {0, 1}), (0b01, {0}), (0b00, {0, 1})):
            yield world.dut.block.planes_up.eq(up)
            yield
            planes = set()
            for _ in range(10):
                ev, _ = yield from world.choose(0, 0)
                planes.add(ev % 2)
            assert planes == expected
    world.run(drive())

def test_a_lost_path_is_left_until_a_probe_is_answered():
    world = World(1, 6)
    def chosen(count):
        found = set()
        for _ in range(count):
            ev, _ = yield from world.choose(2, 1)
            found.add(ev)
        return found
    def drive():
        yield from world.setup()
        yield from world.change(qp=3, peer=1, ev=5, kind=Change.LOST, state=0)
        assert world.log[-1]["qp"] == 3 and world.log[-1]["base"] == path_word(1, 5)
        yield from world.change(qp=0, peer=1, ev=5, kind=Change.LOST, state=0)
        assert world.log[-1] is None           # Once.
        assert (yield from chosen(20)) == {0, 1, 2, 3, 4, 6, 7}
        yield from world.change(qp=0, peer=1, ev=5, kind=Change.MARKED, state=0)
        assert 5 not in (yield from chosen(20))
        world.model.qps[1] = 2
        yield from world.change(qp=0, peer=1, ev=5, kind=Change.CLEAN, state=0)
        assert world.log[-1]["reason"] == PathChange.RETURNED and world.log[-1]["qp"] == 2
        assert (yield from chosen(20)) == set(range(8))
    world.run(drive())

@pytest.mark.parametrize("state", (PathState.ASSUMED_BAD, PathState.DENIED))
def test_a_packet_always_gets_a_path(state):
    world = World(2, 7)
    def drive():
        yield from world.setup()
        for n in range(world.config.evs):
            yield from world.change(qp=0, peer=0, ev=n, kind=Change.SET, state=state)
        found = []
        for _ in range(32):
            ev, _ = yield from world.choose(0, 0)
            found.append(ev)
        assert sorted(found) == sorted(2*list(range(16))) if state == PathState.ASSUMED_BAD else found == [0]*32
    world.run(drive())

def test_one_packet_in_twelve_cycles_beside_changes_and_probes():
    """The packet sender asks every 12 cycles; all others ask all the time."""
    world, waits = World(2, 8), []
    def sender():
        yield from world.setup()
        for _ in range(60):
            _, cycles = yield from world.choose(0, 0)
            waits.append(cycles)
            yield from wait(max(0, 12 - cycles - 1))
    def prober():
        yield "passive"
        yield from wait(200)
        while True:
            yield from world.choose(1, 1, given=3, client=1)
    def feedback():
        yield "passive"
        yield from wait(200)
        while True:
            yield from request(world.dut.block.changes[2], qp=0, peer=0, ev=world.rng.randrange(16), kind=Change.MARKED)
            yield from wait(10)
    world.run(sender(), prober(), feedback())
    assert max(waits) <= 11

def test_the_firmware_is_reminded_of_bad_paths_in_turn_until_there_are_none():
    world = World(2, 9, period=PERIOD)
    def drive():
        yield from world.setup()
        bad = [(0, 3), (0, 9), (1, 0), (1, 15)]
        for qp, (peer, ev) in enumerate(bad):
            yield from request(world.dut.block.changes[1], qp=qp, peer=peer, ev=ev, kind=Change.LOST)
        for peer in range(2):
            yield from world.choose(2 + peer, peer)
        yield from wait(20)
        world.event.beats.clear()
        yield from wait(8*PERIOD + 20)
        got = [(b["qp"], b["base"]) for b in world.event.beats]
        assert all(b["reason"] == PathChange.REMINDER and b["entropy"] == world.entropies[b["base"] >> 8 & 1][b["base"] & 0xff]
            for b in world.event.beats)
        assert 7 <= len(got) <= 9 and set(got) == {(2 + peer, path_word(peer, ev)) for peer, ev in bad}
        for peer, ev in bad:
            yield from request(world.dut.block.changes[1], qp=0, peer=peer, ev=ev, kind=Change.CLEAN)
        yield from wait(2*PERIOD)
        world.event.beats.clear()
        yield from wait(6*PERIOD)
        assert not world.event.beats
    world.run(drive())
