# SPDX-License-Identifier: BSD-2-Clause
"""Invariant CRC of RoCEv2, in Python and as a mask in front of the CRC engine.

The ICRC runs over 8 bytes of ones and the packet from the IP header on, with the fields that a router
may change read as ones; it goes out least significant byte first. Gateware: IPv4 only.

Sources: IBTA volume 1, 7.8.1 and annex A17 (RoCEv2).
"""

import zlib

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import ETH, IPV4, UDP
from gateware.network.crc import ONES, crc_step, crc_undo

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
