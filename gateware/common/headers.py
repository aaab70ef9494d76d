# SPDX-License-Identifier: BSD-2-Clause
"""The wire as tables: the one place where a header field has a position.

Bits are numbered as in the standards: 0 is the most significant bit of the first byte. Gateware
slices its fields out of a byte vector with `decode`, and builds one with `encode`; the Python
models, the tests and the documents use `pack` and `unpack` of the same tables.

Sources: IEEE 802.3, RFC 791, RFC 8200, RFC 768, IBTA (BTH, RETH, AETH, ImmDt), MRC 1.0 (METH, TSETH,
SETH, CC_STATE, NETH, PETH).
"""

from dataclasses import dataclass

from migen import C, Cat

# Tables -------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Field:
    name:   str
    bit:    int       # First bit, counted from the most significant bit of byte 0.
    width:  int
    remark: str = ""

class Header:
    """A fixed-size header: `name`, `length` in bytes and its fields.

    In gateware a header is a vector of 8*length bits whose byte 0 is bits 0 to 7, which is how
    LiteEth's streams carry bytes.
    """
    def __init__(self, name, length, *rows):
        self.name   = name
        self.length = length
        self.fields = {r[0]: Field(*r) for r in rows}
        used = set()
        for f in self.fields.values():
            span = set(range(f.bit, f.bit + f.width))
            assert not (span & used) and max(span) < 8*length, f"{name}.{f.name} overlaps or ends past the header"
            used |= span

    # Python side.
    def pack(self, **values):
        """Bytes of the header; fields that are not named are 0."""
        word = 0
        for name, value in values.items():
            f = self.fields[name]
            if not 0 <= value < (1 << f.width):
                raise ValueError(f"{self.name}.{name} is {value}, but it has {f.width} bits.")
            word |= value << (8*self.length - f.bit - f.width)
        return word.to_bytes(self.length, "big")

    def unpack(self, data):
        """Dictionary of all fields of the first `length` bytes."""
        if len(data) < self.length:
            raise ValueError(f"{self.name} needs {self.length} bytes, there are {len(data)}.")
        word = int.from_bytes(data[:self.length], "big")
        return {f.name: (word >> (8*self.length - f.bit - f.width)) & ((1 << f.width) - 1) for f in self.fields.values()}

    # Gateware side.
    def _runs(self, f):
        """(vector low bit, width) of the contiguous runs of a field, least significant first."""
        runs, bit, end = [], f.bit, f.bit + f.width
        while bit < end:
            byte  = bit//8
            stop  = min(end, 8*(byte + 1))
            runs.append((8*byte + 8*(byte + 1) - stop, stop - bit))
            bit = stop
        return list(reversed(runs))

    def field(self, vector, name):
        """The field's value (an expression, native bit order) out of a byte vector."""
        return Cat(*[vector[low:low + width] for low, width in self._runs(self.fields[name])])

    def encode(self, vector, **values):
        """Statements that set every field of a byte vector; unnamed fields and gaps become 0."""
        statements = [vector.eq(0)]
        for name, value in values.items():
            offset = 0
            f = self.fields[name]
            if isinstance(value, int):
                value = C(value, f.width)
            assert len(value) == f.width, f"{self.name}.{name} has {f.width} bits, the value {len(value)}."
            for low, width in self._runs(f):
                statements.append(vector[low:low + width].eq(value[offset:offset + width]))
                offset += width
        return statements

# Ethernet, IP, UDP --------------------------------------------------------------------------------

ETH = Header("ETH", 14,
    ("destination",   0, 48, "destination MAC"),
    ("source",       48, 48, "source MAC"),
    ("ethertype",    96, 16, "0x0800 = IPv4, 0x86dd = IPv6"))

IPV4 = Header("IPv4", 20,
    ("version",        0,  4, "4"),
    ("ihl",            4,  4, "5: no options"),
    ("dscp",           8,  6, "traffic class"),
    ("ecn",           14,  2, "3 = congestion experienced"),
    ("total_length",  16, 16, "bytes, this header to the ICRC"),
    ("identification",32, 16, "0"),
    ("flags",         48,  3, "0"),
    ("fragment",      51, 13, "0"),
    ("ttl",           64,  8, "64"),
    ("protocol",      72,  8, "17 = UDP"),
    ("checksum",      80, 16, "of this header"),
    ("source",        96, 32, "source address"),
    ("destination",  128, 32, "destination address"))

IPV6 = Header("IPv6", 40,
    ("version",        0,  4, "6"),
    ("dscp",           4,  6, "traffic class, its upper bits"),
    ("ecn",           10,  2, "3 = congestion experienced"),
    ("flow_label",    12, 20, "entropy value, the upper 4 bits 0"),
    ("payload_length",32, 16, "bytes, UDP header to the ICRC"),
    ("next_header",   48,  8, "17 = UDP: no extension headers"),
    ("hop_limit",     56,  8, "64"),
    ("source",        64,128, "source address"),
    ("destination",  192,128, "destination address"))

UDP = Header("UDP", 8,
    ("source_port",      0, 16, "entropy value"),
    ("destination_port",16, 16, "register, 4791"),
    ("length",          32, 16, "bytes, this header to the ICRC"),
    ("checksum",        48, 16, "0"))

# InfiniBand and MRC -------------------------------------------------------------------------------

BTH = Header("BTH", 12,
    ("opcode",    0,  8, "packet type"),
    ("se",        8,  1, "solicited event, 0"),
    ("m",         9,  1, "migration, 0"),
    ("pad",      10,  2, "bytes of padding after the payload"),
    ("tver",     12,  4, "0"),
    ("p_key",    16, 16, "partition"),
    ("resv8a",   32,  8, "masked in the ICRC"),
    ("dest_qp",  40, 24, "generation (8) and index (16) of the queue pair"),
    ("a",        64,  1, "acknowledge request"),
    ("res",      65,  1, ""),
    ("rtx",      66,  1, "this is a retransmission"),
    ("ts",       67,  1, "TSETH follows METH"),
    ("resv",     68,  4, ""),
    ("psn",      72, 24, "packet sequence number; meaning per packet type"))

METH = Header("METH", 4,
    ("rqmsn",  0, 16, "number of the message among those with an immediate"),
    ("msn",   16, 16, "number of the message"))

TSETH = Header("TSETH", 4,
    ("tx_timestamp", 0, 16, "128 ns units"),
    ("tsr",         16,  1, "resolution, 0 = 128 ns"),
    ("ftype",       28,  4, "1"))

RETH = Header("RETH", 16,
    ("va",      0, 64, "address of this packet's first byte"),
    ("rkey",   64, 32, "remote key"),
    ("length", 96, 32, "bytes of the whole message"))

IMMDT = Header("ImmDt", 4, ("immediate", 0, 32, "index into the receiver's signal table"))

AETH = Header("AETH", 4,
    ("syndrome", 0,  8, "0x1f = ACK, 0x61.. = NAK"),
    ("msn",      8, 24, "messages completed"))

SETH = Header("SETH", 28,
    ("type",            0,  4, "0"),
    ("next_header",     4,  5, "0"),
    ("m",               9,  2, "0 none, 1 skip once (ECN), 2 always skip"),
    ("pr",             14,  1, "answer to a probe"),
    ("ack_psn_offset", 16, 16, "signed: PSN of the trigger minus cack_psn, or the probe's id"),
    ("entropy",        32, 32, "entropy value of the trigger"),
    ("spdcid",         64, 16, "low 16 bits of the sender's QPN"),
    ("dpdcid",         80, 16, "low 16 bits of the receiver's QPN"),
    ("cack_psn",      104, 24, "all PSNs up to this one have arrived"),
    ("cc_type",       128,  4, "0"),
    ("cc_flags",      132,  4, "0"),
    ("mpr",           136,  8, "0: dynamic MPR is off"),
    ("sack_offset",   144, 16, "signed: base of the bitmap minus cack_psn"),
    ("bitmap",        160, 64, "bit i: PSN base + i has arrived"))

CC_STATE = Header("CC_STATE", 8,
    ("tx_timestamp",  0, 16, "reflected from TSETH"),
    ("ooo_count",    16, 16, "packets that arrived out of order"),
    ("penalty",      32,  8, "0"),
    ("rcvd_bytes",   40, 24, "received bytes, units of 256"))

NETH = Header("NETH", 20,
    ("reason",       16,  8, "see NackReason"),
    ("vendor",       24,  8, "0"),
    ("entropy",      32, 32, "entropy value of the trigger"),
    ("spdcid",       64, 16, ""),
    ("dpdcid",       80, 16, ""),
    ("nack_psn",    104, 24, "PSN that is refused"),
    ("cc_type",     128,  4, "2"),
    ("cc_flags",    132,  4, "0"),
    ("tx_timestamp",144, 16, "reflected from TSETH"))

PETH = Header("PETH", 16,
    ("vendor",        24,  8, "0"),
    ("probe_id",      32, 16, "echoed in the answer"),
    ("spdcid",        64, 16, ""),
    ("dpdcid",        80, 16, ""),
    ("tx_timestamp",  96, 16, "128 ns units"),
    ("tsr",          112,  1, ""),
    ("ftype",        124,  4, "1"))

HEADERS = (ETH, IPV4, IPV6, UDP, BTH, METH, TSETH, RETH, IMMDT, AETH, SETH, CC_STATE, NETH, PETH)

# Bodies: what follows the BTH, as one vector ------------------------------------------------------

BODY_BYTES = SETH.length + CC_STATE.length      # 36, the longest.
PREFIX_BYTES  = ETH.length + IPV4.length + UDP.length + BTH.length # 54, Ethernet to BTH.
PREFIX6_BYTES = ETH.length + IPV6.length + UDP.length + BTH.length # 74, the same on IPv6.
ICRC_BYTES, FCS_BYTES, GAP_BYTES = 4, 4, 20     # GAP: preamble, start and inter-frame gap.

# Normalised data body: the same position whether TSETH and ImmDt are on the wire or not.
DATA_METH, DATA_TSETH, DATA_RETH, DATA_IMMDT = 0, 4, 8, 24
DATA_BODY_BYTES = 28

# Opcodes ------------------------------------------------------------------------------------------

class Opcode:
    WRITE_FIRST    = 0xc6
    WRITE_MIDDLE   = 0xc7
    WRITE_LAST     = 0xc8
    WRITE_LAST_IMM = 0xc9
    WRITE_ONLY     = 0xca
    WRITE_ONLY_IMM = 0xcb
    ACKNOWLEDGE    = 0xd1
    SACK           = 0xdc
    NACK           = 0xdd
    PROBE          = 0xde

# Endpoint operations: connectionless, to the queue pair number that belongs to the endpoint itself. They are refused.
ENDPOINT_OPCODES = (0xd8, 0xd9)     # Request, response.
ENDPOINT_QP      = 2

@dataclass(frozen=True)
class PacketType:
    """What the parser and the acceptor need to know of an opcode: headers and completion as data."""
    opcode: int
    name:   str
    body:   int           # Bytes after the BTH without TSETH (TSETH adds 4 to data packets).
    data:   bool = False  # Carries METH, RETH and payload.
    first:  bool = False
    last:   bool = False
    imm:    bool = False

PACKET_TYPES = {t.opcode: t for t in (
    PacketType(Opcode.WRITE_FIRST,    "WRITE FIRST",    20, data=True, first=True),
    PacketType(Opcode.WRITE_MIDDLE,   "WRITE MIDDLE",   20, data=True),
    PacketType(Opcode.WRITE_LAST,     "WRITE LAST",     20, data=True, last=True),
    PacketType(Opcode.WRITE_LAST_IMM, "WRITE LAST IMM", 24, data=True, last=True, imm=True),
    PacketType(Opcode.WRITE_ONLY,     "WRITE ONLY",     20, data=True, first=True, last=True),
    PacketType(Opcode.WRITE_ONLY_IMM, "WRITE ONLY IMM", 24, data=True, first=True, last=True, imm=True),
    PacketType(Opcode.ACKNOWLEDGE,    "ACKNOWLEDGE",     4),
    PacketType(Opcode.SACK,           "SACK",           36),
    PacketType(Opcode.NACK,           "NACK",           20),
    PacketType(Opcode.PROBE,          "PROBE",          16),
)}

class NackReason:
    TRIMMED          = 0x01
    TRIMMED_LASTHOP  = 0x02
    NO_BITMAP        = 0x06
    NO_PKT_BUFFER    = 0x07
    NO_RESOURCE      = 0x0a
    PSN_OOR_WINDOW   = 0x0b
    UNEXP_EVENT      = 0x19

class Syndrome:
    """AETH syndromes (IBTA): credit field always 0x1f."""
    ACK                   = 0x1f
    NAK_INVALID_REQUEST   = 0x61
    NAK_REMOTE_ACCESS     = 0x62
    NAK_REMOTE_OPERATION  = 0x63

class Dscp:
    """Traffic classes: registers of the card, these are the values after reset."""
    CONTROL         = 46
    DATA            = 0     # A switch may drop it, but not trim it: probes.
    TRIMMABLE       = 4     # A switch may cut off its payload: WRITEs.
    TRIMMED         = 12    # A switch has.
    TRIMMED_LASTHOP = 16    # The switch before the receiver has.

ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_UDP, UDP_PORT = 0x0800, 0x86dd, 17, 4791
