# SPDX-License-Identifier: BSD-2-Clause
"""Invariant CRC of RoCEv2 and the CRC-32 engine behind it (the FCS uses the same engine).

CRC-32 of Ethernet, reflected: bit 0 of byte 0 enters first, the state starts as ones and the
complement of its end goes out least significant byte first. The ICRC runs over 8 bytes of ones and
the packet from the IP header on, with the fields that a router may change read as ones.

One engine eats whole words. The parts of a word that do not belong are handled by linearity:
- bytes in front (Ethernet header) are read as zeros, with an initial state that those zeros turn
  into the wanted one;
- on receive the bytes behind are read as zeros, and the residue depends on their number;
- on transmit the bytes behind are read as zeros and their steps are undone.

Sources: IBTA volume 1, 7.8.1 and annex A17 (RoCEv2); IEEE 802.3, 3.2.9.
"""

import zlib

from migen import *

from litex.gen import LiteXModule

from gateware.common.headers import ETH, IPV4, UDP

POLYNOMIAL = 0xedb88320 # Reflected.
ONES       = 0xffffffff
RESIDUE    = 0xdebb20e3 # State after a message and its own CRC.

# Python side --------------------------------------------------------------------------------------

def crc_step(state, data):
    """State after the bytes `data`."""
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return state

def crc_undo(state, count):
    """State before `count` bytes of zeros."""
    for _ in range(8*count):
        state = ((state ^ POLYNOMIAL) << 1 | 1) if state & 0x80000000 else state << 1
        state &= ONES
    return state

def residue(zeros):
    """State after a message, its CRC and `zeros` bytes of zeros."""
    return crc_step(RESIDUE, bytes(zeros))

ICRC_START = crc_step(ONES, b"\xff"*8) # State after the 8 bytes of ones that stand for the LRH.

_IP, _UDP, _BTH = ETH.length, ETH.length + IPV4.length, ETH.length + IPV4.length + UDP.length
# Bytes of an IPv4 frame that the ICRC reads as ones: ToS, TTL, IP checksum, UDP checksum, BTH resv8a.
MASKED_BYTES = (_IP + 1, _IP + 8, _IP + 10, _IP + 11, _UDP + 6, _UDP + 7, _BTH + 4)

def icrc(packet):
    """ICRC (4 bytes as on the wire) of a RoCEv2 packet, IP header to the byte before the ICRC.

    IPv4 and IPv6 (without extension headers).
    """
    packet  = bytearray(packet)
    version = packet[0] >> 4
    if version == 4:
        udp, masked = 20, [1, 8, 10, 11]
    elif version == 6:
        udp, masked = 40, [1, 2, 3, 7]
        packet[0] |= 0x0f
    else:
        raise ValueError(f"The packet's IP version is {version}, but the ICRC is known for 4 and 6.")
    for i in masked + [udp + 6, udp + 7, udp + 8 + 4]:
        packet[i] = 0xff
    return zlib.crc32(b"\xff"*8 + bytes(packet)).to_bytes(4, "little")

# Gateware side ------------------------------------------------------------------------------------

def xor_tree(terms):
    """Balanced exclusive-or of a list of one-bit expressions."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [terms[i] ^ terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]

def linear(target, vector, columns):
    """Statements: `target` (32 bits) is the exclusive-or of `columns[i]` over the ones `i` of `vector`.

    One statement per bit: as one, the Verilog line would be longer than Verilator takes.
    """
    return [target[b].eq(xor_tree([vector[i] for i, c in enumerate(columns) if (c >> b) & 1])) for b in range(32)]

class CrcStep(LiteXModule):
    """CRC state after one word: `next` follows from `state` and `data`, combinational.

    `data`: `data_width` bits, byte 0 in bits 0 to 7; all bytes count. Depth: one exclusive-or of
    about half of `data_width` inputs.
    """
    def __init__(self, data_width):
        if data_width < 32 or data_width % 8:
            raise ValueError(f"data_width is {data_width}, but the CRC engine takes whole bytes and at least 32 bits.")
        self.data  = Signal(data_width)
        self.state = Signal(32)
        self.next  = Signal(32)

        # # #

        mixed = Signal(data_width)
        self.comb += [
            mixed.eq(self.data ^ self.state),
            *linear(self.next, mixed, [crc_step(0, (1 << i).to_bytes(data_width//8, "little")) for i in range(data_width)]),
        ]

class CrcUndo(LiteXModule):
    """CRC state before `count` bytes of zeros, combinational: one stage per bit of `count`."""
    def __init__(self, max_count):
        self.state  = Signal(32)
        self.count  = Signal(max=max_count + 1)
        self.result = Signal(32)

        # # #

        state = self.state
        for b in range(len(self.count)):
            undone, following = Signal(32), Signal(32)
            self.comb += [
                *linear(undone, state, [crc_undo(1 << i, 1 << b) for i in range(32)]),
                following.eq(Mux(self.count[b], undone, state)),
            ]
            state = following
        self.comb += self.result.eq(state)

class IcrcMask(LiteXModule):
    """A word of an IPv4 frame as the ICRC reads it, combinational.

    `index` is the word's number in the frame (saturating). The Ethernet header becomes zeros, so
    the first state is `IcrcMask.start`; the masked fields become ones.
    """
    start = crc_undo(ICRC_START, ETH.length)

    def __init__(self, data_width, index):
        self.data   = Signal(data_width)
        self.result = Signal(data_width)

        # # #

        lanes = data_width//8
        cases = {"default": self.result.eq(self.data)}
        for word in range(max(MASKED_BYTES)//lanes + 1):
            ones  = sum(0xff << 8*(b % lanes) for b in MASKED_BYTES if b//lanes == word)
            zeros = sum(0xff << 8*lane for lane in range(lanes) if word*lanes + lane < ETH.length)
            if ones or zeros:
                keep = (1 << data_width) - 1 - zeros
                cases[word] = self.result.eq((self.data & C(keep, data_width)) | C(ones, data_width))
        self.comb += Case(index, cases)
