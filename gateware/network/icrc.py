# SPDX-License-Identifier: BSD-2-Clause
"""Invariant CRC of RoCEv2, in Python and as a mask in front of the CRC engine.

The ICRC runs over 8 bytes of ones and the packet from the IP header on, with the fields that a router
may change read as ones; it goes out least significant byte first. IPv4 without options, IPv6 without
extension headers.

Sources: IBTA volume 1, 7.8.1 and annex A17 (RoCEv2).
"""

import zlib

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import BTH, ETH, IPV4, IPV6, UDP
from gateware.network.crc import ONES, crc_step, crc_undo

ICRC_START = crc_step(ONES, b"\xff"*8) # State after the 8 bytes of ones that stand for the LRH.

def _masks(*fields):
    """{byte of the packet: its bits that the ICRC reads as ones}, of (header, where it begins, field)."""
    masks = {}
    for header, base, name in fields:
        f = header.fields[name]
        for bit in range(f.bit, f.bit + f.width):
            masks[base + bit//8] = masks.get(base + bit//8, 0) | 0x80 >> bit % 8
    return masks

def _behind(ip):
    return (UDP, ip, "checksum"), (BTH, ip + UDP.length, "resv8a")

# Bits that the ICRC reads as ones, counted from the IP header.
MASKED4 = _masks((IPV4, 0, "dscp"), (IPV4, 0, "ecn"), (IPV4, 0, "ttl"), (IPV4, 0, "checksum"), *_behind(IPV4.length))
MASKED6 = _masks((IPV6, 0, "dscp"), (IPV6, 0, "ecn"), (IPV6, 0, "flow_label"), (IPV6, 0, "hop_limit"), *_behind(IPV6.length))
MASKED_END = ETH.length + max(MASKED6) + 1  # Bytes of a frame up to the last that may be masked.

def icrc(packet):
    """ICRC (4 bytes as on the wire) of a RoCEv2 packet, IP header to the byte before the ICRC.

    IPv4 and IPv6 (without extension headers).
    """
    packet  = bytearray(packet)
    version = packet[0] >> 4
    if version not in (4, 6):
        raise ValueError(f"The packet's IP version is {version}, but the ICRC is known for 4 and 6.")
    for byte, ones in (MASKED4 if version == 4 else MASKED6).items():
        packet[byte] |= ones
    return zlib.crc32(b"\xff"*8 + bytes(packet)).to_bytes(4, "little")

# Gateware side ------------------------------------------------------------------------------------

class IcrcMask(LiteXModule):
    """A word of a frame as the ICRC reads it, combinational.

    `index` is the word's number in the frame (saturating behind MASKED_END), `ipv6` what the frame is, known
    with the word that holds the IP header's first byte. The Ethernet header becomes zeros, so the first state
    is `IcrcMask.start`; the masked fields become ones.
    """
    start = crc_undo(ICRC_START, ETH.length)

    def __init__(self, data_width, index):
        self.data   = Signal(data_width)
        self.ipv6   = Signal()
        self.result = Signal(data_width)

        # # #

        lanes = data_width//8
        cases = {"default": self.result.eq(self.data)}
        for word in range(-(-MASKED_END//lanes)):
            ones4, ones6 = (C(sum(bits << 8*((ETH.length + b) % lanes) for b, bits in masks.items() if (ETH.length + b)//lanes == word),
                data_width) for masks in (MASKED4, MASKED6))
            zeros = sum(0xff << 8*lane for lane in range(lanes) if word*lanes + lane < ETH.length)
            keep  = C((1 << data_width) - 1 - zeros, data_width)
            cases[word] = self.result.eq((self.data & keep) | Mux(self.ipv6, ones6, ones4))
        self.comb += Case(index, cases)
