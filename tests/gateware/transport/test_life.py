# SPDX-License-Identifier: BSD-2-Clause
"""The life cycle: which changes are allowed, who is asked in which order, what an end waits for."""

import random

import pytest
from litex.gen import LiteXModule

from firmware.contract import EventKind, QpError
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.transport.barriers import Drain, fence_record
from gateware.transport.life import Life
from gateware.transport.queue_pair import init_endpoint, send_state_layout, status_layout
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import Mirror, put, request

CONFIG = preset("tiny")
RESET, INIT, RTR, RTS, ERROR = range(5)
SENDERS, RECEIVERS = ["bell", "segmenter", "acknowledger"], ["acceptor"]

class Bench(LiteXModule):
    def __init__(self):
        self.tables     = Tables(CONFIG)
        self.send_state = TableRAM(send_state_layout(CONFIG), CONFIG.queue_pairs)
        self.written    = TableRAM([("position", CONFIG.ring_bits + 1)], CONFIG.queue_pairs)
        self.status     = TableRAM(status_layout(), CONFIG.queue_pairs)
        self.inits      = {name: init_endpoint() for name in SENDERS + RECEIVERS}
        self.drain      = Drain()
        self.fence      = fence_record()
        self.block      = Life(CONFIG, self.tables, self.send_state, self.written, self.status,
            [self.inits[n] for n in SENDERS], [self.inits[n] for n in RECEIVERS], self.drain, self.fence)
        self.counts     = {name: count for name, (count, _) in self.block.counters.items.items()}

DUTS = {}

def dut_of(engine):
    return DUTS.setdefault(engine, Bench())

class World:
    """Everyone whom the life cycle asks; `log` tells in which order what happened."""
    def __init__(self, seed, engine="verilator"):
        self.dut, self.engine, self.seed = dut_of(engine), engine, seed
        self.rng, self.log = random.Random(seed), []
        self.credit = StreamSink(self.dut.block.credit, seed, 0.4)
        self.event  = StreamSink(self.dut.block.event, seed + 1, 0)
        self.status = Mirror(self.dut.status, lambda n, row: self.log.append(("status", n, row["state"], row["reason"])))
        self.status.rows.update({n: dict(state=RESET, reason=0, life=0) for n in range(CONFIG.queue_pairs)})
        self.inside, self.tokens, self.busy = 0, 0, 0                      # Packets on their way, tokens in the ring.

    def run(self, main):
        d, b = self.dut, self.dut.block
        asked = [*((f"init {n}", e, ("qp",)) for n, e in d.inits.items()), ("flush", b.flush, ("qp", "reason")),
            ("forget", b.forget, ("qp",)), ("fence", d.fence, ())]
        simulate(d, [self.fresh(main), self.credit.run(), self.event.run(), self.status.run(), self.writes(), self.ring(), self.pipeline(),
            *(self.owner(*a) for a in asked)], self.engine, limit=100_000, seed=self.seed)

    def fresh(self, main):
        """Nobody is busy, and no page hears of an end unless a test says so."""
        for n in range(CONFIG.queue_pairs):
            yield from put(self.dut.tables.queue_pair, n, page=255)
        yield [self.dut.block.bell_idle.eq(1), self.dut.block.commands_idle.eq(1)]
        yield
        yield from main

    def owner(self, name, endpoint, fields):
        yield "passive"
        while True:
            if (yield endpoint.valid):
                values = yield [getattr(endpoint, f) for f in fields]
                for _ in range(self.rng.randrange(6)):
                    yield
                    assert (yield endpoint.valid), f"{name}: withdrawn"
                self.log.append((name, *values))
                yield endpoint.ready.eq(1)
                yield
                yield endpoint.ready.eq(0)
            yield

    def writes(self):
        yield "passive"
        while True:
            if (yield self.dut.block.write):
                self.log.append(("write",))
            yield

    def ring(self):
        """The segmenter: woken, it takes its time, and then one token after the other."""
        yield "passive"
        b = self.dut.block
        while True:
            if (yield b.wake.valid) and self.tokens:
                qp = yield b.wake.qp
                self.log.append(("woken", qp))
                while self.tokens:
                    yield [b.segmenter_busy.eq(1), b.segmenter_qp.eq(qp)]
                    for _ in range(self.rng.randrange(1, 9)):
                        yield
                    self.tokens -= 1
                    yield from put(self.dut.send_state, qp, ring=(8 - self.tokens) % 16)
                    yield from (None for _ in range(3))                    # The credit follows.
                    self.log.append(("token", qp))
                    yield b.segmenter_busy.eq(0)
            yield

    def pipeline(self):
        """Packets between segmenter and sender: `inside` of them leave, one by one."""
        yield "passive"
        d = self.dut.drain
        while True:
            if self.inside:
                for _ in range(self.rng.randrange(1, 30)):
                    yield
                yield d.sender_busy.eq(1)
                for _ in range(self.rng.randrange(1, 5)):
                    yield
                self.inside -= 1
                self.log.append(("left",))
                yield d.sender_busy.eq(0)
            yield

    def enter(self, count):
        for _ in range(count):
            yield self.dut.drain.entered.eq(1)
            yield
        yield self.dut.drain.entered.eq(0)
        self.inside += count

    def change(self, qp, state):
        """The driver's wish; gives whether it was refused, and what happened."""
        self.log.clear()
        c = self.dut.block.change
        yield [c.qp.eq(qp), c.state.eq(state), c.valid.eq(1)]
        yield
        while not (yield c.ready):
            yield
        refused = yield self.dut.block.refused
        yield c.valid.eq(0)
        yield
        yield
        return refused, list(self.log)

    def error(self, qp, reason, life):
        self.log.clear()
        yield from request(self.dut.block.error, qp=qp, reason=reason, life=life)

def asked(log):
    return [entry[0][5:] for entry in log if entry[0].startswith("init")]

def ends(qp, reason, reset, was):
    """What an end consists of, in order, without packets and tokens."""
    return ([("status", qp, ERROR, reason)] if was != ERROR else []) + [("flush", qp, reason)] + (
        [("fence",), ("forget", qp), ("status", qp, RESET, 0)] if reset else [])

# Transitions --------------------------------------------------------------------------------------

PATHS = {RESET: [], INIT: [INIT], RTR: [INIT, RTR], RTS: [RTS], ERROR: [RTS, ERROR]}
BEGINS, GOES_ON = SENDERS + RECEIVERS, SENDERS
ALLOWED = {(RESET, INIT): BEGINS, (RESET, RTR): BEGINS, (RESET, RTS): BEGINS, (INIT, RTR): BEGINS, (RTR, RTS): GOES_ON}

def every_transition(world, log):
    for was in range(5):
        for wish in range(8):
            qp = world.rng.randrange(CONFIG.queue_pairs)
            for state in (RESET, *PATHS[was]):
                refused, _ = yield from world.change(qp, state)
                assert not refused
            refused, happened = yield from world.change(qp, wish)
            log.append(happened)
            if (was, wish) in ALLOWED:
                assert not refused and asked(happened) == ALLOWED[was, wish]
                assert happened[0] == ("write",) and happened[-1] == ("status", qp, wish, 0)
            elif wish in (RESET, ERROR):
                assert not refused
                assert happened == ([] if wish == was else ends(qp, QpError.FLUSHED, wish == RESET, was)), (was, wish)
            else:
                assert refused and not happened, (was, wish)

def test_every_transition_is_carried_out_in_order_or_refused():
    world = World(1)
    world.run(every_transition(world, []))

def test_both_engines_agree():
    logs = []
    for engine in ("migen", "verilator"):
        world = World(2, engine)
        logs.append([])
        world.run(every_transition(world, logs[-1]))
    assert logs[0] == logs[1]

def test_each_reset_begins_another_life_and_the_firmware_hears_of_it():
    world = World(3)
    def main():
        for n in range(300):                       # The number wraps.
            yield from world.change(1, RTS)
            assert world.status.rows[1]["life"] == n % 256
            yield from world.change(1, RESET)
        yield from world.change(2, INIT)
        yield from world.change(2, RTR)
        yield from world.change(2, RTS)
    world.run(main())
    events = [(b["kind"], b["qp"], b["life"]) for b in world.event.beats]
    assert events == [(EventKind.START, 1, n % 256) for n in range(300)] + [(EventKind.START, 2, 0)]

# An end -------------------------------------------------------------------------------------------

def prepare(world, qp, packets, tokens):
    yield from put(world.dut.tables.queue_pair, qp, page=qp % CONFIG.pages)
    yield from world.change(qp, RTS)
    yield from put(world.dut.send_state, qp, ring=(8 - tokens) % 16)
    yield from put(world.dut.written, qp, position=8)
    world.tokens = tokens
    yield from world.enter(packets)

@pytest.mark.parametrize("seed", range(4))
def test_an_end_waits_for_packets_and_tokens_in_order(seed):
    world = World(10 + seed)
    rng   = world.rng
    def main():
        for _ in range(10):
            qp, packets, tokens = rng.randrange(4), rng.randrange(6), rng.randrange(8)
            yield from prepare(world, qp, packets, tokens)
            world.credit.beats.clear()
            _, log = yield from world.change(qp, RESET)
            names = [entry[0] for entry in log]
            assert names[0] == "status" and names[-1] == "status" and names.count("token") == tokens
            flush = names.index("flush")
            assert names[:flush].count("left") == packets, "messages were given back while their packets were on their way"
            assert all(i > flush for i, n in enumerate(names) if n == "token")
            assert names[-3:] == ["fence", "forget", "status"]
            assert [(c["page"], c["error"], c["qp"], c["consumed"], c["completed"]) for c in world.credit.beats] == [
                (qp % CONFIG.pages, QpError.FLUSHED, qp, 0, 0)]
    world.run(main())

def test_an_end_waits_for_those_who_have_read_the_old_status():
    world = World(20)
    def main():
        b = world.dut.block
        yield from prepare(world, 3, 0, 0)
        world.log.clear()
        yield [b.bell_idle.eq(0), b.segmenter_busy.eq(1), b.segmenter_qp.eq(3), b.commands_idle.eq(0)]
        yield [b.change.qp.eq(3), b.change.state.eq(RESET), b.change.valid.eq(1)]
        for _ in range(30):
            yield
        assert [entry[0] for entry in world.log] == ["status"]
        yield b.bell_idle.eq(1)
        for _ in range(30):
            yield
        assert [entry[0] for entry in world.log] == ["status"]
        yield b.segmenter_qp.eq(2)                 # It is busy with another queue pair.
        for _ in range(60):
            yield
        assert world.log[-1] == ("status", 3, RESET, 0) and not (yield b.change.ready)
        yield b.commands_idle.eq(1)
        yield
        yield
        assert (yield b.change.ready)
        yield [b.change.valid.eq(0), b.segmenter_busy.eq(0)]
        yield
    world.run(main())

# The firmware -------------------------------------------------------------------------------------

def test_the_firmware_ends_what_lives_and_nothing_of_another_life():
    world = World(30)
    def main():
        for was in range(5):
            for stale in (0, 1):
                for state in (RESET, *PATHS[was]):
                    yield from world.change(0, state)
                life = world.status.rows[0]["life"]
                yield from world.error(0, QpError.READ_FAILED, (life + stale) % 256)
                for _ in range(60):
                    yield
                ended = was in (INIT, RTR, RTS) and not stale
                assert world.log == (ends(0, QpError.READ_FAILED, False, was) if ended else []), (was, stale)
                assert world.status.rows[0]["state"] == (ERROR if ended else was)
    world.run(main())

def test_a_command_that_waits_while_its_queue_pair_is_reset_is_not_carried_out_and_blocks_nobody():
    world = World(40)
    def main():
        b = world.dut.block
        yield from prepare(world, 1, 2, 3)
        life = world.status.rows[1]["life"]
        yield [b.change.qp.eq(1), b.change.state.eq(RESET), b.change.valid.eq(1)]
        for _ in range(4):
            yield
        yield b.commands_idle.eq(0)                # The command is let pass, and waits here.
        yield [b.error.qp.eq(1), b.error.reason.eq(QpError.RETRY_EXCEEDED), b.error.life.eq(life), b.error.valid.eq(1)]
        while not (yield b.change.ready):
            yield
        yield [b.change.qp.eq(1), b.change.state.eq(RTS)]
        while not (yield b.error.ready):
            yield
        yield [b.error.valid.eq(0), b.commands_idle.eq(1)]
        yield
        yield
        while not (yield b.change.ready):
            yield
        yield b.change.valid.eq(0)
        for _ in range(20):
            yield
        assert world.status.rows[1] == dict(state=QpState.RTS, reason=0, life=life + 1)
    world.run(main())
