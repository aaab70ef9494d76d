# SPDX-License-Identifier: BSD-2-Clause
"""Whole cards on IPv6, and on IPv4 and IPv6 at once: transfers over a rough fabric, every frame looked at."""

import shutil
import subprocess

import pytest

from gateware.common.headers import Dscp, Opcode
from soc.sim.capture import Capture
from soc.sim.report import wire_limit
from tests.models import wire
from tests.system.bench import Link, Recorder, addresses, cluster, group, moved
from tests.system.test_transfers import move, right

pytestmark = [group(2), pytest.mark.timeout(300)]

ROUGH = dict(paths=4, loss=0.02, jitter=2000, duplicate=0.01, corrupt=0.01, trim=0.05)

def test_bytes_arrive_over_a_rough_fabric():
    result = move(150_001, 61, message=20_011, mtu=1024, queue_pairs=2, ipv6=True, **ROUGH)
    right(result)
    d = result["packets"]["data"]
    assert d["lost"] > 0 and d["trimmed"] > 0 and d["resent"] <= 1.3*(d["lost"] + d["corrupted"] + d["trimmed"]), d
    b = result["counters"][1]
    assert b["plane0_trimmed"] + b["plane1_trimmed"] == d["trimmed"]      # Each trimmed frame was known as one.
    assert min(path["packets"] for path in result["per_path"]) > 10
    lengths = [20_011]*7 + [150_001 - 7*20_011]
    assert result["wire_limit_gbps"] == pytest.approx(wire_limit(lengths, 1024, 2, ipv6=True), abs=1e-6)

def test_one_pair_of_cards_talks_both_at_once():
    """Two peer rows of the same card, one per family, and packets of both interleaved."""
    with cluster(seed=62, capture=Recorder(), **ROUGH) as c:
        a, b  = c.nodes
        links = [Link(c, *ends, size=5001, slots=4, mtu=512, ipv6=six) for six in (False, True) for ends in ((a, b), (b, a))]
        for slot in range(4):
            for link in links:
                link.post(slot=slot, length=5001 - slot)
        for link in links:
            link.finish()
        families = {}
        for _, node, _, direction, frame in c.capture.frames:
            if direction == "tx":
                p   = wire.parse(frame)
                six = wire.is_ipv6(frame)
                me, far = c.nodes[node], c.nodes[1 - node]
                assert p["error"] is None, p
                assert (p["source"], p["destination"]) == ((me.ip6, far.ip6) if six else (me.ip, far.ip))
                assert p["dest_qp"] in {link.qpn(far) for link in links if (link in links[2:]) == six}
                assert p["dscp"] == (Dscp.TRIMMABLE if p["kind"].data else Dscp.DATA if p["opcode"] == Opcode.PROBE else Dscp.CONTROL)
                if six:
                    assert (p["ip"]["flow_label"], p["ip"]["hop_limit"], p["udp"]["checksum"]) == (p["udp"]["source_port"], 64, 0)
                families.setdefault((node, six), []).append(p["opcode"])
        assert len(families) == 4 and all({Opcode.SACK, Opcode.ACKNOWLEDGE} < set(opcodes) for opcodes in families.values())

def test_foreign_addresses_and_endpoint_operations_are_refused_and_traffic_classes_are_registers():
    with cluster(seed=63, capture=Recorder()) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=1000, mtu=1024, psns=(7, 7), ipv6=True)
        ways = addresses(a, b) | dict(source_ip=a.ip6, destination_ip=b.ip6, ipv6=1)
        def frame(opcode=Opcode.WRITE_ONLY, psn=7, **values):
            return wire.build_data(opcode, bytes(1000), va=link.destination, rkey=link.rkey, psn=psn, tx_timestamp=1,
                **(dict(dest_qp=link.qpn(b)) | ways | values))
        before = b.counters()
        c.fabric.inject(b, frame(destination_ip=b.ip6 + 1))
        for opcode in (0xd8, 0xd9):
            c.fabric.inject(b, wire.build(opcode, bytes(36), **(ways | dict(dest_qp=2))))
        c.fabric.inject(b, frame(dest_qp=2))
        c.step(3000)
        counts = moved(before, b.counters())
        assert counts == {"plane0_bad_header": 1, "plane0_endpoint": 3} and link.untouched()
        # The class that says trimmed, and those that this card sends.
        b.write("nic_dscp_trimmed", 21)
        b.write("nic_dscp_control", 22)
        a.write("nic_dscp_trimmable", 23)
        a.settle()
        b.settle()
        for dscp in (Dscp.TRIMMED, 21):
            c.fabric.inject(b, frame(psn=9, dscp=dscp))
        c.step(3000)
        assert moved(before, b.counters())["plane0_trimmed"] == 1
        link.post()
        c.step(20_000)
        assert {p["dscp"] for p in c.capture.sent(b)} == {22}
        assert {p["dscp"] for p in c.capture.sent(a) if p["kind"].data} == {23}

@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_no_error_below_the_transport(tmp_path):
    """Ethernet, IPv6 and UDP of everything that the cards sent; RFC 6935 allows the checksum of 0, tshark asks."""
    path = tmp_path/"frames.pcapng"
    with cluster(seed=64, capture=Capture(str(path)), ipv6=True, **ROUGH) as c:
        a, b  = c.nodes
        links = [Link(c, *ends, size=3001, slots=4, mtu=512) for ends in ((a, b), (b, a))]
        for link in links:
            for slot in range(4):
                link.post(slot=slot, length=3001 - slot)
        for link in links:
            link.finish()
    sent = ' or '.join(f'frame.interface_name == "card{n}-plane{p}-tx"' for n in (0, 1) for p in (0, 1))
    def tshark(*arguments):
        options = ("-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
        done = subprocess.run(["tshark", "-r", path, *options, *arguments],
            capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    frames = tshark("-Y", f"({sent})")
    assert len(frames) > 50 and len(tshark("-Y", f"({sent}) and ipv6 and udp and infiniband")) == len(frames)
    assert tshark("-Y", f"({sent}) and (_ws.malformed or _ws.expert.severity == error or _ws.expert.severity == warning)") == []
