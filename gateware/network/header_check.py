# SPDX-License-Identifier: BSD-2-Clause
"""What the headers of a frame say, and what is wrong with them: combinational, on IPv4 and IPv6.

Everything follows from the captured headers alone; whether the frame is as long as they say, and its FCS
and ICRC, are for the receive path to see. What is known of an opcode comes from PACKET_TYPES.

Limits: IPv4 without options or fragments, IPv6 without extension headers.

Sources: RFC 791, RFC 8200, RFC 768, IBTA volume 1 (BTH), MRC 1.0 (METH, TSETH, endpoint operations).
"""

from functools import reduce
from operator import add, or_

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import *

# Header check -------------------------------------------------------------------------------------

class HeaderCheck(LiteXModule):
    """Judges the headers of `capture` (HeaderCapture).

    own_ip, own_ip6, own_mac: 0 accepts any. udp_port: destination port of RoCEv2.
    dscp_trimmed, dscp_trimmed_lasthop: traffic classes of WRITEs that a switch has trimmed.

    known, data, imm, ts: of the opcode; `ts`: TSETH is there.
    header:   bytes from the frame's start to the payload. body: those behind the BTH.
    end:      position of the ICRC's last byte. tail: of the payload's last byte.
    length:   bytes of payload, of use only if `fits`: 0 to max_mtu.
    trimmed, lasthop: a switch has cut off the payload. least: position of the last byte that must be there then.
    dscp, ecn: of the IP header.
    checksum: 20-bit sum of the IPv4 header, to be folded; 0xffff on IPv6.
    bad_header: not for this card or not RoCEv2. endpoint: an endpoint operation. bad_length: lengths that
    contradict each other or the opcode.
    """
    def __init__(self, config, capture):
        self.own_ip   = Signal(32)
        self.own_ip6  = Signal(128)
        self.own_mac  = Signal(48)
        self.udp_port = Signal(16, reset=UDP_PORT)
        self.dscp_trimmed         = Signal(6, reset=Dscp.TRIMMED)
        self.dscp_trimmed_lasthop = Signal(6, reset=Dscp.TRIMMED_LASTHOP)

        self.known, self.data, self.imm, self.ts = (Signal() for _ in range(4))
        self.body    = Signal(6)
        self.header  = Signal(7)
        self.end     = Signal(17)
        self.tail    = Signal(17)
        self.length  = Signal(18)
        self.fits    = Signal()
        self.trimmed = Signal()
        self.lasthop = Signal()
        self.least   = Signal(7)
        self.dscp    = Signal(6)
        self.ecn     = Signal(2)
        self.checksum   = Signal(20)
        self.bad_header = Signal()
        self.endpoint   = Signal()
        self.bad_length = Signal()

        # # #

        ip4 = lambda name: IPV4.field(capture.ip4, name)
        ip6 = lambda name: IPV6.field(capture.ip6, name)
        udp = lambda name: UDP.field(capture.udp, name)
        bth = lambda name: BTH.field(capture.bth, name)
        ipv6, data = capture.ipv6, self.data

        # Opcode: what the table says of it.
        opcode, dest_qp = Signal(8), Signal(24)
        fixed_body = Signal(6) # Bytes of the body without TSETH.
        extra      = Signal(3) # Bytes of TSETH.
        prefix     = Signal(7)
        self.comb += [
            opcode.eq(bth("opcode")),
            dest_qp.eq(bth("dest_qp")),
            self.ts.eq(data & bth("ts")),
            Case(opcode, {
                **{t.opcode: [self.known.eq(1), data.eq(t.data), self.imm.eq(t.imm), fixed_body.eq(t.body)] for t in PACKET_TYPES.values()},
                "default": self.known.eq(0)}),
            self.endpoint.eq(reduce(or_, [opcode == o for o in ENDPOINT_OPCODES]) | (dest_qp == ENDPOINT_QP)),
            extra.eq(Cat(C(0, 2), self.ts)),
            prefix.eq(Mux(ipv6, PREFIX6_BYTES, PREFIX_BYTES)),
            self.body.eq(fixed_body + extra),
            self.header.eq(prefix + self.body),
        ]

        # Trimmed by a switch: METH and TSETH must be there, nothing else of the body is looked at.
        self.comb += [
            self.dscp.eq(Mux(ipv6, ip6("dscp"), ip4("dscp"))),
            self.ecn.eq(Mux(ipv6, ip6("ecn"), ip4("ecn"))),
            self.lasthop.eq(self.dscp == self.dscp_trimmed_lasthop),
            self.trimmed.eq(data & ((self.dscp == self.dscp_trimmed) | self.lasthop)),
            self.least.eq(prefix + (METH.length - 1) + extra),
        ]

        # Lengths, each sum in a signal of its own. `total`: bytes from the IP header to the ICRC; `rest`: of
        # payload and pad. It and `length` are negative, so huge, if the headers do not fit.
        total, udp_total = Signal(17), Signal(17)
        ip_length, fixed = Signal(6), Signal(7)
        pad, rest        = Signal(2), Signal(18)
        self.comb += [
            ip_length.eq(Mux(ipv6, IPV6.length, IPV4.length)),
            total.eq(Mux(ipv6, ip6("payload_length") + IPV6.length, ip4("total_length"))),
            udp_total.eq(udp("length") + ip_length),
            pad.eq(bth("pad")),
            self.end.eq(total + (ETH.length - 1)),
            self.tail.eq(total + (ETH.length - ICRC_BYTES - 1) - pad),
            fixed.eq(ip_length + (UDP.length + BTH.length + ICRC_BYTES) + self.body),
            rest.eq(total - fixed),
            self.length.eq(rest - pad),
            self.fits.eq(self.length <= config.max_mtu),
            self.bad_length.eq((udp_total != total) | ~self.fits | (rest[:2] != 0) | (~data & (rest != 0))),
        ]

        # For this card?
        destination_mac, destination4, destination6 = Signal(48), Signal(32), Signal(128)
        bad4, bad6 = Signal(), Signal()
        self.comb += [
            destination_mac.eq(ETH.field(capture.eth, "destination")),
            destination4.eq(ip4("destination")),
            destination6.eq(ip6("destination")),
            bad4.eq(
                (ETH.field(capture.eth, "ethertype") != ETHERTYPE_IPV4) |
                (ip4("version") != 4) | (ip4("ihl") != 5) |
                (Cat(ip4("fragment"), ip4("flags")[0]) != 0) |
                (ip4("protocol") != PROTOCOL_UDP) |
                ((self.own_ip != 0) & (destination4 != self.own_ip))),
            bad6.eq(
                (ip6("version") != 6) | (ip6("next_header") != PROTOCOL_UDP) |
                ((self.own_ip6 != 0) & (destination6 != self.own_ip6))),
            self.bad_header.eq(
                Mux(ipv6, bad6, bad4) |
                ((self.own_mac != 0) & (destination_mac != self.own_mac)) |
                (udp("destination_port") != self.udp_port) |
                (bth("tver") != 0)),
            self.checksum.eq(Mux(ipv6, 0xffff,
                reduce(add, [Cat(capture.ip4[16*i + 8:16*i + 16], capture.ip4[16*i:16*i + 8]) for i in range(10)]))),
        ]
