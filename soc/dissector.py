# SPDX-License-Identifier: BSD-2-Clause
"""The tables of the Wireshark dissector (docs/wireshark/openrdma.lua), as Lua, from those of the wire.

soc/document.py keeps them up to date; what is done with them is written by hand in the Lua file.
"""

import json

from gateware.common import headers as H

# What follows the BTH -----------------------------------------------------------------------------

_CONTROL = {
    H.Opcode.ACKNOWLEDGE: (H.AETH,),
    H.Opcode.SACK:        (H.SETH, H.CC_STATE),
    H.Opcode.NACK:        (H.NETH,),
    H.Opcode.PROBE:       (H.PETH,),
}

def body(kind, ts=True):
    """Headers between the BTH and the payload of a packet type; `ts`: the BTH says that TSETH is there."""
    if not kind.data:
        return _CONTROL[kind.opcode]
    return (H.METH,) + ((H.TSETH,) if ts else ()) + (H.RETH,) + ((H.IMMDT,) if kind.imm else ())

# How a field is shown -----------------------------------------------------------------------------

SIGNED = {"seth.ack_psn_offset", "seth.sack_offset"}
HEX    = {"opcode", "p_key", "dest_qp", "reth.va", "reth.rkey", "seth.entropy", "seth.spdcid", "seth.dpdcid", "seth.bitmap",
          "neth.reason", "neth.entropy", "neth.spdcid", "neth.dpdcid", "peth.spdcid", "peth.dpdcid", "aeth.syndrome"}
NAMES  = {"opcode": "opcodes", "neth.reason": "reasons", "aeth.syndrome": "syndromes"}

def filter_name(header, field):
    """Name in display filters without the leading `mrc.`: BTH fields stand alone, others follow their header."""
    return field.name if header is H.BTH else f"{header.name.lower()}.{field.name}"

def container(f):
    """(first byte, bytes, bits of a mask or 0 for a field of whole bytes): where Wireshark finds a field."""
    first, last = f.bit//8, (f.bit + f.width - 1)//8
    size = last - first + 1
    mask = ((1 << f.width) - 1) << (8*(last + 1) - f.bit - f.width)
    return first, size, 0 if f.width == 8*size else mask

# Lua ----------------------------------------------------------------------------------------------

def _row(header, f):
    first, size, mask = container(f)
    name = filter_name(header, f)
    kind = f"{'int' if name in SIGNED else 'uint'}{8*size}"
    base = "HEX" if name in HEX else "DEC"
    row  = [("name", json.dumps(f.name)), ("filter", json.dumps("mrc." + name)), ("kind", json.dumps(kind)), ("base", f"base.{base}"),
        ("names", NAMES.get(name)), ("mask", mask and f"0x{mask:x}"), ("byte", str(first)), ("size", str(size)),
        ("bit", str(f.bit - 8*first)), ("width", str(f.width)), ("text", f.remark and json.dumps(f.remark))]
    return "        {" + ", ".join(f"{key} = {value}" for key, value in row if value) + "},"

def _names(name, pairs):
    return [f"local {name} = {{", *[f"    [0x{value:02x}] = {json.dumps(text)}," for value, text in pairs], "}"]

def _constants(cls):
    return [(value, name) for name, value in vars(cls).items() if not name.startswith("_")]

def tables():
    """The generated part of the Lua file."""
    lines = _names("opcodes", [(t.opcode, t.name) for t in H.PACKET_TYPES.values()])
    lines += _names("reasons", _constants(H.NackReason)) + _names("syndromes", _constants(H.Syndrome))
    lines.append("local headers = {")
    for header in dict.fromkeys((H.BTH, *[h for t in H.PACKET_TYPES.values() for h in body(t)])):
        lines.append(f"    {header.name} = {{length = {header.length}, fields = {{")
        lines += [*[_row(header, f) for f in header.fields.values()], "    }},"]
    lines += ["}", "local packets = {"]
    for t in H.PACKET_TYPES.values():
        names = ", ".join(json.dumps(h.name) for h in body(t))
        lines.append(f"    [0x{t.opcode:02x}] = {{name = {json.dumps(t.name)}, data = {json.dumps(t.data)}, body = {{{names}}}}},")
    lines += ["}", f"local udp_port, icrc_bytes = {H.UDP_PORT}, {H.ICRC_BYTES}"]
    return "\n".join(lines)
