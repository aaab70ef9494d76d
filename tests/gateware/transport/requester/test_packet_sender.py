# SPDX-License-Identifier: BSD-2-Clause
"""Packet sender: the right header for every packet, its payload in step, and nothing that is no longer wanted.

The tests play payload store, packet builder and the paths. The builder takes a header only when its payload
has begun to come, as the real one does.
"""

import random

import pytest
from migen import Record

from firmware.contract import EventKind
from gateware.common.headers import IMMDT, METH, PACKET_TYPES, RETH, TSETH, UDP_PORT, Opcode
from gateware.common.tables import QpState
from gateware.transport.queue_pair import CHUNK, chunks
from gateware.transport.requester.packet_sender import PacketSender
from gateware.transport.requester.paths import Change
from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes
from tests.engines import simulate
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, Mirror, ahead, put, wait

CONFIGS = {64: WINDOWS[128], 128: WINDOWS[128].but(network_width=128, planes=4, host_width=128)}
SIZES   = {t.opcode: t.body + TSETH.length for t in PACKET_TYPES.values() if t.data}
HEADER  = ("plane", "destination_mac", "source_mac", "ipv6", "source_ip", "destination_ip", "dscp", "entropy", "udp_port", "opcode",
           "p_key", "dest_qp", "a", "rtx", "ts", "psn", "length", "body", "body_length")
IP, IP6, DSCP = 0x0a000001, 0xfd << 120 | 1, 33
MACS = [0x020000000000 + i for i in range(4)]

class Dut(Bench):
    """The packet sender and its tables."""
    def __init__(self, config):
        super().__init__(config)
        self.chosen = Record([("ev", config.ev_bits), ("plane", 2), ("entropy", 16)])
        self.block  = PacketSender(config, self.tables, self.ack_state, self.status, self.scoreboard, self.chosen)

DUTS = {}

def config_rows(config):
    return config.queue_pairs*config.mpr

def dut_of(mpr):
    return DUTS.setdefault(mpr, Dut(CONFIGS[mpr]))

class World:
    def __init__(self, dut, config, seed):
        self.dut, self.config, self.rng = dut, config, random.Random(seed)
        rng = self.rng
        self.unacked = [rng.choice((PSN - 20, rng.getrandbits(24))) for _ in range(config.queue_pairs)]
        self.acked   = [{(u + rng.randrange(config.mpr)) % PSN for _ in range(config.mpr//3)} for u in self.unacked]
        self.life    = [QpState.RTS]*(config.queue_pairs - 1) + [QpState.ERROR]
        self.qps     = [dict(state=QpState.RTS, peer=n % config.peers, p_key=rng.getrandbits(16), remote_qp=rng.getrandbits(24))
                        for n in range(config.queue_pairs)]
        self.peers   = [dict(ip=rng.getrandbits(128 if n else 32), ipv6=int(n > 0), **{f"mac{i}": rng.getrandbits(48) for i in range(4)})
                        for n in range(config.peers)]
        self.paths   = []                      # What `Paths` was asked, and its answers: ("lost", change) and ("path", request, answer).
        self.jobs, self.time = [], rng.choice((0, 65400))
        self.sink    = StreamSink(dut.block.source, seed=seed, stall=1)
        self.payload = StreamSink(dut.block.to_builder, seed=seed + 1, stall=0.3)
        self.event   = StreamSink(dut.block.event, seed=seed + 2, stall=0.2)
        self.resent  = StreamSink(dut.block.resent, seed=seed + 3, stall=0.6)
        self.sent    = Mirror(dut.block.sent, lambda index, row: self.transmissions.append((index, row, self.time)))
        self.headers, self.transmissions = [], []
        self.rows = {}                         # Of the sent table.

    def setup(self):
        d, rows = self.dut, chunks(self.config)
        for n, qp in enumerate(self.qps):
            yield from put(d.tables.queue_pair, n, **qp)
            yield from put(d.ack_state, n, unacked=self.unacked[n])
            yield from put(d.status, n, state=self.life[n])
            for row in range(rows):
                bits = sum(1 << p % CHUNK for p in self.acked[n] if p//CHUNK % rows == row)
                yield from put(d.scoreboard, n*rows + row, acked=bits)
        for n, row in enumerate(self.peers):
            yield from put(d.tables.peer, n, **row)
        for index in range(config_rows(self.config)):          # As if each PSN had been sent once.
            self.rows[index] = dict(ev=0, resent=0)
        yield [d.block.own_ip6.eq(IP6), d.block.dscp.eq(DSCP)]
        yield [d.block.own_ip.eq(IP), d.block.udp_port.eq(UDP_PORT)] + [mac.eq(v) for mac, v in zip(d.block.own_macs, MACS, strict=True)]
        yield

    def job(self):
        rng, config = self.rng, self.config
        qp     = rng.randrange(config.queue_pairs)
        psn    = (self.unacked[qp] + rng.choice((-1, 0, rng.randrange(-40, config.mpr), rng.randrange(config.mpr)))) % PSN
        length = rng.choice((0, 0, 1, 8, 9, 16, 17, rng.randrange(200)))
        rtx    = rng.getrandbits(1)
        job    = dict(qp=qp, psn=psn, rtx=rtx, lost=rtx & rng.getrandbits(1), a=rng.getrandbits(1), opcode=rng.choice(sorted(SIZES)),
            va=rng.getrandbits(64), rkey=rng.getrandbits(32), total=rng.getrandbits(24), length=length,
            immediate=rng.getrandbits(32), msn=rng.getrandbits(16), rqmsn=rng.getrandbits(16))
        error  = int(not rng.randrange(7))
        job["void"] = int(error and length == 0)       # Not read at all; else the read failed.
        wanted = self.life[qp] == QpState.RTS and ahead(psn, self.unacked[qp]) >= 0 and psn not in self.acked[qp]
        return job, rng.randbytes(length), error, wanted

    def choices(self):
        """Plays `Paths`: takes its time, then gives any path."""
        yield "passive"
        block, chosen, rng = self.dut.block, self.dut.chosen, self.rng
        while True:
            for name, endpoint, fields in (("lost", block.change, ("qp", "peer", "ev", "kind")),
                    ("path", block.choose, ("qp", "peer", "given"))):
                if (yield endpoint.valid) and not rng.randrange(3):
                    answer = dict(ev=rng.randrange(self.config.evs), plane=rng.randrange(4), entropy=rng.getrandbits(16))
                    yield [getattr(chosen, n).eq(v) for n, v in answer.items()] + [endpoint.ready.eq(1)]
                    asked = dict(zip(fields, (yield [getattr(endpoint, f) for f in fields]), strict=True))
                    self.paths.append((name, asked, answer))
                    yield
                    yield endpoint.ready.eq(0)
            yield

    def builder(self):
        """Takes a header when its payload, if it has one, is there."""
        yield "passive"
        source = self.dut.block.source
        word   = self.config.network_width//8
        while True:
            offered = yield self.dut.block.to_builder.valid
            begun   = self.payload.beats or offered
            if (yield source.valid):
                length = yield source.length
                ended  = sum(-(-h["length"]//word) for h in self.headers)     # Words of the packets before.
                ready  = length == 0 or (begun and len(self.payload.beats) + offered > ended)
                if ready and self.rng.random() < 0.5:
                    yield source.ready.eq(1)
                    yield
                    values = yield [getattr(source, n) for n in HEADER]
                    self.headers.append(dict(zip(HEADER, values, strict=True)))
                    yield source.ready.eq(0)
            yield

    def clock(self):
        yield "passive"
        while True:
            self.time += 1
            yield self.dut.block.time.eq(self.time)
            yield

    def store(self):
        """The payload store: words come at their own pace, a packet counts when all of it is stored."""
        words = [dict(beat) for _, data, error, _ in self.jobs for beat in beats_of_bytes(data, self.config.network_width, error=error)]
        yield from StreamSource(self.dut.block.payload, words, seed=4, idle=0.2).run()

@pytest.mark.parametrize("mpr", CONFIGS)
@pytest.mark.parametrize("seed", range(2))
def test_headers_payload_and_drops_are_in_step(mpr, seed):
    config = CONFIGS[mpr]
    world  = World(dut_of(mpr), config, seed)
    world.jobs = [world.job() for _ in range(250)]
    block  = world.dut.block
    def drive():
        yield from world.setup()
        jobs  = [job for job, _, _, _ in world.jobs]
        yield from StreamSource(block.sink, jobs, seed=seed, idle=0.1).run()
        yield from wait(400)
    def counts():
        stored = [dict(error=error & ~job["void"]) for job, _, error, _ in world.jobs]
        yield from StreamSource(block.packets, stored, seed=seed + 5, idle=0.3).run()
    parts = [world.payload, world.event, world.resent, world.sent]
    plays = [world.store(), world.builder(), world.choices(), world.clock()]
    simulate(world.dut, [drive(), counts(), *plays, *[p.run() for p in parts]], limit=60000)

    expected = [(job, data) for job, data, error, wanted in world.jobs if wanted and not error]
    assert len(expected) > 60 and len(world.headers) == len(expected)
    asked = iter(world.paths)
    for (job, _), h, (index, row, now) in zip(expected, world.headers, world.transmissions, strict=True):
        qp     = world.qps[job["qp"]]
        number = qp["peer"]
        peer   = world.peers[number]
        before = world.rows[index]
        if job["lost"]:                        # The path that had it hears of it before a new one is chosen.
            assert next(asked)[:2] == ("lost", dict(qp=job["qp"], peer=number, ev=before["ev"], kind=Change.LOST))
        what, request, ev = next(asked)
        assert (what, request) == ("path", dict(qp=job["qp"], peer=number, given=0))
        world.rows[index] = dict(ev=ev["ev"], resent=min(before["resent"] + 1, 3) if job["rtx"] else 0)
        stamp  = TSETH.unpack(h["body"].to_bytes(64, "little")[4:8])["tx_timestamp"]
        body   = METH.pack(rqmsn=job["rqmsn"], msn=job["msn"]) + TSETH.pack(tx_timestamp=stamp, ftype=1) \
            + RETH.pack(va=job["va"], rkey=job["rkey"], length=job["total"]) + IMMDT.pack(immediate=job["immediate"])
        assert h == dict(plane=ev["plane"], destination_mac=peer[f"mac{ev['plane']}"], source_mac=MACS[ev["plane"]],
            ipv6=peer["ipv6"], source_ip=IP6 if peer["ipv6"] else IP, destination_ip=peer["ip"], dscp=DSCP,
            entropy=ev["entropy"], udp_port=UDP_PORT, opcode=job["opcode"],
            p_key=qp["p_key"], dest_qp=qp["remote_qp"], a=job["a"], rtx=job["rtx"], ts=1, psn=job["psn"], length=job["length"],
            body=int.from_bytes(body, "little"), body_length=SIZES[job["opcode"]])
        assert index == job["qp"]*config.mpr + job["psn"] % config.mpr and {n: row[n] for n in ("ev", "resent")} == world.rows[index]
        assert abs((now - row["time"] + 8) % 65536 - 8) <= 2 and (row["time"] - stamp) % 65536 < 200
    assert next(asked, None) is None and sum(job["lost"] for job, _ in expected) > 10
    words = [b["data"] for _, data in expected if data for b in beats_of_bytes(data, config.network_width)]
    assert [b["data"] for b in world.payload.beats] == words
    assert [(b["qp"], b["psn"]) for b in world.resent.beats] == [(job["qp"], job["psn"]) for job, _ in expected if job["rtx"]]
    failed = [(job["qp"], job["psn"]) for job, _, error, wanted in world.jobs if wanted and error]
    assert failed and [(b["qp"], b["base"]) for b in world.event.beats] == failed
    assert all(b["kind"] == EventKind.READ_ERROR and b["unacked"] == world.unacked[b["qp"]] for b in world.event.beats)

def test_read_errors_that_nobody_takes_hold_nothing_up():
    world = World(dut_of(64), CONFIGS[64], 9)
    world.event.stall = 1
    psns  = [(world.unacked[0] + i) % PSN for i in range(60) if (world.unacked[0] + i) % PSN not in world.acked[0]][:20]
    job   = dict(qp=0, opcode=Opcode.WRITE_ONLY, length=0)
    world.jobs = [(dict(job, psn=psn), b"", int(i < 15), True) for i, psn in enumerate(psns)]
    def drive():
        yield from world.setup()
        yield from StreamSource(world.dut.block.sink, [j for j, _, _, _ in world.jobs], seed=1, idle=0).run()
        yield from wait(100)
    def counts():
        yield from StreamSource(world.dut.block.packets, [dict(error=e) for _, _, e, _ in world.jobs], seed=2, idle=0).run()
    plays = [world.store(), world.builder(), world.choices()]
    simulate(world.dut, [drive(), counts(), *plays, world.event.run(), world.payload.run()], limit=20000)
    assert [h["psn"] for h in world.headers] == psns[15:]
