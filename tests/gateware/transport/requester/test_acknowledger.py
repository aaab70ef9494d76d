# SPDX-License-Identifier: BSD-2-Clause
"""Acknowledger against sets: windows, scoreboard, ripe holes, retired messages, also for hostile peers."""

import random

import pytest

from firmware.contract import EventKind, QpError
from gateware.common.headers import AETH, CC_STATE, NETH, SETH, NackReason, Opcode, Syndrome
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.queue_pair import CHUNK, chunks, sent_layout
from gateware.transport.requester.acknowledger import Acknowledger
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, Mirror, ahead, message_table, put, request, wait
from tests.gateware.transport.requester.window_model import Window

class Dut(Bench):
    """The acknowledger with the tables around it."""
    def __init__(self, config):
        super().__init__(config)
        self.messages = message_table(config)
        self.sent     = TableRAM(sent_layout(config), config.queue_pairs*config.mpr)
        self.block    = block = Acknowledger(config, self.tables, self.send_state, self.ack_state, self.status, self.scoreboard,
            self.messages)
        self.counts = {"lost": block.counters.items["events_lost"][0]}
        sent = self.sent.reader()
        self.comb += [sent.index.eq(block.sent_index), block.sent_time.eq(sent.row.time), block.sent_resent.eq(sent.row.resent)]

DUTS = {}

def dut_of(mpr, engine="verilator"):
    if (mpr, engine) not in DUTS:
        DUTS[mpr, engine] = Dut(WINDOWS[mpr])
    return DUTS[mpr, engine]

class World:
    def __init__(self, dut, config, seed):
        self.dut, self.config, self.rng = dut, config, random.Random(seed)
        rng = self.rng
        self.count = config.queue_pairs
        self.qps   = [Window(rng.choice((PSN - 1, PSN - 65, PSN - 130, 0, rng.getrandbits(24)))) for _ in range(self.count)]
        self.keys  = [dict(generation=rng.getrandbits(8), p_key=rng.getrandbits(16), life=rng.getrandbits(8)) for _ in range(self.count)]
        self.time  = rng.choice((0, 2**32 - 500, 2**16 - 100))
        block = dut.block
        self.event  = StreamSink(block.event, seed=seed, stall=0)
        self.credit = StreamSink(block.credit, seed=seed + 1, stall=0.4)
        self.heard  = StreamSink(block.heard, seed=seed + 2, stall=0)
        self.note   = StreamSink(block.note, seed=seed, stall=0)
        self.notes  = []                       # What the digest must hear.
        self.ack    = Mirror(dut.ack_state)
        self.board  = Mirror(dut.scoreboard)
        self.woken, self.kinds, self.log = [], {}, []

    def run(self, generator, engine="verilator"):
        parts = [self.event, self.credit, self.heard, self.note, self.ack, self.board]
        simulate(self.dut, [generator, self.watch_wakes(), *[p.run() for p in parts]], engine=engine, limit=400000)

    def watch_wakes(self):
        yield "passive"
        wake = self.dut.block.wake
        while True:
            if (yield wake.valid):
                self.woken.append((yield wake.qp))
            yield

    # Steps of a test.
    def setup(self):
        for n in range(self.count):
            yield from self.start(n)

    def start(self, n):
        q, rng = self.qps[n], self.rng
        q.guard_time, q.guard_packets = rng.choice((0, 40, 200)), rng.choice((0, 3, 16))
        yield from put(self.dut.tables.queue_pair, n, state=q.state, send_psn=q.unacked, guard_time=q.guard_time,
            guard_packets=q.guard_packets, **{name: self.keys[n][name] for name in ("generation", "p_key")})
        yield from self.store(n)
        yield from request(self.dut.block.init, qp=n)
        yield from self.tell(n)

    def tell(self, n, reason=0):
        """What the life cycle does."""
        yield from put(self.dut.status, n, state=self.qps[n].state, reason=reason, life=self.keys[n]["life"])

    def store(self, n):
        q = self.qps[n]
        yield from put(self.dut.send_state, n, next_psn=q.next, msn=q.head % 65536,
            rqmsn=(q.rqmsn + sum(q.messages[m][3] for m in range(q.tail, q.head))) % 65536)

    def idle(self):
        """Until all is done: a command waits for that."""
        n = self.rng.randrange(self.count)
        q = self.qps[n]
        q.guard_time, q.guard_packets = self.rng.choice((0, 40, 200)), self.rng.choice((0, 3, 16))
        yield from request(self.dut.block.guard, qp=n, time=q.guard_time, packets=q.guard_packets)
        yield from wait(3)

    def tick(self):
        self.time = (self.time + self.rng.choice((1, 30, 100))) % 2**32
        yield self.dut.block.time.eq(self.time)

    def transmit(self, n, psn):
        q, place = self.qps[n], psn % self.config.mpr
        again = psn in q.sent
        q.sent[psn] = self.time % 65536
        q.resent[place] = min(q.resent[place] + 1, 3) if again else 0
        yield from put(self.dut.sent, n*self.config.mpr + place, time=self.time % 65536, resent=q.resent[place])

    def send(self, n):
        """New packets: of the message in progress, then of new ones."""
        q, rng, config = self.qps[n], self.rng, self.config
        if q.state != QpState.RTS:
            return
        for _ in range(rng.randrange(1, 40)):
            if ahead(q.next, q.unacked) >= config.mpr:
                break
            if not q.head or ahead(q.messages[q.head - 1][1], q.next) < 0:
                if q.head - q.tail >= config.messages:
                    break
                last = (q.next + rng.choice((0, 0, 1, rng.randrange(30), 300))) % PSN
                q.messages[q.head] = (q.next, last, rng.randrange(config.pages), rng.getrandbits(1))
                yield from put(self.dut.messages, n*config.messages + q.head % config.messages, first_psn=q.next, last_psn=last,
                    page=q.messages[q.head][2], signal=q.messages[q.head][3])
                q.head += 1
            psn    = q.next
            q.next = (q.next + 1) % PSN
            yield from self.transmit(n, psn)
        yield from self.store(n)

    def resend(self, n):
        q = self.qps[n]
        if q.reported and q.state == QpState.RTS:
            psn = self.rng.choice(sorted(q.reported))
            q.reported.discard(psn)
            yield from self.transmit(n, psn)
            yield from request(self.dut.block.resent, qp=n, psn=psn)

    def packet(self, n, opcode, body, psn, rtx=0):
        """Offers a packet; some are for another life or another partition and must change nothing. True if it counts."""
        rng, key, q = self.rng, self.keys[n], self.qps[n]
        qpn, p_key  = key["generation"] << 16 | n, key["p_key"]
        foreign = rng.choice((qpn ^ 1 << rng.randrange(16, 24), qpn + self.count, None)) if not rng.randrange(8) else qpn
        if foreign is None:
            foreign, p_key = qpn, p_key ^ 1 << rng.randrange(16)
        yield from request(self.dut.block.sink, opcode=opcode, dest_qp=foreign, p_key=p_key, psn=psn, rtx=rtx,
            body=int.from_bytes(body, "little"))
        return foreign == qpn and p_key == key["p_key"] and q.state == QpState.RTS

    def cack(self, q):
        """Mostly honest: in the window. Else old, or of the future."""
        span = ahead(q.next, q.unacked)
        return (q.unacked - 1 + self.rng.choice((0, 0, self.rng.randrange(span + 1), self.rng.randrange(span + 1), span, span + 1,
            span + self.rng.randrange(1, 2**22), -self.rng.randrange(1, 100), -self.rng.randrange(1, 2**22)))) % PSN

    def sack(self, n, room=True):
        q, rng  = self.qps[n], self.rng
        cack    = self.cack(q)
        offset  = rng.choice((1, 1, 2, rng.randrange(self.config.mpr), rng.randrange(-200, 200), rng.randrange(-32768, 32768)))
        bitmap  = rng.getrandbits(64) & rng.choice((2**64 - 1, rng.getrandbits(64), (1 << rng.randrange(64)) - 1, 0, ~1))
        entropy, stamp = rng.getrandbits(16), (self.time - rng.choice((rng.randrange(500), rng.getrandbits(16)))) % 65536
        received = (q.received + rng.choice((0, rng.randrange(100), rng.randrange(100), -rng.randrange(100), rng.getrandbits(24)))) % 2**24
        trigger = rng.choice((rng.randrange(-100, 100), rng.randrange(self.config.mpr), rng.randrange(-32768, 32768)))
        probe, mark, rtx = int(not rng.randrange(4)), rng.randrange(3), rng.getrandbits(1)
        body = SETH.pack(cack_psn=cack, sack_offset=offset % 65536, bitmap=bitmap, entropy=rng.getrandbits(16) << 16 | entropy,
            ack_psn_offset=trigger % 65536, pr=probe, m=mark) + CC_STATE.pack(tx_timestamp=stamp, rcvd_bytes=received)
        news, sample = (received - q.received) % PSN, (self.time - stamp) % 65536
        counts = yield from self.packet(n, Opcode.SACK, body, rng.getrandbits(24), rtx)
        if counts:
            answered = trigger % 65536 if probe else (cack + trigger) % PSN
            clear    = probe or q.resent[answered % self.config.mpr] == rtx
            counts, events = q.sack(cack, (cack + offset) % PSN, bitmap, entropy, stamp, self.time, received, clear, room)
            if counts:
                self.paths.append(dict(qp=n, psn=answered, probe=probe, mark=mark, reason=0, entropy=entropy))
                self.notes.append(dict(qp=n, sack=1, marked=int(mark == 1), bytes=news if news < PSN//2 else 0,
                    sampled=int(clear and sample < 32768), rtt=sample))
            return counts, events
        return False, []

    def acknowledge(self, n):
        q, rng = self.qps[n], self.rng
        cack = self.cack(q)
        done = q.tail
        while done < q.head and ahead(q.messages[done][1], cack) <= 0:
            done += 1
        msn      = (done + rng.choice((0, 0, 0, -1, 1, q.head - done + 1, rng.getrandbits(16)))) % 65536
        syndrome = rng.choice((Syndrome.ACK, Syndrome.ACK, Syndrome.ACK, 0x00, 0x3f, 0x5f))
        body     = AETH.pack(syndrome=syndrome, msn=rng.getrandbits(8) << 16 | msn)
        counts   = yield from self.packet(n, Opcode.ACKNOWLEDGE, body, cack)
        # A receiver-not-ready or reserved syndrome acknowledges nothing.
        return counts and syndrome < 0x20 and q.ack(cack, msn), []

    def refuse(self, n):
        q, rng = self.qps[n], self.rng
        psn, reason, entropy = (self.cack(q) + 1) % PSN, rng.getrandbits(8), rng.getrandbits(16)
        if rng.random() < 0.5:
            reason = rng.choice((Syndrome.NAK_INVALID_REQUEST, Syndrome.NAK_REMOTE_ACCESS, Syndrome.NAK_REMOTE_OPERATION))
            counts = yield from self.packet(n, Opcode.ACKNOWLEDGE, AETH.pack(syndrome=reason, msn=rng.getrandbits(24)), psn)
            # A NAK that speaks of a PSN that was never sent ends no queue pair.
            counts = counts and ahead((psn + 1) % PSN, q.unacked) <= ahead(q.next, q.unacked)
            return False, [q.event(EventKind.NAK, base=psn, mask_low=1, mask_high=0, reason=reason, entropy=0)] if counts else []
        reason = rng.choice((reason, NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP))
        if q.reported and rng.random() < 0.3:
            psn = rng.choice(sorted(q.reported))
        body   = NETH.pack(reason=reason, entropy=entropy, nack_psn=psn)
        counts = yield from self.packet(n, Opcode.NACK, body, rng.getrandbits(24))
        if counts and q.holds(psn):
            self.paths.append(dict(qp=n, psn=psn, probe=0, mark=0, reason=reason, entropy=entropy))
            self.notes.append(dict(qp=n, sack=0, marked=0, bytes=0, sampled=0))
        return False, q.nack(psn, reason, entropy) if counts else []

    # Checks.
    def compare(self, n):
        q, rows = self.qps[n], chunks(self.config)
        row = self.ack.rows[n]
        assert (row["unacked"], row["msn"]) == (q.unacked, q.tail % 65536), f"unacked {row['unacked']:#x}, expected {q.unacked:#x}"
        if q.state != QpState.RTS:
            return
        assert (row["rtt"], row["rqmsn"], row["received"]) == (q.rtt, q.rqmsn, q.received)
        for name, psns in (("acked", q.acked), ("reported", q.reported)):
            expected = [0]*rows
            for p in psns:
                expected[p//CHUNK % rows] |= 1 << p % CHUNK
            assert [self.board.rows[n*rows + i][name] for i in range(rows)] == expected, name

    def step(self, n, what):
        self.event.beats.clear()
        self.credit.beats.clear()
        self.heard.beats.clear()
        self.note.beats.clear()
        self.notes.clear()
        self.woken.clear()
        self.paths = []
        q, before = self.qps[n], len(self.qps[n].credits)
        yield from self.tick()
        counts, events = yield from what(n)
        yield from self.idle()
        got = [{name: b[name] for name in e} for b, e in zip(self.event.beats, events, strict=True)]
        assert got == events
        assert all(b["qp"] == n and b["time"] == self.time and b["life"] == self.keys[n]["life"] for b in self.event.beats)
        credits = [(b["page"], b["error"], b["completed"], b["consumed"]) for b in self.credit.beats]
        assert credits == [(page, error, 1, 0) for page, error in q.credits[before:]]
        assert [{name: b[name] for name in e} for b, e in zip(self.note.beats, self.notes, strict=True)] == self.notes
        assert set(self.woken) == ({n} if counts else set())
        assert [{name: b[name] for name in b if name not in ("first", "last")} for b in self.heard.beats] == self.paths
        for e in events:
            self.kinds[e["kind"]] = self.kinds.get(e["kind"], 0) + 1
        self.compare(n)
        self.log.append((events, credits, q.unacked))

    def end(self, n):
        """The life cycle ends a queue pair."""
        q = self.qps[n]
        q.fail(QpError.RETRY_EXCEEDED)
        yield from self.tell(n, QpError.RETRY_EXCEEDED)
        yield from request(self.dut.block.flush, qp=n, reason=QpError.RETRY_EXCEEDED)
        return True, []

    def drive(self, steps):
        rng = self.rng
        yield from self.setup()
        for _ in range(steps):
            n = rng.randrange(self.count)
            yield from rng.choice((self.send, self.send, self.resend))(n)
            yield from self.step(n, rng.choice((self.sack, self.sack, self.sack, self.acknowledge, self.acknowledge, self.refuse)))

@pytest.mark.parametrize("mpr", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_any_stream_of_acknowledgements_means_what_the_sets_say(mpr, seed):
    world = World(dut_of(mpr), WINDOWS[mpr], seed)
    world.run(world.drive(450))
    assert world.kinds[EventKind.HOLES] > 10 and world.kinds[EventKind.NACK] > 4 and world.kinds[EventKind.NAK] > 4
    assert sum(len(q.credits) for q in world.qps) > 20

def test_both_engines_agree():
    mpr, logs = 128, []
    for engine in ("migen", "verilator"):
        world = World(dut_of(mpr, engine), WINDOWS[mpr], 8)
        world.run(world.drive(20), engine)
        logs.append(world.log)
    assert logs[0] == logs[1]

@pytest.mark.parametrize("seed", range(2))
def test_a_failed_queue_pair_gives_back_every_message_once(seed):
    world = World(dut_of(128), WINDOWS[128], seed + 20)
    def drive():
        yield from world.setup()
        for n in (2, 0, 2):
            for _ in range(4):
                yield from world.send(n)
                yield from world.step(n, world.acknowledge)
            yield from world.step(n, world.end)
            for _ in range(4):                 # Answers that come late change nothing.
                yield from world.step(n, world.rng.choice((world.sack, world.acknowledge, world.refuse)))
        # A new life.
        q = world.qps[2]
        assert q.tail == q.head and q.head
        world.qps[2] = Window(5)
        yield from world.start(2)
        for _ in range(10):
            yield from world.send(2)
            yield from world.step(2, world.sack)
    world.run(drive())

def test_a_report_that_finds_no_room_is_made_by_a_later_sack():
    world = World(dut_of(128), WINDOWS[128], 31)
    world.event.stall = 1
    def drive():
        yield from world.setup()
        n, q = 1, world.qps[1]
        q.guard_time = q.guard_packets = 0
        yield from request(world.dut.block.guard, qp=n, time=0, packets=0)
        q.messages[0], q.head = (q.next, (q.next + 60) % PSN, 0, 0), 1
        yield from put(world.dut.messages, n*world.config.messages, first_psn=q.next, last_psn=(q.next + 60) % PSN)
        start, q.next = q.next, (q.next + 61) % PSN
        for i in range(61):
            yield from world.transmit(n, (start + i) % PSN)
        yield from world.store(n)
        key = world.keys[n]
        def sack(top):
            body = SETH.pack(cack_psn=(start - 1) % PSN, sack_offset=1, bitmap=1 << top) + CC_STATE.pack()
            yield from request(world.dut.block.sink, opcode=Opcode.SACK, dest_qp=key["generation"] << 16 | n, p_key=key["p_key"],
                body=int.from_bytes(body, "little"))
            yield from wait(300)
        for i in range(12):                    # Each shows one hole more; the queue holds 8.
            yield from sack(2*i + 1)
        assert (yield world.dut.counts["lost"]), "a report that found no room was not counted"
        world.event.stall = 0
        yield from wait(40)
        yield from sack(2*11 + 1)
    world.run(drive())
    masks = [b["mask_high"] << 32 | b["mask_low"] for b in world.event.beats]
    assert len(masks) >= 9
    union = 0
    for mask in masks:
        assert not union & mask, "a hole was reported twice"
        union |= mask
    assert union == sum(1 << 2*i for i in range(12))
