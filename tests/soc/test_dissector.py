# SPDX-License-Identifier: BSD-2-Clause
"""The Wireshark dissector says of every packet what the tables say, and survives what is not a packet."""

import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateware.common import headers as H
from gateware.network.icrc import icrc
from soc import dissector
from soc.document import DOCS
from soc.sim.capture import Capture
from tests.models import wire

SCRIPT  = DOCS/"wireshark"/"openrdma.lua"
GOLDEN  = Path(__file__).parents[1]/"golden"/"rxe"
HEADERS = [h for h in H.HEADERS if h not in (H.ETH, H.IPV4, H.IPV6, H.UDP)]
DERIVED = ("mrc.seth.base", "mrc.seth.arrived", "mrc.seth.holes", "mrc.seth.trigger", "mrc.seth.probe_id", "mrc.payload",
           "mrc.padding", "mrc.icrc", "mrc.icrc.status")
SHOWN   = ("_ws.col.Protocol", "_ws.col.Info", "_ws.expert.message")
PSNS    = 1 << 24

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

def name(header, field):
    return "mrc." + dissector.filter_name(header, field)

FIELDS = {name(h, f): (h, f) for h in HEADERS for f in h.fields.values()}

# tshark -------------------------------------------------------------------------------------------

def tshark(path, *arguments, script=True):
    command = ["tshark", *(["-X", f"lua_script:{SCRIPT}"] if script else []), "-r", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "lua" not in done.stderr.lower(), done.stderr
    return done.stdout

def capture(path, frames):
    """The simulation's own writer, without a simulation."""
    taken  = [(i, 0, f) for i, f in enumerate(frames)]
    writer = Capture(str(path))
    writer.open(SimpleNamespace(nodes=[None], planes=1, config=SimpleNamespace(clk_freq=1e9),
        sim=SimpleNamespace(take_captures=lambda: taken)))
    writer.drain()
    writer.close()
    return path

def dissect(path, *options):
    """One dictionary per frame: filter name -> text."""
    columns = (*FIELDS, *DERIVED, *SHOWN)
    out = tshark(path, *options, "-T", "fields", "-E", "separator=|", *[x for c in columns for x in ("-e", c)])
    rows = [line.split("|") for line in out.splitlines()]
    assert all(len(row) == len(columns) for row in rows)
    whole = tshark(path, *options, "-V")
    assert "Lua Error" not in whole and "Malformed Packet: MRC" not in whole
    return [dict(zip(columns, row, strict=True)) for row in rows]

# Frames -------------------------------------------------------------------------------------------

def headers_of(opcode, ts):
    return dissector.body(H.PACKET_TYPES[opcode], ts)

def anything(rng, header):
    """Random values, at times all ones or zeros, for all fields of a header."""
    return {f.name: rng.choice((rng.getrandbits(f.width), rng.getrandbits(f.width), 0, (1 << f.width) - 1)) for f in header.fields.values()}

def inner(rng, opcode, ts, length):
    """BTH to pad: (bytes, payload)."""
    payload = rng.randbytes(length if H.PACKET_TYPES[opcode].data else 0)
    pad     = -len(payload) % 4
    bth     = H.BTH.pack(**{**anything(rng, H.BTH), "opcode": opcode, "pad": pad, "ts": ts})
    body    = b"".join(h.pack(**anything(rng, h)) for h in headers_of(opcode, ts))
    return bth + body + payload + bytes(pad), payload

def wrap(data, version=4, tail=b"", crc=None):
    """A frame with the right lengths around `data` (BTH to pad); `tail` is padding of Ethernet's."""
    length = H.UDP.length + len(data) + H.ICRC_BYTES
    udp    = H.UDP.pack(source_port=0xc001, destination_port=H.UDP_PORT, length=length)
    if version == 4:
        ip = dict(version=4, ihl=5, total_length=H.IPV4.length + length, ttl=64, protocol=H.PROTOCOL_UDP, source=0x0a000001,
            destination=0x0a000002)
        ip = H.IPV4.pack(**ip, checksum=wire.ip_checksum(H.IPV4.pack(**ip)))
    else:
        ip = bytes((0x61, 0x23, 0x45, 0x67)) + length.to_bytes(2, "big") + bytes((H.PROTOCOL_UDP, 64)) + bytes(range(32))
    eth = H.ETH.pack(destination=2, source=1, ethertype=0x0800 if version == 4 else 0x86dd)
    return eth + ip + udp + data + (icrc(ip + udp + data) if crc is None else crc) + tail

# What must be shown -------------------------------------------------------------------------------

def signed(value, width):
    return value - (value >> (width - 1) << width)

def text(psns):
    """Ascending PSNs as ranges."""
    runs = []
    for psn in psns:
        if runs and psn == (runs[-1][1] + 1) % PSNS:
            runs[-1][1] = psn
        else:
            runs.append([psn, psn])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "none"

def expected(data, payload):
    """(fields as numbers, derived texts) of BTH to pad."""
    opcode, values, at = data[0], {}, 0
    bth = H.BTH.unpack(data)
    for header in (H.BTH, *headers_of(opcode, bth["ts"])):
        for field, value in header.unpack(data[at:]).items():
            f = header.fields[field]
            values[name(header, f)] = signed(value, f.width) if f.remark.startswith("signed") else value
        at += header.length
    derived = {"mrc.payload": payload.hex(), "mrc.padding": "00"*bth["pad"], "mrc.icrc.status": "1"}
    if opcode == H.Opcode.SACK:
        cack   = values["mrc.seth.cack_psn"]
        base   = (cack + values["mrc.seth.sack_offset"]) % PSNS
        bits   = [i for i in range(64) if values["mrc.seth.bitmap"] >> i & 1]
        above  = lambda psn: 0 < (psn - cack) % PSNS <= PSNS//2
        holes  = [(base + i) % PSNS for i in range(max(bits, default=0)) if i not in bits and above((base + i) % PSNS)]
        offset = values["mrc.seth.ack_psn_offset"]
        derived |= {"mrc.seth.base": str(base), "mrc.seth.arrived": text((base + i) % PSNS for i in bits), "mrc.seth.holes": text(holes)}
        if values["mrc.seth.pr"]:
            derived["mrc.seth.probe_id"] = str(offset % 65536)
        else:
            derived["mrc.seth.trigger"] = str((cack + offset) % PSNS)
    return values, derived

def compare(row, data, payload):
    values, derived = expected(data, payload)
    for column in FIELDS:
        shown = int(row[column], 0) if row[column] else None
        assert shown == values.get(column), (column, row[column], values.get(column))
    for column in DERIVED:
        if column != "mrc.icrc":
            assert row[column] == derived.get(column, ""), column
    kind = H.PACKET_TYPES[data[0]]
    assert row["_ws.col.Protocol"] == "MRC"
    assert row["_ws.col.Info"].startswith(f"{kind.name} qp 0x{values['mrc.dest_qp']:06x} ")
    assert ("[rtx]" in row["_ws.col.Info"]) == bool(values["mrc.rtx"])

# Tests --------------------------------------------------------------------------------------------

def test_every_field_has_a_name_and_a_place_that_wireshark_knows():
    assert len(FIELDS) == sum(len(h.fields) for h in HEADERS)
    known = {n[len("mrc."):] for n in FIELDS}
    assert dissector.SIGNED | dissector.HEX | set(dissector.NAMES) <= known
    for n, (_, f) in FIELDS.items():
        first, size, mask = dissector.container(f)
        assert size in (1, 2, 3, 4, 8) and 8*first <= f.bit and f.bit + f.width <= 8*(first + size), n
        assert (bin(mask).count("1") or 8*size) == f.width and mask < 1 << 8*size
        assert (n[len("mrc."):] in dissector.SIGNED) == f.remark.startswith("signed")
    assert {h for t in H.PACKET_TYPES.values() for h in dissector.body(t)} | {H.BTH} == set(HEADERS)
    for t in H.PACKET_TYPES.values():
        assert sum(h.length for h in dissector.body(t, ts=False)) == t.body, t.name

@needs_tshark
def test_every_field_of_every_packet_type_is_the_tables_value(tmp_path):
    rng = random.Random(1)
    packets, frames = [], []
    for opcode in H.PACKET_TYPES:
        for n in range(24):
            packets.append(inner(rng, opcode, n & 1, rng.choice((0, 1, 2, 3, 4, 255, 256))))
            frames.append(wrap(packets[-1][0], version=4 if n % 3 else 6, tail=bytes(n % 5)))
    rows = dissect(capture(tmp_path/"all.pcapng", frames))
    assert len(rows) == len(packets)
    for row, packet in zip(rows, packets, strict=True):
        compare(row, *packet)

@needs_tshark
def test_the_info_column_reads_well(tmp_path):
    o, bits = H.Opcode, (1 << 0) | (1 << 2) | (1 << 3) | (1 << 7)
    frames = [
        (wire.build_data(o.WRITE_MIDDLE, bytes(256), psn=7, msn=3, dest_qp=0x020001, rtx=1, tx_timestamp=0),
            "WRITE MIDDLE qp 0x020001 psn 7 msn 3 len 256 [rtx]"),
        (wire.build_data(o.WRITE_ONLY_IMM, bytes(5), psn=8, msn=4, immediate=0x2a),
            "WRITE ONLY IMM qp 0x000001 psn 8 msn 4 len 5 imm 0x2a"),
        (wire.build_control(o.ACKNOWLEDGE, psn=9, syndrome=H.Syndrome.ACK, msn=5), "ACKNOWLEDGE qp 0x000001 psn 9 msn 5 ACK"),
        (wire.build_control(o.ACKNOWLEDGE, psn=9, syndrome=0x62, msn=5), "ACKNOWLEDGE qp 0x000001 psn 9 msn 5 NAK_REMOTE_ACCESS"),
        (wire.build_control(o.ACKNOWLEDGE, psn=9, syndrome=0x7f, msn=5), "ACKNOWLEDGE qp 0x000001 psn 9 msn 5 syndrome 0x7f"),
        (wire.build_control(o.SACK, psn=PSNS - 2, cack_psn=PSNS - 2, sack_offset=1, bitmap=bits << 1),
            f"SACK qp 0x000001 cack {PSNS - 2} base {PSNS - 1} holes {PSNS - 1}, 1, 4-6"),
        (wire.build_control(o.SACK, psn=1, cack_psn=1, sack_offset=0xffff, bitmap=0x155555, pr=1, ack_psn_offset=0xfffe),
            "SACK qp 0x000001 cack 1 base 0 holes 3, 5, 7, 9, ... answer to probe 65534"),
        (wire.build_control(o.NACK, psn=500, nack_psn=500, reason=H.NackReason.PSN_OOR_WINDOW), "NACK qp 0x000001 psn 500 PSN_OOR_WINDOW"),
        (wire.build_control(o.NACK, psn=500, nack_psn=500, reason=0xee), "NACK qp 0x000001 psn 500 reason 0xee"),
        (wire.build_control(o.PROBE, probe_id=77), "PROBE qp 0x000001 id 77"),
    ]
    rows = dissect(capture(tmp_path/"info.pcapng", [f for f, _ in frames]))
    assert [row["_ws.col.Info"] for row in rows] == [info for _, info in frames]

@needs_tshark
def test_a_damaged_packet_has_a_bad_icrc_and_masked_bytes_do_not_count(tmp_path):
    rng = random.Random(2)
    frames, good = [], []
    for version, udp in ((4, 34), (6, 54)):
        data, _ = inner(rng, H.Opcode.WRITE_ONLY, 1, 61)
        frame   = wrap(data, version)
        masked  = {udp + 6, udp + 7, udp + 12} | ({15, 22, 24, 25} if version == 4 else {15, 16, 17, 21})
        for at in sorted(masked | {26, udp + 9, udp + 18, udp + 40, len(frame) - 5, len(frame) - 1}):
            damaged = bytearray(frame)
            damaged[at] ^= 0x10
            frames.append(bytes(damaged))
            good.append(at in masked)
    path = capture(tmp_path/"damaged.pcapng", frames)
    rows = dissect(path)
    assert [row["mrc.icrc.status"] for row in rows] == ["1" if g else "0" for g in good]
    assert ["[bad ICRC]" in row["_ws.col.Info"] and "Bad ICRC" in row["_ws.expert.message"] for row in rows] == [not g for g in good]
    assert {row["mrc.icrc.status"] for row in dissect(path, "-o", "mrc.check_icrc:FALSE")} == {"2"}

@needs_tshark
def test_packets_of_every_length_leave_no_error_of_ours(tmp_path):
    """UDP packets that end anywhere, and whole ones that a switch or a capture has cut."""
    rng = random.Random(3)
    frames, verdicts = [], []
    for opcode in H.PACKET_TYPES:
        for ts in (0, 1):
            data, _ = inner(rng, opcode, ts, 6)
            headers = H.BTH.length + sum(h.length for h in headers_of(opcode, ts))
            pad     = H.BTH.unpack(data)["pad"]
            for length in range(len(data) + 8):
                short = (data + bytes(8))[:length]
                rest  = length - H.ICRC_BYTES - headers
                fits  = rest >= pad and rest % 4 == 0 and (H.PACKET_TYPES[opcode].data or rest == 0)
                frames.append(wrap(short[:-4] if length >= 4 else b"", crc=short[-4:] if length else b""))
                # An ICRC shorter than 4 bytes makes the lengths lie: UDP then says more than there is.
                verdicts.append(None if length < 4 else "cut" if length < headers else "right" if fits else "length")
            whole = wrap(data)
            for end in range(42, len(whole)):
                frames.append(whole[:end])
                verdicts.append(None)
    rows = dissect(capture(tmp_path/"short.pcapng", frames))
    assert len(rows) == len(frames)
    for row, verdict in zip(rows, verdicts, strict=True):
        message = row["_ws.expert.message"]
        if verdict is not None:
            assert ("Packet ends inside of its" in message) == (verdict == "cut"), (row, verdict)
            assert ("bytes follow the headers" in message) == (verdict == "length"), (row, verdict)
            assert bool(row["mrc.icrc.status"]) == (verdict == "right")

@needs_tshark
def test_other_opcodes_go_where_they_went_before(tmp_path):
    utils  = pytest.importorskip("scapy.utils")
    frames = [bytes(f) for path in sorted(GOLDEN.glob("*.pcap")) for f, *_ in utils.RawPcapReader(str(path))]
    frames += [wrap(bytes((opcode,)) + bytes(47)) for opcode in range(256) if opcode not in H.PACKET_TYPES]
    path   = capture(tmp_path/"others.pcapng", frames)
    shown  = ("-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info", "-e", "infiniband.bth.psn")
    ours   = tshark(path, *shown)
    assert ours == tshark(path, *shown, script=False) and len(ours.splitlines()) == len(frames) and "RRoCE" in ours
    assert tshark(path, "-Y", "mrc") == ""

@needs_tshark
def test_the_port_is_a_preference(tmp_path):
    data, payload = inner(random.Random(4), H.Opcode.WRITE_ONLY, 1, 9)
    moved = bytearray(wrap(data))
    moved[36:38] = (4800).to_bytes(2, "big")
    moved[-4:]   = icrc(bytes(moved[14:-4]))
    rows = dissect(capture(tmp_path/"port.pcapng", [wrap(data), bytes(moved)]), "-o", "mrc.port:4800")
    assert rows[0]["mrc.psn"] == "" and rows[0]["_ws.col.Protocol"] == "RRoCE"
    compare(rows[1], data, payload)
