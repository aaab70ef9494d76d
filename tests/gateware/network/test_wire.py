# SPDX-License-Identifier: BSD-2-Clause
"""The Python models against captures of another implementation and against scapy."""

from pathlib import Path

import pytest
from scapy.all import IP, Ether, raw, rdpcap
from scapy.all import UDP as ScapyUDP
from scapy.contrib.roce import BTH as ScapyBTH

from gateware.common.headers import *
from gateware.common.layouts import Verdict
from gateware.network.icrc import icrc
from tests.models import wire

RXE = Path(__file__).parents[2]/"golden"/"rxe"

def roce_packets(version=None):
    """(file, IP packet without padding) of every RoCEv2 frame in the captures."""
    packets = []
    for path in sorted(RXE.glob("*.pcap")):
        for frame in rdpcap(str(path)):
            data = bytes(frame)
            kind, packet = int.from_bytes(data[12:14], "big"), data[14:]
            if kind == 0x0800 and packet[9] == 17 and packet[22:24] == b"\x12\xb7":
                packets.append((path.name, 4, packet[:int.from_bytes(packet[2:4], "big")]))
            if kind == 0x86dd and packet[6] == 17 and packet[42:44] == b"\x12\xb7":
                packets.append((path.name, 6, packet[:40 + int.from_bytes(packet[4:6], "big")]))
    return [p for p in packets if version in (None, p[1])]

# Bytes that the ICRC reads as ones, from the IP header on. IPv6 has four such bits in byte 0 besides.
MASKED = {4: {1, 8, 10, 11, 26, 27, 32}, 6: {1, 2, 3, 7, 46, 47, 52}}

def bitwise_icrc(packet):
    """ICRC of an IP packet without its ICRC: the division done bit by bit, with nothing of the models in it."""
    version = packet[0] >> 4
    data    = [0xff]*8 + [0xff if i in MASKED[version] else byte for i, byte in enumerate(packet)]
    if version == 6:
        data[8] |= 0x0f
    rest = 0xffffffff
    for byte in data:
        for bit in range(8):                    # Bits enter from the least significant on.
            out  = (rest >> 31) ^ (byte >> bit & 1)
            rest = (rest << 1 & 0xffffffff) ^ (0x04c11db7 if out else 0)
    return int(f"{rest ^ 0xffffffff:032b}"[::-1], 2).to_bytes(4, "little")

def test_icrc_of_every_captured_frame():
    packets = roce_packets()
    assert len(packets) == 372
    assert {p[1] for p in packets} == {4, 6}
    wrong = [name for name, version, packet in packets if icrc(packet[:-4]) != packet[-4:]]
    assert wrong == []
    assert [name for name, _, packet in packets[::7] if bitwise_icrc(packet[:-4]) != packet[-4:]] == []

@pytest.mark.parametrize("version", [4, 6])
def test_icrc_sees_every_covered_bit_and_no_masked_one(version):
    packet = wire.build_data(Opcode.WRITE_ONLY, b"abcd", ipv6=int(version == 6))[14:-4]
    right  = icrc(packet)
    assert right == bitwise_icrc(packet)
    for i in range(len(packet)):
        for bit in range(8):
            if (i, bit) in [(0, b) for b in range(4, 8)]: # The version decides what the packet is.
                continue
            changed = bytearray(packet)
            changed[i] ^= 1 << bit
            assert (icrc(changed) == right) == (i in MASKED[version] or (version, i) == (6, 0)), (i, bit)

FRAMES = [
    *[(f"{PACKET_TYPES[o].name} {n} {t}", wire.build_data(o, bytes(i & 255 for i in range(n)), rqmsn=3, msn=4, va=0x123456789abcdef0,
        rkey=0x11223344, immediate=0x55667788, tx_timestamp=t, psn=0xabcdef, dest_qp=0x123456, a=1))
      for o, kind in PACKET_TYPES.items() if kind.data for n in (0, 1, 2, 3, 4, 255, 1024) for t in (None, 0x9abc)],
    ("ACK",   wire.build_control(Opcode.ACKNOWLEDGE, psn=7, syndrome=0x1f, msn=9)),
    ("SACK",  wire.build_control(Opcode.SACK, psn=7, cack_psn=6, bitmap=0xf0f0, rcvd_bytes=99)),
    ("NACK",  wire.build_control(Opcode.NACK, psn=7, reason=NackReason.NO_PKT_BUFFER, nack_psn=8)),
    ("PROBE", wire.build_control(Opcode.PROBE, psn=7, probe_id=77)),
]

@pytest.mark.parametrize("name,frame", FRAMES, ids=[f[0] for f in FRAMES])
def test_built_frames_are_right_for_scapy(name, frame):
    packet = Ether(frame)
    assert packet[IP].len == len(frame) - 14 and packet[ScapyUDP].len == len(frame) - 34
    roce = packet[ScapyBTH]
    end  = 4 if not len(roce.payload) else None
    # Scapy computes checksum and ICRC anew when they are taken out.
    again = Ether(frame)
    del again[IP].chksum
    assert bytes(again)[24:26] == frame[24:26]
    assert roce.compute_icrc(raw(packet[ScapyBTH])[:-4]) == frame[-4:], end

def test_parse_returns_what_was_built():
    for name, frame in FRAMES:
        for padded in (frame, frame + bytes(max(0, 60 - len(frame))), frame + b"\xa5"*7):
            p = wire.parse(padded)
            assert p["error"] is None, name
    p = wire.parse(wire.build_data(Opcode.WRITE_ONLY_IMM, b"hello", va=5, rkey=6, immediate=7, tx_timestamp=8, entropy=0xc123))
    assert (p["payload"], p["RETH"]["va"], p["RETH"]["rkey"], p["ImmDt"]["immediate"], p["TSETH"]["tx_timestamp"]) == (b"hello", 5, 6, 7, 8)
    assert p["entropy"] == 0xc123 and len(p["body"]) == BODY_BYTES and p["body"][24:28] == bytes([0, 0, 0, 7])

@pytest.mark.parametrize("ipv6", [0, 1])
def test_a_trimmed_frame_keeps_what_a_responder_needs(ipv6):
    more  = 20*ipv6     # Bytes that the IP header has more.
    whole = wire.build_data(Opcode.WRITE_MIDDLE, bytes(1000), msn=3, rqmsn=4, tx_timestamp=5, psn=6, entropy=0xc007,
        dscp=Dscp.TRIMMABLE, ipv6=ipv6)
    for dscp, verdict in ((Dscp.TRIMMED, Verdict.TRIMMED), (Dscp.TRIMMED_LASTHOP, Verdict.TRIMMED_LASTHOP)):
        frame = wire.trim(whole, dscp=dscp)
        p     = wire.parse(frame)
        assert len(frame) == 78 + more and (ipv6 or wire.ip_checksum(frame[14:34]) == 0) and p["error"] is None
        assert (p["verdict"], p["psn"], p["METH"]["msn"], p["TSETH"]["tx_timestamp"], p["entropy"]) == (verdict, 6, 3, 5, 0xc007)
        assert p["payload"] == b"" and "RETH" not in p
        assert wire.parse(frame[:62 + more])["error"] is None and wire.parse(frame[:61 + more])["error"] == "length"
    assert wire.parse(whole)["verdict"] == Verdict.GOOD
    assert wire.parse(wire.trim(whole, dscp=Dscp.TRIMMABLE))["error"] == "length"

def test_parse_names_what_is_wrong():
    good = wire.build_data(Opcode.WRITE_ONLY, b"hello")
    for at, error in ((12, "header"), (14, "header"), (24, "header"), (36, "header"), (42, "opcode"), (38, "length"), (80, "icrc")):
        bad = bytearray(good)
        bad[at] ^= 0x10
        assert wire.parse(bytes(bad))["error"] == error, at
    assert wire.parse(good[:-1])["error"] == "length"
    assert wire.parse(good, max_mtu=4)["error"] == "length"
    assert wire.parse(good, own_ip=1)["error"] == "header"
    six = wire.build_data(Opcode.WRITE_ONLY, b"hello", ipv6=1)
    assert wire.parse(six)["error"] is None
    for at, error in ((12, "header"), (14, "header"), (20, "header"), (56, "header"), (62, "opcode"), (18, "length"), (58, "length"),
                      (53, "icrc"), (100, "icrc")):
        bad = bytearray(six)
        bad[at] ^= 0x10
        assert wire.parse(bytes(bad))["error"] == error, at
    assert wire.parse(six, own_ip=1)["error"] is None and wire.parse(six, own_ip6=1)["error"] == "header"
    for values in (dict(dest_qp=ENDPOINT_QP), dict(dest_qp=ENDPOINT_QP, ipv6=1)):
        assert wire.parse(wire.build_data(Opcode.WRITE_ONLY, b"x", **values))["error"] == "endpoint"
    assert all(wire.parse(wire.build(opcode, bytes(36)))["error"] == "endpoint" for opcode in ENDPOINT_OPCODES)
