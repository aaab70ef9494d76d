# SPDX-License-Identifier: BSD-2-Clause
"""The prober: every byte of a probe, on the path that was asked for, and its number leads back to it."""

import random

import pytest
from litex.gen import LiteXModule
from migen import Record

from gateware.common.headers import Opcode
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.transport.requester.prober import Prober
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.harness import put, wait
from tests.models import wire

OWN_IP, OWN_IP6, DSCP, UDP_PORT, TIME = 0x0a00002a, 0xfd << 120 | 42, 41, 4791, 0x1234abcd
OWN_MACS = [0x020000000010 + i for i in range(4)]
CONFIGS  = {evs: preset("tiny", evs=evs) for evs in (8, 256)}

class Dut(LiteXModule):
    def __init__(self, config):
        self.tables = Tables(config)
        self.chosen = Record([("ev", config.ev_bits), ("plane", 2), ("entropy", 16)])
        self.block  = Prober(config, self.tables, self.chosen)

@pytest.mark.parametrize("evs", CONFIGS)
@pytest.mark.parametrize("engine", ("verilator", "migen"))
def test_every_probe_takes_its_path_and_names_it(evs, engine):
    config, r = CONFIGS[evs], random.Random(evs)
    dut   = Dut(config)
    block = dut.block
    qps   = [dict(peer=n % 2, remote_qp=r.getrandbits(24), p_key=r.getrandbits(16)) for n in range(config.queue_pairs)]
    peers = [dict(ip=r.getrandbits(128 if ipv6 else 32), ipv6=ipv6, **{f"mac{i}": r.getrandbits(48) for i in range(4)})
        for ipv6 in range(2)]
    jobs  = [dict(qp=r.randrange(config.queue_pairs), given=r.getrandbits(1), ev=r.randrange(evs)) for _ in range(40)]
    sink, chosen = StreamSink(block.source, seed=1, stall=0.5), []
    def paths():
        yield "passive"
        while True:
            if (yield block.choose.valid) and not r.randrange(3):
                asked  = yield [block.choose.qp, block.choose.peer, block.choose.given, block.choose.ev]
                answer = dict(ev=asked[3] if asked[2] else r.randrange(evs), plane=r.randrange(4), entropy=r.getrandbits(16))
                chosen.append((asked, answer))
                yield [getattr(dut.chosen, n).eq(v) for n, v in answer.items()] + [block.choose.ready.eq(1)]
                yield
                yield block.choose.ready.eq(0)
            yield
    def drive():
        for table, rows in ((dut.tables.queue_pair, qps), (dut.tables.peer, peers)):
            for n, row in enumerate(rows):
                yield from put(table, n, **row)
        yield [block.own_ip.eq(OWN_IP), block.own_ip6.eq(OWN_IP6), block.dscp.eq(DSCP), block.udp_port.eq(UDP_PORT), block.time.eq(TIME),
            *[s.eq(v) for s, v in zip(block.own_macs, OWN_MACS, strict=True)]]
        yield from StreamSource(block.sink, jobs, seed=2, idle=0.2).run()
        yield from wait(400)
    simulate(dut, [drive(), paths(), sink.run()], engine=engine)
    assert len(sink.beats) == len(jobs) == len(chosen)
    for job, (asked, path), beat in zip(jobs, chosen, sink.beats, strict=True):
        qp   = qps[job["qp"]]
        peer = peers[qp["peer"]]
        assert asked[:3] == [job["qp"], qp["peer"], job["given"]] and (not job["given"] or asked[3] == job["ev"])
        body = wire.control_body(Opcode.PROBE, probe_id=path["ev"] | (TIME & 0xff) << 8, tx_timestamp=TIME & 0xffff, ftype=1,
            spdcid=job["qp"], dpdcid=qp["remote_qp"] & 0xffff)
        assert beat == {"psn": 0, "rtx": 0, "dscp": DSCP, "opcode": Opcode.PROBE, "plane": path["plane"], "entropy": path["entropy"],
            "destination_mac": peer[f"mac{path['plane']}"], "source_mac": OWN_MACS[path["plane"]], "ipv6": peer["ipv6"],
            "source_ip": OWN_IP6 if peer["ipv6"] else OWN_IP,
            "destination_ip": peer["ip"], "udp_port": UDP_PORT, "p_key": qp["p_key"], "dest_qp": qp["remote_qp"], "a": 0, "ts": 0,
            "length": 0, "body": int.from_bytes(body, "little"), "body_length": len(body), "first": 0, "last": 0}
