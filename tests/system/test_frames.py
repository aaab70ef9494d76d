# SPDX-License-Identifier: BSD-2-Clause
"""What the cards put on the wire, judged by the Python model, by scapy and by tshark."""

import shutil
import subprocess

import pytest

from gateware.common.headers import PACKET_TYPES, Dscp, Opcode
from soc.sim.capture import Capture
from soc.sim.library import Kind
from tests.models import wire
from tests.system.bench import Link, Recorder, cluster, group

pytestmark = [group(2), pytest.mark.timeout(300)]

ACKS  = (Opcode.SACK, Opcode.ACKNOWLEDGE)
PSNS  = (1000, 2000)
ROUGH = dict(paths=4, loss=0.03, jitter=2000, duplicate=0.02, corrupt=0.01)

def traffic(c, mtu=512):
    """Both directions, odd lengths, an error: every kind of packet that a card sends."""
    a, b  = c.nodes
    links = [Link(c, a, b, size=9001, slots=4, mtu=mtu, psns=PSNS), Link(c, b, a, size=3001, slots=4, mtu=mtu, psns=PSNS),
             Link(c, a, b, size=8, slots=4, psns=PSNS)]
    for link in links:
        for slot in range(4):
            link.post(slot=slot, length=link.size - slot)
    for link in links:
        link.finish()
    wrong = links[2].add_context(rkey=links[2].rkey ^ 1)
    a.post(wrong, length=8)
    c.run_until(lambda: links[2].credit["error"], limit=400_000)
    c.step(2000)
    return links

@pytest.fixture(scope="module")
def captured():
    """(cluster, links, frames): one run that all tests of the file look at."""
    with cluster(seed=5, capture=Recorder(), **ROUGH) as c:
        yield c, traffic(c), c.capture.frames

def sent(frames, node):
    return [wire.parse(f) for _, n, _, d, f in frames if n == node.index and d == "tx"]

def test_every_frame_sent_is_right(captured):
    c, _, frames = captured
    kinds = set()
    for _, node, plane, direction, frame in frames:
        if direction == "tx":
            p = wire.parse(frame)
            assert p["error"] is None and len(frame) >= 60, (p, frame.hex())
            assert p["eth"]["source"] == c.nodes[node].macs[plane] and p["eth"]["destination"] == c.nodes[1 - node].macs[plane]
            assert p["ip"]["source"] == c.nodes[node].ip and p["destination"] == c.nodes[1 - node].ip
            assert p["ip"]["identification"] == 0 and p["udp"]["checksum"] == 0 and p["ip"]["ttl"] == 64
            assert p["dscp"] == (Dscp.TRIMMABLE if p["kind"].data else Dscp.DATA if p["opcode"] == Opcode.PROBE else Dscp.CONTROL)
            kinds.add(p["opcode"])
    assert kinds >= {Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM, Opcode.SACK, Opcode.ACKNOWLEDGE}

def test_received_frames_are_the_sent_ones(captured):
    """The capture after the fabric holds nothing that was not sent, but for damaged frames."""
    c, _, frames = captured
    out  = {f for _, _, _, d, f in frames if d == "tx"}
    odd  = [f for _, _, _, d, f in frames if d == "rx" and f not in out]
    fate = c.fabric.statistics()
    assert len(odd) <= fate["data"]["corrupted"] + fate["control"]["corrupted"]

def test_data_packets_say_where_they_belong(captured):
    """METH, TSETH and RETH in every packet; VA advances by the path MTU, MSN counts, opcodes fit."""
    c, links, frames = captured
    for link in links[:2]:
        data  = [p for p in sent(frames, link.a) if p["kind"].data and p["dest_qp"] == link.qpn(link.b)]
        first, seen = PSNS[0], {}
        for p in data:
            seen.setdefault(p["psn"], p)
            assert p["ts"] == 1 and p["TSETH"]["ftype"] == 1 and p["RETH"]["rkey"] == link.rkey
            assert p["payload"] == seen[p["psn"]]["payload"] and p["RETH"] == seen[p["psn"]]["RETH"], "a resend is the same packet"
        psn = first
        for msn, (slot, message) in enumerate(link.sent):
            count = max(1, -(-len(message)//link.mtu))
            for i in range(count):
                p = seen[psn]
                kind = PACKET_TYPES[p["opcode"]]
                assert (kind.first, kind.last, kind.imm) == (i == 0, i == count - 1, i == count - 1)
                assert (p["METH"]["msn"], p["RETH"]["length"]) == (msn, len(message))
                assert p["RETH"]["va"] == link.destination + slot*link.stride + i*link.mtu
                assert p["payload"] == message[i*link.mtu:(i + 1)*link.mtu]
                if kind.imm:
                    assert p["IMMDT" if "IMMDT" in p else "ImmDt"]["immediate"] == link.signal.index and p["METH"]["rqmsn"] == msn
                psn += 1
        assert psn - first == len(seen), "no packet more than the messages need"

def test_resends_are_marked_and_all_paths_are_used(captured):
    c, links, frames = captured
    records = c.fabric.records
    data    = records[records["kind"] == Kind.DATA]
    seen    = set()
    for r in data:
        key = (int(r["node"]), int(r["qpn"]), int(r["psn"]))
        assert bool(r["flags"] & 1) == (key in seen), key
        seen.add(key)
    assert (data["flags"] & 1).any()
    assert len(set(data["entropy"])) > 32 and set(data["plane"]) == {0, 1}

def test_acknowledgements_tell_the_truth(captured):
    """No SACK or ACK speaks of a PSN that had not arrived intact when it left."""
    c, links, frames = captured
    for link in links[:2]:
        arrived = set()
        for _, node, plane, direction, frame in frames:
            p = wire.parse(frame, own_mac=c.nodes[node].macs[plane])
            if p["error"]:
                continue
            if node == link.b.index and direction == "rx" and p["kind"].data and p["dest_qp"] == link.qpn(link.b):
                arrived.add(p["psn"])
            if node == link.b.index and direction == "tx" and p["dest_qp"] == link.qpn(link.a) and p["opcode"] in ACKS:
                cack  = p["SETH"]["cack_psn"] if p["opcode"] == Opcode.SACK else p["psn"]
                assert all(psn in arrived for psn in range(PSNS[0], cack + 1))
                if p["opcode"] == Opcode.SACK:
                    offset = p["SETH"]["sack_offset"] - (p["SETH"]["sack_offset"] >> 15 << 16)
                    base   = cack + offset
                    assert all(base + i in arrived or base + i <= cack for i in range(64) if p["SETH"]["bitmap"] >> i & 1)

def test_the_window_is_never_exceeded():
    """A long fabric and small packets: never more than MPR packets above the last acknowledged one."""
    with cluster(seed=6, paths=2, delay=30_000, jitter=3000, loss=0.01, capture=Recorder()) as c:
        a, b = c.nodes
        link = Link(c, a, b, size=60_000, slots=2, mtu=256, psns=(0xffffc0, 0), mpr=128)
        link.post(slot=0)
        link.post(slot=1)
        link.finish()
        cack, widest = 0xffffbf, 0
        ahead = lambda x, y: (x - y + (1 << 23)) % (1 << 24) - (1 << 23)
        for _, node, _, direction, frame in c.capture.frames:
            p = wire.parse(frame)
            if node != a.index or p["error"]:
                continue
            if direction == "rx" and p["opcode"] in ACKS and ahead(p["psn"], cack) > 0:
                cack = p["psn"]
            elif direction == "tx" and p["kind"].data:
                widest = max(widest, ahead(p["psn"], cack))
        assert widest == 128

def test_scapy_agrees(captured):
    """An independent dissector: layers, lengths, checksums and the ICRC of a sample of all frames."""
    pytest.importorskip("scapy")
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import raw
    _, _, frames = captured
    mine = [f for _, _, _, d, f in frames if d == "tx"]
    for frame in mine[::max(1, len(mine)//60)]:
        packet = Ether(frame)
        ip, udp, bth = packet[IP], packet[UDP], packet[BTH]
        end = 14 + ip.len
        assert udp.len == ip.len - 20 and end <= len(frame)
        again = ip.copy()
        del again.chksum
        assert IP(raw(again)[:20]).chksum == ip.chksum
        body = frame[42:end]
        assert bth.compute_icrc(body) == body[-4:], frame.hex()

@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_nothing_malformed(tmp_path):
    path = tmp_path/"frames.pcapng"
    with cluster(seed=7, capture=Capture(str(path)), **ROUGH) as c:
        traffic(c)
        packets, corrupted = c.capture.packets, c.fabric.statistics()
    def tshark(*arguments):
        done = subprocess.run(["tshark", "-r", path, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    lines = tshark("-T", "fields", "-e", "frame.interface_name", "-e", "frame.time_epoch", "-e", "frame.protocols")
    assert len(lines) == packets
    names = {line.split("\t")[0] for line in lines}
    assert names == {f"card{n}-plane{p}-{d}" for n in (0, 1) for p in (0, 1) for d in ("tx", "rx")}
    tx = ' or '.join(f'frame.interface_name == "card{n}-plane{p}-tx"' for n in (0, 1) for p in (0, 1))
    assert tshark("-Y", f"_ws.malformed and ({tx})") == []
    assert tshark("-o", "ip.check_checksum:TRUE", "-Y", f"ip.checksum.status == 0 and ({tx})") == []
    assert len(tshark("-Y", "_ws.malformed")) <= corrupted["data"]["corrupted"] + corrupted["control"]["corrupted"]
    assert len(tshark("-Y", f"infiniband and ({tx})")) == sum("-tx" in line.split("\t")[0] for line in lines)
