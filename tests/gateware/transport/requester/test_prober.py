# SPDX-License-Identifier: BSD-2-Clause
"""The prober: a probe per command, on the entropy values in use, one after the other."""

import random

from gateware.common import tables as t
from gateware.common.headers import Opcode
from gateware.config import preset
from gateware.transport.requester.prober import Prober
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.tables import TableBench, counts_of
from tests.models import wire

EV_COUNTS = (8, 3)                               # Entropy values in use, per peer.
OWN_IP, OWN_IP6, DSCP, UDP_PORT, TIME = 0x0a00002a, 0xfd << 120 | 42, 41, 4791, 0x1234abcd
OWN_MACS = [0x020000000010 + i for i in range(4)]

class Bench(TableBench):
    def __init__(self):
        super().__init__(preset("tiny"))
        self.prober = Prober(self.config, self.tables)
        self.add_port()
        self.counts = counts_of(self.prober)

DUT = Bench()

def test_probes_rotate_over_the_entropy_values_in_use():
    r     = random.Random(6)
    qps   = [dict(peer=n % 2, remote_qp=r.getrandbits(24), p_key=r.getrandbits(16)) for n in range(4)]
    peers = [dict(ip=r.getrandbits(128 if ipv6 else 32), ipv6=ipv6, ev_count=n, **{f"mac{i}": r.getrandbits(48) for i in range(4)})
        for ipv6, n in enumerate(EV_COUNTS)]
    evs   = [dict(entropy=r.getrandbits(16), plane=r.getrandbits(2)) for _ in range(16)]
    order = [0, 0, 2, 0, 2, 0, 0, 1, 3, 1, 1, 1, 0, 2, 0, 3, 0, 0, 0, 0, 1, 1]
    sink  = StreamSink(DUT.prober.source, stall=0.3)
    def packet(qp, ev):
        a, e = qps[qp], evs[8*qps[qp]["peer"] + ev]
        body = wire.control_body(Opcode.PROBE, probe_id=TIME & 0xffff, tx_timestamp=TIME & 0xffff, ftype=1, spdcid=qp,
            dpdcid=a["remote_qp"] & 0xffff)
        return {"opcode": Opcode.PROBE, "dscp": DSCP, "psn": 0, "rtx": 0, "plane": e["plane"], "entropy": e["entropy"],
            "destination_mac": peers[a["peer"]][f"mac{e['plane']}"], "source_mac": OWN_MACS[e["plane"]], "ipv6": peers[a["peer"]]["ipv6"],
            "source_ip": OWN_IP6 if peers[a["peer"]]["ipv6"] else OWN_IP,
            "destination_ip": peers[a["peer"]]["ip"], "udp_port": UDP_PORT, "p_key": a["p_key"], "dest_qp": a["remote_qp"],
            "a": 0, "ts": 0, "length": 0, "body": int.from_bytes(body, "little"), "body_length": len(body), "first": 0, "last": 0}
    def main():
        p = DUT.prober
        yield [p.own_ip6.eq(OWN_IP6), p.dscp.eq(DSCP)]
        yield [p.own_ip.eq(OWN_IP), p.udp_port.eq(UDP_PORT), p.time.eq(TIME), *[s.eq(v) for s, v in zip(p.own_macs, OWN_MACS, strict=True)]]
        for table, rows in ((t.QUEUE_PAIR, qps), (t.PEER, peers), (t.EV, evs)):
            for n, row in enumerate(rows):
                yield from DUT.write(table, n, **row)
        yield from StreamSource(DUT.prober.sink, [{"qp": qp} for qp in order], idle=0.5).run()
        yield from sink.wait(len(order))
        assert (yield DUT.counts["sent_probe"]) == len(order)
    simulate(DUT, [main(), sink.run()])
    turns = [0, 0]
    for qp, beat in zip(order, sink.beats, strict=True):
        peer = qp % 2
        assert beat == packet(qp, turns[peer] % EV_COUNTS[peer])
        turns[peer] += 1
