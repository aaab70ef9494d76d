# SPDX-License-Identifier: BSD-2-Clause
"""Segmenter: every token becomes its packets, in order, within all windows, once; a failed queue pair flushes.

A model per queue pair knows the packets that its tokens must give, and what they count. The tests play the
doorbell (it fills rings), the acknowledger (it opens windows) and the resend block (it answers picks).
"""

import random
from types import SimpleNamespace

import pytest

from firmware.contract import QpError
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.host.doorbell import ring_entry_layout
from gateware.transport.queue_pair import nominal_size
from gateware.transport.requester.scheduler import Scheduler
from gateware.transport.requester.segmenter import Segmenter
from tests.drivers.stream import StreamSink
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, Mirror, ahead, pulse, put, request, wait

class Dut(Bench):
    """A segmenter with its scheduler; the rings are written by the test."""
    def __init__(self, config):
        super().__init__(config)
        self.ring      = TableRAM(ring_entry_layout(config), config.queue_pairs*config.ring_depth)
        self.written   = TableRAM([("position", config.ring_bits + 1)], config.queue_pairs)
        self.scheduler = Scheduler(config, wakers=3)
        bell = SimpleNamespace(ring=self.ring, written=self.written)
        self.block     = Segmenter(config, self.tables, self.send_state, self.ack_state, self.status, bell)
        own = self.scheduler.wakes[0]
        self.counts    = TableRAM([("count", config.psn_bits + 1)], config.queue_pairs)
        waiting        = self.counts.reader()
        self.comb += [waiting.index.eq(self.block.busy_qp), self.block.waiting.eq(waiting.row.count)]
        self.comb += [self.scheduler.source.connect(self.block.sink), own.valid.eq(self.block.wake.valid), own.qp.eq(self.block.wake.qp)]

class QueuePair:
    """What one queue pair must send, and its limits."""
    def __init__(self, rng, start, mtu, config, limited=True):
        self.rng, self.start, self.mtu = rng, start, mtu
        self.unacked, self.next, self.retired, self.msn = start, start, 0, 0
        self.tokens, self.packets, self.last = [], [], {}    # last: msn -> last PSN.
        self.taken, self.ring, self.rqmsn, self.state = 0, 0, 0, QpState.RTS
        self.expected = start
        self.sizes, self.ends = [], []                        # Nominal sizes; packets up to the end of each message.
        self.arrived, self.waiting = 0, 0                     # Packets that have arrived; that wait to be sent again.
        self.full = nominal_size(256 << mtu, True)
        self.mpr_dest = rng.choice((0, 1, 1, config.mpr//256, config.mpr//128, 255)) if limited else 0
        self.limit    = config.mpr if not 0 < self.mpr_dest < config.mpr//128 else 128*self.mpr_dest
        self.max_wimm = rng.choice((0, 1, 3, config.messages)) if limited else 0
        self.cwnd     = rng.choice((0, 1, -(-self.full//256), rng.randrange(1, 40*self.full//256))) if limited else 0
        self.trigger  = rng.choice((0, 4096, 16384))

    def flight(self):
        """Bytes in flight, by what the acknowledgements have told; the card may have heard less and count more."""
        outstanding = ahead((self.start + self.taken) % PSN, self.unacked)
        return max(0, min(outstanding*self.full, sum(self.sizes[:self.taken]) - 256*self.received()))

    def received(self):
        return -(-sum(self.sizes[:self.arrived])//256)

    def attributes(self):
        return dict(state=QpState.RTS, mtu=self.mtu, send_psn=self.start, mpr_dest=self.mpr_dest, max_wimm_dest=self.max_wimm,
            cwnd=self.cwnd, sack_trigger=self.trigger)

    def acks(self):
        return dict(unacked=self.unacked, msn=self.retired % 65536, received=self.received() % 2**24,
            rqmsn=sum(t["signal"] for t in self.tokens[:self.retired]) % 65536)

    def post(self, token):
        count = max(1, -(-token["length"]//(256 << self.mtu)))
        msn   = len(self.tokens)
        first = self.expected
        self.expected = (first + count) % PSN
        self.tokens.append(dict(token, first_psn=first, last_psn=(self.expected - 1) % PSN, rqmsn=self.rqmsn))
        self.rqmsn += token["signal"]
        self.packets += [((first + i) % PSN, msn) for i in range(count)]
        self.ends.append(len(self.packets))
        mtu, length   = 256 << self.mtu, token["length"]
        self.sizes   += [nominal_size(min(mtu, length - i*mtu), token["signal"] and i == count - 1) for i in range(count)]

class World:
    """Test side of one run."""
    def __init__(self, dut, config, seed, stall):
        self.dut, self.config, self.rng, self.stall = dut, config, random.Random(seed), stall
        self.qps = [QueuePair(self.rng, self.rng.choice((PSN - 30, PSN - 1, 0, self.rng.getrandbits(24))), self.rng.randrange(5), config)
                    for _ in range(config.queue_pairs)]
        self.answers = []                      # Resends that must come out.
        self.new, self.resent, self.full, self.held, self.congested, self.wimm = 0, 0, 0, 0, 0, 0
        self.since = {}                        # Queue pair -> cycle since which a resend is pending.
        self.now, self.ready, self.done = 0, False, False
        block = dut.block
        self.consumed = StreamSink(block.consumed, seed=seed + 1, stall=stall)
        self.credit   = StreamSink(block.credit, seed=seed + 2, stall=stall)

    def moved(self, index, row):
        q = self.qps[index]
        q.next, q.ring, q.msn = row["next_psn"], row["ring"], row["msn"]

    def started(self, index, row):
        qp, slot = divmod(index, self.config.messages)
        q   = self.qps[qp]
        msn = q.msn
        assert slot == msn % self.config.messages and msn - q.retired < self.config.messages, "a record in use is overwritten"
        token = q.tokens[msn]
        assert {n: row[n] for n in token} == token
        flying = sum(t["signal"] for t in q.tokens[q.retired:msn])
        assert not token["signal"] or not q.max_wimm or flying < q.max_wimm, "too many immediates are in flight"
        self.wimm += q.max_wimm and flying == q.max_wimm - 1

    def watch(self):
        """Checks each packet when it is first offered and when it is taken."""
        yield "passive"
        source, held, ready = self.dut.block.source, None, 0
        fields = [source.qp, source.psn, source.message, source.msn, source.rtx, source.a]
        while True:
            self.now += 1
            if (yield source.valid):
                beat = yield fields
                assert held in (None, beat), "an offered packet changed"
                if held is None:
                    self.check(*beat)
                held = None if ready else beat
            else:
                assert held is None, "an offered packet was withdrawn"
            ready = int(self.rng.random() >= self.stall)
            yield source.ready.eq(ready)
            yield

    def check(self, qp, psn, message, msn, rtx, a):
        q = self.qps[qp]
        assert q.state == QpState.RTS
        if rtx:
            assert self.answers.pop(0) == (qp, psn, message, msn) and a
            self.resent += 1
            return
        assert q.taken < len(q.packets) and (psn, msn) == q.packets[q.taken]
        assert message == msn % self.config.messages
        outstanding = ahead(psn, q.unacked)
        assert 0 <= outstanding < q.limit, f"PSN {psn:#x} with {q.unacked:#x} unacknowledged is outside of the window"
        assert a or outstanding != q.limit - 1, "nobody asks for the acknowledgement that opens the window"
        assert self.now - self.since.get(qp, self.now) <= 5, "a new packet left before a pending resend"
        cwnd = 256*q.cwnd
        assert not cwnd or cwnd > q.flight(), f"{q.flight()} bytes are in flight, the congestion window is {cwnd}"
        q.taken  += 1
        self.new  += 1
        self.full += outstanding == q.limit - 1
        if cwnd:
            rest = cwnd - q.flight()
            assert a or (rest >= q.full and cwnd > q.trigger), f"nobody asks for the acknowledgement; {rest} bytes of the window are left"
            self.congested += rest <= 0
        elif a and q.taken < len(q.packets):
            assert outstanding == q.limit - 1 or psn == q.tokens[msn]["last_psn"]
        if q.taken == len(q.packets):
            q.asked = a

    def setup(self):
        d = self.dut
        for n, q in enumerate(self.qps):
            yield from put(d.tables.queue_pair, n, **q.attributes())
            yield from put(d.written, n, position=0)
            yield from put(d.ack_state, n, unacked=q.start)
            yield from put(d.counts, n)
            yield from put(d.status, n, state=QpState.RTS)
            yield from request(d.block.init, qp=n)
        self.ready = True

    def post(self, qp, length=None):
        """One token, if the ring has room."""
        q, depth, rng, d = self.qps[qp], self.config.ring_depth, self.rng, self.dut
        position = len(q.tokens) % (2*depth)
        if (position - q.ring) % (2*depth) == depth:
            return False
        mtu = 256 << q.mtu
        if length is None:
            length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, 3*mtu, 3*mtu - 1, rng.randrange(8*mtu), rng.randrange(8*mtu),
                rng.randrange(100*mtu)))
        token = dict(context=rng.randrange(self.config.contexts), page=rng.randrange(self.config.pages), signal=rng.getrandbits(1),
            slot=rng.getrandbits(24), length=length)
        q.post(token)
        yield from put(d.ring, qp*depth + position % depth, **token)
        yield from put(d.written, qp, position=(position + 1) % (2*depth))
        yield from pulse(d.scheduler.wakes[1], qp)
        return True

    def acknowledge(self, qp, all_of_it=False):
        q, rng = self.qps[qp], self.rng
        span = ahead(q.next, q.unacked)
        q_unacked = (q.unacked + (span if all_of_it else rng.randrange(span + 1))) % PSN
        retired = q.retired
        while retired < q.msn and ahead(q.tokens[retired]["last_psn"], q_unacked) < 0 and (all_of_it or rng.random() < 0.9):
            retired += 1
        q.unacked, q.retired = q_unacked, retired
        passed, sent = ahead(q.unacked, q.start), ahead(q.next, q.start)
        q.arrived = max(q.arrived, passed, sent if all_of_it else rng.randrange(passed, sent + 1))
        yield from put(self.dut.ack_state, qp, **q.acks())
        yield from pulse(self.dut.scheduler.wakes[2], qp)

    def resend(self):
        """Answers picks; queue pairs get pending resends at random, and are woken for them."""
        yield "passive"
        d, rng = self.dut, self.rng
        pick   = d.block.pick
        while True:
            if not rng.randrange(60) and self.ready and not self.done:
                qp = rng.randrange(self.config.queue_pairs)
                q  = self.qps[qp]
                q.waiting += rng.randrange(1, 4)
                yield from put(d.counts, qp, count=q.waiting)
                self.since.setdefault(qp, self.now + 1)
                yield from pulse(d.scheduler.wakes[2], qp)
            if (yield pick.valid):
                qp, unacked, following, oldest = yield [pick.qp, pick.unacked, pick.next, pick.oldest]
                q = self.qps[qp]
                assert following == q.next and 0 <= ahead(q.unacked, unacked) and 0 <= ahead(following, unacked) <= self.config.mpr
                assert oldest or not q.cwnd or 256*q.cwnd > q.flight() - q.waiting*q.full, "a resend does not heed the congestion window"
                yield from wait(rng.randrange(1, 12))
                found = int(rng.random() < 0.7 and q.state == QpState.RTS)
                psn, msn = unacked if oldest else rng.getrandbits(24), rng.getrandbits(16)
                if found:
                    self.answers.append((qp, psn, msn % self.config.messages, msn))
                if found or not oldest:
                    q.waiting = q.waiting - 1 if found and rng.randrange(3) else 0
                self.held += not found and oldest
                if not q.waiting:
                    self.since.pop(qp, None)
                yield from put(d.counts, qp, count=q.waiting)
                yield [pick.done.eq(1), pick.found.eq(found), pick.psn.eq(psn), pick.msn.eq(msn), pick.message.eq(msn)]
                yield
                yield pick.done.eq(0)
            yield

    def set_window(self, qp):
        """The firmware sets another congestion window; a packet that is on its way may still go by the former one."""
        q = self.qps[qp]
        if q.cwnd:
            q.cwnd += self.rng.randrange(0, 20*q.full//256)
            yield from request(self.dut.block.window, qp=qp, cwnd=q.cwnd, digest=qp)

    def drive(self, steps):
        rng, count = self.rng, self.config.queue_pairs
        yield from self.setup()
        for step in range(steps):
            if not (step + 1) % 150:           # Nobody acknowledges: windows fill.
                for qp in range(count):
                    yield from self.post(qp, length=self.config.mpr*(256 << self.qps[qp].mtu))
                yield from wait(12*count*self.config.mpr)
                for qp in range(count):
                    yield from self.set_window(qp)
            qp = rng.randrange(count)
            if rng.random() < 0.5:
                yield from self.post(qp)
            elif rng.random() < 0.7:
                yield from self.acknowledge(qp)
            else:
                yield from wait(rng.randrange(60))
        self.done = True
        yield from pulse(self.dut.scheduler.wakes[1], rng.randrange(count))
        for n in range(200):                   # Everything leaves once acknowledgements come.
            yield from self.acknowledge(n % count, all_of_it=True)
            for _ in range(200):
                yield
            if all(q.taken == len(q.packets) for q in self.qps):
                break
        yield from wait(100)
        for q in self.qps:
            assert q.taken == len(q.packets), f"{len(q.packets) - q.taken} packets never left"
            assert not q.packets or q.asked, "nobody asks for the acknowledgement of the last packet"
        assert not self.answers

    def run(self, *generators):
        d = self.dut
        mirrors = [Mirror(d.send_state, self.moved).run(), Mirror(d.block.messages, self.started).run()]
        simulate(d, [*generators, self.watch(), self.resend(), self.consumed.run(), self.credit.run(), *mirrors], limit=400000)

    def check_credits(self, errors=0):
        tokens = sum(len(q.tokens) for q in self.qps)
        assert len(self.consumed.beats) == len(self.credit.beats) == tokens
        assert [b["page"] for b in self.consumed.beats] == [b["page"] for b in self.credit.beats]
        assert all(b["consumed"] for b in self.credit.beats)
        for n, q in enumerate(self.qps):
            assert [b["page"] for b in self.credit.beats if b["qp"] == n] == [t["page"] for t in q.tokens]
        assert sum(b["completed"] for b in self.credit.beats) == errors

DUTS = {}

def dut_of(mpr):
    return DUTS.setdefault(mpr, Dut(WINDOWS[mpr]))

@pytest.mark.parametrize("mpr", WINDOWS)
@pytest.mark.parametrize("seed", range(2))
def test_every_token_becomes_its_packets_within_the_window(mpr, seed):
    world = World(dut_of(mpr), WINDOWS[mpr], seed, stall=(0.1, 0.6)[seed])
    world.run(world.drive(480))
    world.check_credits()
    assert world.new > 400 and world.resent > 20 and world.full > 0 and world.congested > 5 and world.wimm > 2

def test_the_longest_message_is_cut_like_any_other():
    world = World(dut_of(128), WINDOWS[128], 5, stall=0)
    def drive():
        q = world.qps[2] = QueuePair(world.rng, world.qps[2].start, 0, world.config, limited=False)
        yield from world.setup()
        world.done = True
        yield from world.post(2, length=2**24 - 1)
        yield from wait(40)
        assert q.tokens[0]["last_psn"] == (q.start + 65535) % PSN
        assert q.taken and q.next != q.start
    world.run(drive())

@pytest.mark.parametrize("seed", range(2))
def test_tokens_of_a_failed_queue_pair_are_flushed_with_its_reason(seed):
    config = WINDOWS[128]
    world  = World(dut_of(128), config, seed, stall=0.3)
    world.done = True                          # No resends here.
    def drive():
        yield from world.setup()
        for qp in range(config.queue_pairs):   # Queue pair 0 never gets ready to send.
            state = QpState.INIT if qp == 0 else QpState.RTS
            world.qps[qp].state = state
            yield from put(world.dut.status, qp, state=state)
        for _ in range(12):
            for qp in range(config.queue_pairs):
                yield from world.post(qp)
            yield from wait(20)
        for qp in (1, 2):
            # The visit that is in progress may still offer its packet.
            yield from put(world.dut.status, qp, state=QpState.ERROR, reason=QpError.RETRY_EXCEEDED)
            yield from wait(80)
            world.qps[qp].state = QpState.ERROR
            yield from pulse(world.dut.scheduler.wakes[2], qp)
        for _ in range(30):
            yield from wait(60)
            yield from world.acknowledge(3, all_of_it=True)
            yield from world.post(0)
            yield from world.post(1)
        for _ in range(200):
            yield from world.acknowledge(3, all_of_it=True)
            yield from wait(100)
        # A new life starts with its own first PSN and an empty ring.
        q = world.qps[1] = QueuePair(world.rng, PSN - 2, 1, config, limited=False)
        begin.append(len(world.credit.beats))
        yield from put(world.dut.tables.queue_pair, 1, **q.attributes())
        yield from put(world.dut.written, 1, position=0)
        yield from put(world.dut.ack_state, 1, unacked=q.start)
        yield from request(world.dut.block.init, qp=1)
        yield from put(world.dut.status, 1, state=QpState.RTS)
        for _ in range(20):
            yield from world.post(1)
            yield from wait(200)
            yield from world.acknowledge(1, all_of_it=True)
            yield from wait(400)
        assert q.taken > 20 and q.taken == len(q.packets)
        del world.credit.beats[begin[0]:], world.consumed.beats[begin[0]:]
        world.qps[1] = former
    former, begin = world.qps[1], []
    world.run(drive())
    failed = [b for b in world.credit.beats if b["completed"]]
    world.check_credits(errors=len(failed))
    for b in world.credit.beats:
        expected = {0: QpError.TOKEN_STATE, 1: QpError.RETRY_EXCEEDED, 2: QpError.RETRY_EXCEEDED}.get(b["qp"], 0)
        assert b["error"] == (expected if b["completed"] else 0)
    assert sum(b["qp"] == 0 for b in failed) == len(world.qps[0].tokens)
    assert sum(b["qp"] == 1 for b in failed) >= 30 and not any(b["qp"] == 3 for b in failed)
