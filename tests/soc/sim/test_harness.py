# SPDX-License-Identifier: BSD-2-Clause
"""The harness by itself, against the stand-in card: host, judge of TLPs, GPU, flags, fabric, record."""

import numpy as np
import pytest

from gateware.common import headers as H
from soc.sim.capture import Capture
from soc.sim.cluster import Cluster, SimulationError
from soc.sim.driver import Context, DriverError, Page
from soc.sim.library import Fate, Kind
from tests.models import wire
from tests.soc.sim import stand_in as S
from tests.system.bench import Recorder

pytestmark = pytest.mark.xdist_group("stand_in")

REQUESTER = 0x0100

@pytest.fixture
def make():
    made = []
    def build(**options):
        made.append(Cluster(firmware=False, card="tests.soc.sim.stand_in:StandIn", **options))
        return made[-1]
    yield build
    for cluster in made:
        cluster.close()

def shoot(node, words):
    """Has the card send these dwords as one TLP."""
    node.store(0, list(words))
    node.store(4*S.GO, [len(words)])
    node.settle()
    node.cluster.step(20)

def swapped(data):
    return [int.from_bytes(data[i:i + 4], "big") for i in range(0, len(data), 4)]

def write_tlp(address, data, first=0xf, last=0xf, attributes=0, requester=REQUESTER, dwords=None, long=None):
    count = len(data)//4
    long  = address >> 32 != 0 if long is None else long
    head  = [(0x60 if long else 0x40) << 24 | attributes << 12 | (dwords or count)]
    head += [requester << 16 | (last if count > 1 else 0) << 4 | first]
    return head + ([address >> 32, address & 0xffffffff] if long else [address & 0xffffffff]) + swapped(data)

def read_tlp(address, dwords, tag=0, first=0xf, last=0xf):
    return [0x20 << 24 | dwords, REQUESTER << 16 | tag << 8 | (last if dwords > 1 else 0) << 4 | first, address >> 32, address & 0xffffffff]

# Registers ----------------------------------------------------------------------------------------

def test_driver_reads_what_it_wrote(make):
    a, b = make().nodes
    a.store(0, list(range(100, 120)))
    b.store(0, list(range(200, 220)))
    a.settle()
    assert [a.load(4*i) for i in range(20)] == list(range(100, 120))
    assert [b.load(4*i) for i in range(20)] == list(range(200, 220))

# Host memory and the judge ------------------------------------------------------------------------

@pytest.mark.parametrize("first, last, length, skip, drop", [(0xf, 0xf, 16, 0, 0), (0xc, 0x1, 16, 2, 3), (0x8, 0x7, 8, 3, 1)])
def test_byte_enables_write_those_bytes_only(make, first, last, length, skip, drop):
    n = make().nodes[0]
    at   = n.alloc(64)
    data = bytes(range(1, length + 1))
    n.view(at, 64)[:] = 0xee
    shoot(n, write_tlp(at, data, first, last))
    assert n.bytes_at(at, 64) == b"\xee"*skip + data[skip:length - drop] + b"\xee"*(64 - length + drop)
    assert n.sim.count(0) == 0
    assert n.sim.traffic_counts(0)["payload"] == (1, length - skip - drop)

@pytest.mark.parametrize("tlp, words", [
    (lambda at: write_tlp(at, bytes(8), last=0x5), "last byte enables"),
    (lambda at: write_tlp(at, bytes(8), first=0x3), "first byte enables"),
    (lambda at: write_tlp(at, bytes(4), first=0x5), "have a hole"),
    (lambda at: write_tlp(at, bytes(8), attributes=2), "relaxed ordering"),
    (lambda at: write_tlp(at, bytes(8), dwords=3), "number of dwords"),
    (lambda at: write_tlp(at + 4092, bytes(8)), "4 KiB"),
    (lambda at: write_tlp(at + (1 << 30), bytes(8)), "outside"),
    (lambda at: write_tlp(0x1000, bytes(8), long=True), "size does not fit"),
    (lambda at: read_tlp(at, 256), "maximum request"),
    (lambda at: [0x72 << 24, 0, 0, 0], "unknown type"),
    (lambda at: [0x4a << 24 | 1, 4, 9 << 8, 0], "waits for none"),
])
def test_a_wrong_tlp_is_named(make, tlp, words):
    n  = make().nodes[0]
    shoot(n, tlp(n.alloc(8192, align=4096)))
    assert n.sim.count(0) >= 1
    assert any(words in s for s in n.sim.sentences(0)), n.sim.sentences(0)

@pytest.mark.parametrize("bytes_, completions", [(64, 5), (128, 3), (256, 2)])
def test_completions_end_at_boundaries(make, bytes_, completions):
    n  = make(completion_bytes=bytes_).nodes[0]
    at = n.alloc(4096, align=4096)
    shoot(n, read_tlp(at + 48, 64, tag=5))       # 256 bytes from 48 to 303.
    n.cluster.step(300)
    assert (n.load(4*S.COMPLETIONS), n.load(4*S.COMPLETION_DWORDS)) == (completions, 64)
    assert n.sim.count(0) == 0

@pytest.mark.parametrize("prepare, status", [
    (lambda n, at: n.sim.fail_reads(0, at, at + 3, 4), 4),
    (lambda n, at: None, 0)])
def test_reads_fail_on_request(make, prepare, status):
    n  = make().nodes[0]
    at = n.alloc(64)
    prepare(n, at)
    shoot(n, read_tlp(at, 4, tag=3))
    n.cluster.step(300)
    assert (n.load(4*S.HEADER + 4) >> 13) & 7 == status
    assert (n.load(4*S.HEADER + 8) >> 8) & 0xff == 3

def test_reads_of_nothing_are_unsupported(make):
    n = make().nodes[0]
    shoot(n, read_tlp(0x12_0000_0000, 4))
    n.cluster.step(300)
    assert (n.load(4*S.HEADER + 4) >> 13) & 7 == 1

# GPU ----------------------------------------------------------------------------------------------

def test_posting_stops_at_the_quota(make):
    n = make().nodes[0]
    credit = n.alloc(16, align=16)
    page = Page(0, 0, 1, credit, n.sim.page(0, credit, 4))
    n.post_many(Context(page, 0, 0x40, generation=0), [0x1122334455667788 + i for i in range(10)])
    n.cluster.step(1000)
    assert n.sim.posted(0, page.handle) == 4 and n.load(4*S.DOORBELL + 8) == 4
    n.fill(credit, (3).to_bytes(4, "little"))
    n.cluster.step(1000)
    assert n.load(4*S.DOORBELL + 8) == 7
    assert n.load(4*S.DOORBELL) | n.load(4*S.DOORBELL + 4) << 32 == 0x1122334455667788 + 6
    times = n.post_times(page, 10)
    assert all(t > 0 for t in times[:7]) and times[7:] == [0]*3 and sorted(times[:7]) == times[:7]
    assert n.sim.traffic_counts(0)["doorbell"] == (7, 56)

# Flags --------------------------------------------------------------------------------------------

def test_a_flag_before_its_data_is_seen(make):
    cluster = make()
    a, b = cluster.nodes
    source, destination, flag = a.alloc(32), b.alloc(32), b.alloc(8)
    watch = b.sim.watch(1, flag)
    for value in (1, 2):
        assert b.sim.expect(watch, value, value, 0, source + 16*(value - 1), destination + 16*(value - 1), 16, 0) == 0
    b.sim.target(watch, 2)
    a.fill(source, bytes(range(32)))
    shoot(b, write_tlp(destination, bytes(range(16))))
    shoot(b, write_tlp(flag, (1).to_bytes(8, "little")))
    assert (b.sim.count(1), b.sim.count(2), b.sim.count(6)) == (0, 1, 1)
    shoot(b, write_tlp(flag, (2).to_bytes(8, "little")))          # Its data has not come.
    assert (b.sim.count(1), b.sim.count(2), b.sim.count(6)) == (1, 0, 2)
    assert "message 2 from card 0 differs from byte 0 of 16" in b.sim.sentences(1)[0]
    assert [int(v) for v in b.sim.flag_event_array()["value"]] == [1, 2]

# Fabric -------------------------------------------------------------------------------------------

MACS = (0x020000000100, 0x020000000200)

def frame(node, port=0xc000, psn=0, opcode=H.Opcode.WRITE_ONLY, length=100, dscp=0, ipv6=0):
    payload = bytes((i*7 + psn) & 0xff for i in range(length))
    udp = H.UDP.pack(source_port=port, destination_port=4791, length=8 + 12 + length + 4)
    ip  = H.IPV4.pack(version=4, ihl=5, protocol=17, ttl=64, dscp=dscp, total_length=20 + len(udp) + 12 + length + 4)
    if ipv6:
        ip = H.IPV6.pack(version=6, next_header=17, hop_limit=64, dscp=dscp, flow_label=0xabcde, payload_length=len(udp) + 12 + length + 4)
    bth = H.BTH.pack(opcode=opcode, dest_qp=5, psn=psn)
    ethertype = H.ETHERTYPE_IPV6 if ipv6 else H.ETHERTYPE_IPV4
    return H.ETH.pack(destination=MACS[node], source=1, ethertype=ethertype) + ip + udp + bth + payload + bytes(4)

def echo(make, count=40, lengths=range(40, 80), **options):
    """Frames go to card 0, which sends them to an address that is card 1's: they pass the fabric for ever."""
    cluster = make(**options)
    for node in (0, 1):
        cluster.sim.mac(0, MACS[node], node)
    for i in range(count):
        cluster.fabric.inject(cluster.nodes[0], frame(1, port=0xc000 + i, psn=i, length=lengths[i % len(lengths)]))
    return cluster

def test_frames_of_all_lengths_pass_unharmed(make):
    cluster = echo(make)
    cluster.step(3000)
    r = cluster.fabric.records
    assert cluster.sim.count(0) == 0, cluster.sim.sentences(0)
    assert len(r) > 100 and (r["kind"] == Kind.DATA).all() and (r["delivered"][:40] > 0).all()
    assert r["delivered"][0] - r["cycle"][0] >= cluster.cycles(500)
    assert {(int(f["psn"]), int(f["length"])) for f in r} == {(n, 14 + 20 + 8 + 12 + 40 + n + 4) for n in range(40)}

def test_the_record_says_what_happened(make):
    cluster = echo(make, loss=0.05, duplicate=0.05, jitter=2000, paths=4, seed=3)
    cluster.step(20_000)
    r = cluster.fabric.records
    n = len(r)
    assert n > 200 and cluster.sim.count(0) == 0
    lost, twice = (r["fate"] & Fate.LOST) != 0, (r["fate"] & Fate.DUPLICATED) != 0
    assert 0.02*n < np.count_nonzero(lost) < 0.09*n and 0.02*n < np.count_nonzero(twice) < 0.09*n
    assert (r["delivered"][lost] == 0).all()
    stats = cluster.fabric.statistics()["data"]
    assert stats["sent"] == n and stats["lost"] == np.count_nonzero(lost) and stats["reordered"] > 10
    paths = cluster.fabric.per_path()
    assert len(paths) == 4 and sum(p["packets"] for p in paths) == n and all(p["packets"] > 0 for p in paths)

def test_resent_and_spurious(make):
    cluster = make()
    cluster.sim.mac(0, MACS[1], 1)
    cluster.fabric.drop(skip=1)
    def send(psn):
        cluster.fabric.inject(cluster.nodes[0], frame(1, psn=psn))
        cluster.step(30)
    for psn in (1, 2, 3, 2, 1):       # The first 2 is lost: 2 is resent for a reason, 1 is not.
        send(psn)
    r = cluster.fabric.records
    assert list(r["psn"][:5]) == [1, 2, 3, 2, 1]
    stats = cluster.fabric.statistics()["data"]
    assert (stats["lost"], stats["resent"], stats["spurious"]) == (1, 2, 1)

def test_damage_is_found_by_the_fcs_or_repaired(make):
    cluster = echo(make, corrupt=0.2, seed=5)
    cluster.step(300)
    r = cluster.fabric.records
    damaged  = (r["fate"] & Fate.CORRUPTED) != 0
    repaired = (r["fate"] & Fate.FCS_REPAIRED) != 0
    assert damaged.any() and (repaired <= damaged).all()

@pytest.mark.parametrize("ipv6", [0, 1])
def test_a_repaired_frame_is_one_that_the_receiver_must_refuse(make, ipv6):
    """Damage whose FCS was repaired never lies in bits that the ICRC leaves out alone."""
    seen    = Recorder()
    cluster = make(corrupt=1.0, capture=seen, seed=8)
    cluster.sim.mac(0, MACS[1], 1)
    for psn in range(200):
        cluster.fabric.inject(cluster.nodes[0], wire.build_data(H.Opcode.WRITE_ONLY, b"", psn=psn, destination_mac=MACS[1], ipv6=ipv6))
    cluster.step(10_000)
    r = cluster.fabric.records
    r = r[(r["node"] == 0) & ((r["fate"] & Fate.FCS_REPAIRED) != 0)]
    repaired = set(map(int, r["delivered"]))
    frames   = [f for cycle, node, _, way, f in seen.frames if (node, way) == (1, "rx") and cycle in repaired]
    assert len(frames) == len(r) > 60 and all(wire.parse(f)["error"] for f in frames)

def test_frames_are_classified_alike_on_ipv4_and_ipv6(make):
    cluster = make(paths=8)
    cluster.sim.mac(0, MACS[1], 1)
    for psn in range(60):
        for ipv6 in (0, 1):
            cluster.fabric.inject(cluster.nodes[0], frame(1, port=0xc000 + psn, psn=psn, length=10 + psn, ipv6=ipv6))
    cluster.step(5000)
    r = cluster.fabric.records
    r = r[r["node"] == 0]
    assert len(r) == 120 and len(set(r["path"])) == 8
    for name in ("kind", "entropy", "path", "qpn", "psn", "opcode", "payload"):
        assert (r[name][0::2] == r[name][1::2]).all(), name
    assert (r["length"][1::2] == r["length"][0::2] + 20).all() and (r["kind"] == Kind.DATA).all()

@pytest.mark.parametrize("ipv6", [0, 1])
def test_only_long_data_frames_of_their_class_are_trimmed(make, ipv6):
    seen = Recorder()
    cluster = make(trim=1.0, duplicate=1.0, corrupt=1.0, capture=seen)
    cluster.sim.mac(0, MACS[1], 1)
    sent = [(opcode, dscp, length) for opcode in (H.Opcode.WRITE_ONLY, H.Opcode.SACK) for dscp in (H.Dscp.DATA, H.Dscp.TRIMMABLE)
        for length in (20, 21, 1000)]
    for psn, (opcode, dscp, length) in enumerate(sent*4):
        cluster.fabric.inject(cluster.nodes[0], frame(1, psn=psn, opcode=opcode, length=length, dscp=dscp, ipv6=ipv6))
    cluster.step(10_000)
    r = cluster.fabric.records
    r = r[r["node"] == 0]
    for line, (opcode, dscp, length) in zip(r, sent*4, strict=True):
        cut = opcode == H.Opcode.WRITE_ONLY and dscp == H.Dscp.TRIMMABLE and length > 20
        assert line["fate"] & (Fate.TRIMMED | Fate.CORRUPTED | Fate.DUPLICATED) == (Fate.TRIMMED if cut else Fate.CORRUPTED)
        assert line["length"] == 58 + 20*ipv6 + length and line["delivered"] > 0
    stats = cluster.fabric.statistics()["data"]
    assert stats["trimmed"] == 8 and stats["delivered"] == stats["lost"] == 0
    whole   = {f for _, node, _, way, f in seen.frames if (node, way) == (0, "tx")}
    arrived = {f for _, node, _, way, f in seen.frames if (node, way) == (1, "rx") and len(f) == 78 + 20*ipv6}
    family  = H.IPV6 if ipv6 else H.IPV4
    long    = [f for f in whole if len(f) > 78 + 20*ipv6 and family.unpack(f[14:])["dscp"] == H.Dscp.TRIMMABLE
        and f[42 + 20*ipv6] == H.Opcode.WRITE_ONLY]
    cuts    = {dscp: {wire.trim(f, dscp=dscp) for f in long}
        for dscp in (H.Dscp.TRIMMED, H.Dscp.TRIMMED_LASTHOP)}
    assert all(arrived & c for c in cuts.values()) and len(arrived & (cuts[H.Dscp.TRIMMED] | cuts[H.Dscp.TRIMMED_LASTHOP])) == 8

def test_a_dead_plane_loses_everything(make):
    cluster = echo(make)
    cluster.fabric.plane_down(0, cluster.nodes[1])
    cluster.step(2000)
    r = cluster.fabric.records
    assert len(r) == 40 and (r["fate"] & Fate.DOWN).all() and cluster.sim.count(4) == 0

def test_one_seed_one_result(make):
    def once(seed):
        cluster = echo(make, loss=0.02, duplicate=0.1, jitter=3000, paths=3, seed=seed)
        cluster.step(8000)
        return cluster.fabric.records.tobytes()
    assert once(1) == once(1) != once(2)

def test_capture_holds_what_the_macs_saw(make, tmp_path):
    from pcapng import FileScanner
    from pcapng.blocks import EnhancedPacket
    path = tmp_path/"x.pcapng"
    cluster = echo(make, count=3, capture=Capture(str(path)), planes=1)
    cluster.step(150)
    cluster.capture.drain()
    cluster.capture._stream.flush()
    with open(path, "rb") as f:
        packets = [(p.interface.options["if_name"], p.packet_data, p.timestamp) for p in FileScanner(f) if isinstance(p, EnhancedPacket)]
    assert [p[0] for p in packets[:3]].count("card0-plane0-rx") >= 1
    first = packets[0]
    assert first[1] == frame(1, port=0xc000, psn=0, length=40) and 0 < first[2] < 1e-6

# Limits -------------------------------------------------------------------------------------------

def test_a_simulation_that_stands_still_says_what_waits(make):
    cluster = make()
    watch = cluster.sim.watch(0, cluster.nodes[0].alloc(8))
    cluster.sim.target(watch, 1)
    with pytest.raises(SimulationError, match="20000 cycles without progress: 1 flags are below their target"):
        cluster.run(stall=20_000)

def test_memory_is_finite(make):
    n = make(memory=1 << 20).nodes[0]
    with pytest.raises(DriverError, match="do not fit"):
        n.alloc(2 << 20)

# Waveform -----------------------------------------------------------------------------------------

@pytest.mark.slow
def test_a_waveform_per_card_is_written(make, tmp_path):
    cluster = make(trace=tmp_path/"wave.fst")
    cluster.step(200)
    cluster.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["wave.card0.fst", "wave.card1.fst"]
    assert all(p.stat().st_size > 500 for p in tmp_path.iterdir())
