# SPDX-License-Identifier: BSD-2-Clause
"""The control sender against lists and dictionaries: every packet, byte by byte, in the order it must have."""

import random
from collections import deque

import pytest
from migen import *

from gateware.common import tables as t
from gateware.common.headers import Opcode, Syndrome
from gateware.common.layouts import due_fields
from gateware.config import preset
from gateware.transport.responder.control_sender import ControlSender
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.tables import TableBench, counts_of
from tests.models import wire

OWN_IP, OWN_IP6, DSCP, UDP_PORT = 0x0a00002a, 0xfd << 120 | 42, 40, 4791
OWN_MACS = [0x020000000010 + i for i in range(4)]
STEPS    = ("STORE", "TURN", "NACK", "PATH", "HEARD", "PROVED", "INIT")

class Bench(TableBench):
    def __init__(self, config):
        super().__init__(config)
        self.control = ControlSender(config, self.tables)
        self.add_port([self.control.init])
        self.counts  = counts_of(self.control)
        self.steps   = Signal(len(STEPS))          # What its machine does in this cycle.
        self.comb   += self.steps.eq(Cat(*[self.control.fsm.ongoing(name) for name in STEPS]))

BENCHES = {}

def bench(queue_pairs=4, planes=4, engine="verilator"):
    key = queue_pairs, planes, engine
    if key not in BENCHES:
        BENCHES[key] = Bench(preset("tiny", queue_pairs=queue_pairs, planes=planes))
    return BENCHES[key]

# Model --------------------------------------------------------------------------------------------

class Model:
    """What is due, and the packet that must leave at each turn."""
    def __init__(self, qps, peers, config):
        self.qps, self.peers, self.config = qps, peers, config
        self.sack, self.ack = {}, {}               # Queue pair -> snapshot.
        self.turns, self.nacks = deque(), deque()
        self.ways   = {}                           # Peer -> [trust, plane, entropy].
        self.counts = dict.fromkeys(("sent_sack", "sent_ack", "sent_nack", "nacks_dropped", "due_stale", "answers_moved"), 0)

    def take(self, d):
        qp = d["qp"]
        if d["generation"] != self.qps[qp]["generation"]:
            self.counts["due_stale"] += 1
            return
        if d["sack"]:
            self.sack[qp] = d
        if d["ack"] and not (qp in self.ack and self.is_nak(self.ack[qp])):
            self.ack[qp] = d
        if (d["sack"] or d["ack"]) and qp not in self.turns:
            self.turns.append(qp)
        if d["nack"]:
            if len(self.nacks) > self.config.nacks:   # One more stands in the queue's output register.
                self.counts["nacks_dropped"] += 1
            else:
                self.nacks.append(d)

    @staticmethod
    def is_nak(d):
        return d["syndrome"] >> 5 & 3 == Syndrome.NAK_INVALID_REQUEST >> 5

    def init(self, qp):
        self.sack.pop(qp, None)
        self.ack.pop(qp, None)

    def turn(self):
        """(kind, snapshot) that the queue pair whose turn it is must send, or None."""
        qp = self.turns.popleft()
        for kind, rows in (("sack", self.sack), ("ack", self.ack)):
            if qp in rows:
                d = rows.pop(qp)
                if qp in self.ack:
                    self.turns.append(qp)
                return kind, d
        return None

    def nack(self):
        d = self.nacks.popleft()
        if d["generation"] != self.qps[d["qp"]]["generation"]:
            self.counts["due_stale"] += 1
            return None
        return "nack", d

    def learn(self, up, qp, plane, entropy, proved):
        if not up >> plane & 1:
            return
        peer = self.qps[qp]["peer"]
        way  = self.ways.get(peer)
        if proved:
            self.ways[peer] = [15, plane, entropy]
        elif way and way[0] and up >> way[1] & 1:
            way[0] -= 1
        else:
            self.ways[peer] = [0, plane, entropy]

    def way(self, up, d):
        """Plane and entropy value for the answer to `d`."""
        plane, way = d["plane"], self.ways.get(self.qps[d["qp"]]["peer"])
        if up >> plane & 1 or not up:
            return plane, d["entropy"]
        self.counts["answers_moved"] += 1
        if way and up >> way[1] & 1:
            return way[1], way[2]
        planes = self.config.planes
        return next(p for p in ((plane + k) % planes for k in range(1, planes)) if up >> p & 1), d["entropy"]

    def packet(self, kind, d, up):
        plane, entropy = self.way(up, d)
        self.counts[f"sent_{kind}"] += 1
        a, remote = self.qps[d["qp"]], self.qps[d["qp"]]["remote_qp"] & 0xffff
        peer = self.peers[a["peer"]]
        ids  = dict(spdcid=d["qp"], dpdcid=remote)
        if kind == "sack":
            offset = d["psn"] & 0xffff if d["probe"] else (d["psn"] - d["cack"]) & 0xffff
            p    = dict(opcode=Opcode.SACK, psn=d["cack"], rtx=d["rtx"])
            body = dict(m=d["ce"], pr=d["probe"], ack_psn_offset=offset, entropy=d["entropy"], cack_psn=d["cack"],
                sack_offset=(d["base"] - d["cack"]) & 0xffff, bitmap=d["bitmap"], tx_timestamp=d["timestamp"], ooo_count=d["ooo"],
                rcvd_bytes=d["rcvd"], **ids)
        elif kind == "ack":
            p    = dict(opcode=Opcode.ACKNOWLEDGE, psn=d["cack"], rtx=0)
            body = dict(syndrome=d["syndrome"], msn=d["msn"])
        else:
            p    = dict(opcode=Opcode.NACK, psn=d["psn"], rtx=0)
            body = dict(reason=d["reason"], entropy=d["entropy"], nack_psn=d["psn"], cc_type=2, tx_timestamp=d["timestamp"], **ids)
        body = wire.control_body(p["opcode"], **body)
        return {**p, "dscp": DSCP, "plane": plane, "entropy": entropy, "destination_mac": peer[f"mac{plane}"],
            "source_mac": OWN_MACS[plane], "ipv6": peer["ipv6"],
            "source_ip": OWN_IP6 if peer["ipv6"] else OWN_IP, "destination_ip": peer["ip"], "udp_port": UDP_PORT,
            "p_key": a["p_key"], "dest_qp": a["remote_qp"], "a": 0, "ts": 0, "length": 0,
            "body": int.from_bytes(body, "little"), "body_length": len(body), "first": 0, "last": 0}

# Runs ---------------------------------------------------------------------------------------------

class Run:
    """A simulation beside the model, which is told what the machine does and says what must leave."""
    def __init__(self, dut, seed, stall=0.3):
        r = self.random = random.Random(seed)
        self.dut, self.seed = dut, seed
        config = dut.config
        self.qps   = [dict(peer=n % config.peers, remote_qp=r.getrandbits(24), p_key=r.getrandbits(16), generation=r.getrandbits(8))
                      for n in range(config.queue_pairs)]
        self.peers = [dict(ip=r.getrandbits(128 if n & 1 else 32), ipv6=n & 1, **{f"mac{i}": r.getrandbits(48) for i in range(4)})
            for n in range(config.peers)]
        self.model = Model(self.qps, self.peers, config)
        self.sink  = StreamSink(dut.control.source, seed + 1, stall)
        self.up    = 2**config.planes - 1
        self.wanted, self.waits, self.counts = [], [], {}

    def due(self, qp, **values):
        """A snapshot with random values in every field."""
        d = {name: self.random.getrandbits(width) for name, width in due_fields()}
        d["plane"] %= self.dut.config.planes
        return d | {"qp": qp, "generation": self.qps[qp]["generation"], "syndrome": Syndrome.ACK} | values

    def set_up(self):
        c = self.dut.control
        yield [c.own_ip6.eq(OWN_IP6), c.dscp.eq(DSCP)]
        yield [c.own_ip.eq(OWN_IP), c.udp_port.eq(UDP_PORT), c.planes_up.eq(self.up),
               *[s.eq(v) for s, v in zip(c.own_macs, OWN_MACS, strict=True)]]
        for table, rows in ((t.QUEUE_PAIR, self.qps), (t.PEER, self.peers)):
            for n, row in enumerate(rows):
                yield from self.dut.write(table, n, **row)

    def give(self, dues, idle=0.5):
        yield from StreamSource(self.dut.control.due, dues, self.random.getrandbits(30), idle).run()

    def planes(self, up):
        self.up = up
        yield self.dut.control.planes_up.eq(up)

    def prove(self, qp, plane, entropy):
        p = self.dut.control.proved
        yield [p.valid.eq(1), p.qp.eq(qp), p.plane.eq(plane), p.entropy.eq(entropy)]
        yield
        yield p.valid.eq(0)

    def watch(self):
        """Follows the machine cycle by cycle."""
        yield "passive"
        c, m = self.dut.control, self.model
        fields = [name for name, _ in due_fields()]
        taken, way, proved, waited = None, None, None, 0
        while True:
            steps = (yield self.dut.steps)
            doing = {name for n, name in enumerate(STEPS) if steps >> n & 1}
            up    = (yield c.planes_up)
            if (yield c.proved.valid) and proved is None:
                proved = ((yield c.proved.qp), (yield c.proved.plane), (yield c.proved.entropy))
            if "STORE" in doing:
                m.take(taken)
            if "HEARD" in doing:
                m.learn(up, taken["qp"], taken["plane"], taken["entropy"], False)
            if "PROVED" in doing:
                m.learn(up, *proved, True)
                proved = None
            if "INIT" in doing:
                m.init((yield c.init.qp))
            if "TURN" in doing:
                way = m.turn()
            if "NACK" in doing:
                way = m.nack()
            if "PATH" in doing:
                self.wanted.append(m.packet(*way, up))
            if (yield c.due.valid):
                waited += 1
                if (yield c.due.ready):
                    taken = dict(zip(fields, (yield [getattr(c.due, f) for f in fields]), strict=True))
                    self.waits.append(waited)
                    waited = 0
            yield

    def quiet(self, cycles=200):
        still = 0
        while still < cycles:
            still = 0 if (yield self.dut.control.source.valid) else still + 1
            yield

    def check(self, script, engine="verilator", limit=60000):
        def main():
            yield from self.set_up()
            yield from script
            yield from self.quiet()
            for name, signal in self.dut.counts.items():
                self.counts[name] = (yield signal)
        simulate(self.dut, [main(), self.sink.run(), self.watch()], engine=engine, limit=limit, seed=self.seed)
        for n, (a, b) in enumerate(zip(self.sink.beats, self.wanted, strict=False)):
            assert a == b, f"packet {n} differs in {[k for k in b if a[k] != b[k]]} (seed {self.seed})"
        assert len(self.sink.beats) == len(self.wanted)
        assert self.counts == self.model.counts
        assert not (self.model.sack or self.model.ack or self.model.turns or self.model.nacks), "something due never left"
        assert max(self.waits, default=0) <= 8
        return self.sink.beats

    def mixed(self, count, idle):
        """Random dues: NAKs, stale generations, planes that go down and up, ways that are proved, new lives."""
        r, config = self.random, self.dut.config
        for _ in range(count//10):
            dues = []
            for _ in range(10):
                d = self.due(r.randrange(config.queue_pairs), nack=int(r.random() < 0.2), ack=int(r.random() < 0.5))
                if r.random() < 0.1:
                    d["syndrome"] = r.choice([Syndrome.NAK_INVALID_REQUEST, Syndrome.NAK_REMOTE_ACCESS])
                if r.random() < 0.05:
                    d["generation"] ^= 1 << r.randrange(8)
                dues.append(d)
            yield from self.give(dues, idle)
            dice = r.random()
            if dice < 0.4:
                yield from self.planes(r.getrandbits(config.planes))
            elif dice < 0.7:
                yield from self.prove(r.randrange(config.queue_pairs), r.randrange(config.planes), r.getrandbits(16))
            elif dice < 0.8:
                qp = r.randrange(config.queue_pairs)
                yield from self.dut.write(t.QUEUE_PAIR, qp, **self.qps[qp])

# Tests --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed, stall, idle", [(1, 0.3, 0.5), (2, 0, 0.97), (3, 0.95, 0.2), (4, 0.9, 0.9)])
def test_every_packet_is_the_models(seed, stall, idle):
    run = Run(bench(), seed, stall)
    run.check(run.mixed(400, idle))
    assert all(run.counts[name] for name in ("sent_sack", "sent_ack", "sent_nack", "due_stale", "answers_moved")), run.counts

def test_both_engines_agree():
    beats = []
    for engine in ("migen", "verilator"):
        run = Run(bench(engine=engine), 9, 0.5)
        beats.append(run.check(run.mixed(60, 0.3), engine))
    assert beats[0] == beats[1]

def test_256_queue_pairs_each_get_their_turn():
    run = Run(bench(queue_pairs=256, planes=2), 5, 1)
    def script():
        for _ in range(2):
            yield from run.give([run.due(qp, sack=1, ack=1, nack=0) for qp in range(256)], 0)
        run.sink.stall = 0
    beats = run.check(script())
    # One packet may have been under way when the transmitter stopped. All SACKs, then all ACKs: nobody is passed over.
    assert len(beats) in (512, 513)
    assert [b["opcode"] for b in beats[-256:]] == [Opcode.ACKNOWLEDGE]*256
    assert len({b["dest_qp"] for b in beats[-256:]}) == len({b["dest_qp"] for b in beats[:-256]}) == 256

def test_due_is_taken_while_the_transmitter_stands():
    run = Run(bench(), 6, 1)
    def script():
        yield from run.give([run.due(n % 4, sack=1, ack=1, nack=1) for n in range(100)], 0)
        run.sink.stall = 0
    beats = run.check(script())
    assert len(run.waits) == 100 and sum(run.waits) <= 4*100
    assert run.counts["nacks_dropped"] > 80 and run.counts["sent_nack"] <= bench().config.nacks + 2
    assert len(beats) <= 1 + 8 + bench().config.nacks + 2   # Coalesced: the newest SACK and ACK of each.

def test_a_nak_leaves_although_newer_acks_come():
    run = Run(bench(), 7, 1)
    nak = run.due(1, sack=0, ack=1, nack=0, syndrome=Syndrome.NAK_REMOTE_ACCESS)
    def script():
        yield from run.give([run.due(0, sack=1, ack=0, nack=0)], 0)      # It stands in front of the transmitter.
        yield from run.give([run.due(1, sack=0, ack=1, nack=0), nak], 0)
        yield from run.give([run.due(1, sack=0, ack=1, nack=0) for _ in range(5)], 0)
        yield from run.give([run.due(1, sack=0, ack=1, nack=0, syndrome=Syndrome.NAK_INVALID_REQUEST)], 0)
        run.sink.stall = 0
        yield from run.quiet()
        yield from run.give([run.due(1, sack=0, ack=1, nack=0)], 0)      # It has left: an ACK may follow.
    beats = [b for b in run.check(script()) if b["opcode"] == Opcode.ACKNOWLEDGE]
    assert [b["body"] & 0xff for b in beats] == [Syndrome.NAK_REMOTE_ACCESS, Syndrome.ACK]
    assert beats[0]["psn"] == nak["cack"]

def test_several_nacks_of_one_queue_pair_all_leave_in_order():
    run  = Run(bench(), 8, 1)
    dues = [run.due(2, sack=0, ack=0, nack=1) for _ in range(bench().config.nacks)]
    def script():
        yield from run.give(dues, 0)
        run.sink.stall = 0
    beats = run.check(script())
    assert [b["psn"] for b in beats] == [d["psn"] for d in dues] and run.counts["nacks_dropped"] == 0

def test_a_new_life_is_owed_nothing():
    """What waited when the queue pair's row was written again, and what comes later of its former life."""
    run = Run(bench(), 10, 1)
    def script():
        yield from run.give([run.due(0, sack=1, ack=0, nack=0)], 0)
        old = [run.due(3, sack=1, ack=1, nack=1) for _ in range(3)]
        yield from run.give(old, 0)
        for _ in range(10):
            yield
        run.qps[3]["generation"] ^= 0x21
        yield from run.dut.write(t.QUEUE_PAIR, 3, **run.qps[3])
        yield from run.give(old[:1], 0)
        run.sink.stall = 0
        yield from run.quiet()
        assert len(run.sink.beats) == 1
        yield from run.give([run.due(3, sack=1, ack=1, nack=1)], 0)
    beats = run.check(script())
    assert len(beats) == 4 and run.counts["due_stale"] == 4

def test_answers_leave_a_plane_that_is_down():
    run = Run(bench(), 11)
    def script():
        one = lambda plane, entropy: [run.due(0, sack=1, ack=0, nack=0, plane=plane, entropy=entropy)]
        yield from run.planes(0b1101)
        for dues in (one(1, 0x1111), one(3, 0x3333), one(1, 0x1112)):
            yield from run.give(dues)
            yield from run.quiet(20)
        yield from run.prove(0, 0, 0xaaaa)
        yield from run.give(one(1, 0x1113))
        yield from run.quiet(20)
        yield from run.planes(0b0100)                # The proved way is down, too.
        yield from run.give(one(1, 0x1114))
        yield from run.quiet(20)
        yield from run.planes(0)                     # No way is left: it goes where it belongs.
        yield from run.give(one(1, 0x1115))
    beats = run.check(script())
    assert [(b["plane"], b["entropy"]) for b in beats] == [(2, 0x1111), (3, 0x3333), (3, 0x3333), (0, 0xaaaa), (2, 0x1114), (1, 0x1115)]
