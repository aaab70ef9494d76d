# SPDX-License-Identifier: BSD-2-Clause
"""Resend: only what is outstanding and missing, oldest first, with the right message, and nothing twice.

The model is a set of PSNs; the count that the block keeps is that of the bits that it holds. A PSN that is
acknowledged or passed by the window while it waits is forgotten, also when a later PSN takes its place in the
bitmap.
"""

import random

import pytest
from migen import Record

from gateware.transport.queue_pair import CHUNK, chunks
from gateware.transport.requester.resend import Resend
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, Mirror, ahead, message_table, put, request, wait

class Dut(Bench):
    """The resend block; the test writes all tables and asks as the segmenter does."""
    def __init__(self, config):
        super().__init__(config)
        self.messages = message_table(config)
        self.pick     = Record([("valid", 1), ("qp", config.qp_bits), ("unacked", 24), ("next", 24), ("done", 1),
                                ("found", 1), ("psn", 24), ("message", config.message_bits), ("msn", 16), ("lost", 1), ("oldest", 1)])
        self.block    = Resend(config, self.send_state, self.ack_state, self.scoreboard, self.messages, self.pick)

class QueuePair:
    """The window of one queue pair, as sets."""
    def __init__(self, start, msn):
        self.unacked = self.next = start
        self.msn = self.retired = msn
        self.messages = []                    # [msn, first, last], oldest first.
        self.acked, self.pending = set(), set()
        self.lost = set()                     # Pending ones that count as lost by their path.

class World:
    def __init__(self, dut, config, seed):
        self.dut, self.config, self.rng = dut, config, random.Random(seed)
        self.qps = [QueuePair(self.rng.choice((PSN - 1, PSN - 70, PSN - 200, 0, self.rng.getrandbits(24))), self.rng.choice((0, 65530)))
                    for _ in range(config.queue_pairs)]
        self.picked, self.held, self.lost, self.log = 0, 0, 0, []
        self.counts  = Mirror(dut.block.counts)
        self.rows    = Mirror(dut.block.pending)

    def setup(self):
        for n in range(self.config.queue_pairs):
            for row in range(chunks(self.config)):
                yield from put(self.dut.scoreboard, n*chunks(self.config) + row)
            yield from self.store(n)
            yield from request(self.dut.block.init, qp=n)
        yield from wait(2)

    def count(self, n):
        """Pending bits that the block says it holds; it must hold as many."""
        rows  = chunks(self.config)
        count = self.counts.rows[n]["count"]
        assert count == sum(self.rows.rows[n*rows + i]["bits"].bit_count() for i in range(rows))
        return count

    def store(self, n):
        q = self.qps[n]
        yield from put(self.dut.send_state, n, next_psn=q.next, msn=q.msn)
        yield from put(self.dut.ack_state, n, unacked=q.unacked, msn=q.retired)

    def store_board(self, n):
        q, rows = self.qps[n], chunks(self.config)
        bits = [0]*rows
        for psn in q.acked:
            bits[psn//CHUNK % rows] |= 1 << psn % CHUNK
        for row in range(rows):
            yield from put(self.dut.scoreboard, n*rows + row, acked=bits[row], reported=self.rng.getrandbits(64))

    def send(self, n):
        """New messages, as far as window and pool go; the last one may be in progress only."""
        q, rng = self.qps[n], self.rng
        while self.count(n):
            # The segmenter takes everything that is pending before it sends a new PSN.
            yield from self.take(n)
        while q.msn - q.retired < self.config.messages and ahead(q.next, q.unacked) < self.config.mpr and rng.random() < 0.7:
            room  = self.config.mpr - ahead(q.next, q.unacked)
            count = rng.choice((1, 1, 2, rng.randrange(1, 20), self.config.mpr))
            last  = (q.next + count - 1) % PSN
            yield from put(self.dut.messages, n*self.config.messages + q.msn % self.config.messages, first_psn=q.next, last_psn=last)
            q.messages.append([q.msn % 65536, q.next, last])
            q.msn  = q.msn + 1
            q.next = (q.next + min(count, room)) % PSN
            if count > room:
                # It stays in progress; the next one starts behind it.
                q.messages[-1][2] = last = (q.next - 1) % PSN
                yield from put(self.dut.messages, n*self.config.messages + (q.msn - 1) % self.config.messages,
                    first_psn=q.messages[-1][1], last_psn=last)
        yield from self.store(n)

    def acknowledge(self, n):
        q, rng = self.qps[n], self.rng
        span = ahead(q.next, q.unacked)
        for i in range(span):
            if rng.random() < 0.2:
                q.acked.add((q.unacked + i) % PSN)
        if rng.random() < 0.5:
            q.unacked = (q.unacked + rng.randrange(span + 1)) % PSN
        while q.unacked in q.acked:
            q.unacked = (q.unacked + 1) % PSN
        while q.messages and ahead(q.messages[0][2], q.unacked) < 0:
            q.messages.pop(0)
            q.retired += 1
        q.acked = {p for p in q.acked if ahead(p, q.unacked) >= 0}
        q.pending -= {p for p in q.pending if ahead(p, q.unacked) < 0}
        yield from self.store_board(n)
        yield from self.store(n)

    def mark(self, n):
        q, rng = self.qps[n], self.rng
        base = (q.unacked + rng.randrange(-70, self.config.mpr + 10)) % PSN
        lost = rng.getrandbits(1)
        mask = rng.getrandbits(64) & rng.choice((2**64 - 1, rng.getrandbits(64), rng.getrandbits(64) & rng.getrandbits(64), 1))
        for i in range(64):
            psn = (base + i) % PSN
            if mask >> i & 1 and 0 <= ahead(psn, q.unacked) < ahead(q.next, q.unacked) and psn not in q.acked:
                if psn not in q.pending:
                    q.lost.discard(psn)       # What was said of an earlier resend is forgotten.
                q.pending.add(psn)
                if lost:
                    q.lost.add(psn)
        yield from request(self.dut.block.sink, qp=n, base=base, mask=mask, lost=lost)
        while not (yield self.dut.block.wake.valid):
            yield
        assert (yield self.dut.block.wake.qp) == n
        yield from wait(2)
        assert self.count(n) >= len(q.pending - q.acked)

    def take(self, n, oldest=False):
        q, pick = self.qps[n], self.dut.pick
        yield [pick.valid.eq(1), pick.qp.eq(n), pick.unacked.eq(q.unacked), pick.next.eq(q.next), pick.oldest.eq(oldest)]
        yield
        cycles = 0
        while not (yield pick.done):
            yield
            cycles += 1
        answer = yield [pick.found, pick.psn, pick.msn, pick.message]
        lost   = yield pick.lost
        yield pick.valid.eq(0)
        yield
        self.log.append((n, answer, lost))
        wanted = sorted(q.pending - q.acked, key=lambda p: ahead(p, q.unacked))
        assert cycles < 14 + 4*chunks(self.config) + 2*self.config.message_bits
        if oldest and wanted and wanted[0] != q.unacked:
            assert not answer[0], f"PSN {answer[1]:#x} was given, but it is not the oldest"
            assert self.count(n) >= len(wanted)
            self.held += 1
            return
        if not wanted:
            assert not answer[0], f"PSN {answer[1]:#x} was given, but no resend is pending"
            assert not self.count(n)
            q.pending.clear()
            return
        assert answer[0] and answer[1] == wanted[0], f"PSN {answer[1]:#x} (found {answer[0]}), expected {wanted[0]:#x}"
        msn, _, _ = next(m for m in q.messages if 0 <= ahead(answer[1], m[1]) and ahead(answer[1], m[2]) <= 0)
        assert answer[2:] == [msn, msn % self.config.messages]
        assert lost == (answer[1] in q.lost)
        self.lost += lost
        q.pending.discard(answer[1])
        q.lost.discard(answer[1])
        self.picked += 1

    def drive(self, steps):
        yield from self.setup()
        for _ in range(steps):
            what = self.rng.choice((self.send, self.acknowledge, self.mark, self.mark, self.take, self.take_oldest))
            yield from what(self.rng.randrange(self.config.queue_pairs))

    def take_oldest(self, n):
        yield from self.take(n, oldest=True)

def run(mpr, seed, steps, engine):
    world = World(dut_of(mpr, engine), WINDOWS[mpr], seed)
    simulate(world.dut, [world.drive(steps), world.counts.run(), world.rows.run()], engine=engine, limit=400000)
    return world

DUTS = {}

def dut_of(mpr, engine):
    if (mpr, engine) not in DUTS:
        DUTS[mpr, engine] = Dut(WINDOWS[mpr])
    return DUTS[mpr, engine]

@pytest.mark.parametrize("mpr", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_oldest_missing_first_and_never_another_place_of_the_window(mpr, seed):
    world = run(mpr, seed, 600, "verilator")
    assert world.picked > 200 and world.held > 10 and 50 < world.lost < world.picked - 50

def test_a_pick_ends_with_the_last_pending_bit():
    """In a window of 1,024 PSNs a search looks at as many rows as it has to, not at all of them."""
    world = World(dut_of(1024, "verilator"), WINDOWS[1024], 3)
    dut, q, cycles = world.dut, world.qps[0], []
    def run():
        yield from world.setup()
        yield from put(dut.messages, 0, first_psn=q.unacked, last_psn=(q.unacked + 1000) % PSN)
        q.messages, q.msn, q.next = [[0, q.unacked, (q.unacked + 1000) % PSN]], 1, (q.unacked + 1000) % PSN
        yield from world.store(0)
        for place in (0, 1, 900):
            yield from request(dut.block.sink, qp=0, base=(q.unacked + place) % PSN, mask=1)
            yield from wait(20)
            for _ in range(2):
                yield [dut.pick.valid.eq(1), dut.pick.qp.eq(0), dut.pick.unacked.eq(q.unacked), dut.pick.next.eq(q.next),
                       dut.pick.oldest.eq(0)]
                yield
                cycles.append(0)
                while not (yield dut.pick.done):
                    yield
                    cycles[-1] += 1
                yield dut.pick.valid.eq(0)
                yield
    simulate(dut, [run(), world.counts.run(), world.rows.run()])
    assert max(cycles[:4]) <= 10, cycles       # Found in the first row; then nothing is left to look for.
    assert cycles[4] <= 40 and cycles[5] <= 10, cycles

def test_a_psn_whose_message_was_retired_meanwhile_is_not_found():
    world = World(dut_of(128, "verilator"), WINDOWS[128], 1)
    dut, q = world.dut, world.qps[1]
    def run():
        yield from world.setup()
        for msn, (first, last) in enumerate(((0, 3), (4, 9))):
            yield from put(dut.messages, world.config.messages + msn,
                first_psn=(q.unacked + first) % PSN, last_psn=(q.unacked + last) % PSN)
        start, q.msn, q.next = q.unacked, 2, (q.unacked + 10) % PSN
        q.messages = [[0, start, (start + 3) % PSN], [1, (start + 4) % PSN, (start + 9) % PSN]]
        yield from world.store(1)
        yield from request(dut.block.sink, qp=1, base=(start + 2) % PSN, mask=0b101)
        # The acknowledgement comes after the segmenter has asked for the pick.
        q.retired, q.unacked = 1, (start + 4) % PSN
        yield from world.store(1)
        q.unacked = start
        yield [dut.pick.valid.eq(1), dut.pick.qp.eq(1), dut.pick.unacked.eq(start), dut.pick.next.eq(q.next)]
        yield
        while not (yield dut.pick.done):
            yield
        assert not (yield dut.pick.found)
        yield dut.pick.valid.eq(0)
        yield
        q.unacked, q.pending = (start + 4) % PSN, {(start + 4) % PSN}
        q.messages.pop(0)
        yield from world.take(1)
    simulate(dut, [run(), world.counts.run(), world.rows.run()])
    assert world.picked == 1

@pytest.mark.parametrize("mpr", WINDOWS)
def test_both_engines_agree(mpr):
    assert run(mpr, 7, 30, "migen").log == run(mpr, 7, 30, "verilator").log
