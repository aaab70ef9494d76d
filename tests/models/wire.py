# SPDX-License-Identifier: BSD-2-Clause
"""Frames as bytes: builds and takes apart what the card sends, slow and obvious, from the header tables.

A frame here is what a MAC hands over: Ethernet header to ICRC (plus padding), without preamble and
FCS, on IPv4 or IPv6. `parse` judges as a receiver does and names the first thing that is wrong.
"""

import zlib

from gateware.common.headers import *
from gateware.common.layouts import Verdict
from gateware.network.icrc import icrc

# Helpers ------------------------------------------------------------------------------------------

def ip_checksum(header):
    """Internet checksum (RFC 1071) of bytes; 0 over a header whose checksum is right."""
    total = sum(int.from_bytes(header[i:i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total ^ 0xffff

def with_checksum(ip):
    """An IPv4 header of these fields."""
    ip = {**ip, "checksum": 0}
    return IPV4.pack(**{**ip, "checksum": ip_checksum(IPV4.pack(**ip))})

def fcs(frame):
    """Frame check sequence, 4 bytes as on the wire."""
    return zlib.crc32(frame).to_bytes(4, "little")

DEFAULTS = dict(destination_mac=0x02_00_00_00_00_02, source_mac=0x02_00_00_00_00_01, source_ip=0x0a000001,
    destination_ip=0x0a000002, dscp=0, entropy=0xc000, udp_port=UDP_PORT, p_key=0xffff, dest_qp=0x000001,
    a=0, rtx=0, psn=0, ipv6=0)

# Building -----------------------------------------------------------------------------------------

def build(opcode, body, payload=b"", ecn=0, ts=0, minimum=0, **values):
    """A frame with `body` (bytes after the BTH, as on the wire) and `payload`; `values` as in DEFAULTS."""
    v = dict(DEFAULTS)
    unknown = set(values) - set(v)
    if unknown:
        raise ValueError(f"A frame has no {', '.join(sorted(unknown))}.")
    v.update(values)
    pad = -len(payload) % 4
    bth = BTH.pack(opcode=opcode, pad=pad, p_key=v["p_key"], dest_qp=v["dest_qp"], a=v["a"], rtx=v["rtx"],
        ts=ts, psn=v["psn"])
    inner = bth + body + payload + bytes(pad)
    udp = UDP.pack(source_port=v["entropy"], destination_port=v["udp_port"], length=UDP.length + len(inner) + ICRC_BYTES)
    length, addresses = UDP.length + len(inner) + ICRC_BYTES, dict(source=v["source_ip"], destination=v["destination_ip"])
    if v["ipv6"]:
        ip = IPV6.pack(version=6, dscp=v["dscp"], ecn=ecn, flow_label=v["entropy"], payload_length=length, next_header=PROTOCOL_UDP,
            hop_limit=64, **addresses)
    else:
        ip = with_checksum(dict(version=4, ihl=5, dscp=v["dscp"], ecn=ecn, total_length=IPV4.length + length, ttl=64,
            protocol=PROTOCOL_UDP, **addresses))
    packet  = ip + udp + inner
    packet += icrc(packet)
    eth = ETH.pack(destination=v["destination_mac"], source=v["source_mac"], ethertype=ETHERTYPE_IPV6 if v["ipv6"] else ETHERTYPE_IPV4)
    frame = eth + packet
    return frame + bytes(max(0, minimum - len(frame)))

def build_data(opcode, payload=b"", rqmsn=0, msn=0, va=0, rkey=0, message_length=None, immediate=0,
    tx_timestamp=None, tsr=0, ftype=1, ecn=2, **values):
    """A data packet. TSETH goes out if `tx_timestamp` is given, ImmDt if the opcode has it."""
    body = METH.pack(rqmsn=rqmsn, msn=msn)
    if tx_timestamp is not None:
        body += TSETH.pack(tx_timestamp=tx_timestamp, tsr=tsr, ftype=ftype)
    body += RETH.pack(va=va, rkey=rkey, length=len(payload) if message_length is None else message_length)
    if PACKET_TYPES[opcode].imm:
        body += IMMDT.pack(immediate=immediate)
    return build(opcode, body, payload, ecn=ecn, ts=int(tx_timestamp is not None), **values)

def control_body(opcode, **fields):
    """Body of a control packet; a field is named by its header table's field, `HEADER_field` if ambiguous."""
    body = b""
    for header in CONTROL_HEADERS[opcode]:
        prefix = header.name.lower() + "_"
        own = {}
        for name in header.fields:
            if prefix + name in fields:
                own[name] = fields.pop(prefix + name)
            elif name in fields:
                own[name] = fields.pop(name)
        body += header.pack(**own)
    if fields:
        raise ValueError(f"{PACKET_TYPES[opcode].name} has no field {', '.join(sorted(fields))}.")
    return body

CONTROL_HEADERS = {
    Opcode.ACKNOWLEDGE: (AETH,),
    Opcode.SACK:        (SETH, CC_STATE),
    Opcode.NACK:        (NETH,),
    Opcode.PROBE:       (PETH,),
}

def build_control(opcode, dscp=Dscp.CONTROL, **values):
    """A control packet: frame values as in DEFAULTS, the rest are fields of its headers."""
    frame = {k: values.pop(k) for k in list(values) if k in DEFAULTS or k in ("ecn", "minimum")}
    return build(opcode, control_body(opcode, **values), dscp=dscp, **frame)

# Taking apart -------------------------------------------------------------------------------------

def normalise(opcode, ts, body):
    """Body as in received_layout: data bodies get METH 0, TSETH 4, RETH 8, ImmDt 24, absent ones are 0."""
    kind = PACKET_TYPES[opcode]
    if kind.data:
        tseth, rest = (body[4:8], body[8:]) if ts else (bytes(4), body[4:])
        body = body[:4] + tseth + rest[:16] + (rest[16:20] if kind.imm else bytes(4))
    return body + bytes(BODY_BYTES - len(body))

def trimmed_class(dscp):
    """Verdict of a data packet with this DSCP: 0, or trimmed (at the last hop)."""
    return {Dscp.TRIMMED: Verdict.TRIMMED, Dscp.TRIMMED_LASTHOP: Verdict.TRIMMED_LASTHOP}.get(dscp, Verdict.GOOD)

def is_ipv6(frame):
    return ETH.unpack(frame)["ethertype"] == ETHERTYPE_IPV6

def prefix(frame):
    """Bytes up to the end of the BTH."""
    return PREFIX6_BYTES if is_ipv6(frame) else PREFIX_BYTES

def trim(frame, size=None, dscp=Dscp.TRIMMED):
    """The frame as a switch trims it: `size` bytes behind the MAC addresses and type (else 44 behind the IP
    header), a new DSCP, a right IP checksum; lengths as they were, no ICRC."""
    if is_ipv6(frame):
        ip = IPV6.pack(**{**IPV6.unpack(frame[14:]), "dscp": dscp})
    else:
        ip = with_checksum({**IPV4.unpack(frame[14:]), "dscp": dscp})
    return (frame[:14] + ip + frame[14 + len(ip):])[:ETH.length + (len(ip) + 44 if size is None else size)]

def parse(frame, own_ip=0, own_ip6=0, own_mac=0, udp_port=UDP_PORT, max_mtu=4096):
    """Dictionary of a frame. `error` is None for a good packet, else "header", "endpoint", "opcode", "length"
    or "icrc"; a bad packet has no further keys that one may trust.

    A data packet that a switch has trimmed is good too: `verdict` is not 0, there is METH and TSETH only.

    Good packets: opcode, name, all BTH fields, ipv6, entropy, ce, dscp, source, destination, body (normalised),
    wire_body, offset (bytes from the frame's start to the payload), payload, and a dictionary per header
    ("METH", "RETH", ..., those that are there).
    """
    p = {"error": "length"}
    if len(frame) < ETH.length or len(frame) < prefix(frame):
        return p
    eth, ipv6 = ETH.unpack(frame), is_ipv6(frame)
    at  = prefix(frame) - BTH.length
    ip  = (IPV6 if ipv6 else IPV4).unpack(frame[14:])
    udp = UDP.unpack(frame[at - UDP.length:])
    bth = BTH.unpack(frame[at:])
    at += BTH.length
    p.update(bth, eth=eth, ip=ip, udp=udp, ipv6=int(ipv6), entropy=udp["source_port"], ce=int(ip["ecn"] == 3), dscp=ip["dscp"],
        source=ip["source"], destination=ip["destination"])
    p["error"] = "header"
    if (own_mac and eth["destination"] != own_mac) or udp["destination_port"] != udp_port or bth["tver"]:
        return p
    if ipv6:
        if ip["version"] != 6 or ip["next_header"] != PROTOCOL_UDP or (own_ip6 and ip["destination"] != own_ip6):
            return p
        length = ip["payload_length"]           # From the UDP header on.
    else:
        if eth["ethertype"] != ETHERTYPE_IPV4 or ip["version"] != 4 or ip["ihl"] != 5 or ip["protocol"] != PROTOCOL_UDP:
            return p
        if ip["flags"] & 1 or ip["fragment"] or ip_checksum(frame[14:34]) or (own_ip and ip["destination"] != own_ip):
            return p
        length = ip["total_length"] - IPV4.length
    p["error"] = "endpoint"
    if bth["opcode"] in ENDPOINT_OPCODES or bth["dest_qp"] == ENDPOINT_QP:
        return p
    p["error"] = "opcode"
    if bth["opcode"] not in PACKET_TYPES:
        return p
    kind, p["error"] = PACKET_TYPES[bth["opcode"]], "length"
    ts   = bth["ts"] if kind.data else 0
    body = kind.body + 4*ts
    verdict = trimmed_class(ip["dscp"]) if kind.data else Verdict.GOOD
    if verdict:
        end = at + METH.length + (TSETH.length if ts else 0)
        if len(frame) >= end:
            wire = frame[at:end]
            p.update(error=None, verdict=verdict, name=kind.name, kind=kind, wire_body=wire, body=wire + bytes(BODY_BYTES - len(wire)),
                payload=b"", METH=METH.unpack(wire), **({"TSETH": TSETH.unpack(wire[4:])} if ts else {}))
        return p
    end  = at - BTH.length - UDP.length + length - ICRC_BYTES
    rest = end - at - body                      # Payload and pad.
    if udp["length"] != length or end + ICRC_BYTES > len(frame):
        return p
    if rest < bth["pad"] or rest % 4 or rest - bth["pad"] > max_mtu or (not kind.data and rest):
        return p
    p["error"] = "icrc"
    if icrc(frame[14:end]) != frame[end:end + ICRC_BYTES]:
        return p
    wire = frame[at:at + body]
    p.update(error=None, verdict=verdict, name=kind.name, kind=kind, wire_body=wire, body=normalise(bth["opcode"], ts, wire),
        offset=at + body, payload=frame[at + body:end - bth["pad"]])
    headers = CONTROL_HEADERS.get(bth["opcode"]) or (METH,) + ((TSETH,) if ts else ()) + (RETH,) + ((IMMDT,) if kind.imm else ())
    for header in headers:
        p[header.name] = header.unpack(wire)
        wire = wire[header.length:]
    return p
