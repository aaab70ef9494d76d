# SPDX-License-Identifier: BSD-2-Clause
"""The control sender: due is always taken, the newest snapshot leaves, and every byte is the model's."""

import random

import pytest

from gateware.common import tables as t
from gateware.common.headers import Dscp, Opcode
from gateware.common.layouts import due_fields
from gateware.config import preset
from gateware.transport.responder.control_sender import ControlSender
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.tables import TableBench, counts_of
from tests.models import wire

EV_COUNTS = (8, 3)                               # Entropy values in use, per peer.
OWN_IP, UDP_PORT, TIME = 0x0a00002a, 4791, 0x1234abcd
OWN_MACS = [0x020000000010 + i for i in range(4)]

class Bench(TableBench):
    def __init__(self):
        super().__init__(preset("tiny"))
        self.control = ControlSender(self.config, self.tables)
        self.add_port()
        self.counts = counts_of(self.control)

DUT = Bench()

class Setup:
    """Random rows of queue pairs, peers and entropy values, and what a packet of them must look like."""
    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.qps   = [dict(peer=n % 2, remote_qp=r.getrandbits(24), p_key=r.getrandbits(16)) for n in range(4)]
        self.peers = [dict(ip=r.getrandbits(32), ev_count=n, **{f"mac{i}": r.getrandbits(48) for i in range(4)}) for n in EV_COUNTS]
        self.evs   = [dict(entropy=r.getrandbits(16), plane=r.getrandbits(2)) for _ in range(16)]

    def write(self, dut):
        c = dut.control
        yield [c.own_ip.eq(OWN_IP), c.udp_port.eq(UDP_PORT), c.time.eq(TIME), *[s.eq(v) for s, v in zip(c.own_macs, OWN_MACS, strict=True)]]
        for table, rows in ((t.QUEUE_PAIR, self.qps), (t.PEER, self.peers), (t.EV, self.evs)):
            for n, row in enumerate(rows):
                yield from dut.write(table, n, **row)

    def due(self, qp, **values):
        """A snapshot with random values in every field."""
        return {name: self.random.getrandbits(width) for name, width in due_fields()} | {"qp": qp} | values

    def packet(self, kind, qp, d, ev=None):
        """What leaves for snapshot `d` (kind "sack", "ack", "nack"), or for a probe on entropy value `ev`."""
        a, remote = self.qps[qp], self.qps[qp]["remote_qp"] & 0xffff
        peer  = self.peers[a["peer"]]
        ids   = dict(spdcid=qp, dpdcid=remote)
        p = {"psn": 0, "rtx": 0, "dscp": Dscp.CONTROL}
        if kind == "sack":
            offset = d["psn"] & 0xffff if d["probe"] else (d["psn"] - d["cack"]) & 0xffff
            p.update(opcode=Opcode.SACK, psn=d["cack"], rtx=d["rtx"])
            body = dict(m=d["ce"], pr=d["probe"], ack_psn_offset=offset, entropy=d["entropy"], cack_psn=d["cack"],
                sack_offset=(d["base"] - d["cack"]) & 0xffff, bitmap=d["bitmap"], tx_timestamp=d["timestamp"], ooo_count=d["ooo"],
                rcvd_bytes=d["rcvd"], **ids)
        elif kind == "ack":
            p.update(opcode=Opcode.ACKNOWLEDGE, psn=d["cack"])
            body = dict(syndrome=d["syndrome"], msn=d["msn"])
        elif kind == "nack":
            p.update(opcode=Opcode.NACK, psn=d["psn"])
            body = dict(reason=d["reason"], entropy=d["entropy"], nack_psn=d["psn"], cc_type=2, tx_timestamp=d["timestamp"], **ids)
        else:
            d = self.evs[8*a["peer"] + ev]
            p.update(opcode=Opcode.PROBE, dscp=Dscp.DATA)
            body = dict(probe_id=TIME & 0xffff, tx_timestamp=TIME & 0xffff, ftype=1, **ids)
        body = wire.control_body(p["opcode"], **body)
        return {**p, "plane": d["plane"], "entropy": d["entropy"], "destination_mac": peer[f"mac{d['plane']}"],
            "source_mac": OWN_MACS[d["plane"]], "source_ip": OWN_IP, "destination_ip": peer["ip"], "udp_port": UDP_PORT,
            "p_key": a["p_key"], "dest_qp": a["remote_qp"], "a": 0, "ts": 0, "length": 0,
            "body": int.from_bytes(body, "little"), "body_length": len(body), "first": 0, "last": 0}

KINDS = {Opcode.SACK: "sack", Opcode.ACKNOWLEDGE: "ack", Opcode.NACK: "nack", Opcode.PROBE: "probe"}

def rest(count):
    for _ in range(count):
        yield

@pytest.mark.parametrize("seed, stall, idle", [(1, 0.3, 0.5), (2, 0, 0.97), (3, 0.95, 0.2)])
def test_newest_snapshot_leaves_and_every_byte_is_right(seed, stall, idle):
    setup = Setup(seed)
    r     = setup.random
    dues  = [setup.due(r.randrange(4)) for _ in range(250)]
    due, sink = StreamSource(DUT.control.due, dues, seed, idle), StreamSink(DUT.control.source, seed + 1, stall)
    taken = []                                   # Snapshots given when each packet left.
    counts = {}
    def main():
        yield from setup.write(DUT)
        yield from due.run()
        yield from rest(800)
        for name, signal in DUT.counts.items():
            counts[name] = (yield signal)
    def watch():
        yield "passive"
        while True:
            taken.extend([due.sent]*(len(sink.beats) - len(taken)))
            yield
    simulate(DUT, [main(), sink.run(), watch()], limit=60000, seed=seed)
    last, sent = {}, dict.fromkeys(KINDS.values(), 0)
    for beat, given in zip(sink.beats, taken, strict=False):
        kind = KINDS[beat["opcode"]]
        qp   = next(n for n, a in enumerate(setup.qps) if a["remote_qp"] == beat["dest_qp"])
        mine = [n for n, d in enumerate(dues[:given + 1]) if d["qp"] == qp and d[kind] and setup.packet(kind, qp, d) == beat]
        assert mine, f"a {kind} of queue pair {qp} is none of the snapshots (seed {seed})"
        assert mine[-1] >= last.get((kind, qp), -1), "an older snapshot left after a newer one"
        last[kind, qp] = mine[-1]
        sent[kind] += 1
    for kind in ("sack", "ack", "nack"):
        for qp in range(4):
            assert last[kind, qp] == max(n for n, d in enumerate(dues) if d["qp"] == qp and d[kind]), "the newest snapshot never left"
        assert counts[f"sent_{kind}"] == sent[kind]
    if stall > 0.9:
        assert len(sink.beats) < len(dues)       # Coalesced.

def test_due_is_taken_while_the_transmitter_stands():
    setup = Setup(5)
    dues  = [setup.due(n % 4, sack=1, ack=1, nack=1) for n in range(100)]
    due, sink, cycles = StreamSource(DUT.control.due, dues, idle=0), StreamSink(DUT.control.source, stall=1), [0]
    def count():
        yield "passive"
        while True:
            cycles[0] += 1
            yield
    def main():
        yield from setup.write(DUT)
        before = cycles[0]
        yield from due.run()
        assert cycles[0] - before <= 6*len(dues)
        yield from rest(20)
        sink.stall = 0
        yield from rest(300)
    simulate(DUT, [main(), count(), sink.run()])
    # One packet was under way when the transmitter stopped; then the newest of every kind and queue pair, once each.
    assert len(sink.beats) == 13
    newest = [setup.packet(kind, qp, dues[96 + qp]) for kind in ("sack", "ack", "nack") for qp in range(4)]
    assert len(newest) == 12 and all(p in sink.beats[1:] for p in newest)

def test_probes_rotate_over_the_entropy_values_in_use():
    setup = Setup(6)
    order = [0, 0, 2, 0, 2, 0, 0, 1, 3, 1, 1, 1, 0, 2, 0, 3, 0, 0, 0, 0, 1, 1]
    sink  = StreamSink(DUT.control.source, stall=0.3)
    def main():
        yield from setup.write(DUT)
        for qp in order:
            count = len(sink.beats)
            yield from StreamSource(DUT.control.probe, [{"qp": qp}], idle=0).run()
            while len(sink.beats) == count:
                yield
    simulate(DUT, [main(), sink.run()])
    used = {0: [], 1: []}
    for qp, beat in zip(order, sink.beats, strict=True):
        peer  = qp % 2
        match = [ev for ev in range(EV_COUNTS[peer]) if setup.packet("probe", qp, None, ev) == beat]
        assert match, f"a probe to peer {peer} used an entropy value that is not in use"
        used[peer].append(match[0])
    assert set(used[0]) == set(range(8)) and set(used[1]) == set(range(3))
    for peer, values in used.items():
        assert values == [n % EV_COUNTS[peer] for n in range(len(values))]
