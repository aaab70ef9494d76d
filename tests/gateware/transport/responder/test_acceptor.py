# SPDX-License-Identifier: BSD-2-Clause
"""The acceptor against sets and dictionaries: jobs in order, snapshots, events and counters, packet by packet."""

import random

import pytest
from litex.soc.interconnect import stream
from migen import *

from gateware.common import tables as t
from gateware.common.headers import Opcode
from gateware.common.layouts import WriteKind, received_layout
from gateware.config import preset
from gateware.transport.responder import acceptor
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.paged import pieces
from tests.gateware.transport.responder.model import MASK24, Life, Responder, Traffic, beat_of, unpack_due
from tests.gateware.transport.tables import TableBench, counts_of, poked_tables

class Bench(TableBench):
    def __init__(self, config):
        super().__init__(config)
        with poked_tables(acceptor):
            self.acceptor = dut = acceptor.Acceptor(config, self.tables, self.status)
        self.sink = stream.Endpoint(received_layout(config).payload_layout + [("plane", 1)])
        self.comb += [self.sink.connect(dut.sink, omit={"plane"}), dut.plane.eq(self.sink.plane)]
        self.add_port([dut.init], signal_init=dut.init_signal)
        self.counts = counts_of(dut)

BENCHES = {}

def bench(mpr, engine="verilator"):
    if (mpr, engine) not in BENCHES:          # One each: an engine changes the memories of a module.
        BENCHES[mpr, engine] = Bench(preset("tiny", mpr=mpr, max_wimm=max(8, mpr//16), regions=16))
    return BENCHES[mpr, engine]

class Run:
    """One simulation: set-up and packets as the test says, the model beside it."""
    def __init__(self, dut, seed, stall=0.2, idle=0.2, settle=None):
        self.dut, self.seed, self.idle = dut, seed, idle
        self.settle  = 60 + 3*dut.config.mpr//2 if settle is None else settle      # Cycles without a job after which none comes.
        self.random  = random.Random(seed)
        self.model   = Responder(dut.config)
        self.traffic = Traffic(self.model, self.random)
        self.jobs    = StreamSink(dut.acceptor.jobs, seed + 1, stall)
        self.events  = StreamSink(dut.acceptor.event, seed + 2, stall)
        self.credits = StreamSink(dut.acceptor.credit, seed + 3, stall)
        self.wanted, self.wanted_events, self.seen_counts = [], [], {}

    def regions(self):
        """Contiguous ones and such of pages, two that grant nothing, and three whose rows are wrong in parts."""
        r, model = self.random, self.model
        rows = [
            dict(usable=1, rights=2, base=r.getrandbits(40), length=1 << 20, bus=r.getrandbits(48)),
            dict(usable=1, base=2**64 - 4096, length=4096, bus=r.getrandbits(50)),
            dict(rights=5, length=1 << 30),
            dict(valid=0, length=1 << 30),
            dict(usable=1, base=r.getrandbits(50) << 12 | 0x234, length=3*4096 - 0x234, page_shift=12, first_page=1),
            dict(usable=1, base=r.getrandbits(40), length=1 << 17, page_shift=16, first_page=4),
            dict(usable=1, base=2**64 - 5000, length=5000, page_shift=21, first_page=7),
            dict(what="past_table", base=0x234, length=8*4096, page_shift=12, first_page=self.dut.config.translations - 7),
            dict(what="empty_region", base=r.getrandbits(40), length=0, bus=r.getrandbits(40)),
            dict(what="wrapping_region", base=2**64 - 1024, length=4096, bus=r.getrandbits(40)),
        ]
        model.table   = [r.getrandbits(64) >> 12 << 12 for _ in range(self.dut.config.translations)]
        model.regions = {n: dict(valid=1, variant=r.getrandbits(8), rights=7, base=0, bus=0, page_shift=0, first_page=0, usable=0) | row
            for n, row in enumerate(rows)}
        for n, row in model.regions.items():
            yield from self.dut.write(t.REGION, n, **{k: v for k, v in row.items() if k not in ("usable", "what")})
        for n, bus in enumerate(model.table):
            yield from self.dut.write(t.TRANSLATION, n, bus=bus)

    def signals(self, **rows):
        for n, row in {int(n[1:]): row for n, row in rows.items()}.items():
            row = dict(valid=1, any_qp=1, qp=0, mode=t.SignalMode.SET, address=8*self.random.getrandbits(50)) | row
            self.model.signals[n] = row
            if row["mode"] == t.SignalMode.SET:
                self.model.counts[n] = 0
            yield from self.dut.write(t.SIGNAL, n, **row)

    def life(self, qp, state=t.QpState.RTS, msn=0, rqmsn=0, **attributes):
        r = self.random
        row = dict(generation=r.getrandbits(8), mtu=r.randrange(3), p_key=r.getrandbits(16), receive_psn=r.getrandbits(24),
            sack_trigger=r.choice([0, 4096, 16384]), mpr=r.choice([0, 0, 1, 2, 255]), page=r.randrange(4)) | attributes
        yield from self.dut.set_state(qp, state)
        yield from self.dut.write(t.QUEUE_PAIR, qp, **row)
        self.model.lives[qp] = q = Life(row, state, msn, rqmsn)
        if msn or rqmsn:
            yield from self.dut.acceptor.state.set(qp, expected=q.expected, sweep=q.sweep, highest=q.highest, msn=msn, rqmsn=rqmsn)

    def send(self, *packets):
        """Give the packets to the card and to the model."""
        beats = []
        for p in packets:
            jobs, events = self.model.take(p)
            self.wanted        += jobs
            self.wanted_events += events
            beats.append(beat_of(p, self.random))
        yield from StreamSource(self.dut.sink, beats, self.random.getrandbits(30), self.idle).run()
        yield from self.quiet()

    def quiet(self):
        still = 0
        while still < self.settle:
            still = 0 if (yield self.dut.acceptor.jobs.valid) else still + 1
            yield

    def check(self, script, engine="verilator"):
        def main():
            yield from script
            yield from self.quiet()
            for name in self.model.counters:
                self.seen_counts[name] = (yield self.dut.counts[name])
        simulate(self.dut, [main(), self.jobs.run(), self.events.run(), self.credits.run()], engine=engine, limit=400000, seed=self.seed)
        names = {WriteKind.PAYLOAD: ("kind", "plane", "offset"), WriteKind.DISCARD: ("kind", "plane"),
            WriteKind.WORD: ("kind", "address", "word"), WriteKind.NOTIFY: ("kind",)}
        seen = []
        for n, beat in enumerate(self.jobs.beats):
            job = {k: beat[k] for k in names[beat["kind"]]}
            if beat["kind"] == WriteKind.PAYLOAD:
                job["pieces"] = pieces(beat["address"], beat["beyond"], beat["length"])
            if beat["kind"] == WriteKind.NOTIFY:
                wanted = self.wanted[n].get("due", {}) if n < len(self.wanted) else {}
                job["due"] = {k: v for k, v in unpack_due(beat["due"]).items() if k in wanted}
            seen.append(job)
        for n, (a, b) in enumerate(zip(seen, self.wanted, strict=False)):
            assert a == b, f"job {n} is {a}, but the model says {b} (seed {self.seed})"
        assert len(seen) == len(self.wanted)
        assert [{k: b[k] for k in ("qp", "reason", "base", "entropy")} for b in self.events.beats] == self.wanted_events
        assert [{k: b[k] for k in ("page", "consumed", "completed", "qp", "error")} for b in self.credits.beats] == self.model.credits
        assert self.seen_counts == self.model.counters
        return self.jobs.beats

def mixed(run, packets, lives=2):
    """Random traffic over several lives of all queue pairs, PSNs, MSNs and RQMSNs near their wraps."""
    yield from run.regions()
    yield from run.signals(s0={}, s1={"mode": t.SignalMode.ADD}, s2=dict(any_qp=0, qp=0), s3=dict(any_qp=0, qp=1),
        s4=dict(any_qp=0, qp=2), s5=dict(any_qp=0, qp=3), s6=dict(valid=0), s7={})
    for life in range(lives):
        for qp in range(4):
            yield from run.life(qp, t.QpState.RTR if qp == 2 else t.QpState.RTS, receive_psn=(1 << 24) - run.random.randrange(1, 90),
                msn=0xffff - run.random.randrange(20), rqmsn=0xffff - run.random.randrange(10), mpr=[0, 255, 1, 2][qp])
            run.traffic.plan(qp, 200)
        yield from run.life(3, [t.QpState.INIT, t.QpState.ERROR][life % 2])
        run.traffic.plan(3, 20)
        for _ in range(packets//20):          # The model must be ahead of the traffic it helps to make.
            batch = []
            for _ in range(20):
                p = run.traffic.next()
                batch.append(p)
                jobs, events = run.model.take(p)
                run.wanted        += jobs
                run.wanted_events += events
            yield from StreamSource(run.dut.sink, [beat_of(p, run.random) for p in batch], run.random.getrandbits(30), run.idle).run()
        yield from run.quiet()
        yield from run.signals(s0={}, s1={"mode": t.SignalMode.ADD})

@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mpr", [128, 256])
def test_jobs_snapshots_and_counters_are_the_models(mpr, seed):
    run = Run(bench(mpr), seed, stall=[0.2, 0, 0.7][seed - 1])
    jobs = run.check(mixed(run, 600))
    assert all(run.model.counters.values()), run.model.counters
    dues = [unpack_due(j["due"]) for j in jobs if j["kind"] == WriteKind.NOTIFY]
    assert any(d["sack"] and d["base"] != (d["cack"] + 1) & MASK24 for d in dues)

@pytest.mark.parametrize("mpr", [128, 256])
def test_one_filled_hole_completes_the_whole_window(mpr):
    run = Run(bench(mpr), 11)
    def script():
        yield from run.regions()
        yield from run.signals(s5={})
        yield from run.life(1, receive_psn=(1 << 24) - 50, mtu=0)
        r, q = run.random, run.model.lives[1]
        packets = []
        for i in range(mpr):
            imm = i % 16 == 15
            packets.append(run.traffic.dress(run.traffic.packet(1, Opcode.WRITE_ONLY_IMM if imm else Opcode.WRITE_ONLY,
                (q.expected + i) & MASK24, r.randrange(256), msn=i, rqmsn=i//16, immediate=5)))
        late = packets[1:]
        r.shuffle(late)
        yield from run.send(*late)
        assert q.msn == 0
        yield from run.send(packets[0])
        assert q.msn == mpr
        yield from run.send(*packets)                  # All of them again: nothing is written twice.
    jobs  = run.check(script())
    words = [j["word"] for j in jobs if j["kind"] == WriteKind.WORD]
    assert words == [mpr//16]                          # One flag for all of them.

def test_flag_is_never_raised_without_the_right():
    """A revoked signal, and one that another life left in the stash, reached by an RQMSN that lies."""
    run = Run(bench(128), 12)
    def script():
        def imm(i, rqmsn, number):
            return run.traffic.dress(run.traffic.packet(1, Opcode.WRITE_ONLY_IMM, (first + i) & MASK24, 8, msn=i, rqmsn=rqmsn,
                immediate=number))
        yield from run.regions()
        yield from run.signals(s3={}, s4={})
        yield from run.life(1)
        first = run.model.lives[1].expected
        yield from run.send(imm(1, 1, 3))
        yield from run.signals(s3=dict(valid=0))
        yield from run.send(imm(0, 0, 4))              # Completes both: a flag for signal 4 only.
        yield from run.signals(s3=dict(any_qp=0, qp=0))
        yield from run.life(1)                         # A new life: the stash still knows signal 3 as RQMSN 1.
        first = run.model.lives[1].expected
        yield from run.send(imm(0, 0, 4), imm(1, 5, 4))
    words = [j["address"] for j in run.check(script()) if j["kind"] == WriteKind.WORD]
    assert words == [run.model.signals[4]["address"]]*2

def test_both_engines_agree():
    results = []
    for engine in ("migen", "verilator"):
        run = Run(bench(128, engine), 7)
        results.append(run.check(mixed(run, 60, lives=1), engine))
    assert results[0] == results[1]
