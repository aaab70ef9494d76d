# SPDX-License-Identifier: BSD-2-Clause
"""TLPs as tests see them: to and from the words of a LitePCIe PHY, and a memory that takes writes."""

FMT_TYPE = {
    0b00_00000: "read", 0b01_00000: "read", 0b10_00000: "write", 0b11_00000: "write",
    0b10_01010: "completion", 0b00_01010: "completion",
}

def swapped(dword):
    return int.from_bytes(dword.to_bytes(4, "little"), "big")

def words_of(dwords, data_width):
    """PHY beats of a TLP given as dwords."""
    step, beats = data_width//32, []
    for n in range(0, len(dwords), step):
        part = dwords[n:n + step]
        beats.append({
            "dat":   sum(d << 32*i for i, d in enumerate(part)),
            "be":    (1 << 4*len(part)) - 1,
            "first": n == 0,
            "last":  n + step >= len(dwords)})
    return beats

def completion_dwords(tag, data, byte_count, lower_address, status=0, poisoned=0, requester=0x0100, length=None):
    """Completion with `data` (bytes, whole dwords), or without when it is None."""
    n      = 0 if data is None else len(data)//4
    length = n if length is None else length
    fmt    = 0b00_01010 if data is None else 0b10_01010
    header = [fmt << 24 | poisoned << 14 | (length & 0x3ff), status << 13 | (byte_count & 0xfff),
        requester << 16 | tag << 8 | lower_address]
    return header + [int.from_bytes(data[4*i:4*i + 4], "big") for i in range(n)]

def request_dwords(address, data=None, length=None, first_be=0xf, last_be=None, tag=0, requester=0, poisoned=0):
    """Memory write of `data` (bytes), or read of `length` dwords, with a 32-bit address."""
    length  = len(data)//4 if data is not None else length
    last_be = (0xf if length > 1 else 0) if last_be is None else last_be
    fmt     = 0b00_00000 if data is None else 0b10_00000
    header  = [fmt << 24 | poisoned << 14 | (length & 0x3ff), requester << 16 | tag << 8 | last_be << 4 | first_be, address]
    return header + [int.from_bytes((data or b"")[4*i:4*i + 4], "big") for i in range(len(data or b"")//4)]

def parse(beats, data_width):
    """TLPs out of PHY beats; checks `first`, `last`, `be`, lengths and the rules of PCIe."""
    tlps, dwords = [], []
    for beat in beats:
        assert beat["first"] == (not dwords), "first is not on the first word of a TLP"
        n = bin(beat["be"]).count("1")//4
        assert beat["be"] == (1 << 4*n) - 1 and n, f"byte enables {beat['be']:#x}"
        assert beat["last"] or n == data_width//32, "a word within a TLP is not full"
        dwords += [(beat["dat"] >> 32*i) & 0xffffffff for i in range(n)]
        if beat["last"]:
            tlps.append(parse_one(dwords))
            dwords = []
    assert not dwords, "an unfinished TLP"
    return tlps

def parse_one(dwords):
    fmt_type = (dwords[0] >> 24) & 0x7f
    kind     = FMT_TYPE[fmt_type]
    long     = bool(fmt_type & 0x20)
    data     = bool(fmt_type & 0x40)
    header   = 4 if long else 3
    length   = dwords[0] & 0x3ff
    assert (dwords[0] >> 10) & 0x3fff == 0, "traffic class, attributes, digest or poison are not 0"
    body     = b"".join(d.to_bytes(4, "big") for d in dwords[header:])
    assert len(body) == (4*length if data else 0), f"{len(body)} bytes of data, but the length is {length} dwords"
    tlp = {"kind": kind, "length": length, "id": dwords[1] >> 16, "data": body}
    if kind == "completion":
        return {**tlp, "status": (dwords[1] >> 13) & 7, "byte_count": dwords[1] & 0xfff, "requester": dwords[2] >> 16,
            "tag": (dwords[2] >> 8) & 0xff, "lower_address": dwords[2] & 0x7f}
    address  = dwords[2] << 32 | dwords[3] if long else dwords[2]
    assert address % 4 == 0
    assert long == (address >= 1 << 32), "the header form does not fit the address"
    assert address//4096 == (address + 4*length - 1)//4096, "a request crosses 4 KiB"
    return {**tlp, "address": address, "tag": (dwords[1] >> 8) & 0xff,
        "last_be": (dwords[1] >> 4) & 0xf, "first_be": dwords[1] & 0xf}

def enables(first_be, last_be, length):
    """Byte enables of a request, one bool per byte; checks the rules."""
    if length == 1:
        assert last_be == 0, "one dword with a last_be"
        masks = [first_be]
    else:
        assert first_be and last_be, "an empty first or last dword"
        masks = [first_be] + [0xf]*(length - 2) + [last_be]
    bits = [bool(m >> i & 1) for m in masks for i in range(4)]
    used = "".join("01"[b] for b in bits).strip("0")
    assert used and "0" not in used, "byte enables with a hole"
    return bits
