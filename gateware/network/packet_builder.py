# SPDX-License-Identifier: BSD-2-Clause
"""Packet builder: header values and payload become a RoCEv2 frame with ICRC.

    sink ---> lengths, IP checksum ---> header words --+
                                                       +--> merge --> ICRC --> source
    payload ---> cut to length, shift by the headers --+

The next packet's lengths and checksum are worked out while the present one goes out. Inside a frame
there is no bubble as long as source takes a word per cycle and the whole payload waits upstream (it
must: the MAC has no underrun guard). Padding to 60 bytes, preamble and FCS are the MAC's. IPv4 and IPv6
packets follow each other in any order. Limits: at most one frame per 6 cycles; no IPv4 options, no IPv6
extension headers, UDP checksum 0 on both, data path of 64 to 512 bits.

Sources: RFC 791, RFC 8200, RFC 768, IBTA volume 1 (BTH, ICRC), MRC 1.0 (METH, TSETH).
"""

from liteeth.common import eth_phy_description
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.headers import *
from gateware.common.layouts import payload_layout, send_layout
from gateware.network.crc import CrcAppender
from gateware.network.icrc import MASKED_END, IcrcMask

ECT0 = 2 # ECN codepoint of data packets: the network may mark them.

# Headers ------------------------------------------------------------------------------------------

class HeaderBuilder(LiteXModule):
    """Header bytes of the packet on `sink`, `ready` 4 cycles after it has come; `taken` lets it go.

    header:     Ethernet to body; bytes behind the body are 0.
    length:     bytes of it. payload: bytes of payload. total: bytes of the frame up to the ICRC.
    """
    def __init__(self, config):
        self.sink    = sink = stream.Endpoint(send_layout(config))
        self.taken   = Signal()
        self.ready   = Signal()
        self.header  = Signal(8*(PREFIX6_BYTES + BODY_BYTES))
        self.length  = Signal(7)
        self.total   = Signal(16)

        # # #

        # Opcode: which headers follow.
        data, imm  = Signal(), Signal()
        fixed_body = Signal(6)
        ts         = Signal()
        self.comb += [
            Case(sink.opcode, {
                **{t.opcode: [data.eq(t.data), imm.eq(t.imm), fixed_body.eq(t.body)] for t in PACKET_TYPES.values()},
                "default": fixed_body.eq(0)}),
            ts.eq(data & sink.ts),
        ]

        # Body as on the wire.
        body = Signal(8*BODY_BYTES)
        cut  = lambda first, count: sink.body[8*first:8*(first + count)]
        meth, tseth, reth = cut(DATA_METH, METH.length), cut(DATA_TSETH, TSETH.length), cut(DATA_RETH, RETH.length)
        immdt = Signal(8*IMMDT.length)
        self.comb += [
            immdt.eq(Mux(imm, cut(DATA_IMMDT, IMMDT.length), 0)),
            If(data & ts,
                body.eq(Cat(meth, tseth, reth, immdt))
            ).Elif(data,
                body.eq(Cat(meth, reth, immdt))
            ).Else(
                *[If(fixed_body > i, body[8*i:8*(i + 4)].eq(cut(i, 4))) for i in range(0, BODY_BYTES, 4)]
            )
        ]

        # Lengths (first cycle).
        pad, negative = Signal(2), Signal(2)
        tail          = Signal(config.length_bits + 1) # Payload and pad.
        ip_length, udp_length = Signal(16), Signal(16)
        self.comb += [
            negative.eq(~sink.length[:2]),
            pad.eq(negative + 1),
            tail.eq(sink.length + pad),
        ]
        ipv6   = sink.ipv6
        prefix = Signal(7)
        extra  = Signal(3) # Bytes of TSETH.
        self.comb += [
            prefix.eq(Mux(ipv6, PREFIX6_BYTES, PREFIX_BYTES)),
            extra.eq(Cat(C(0, 2), ts)),
        ]
        step = Signal(4)
        self.comb += self.ready.eq(step[3])
        self.sync += [
            step.eq(Cat(sink.valid, step[:3])),
            If(self.taken, step.eq(0)),
            self.length.eq(prefix + fixed_body + extra),
            ip_length.eq(IPV4.length + UDP.length + BTH.length + ICRC_BYTES + fixed_body + extra + tail),
            udp_length.eq(UDP.length + BTH.length + ICRC_BYTES + fixed_body + extra + tail),
            self.total.eq(prefix + fixed_body + extra + tail),
        ]

        # IPv4 checksum (second to fourth cycle).
        ecn, tos = Signal(2), Signal(16)
        partial, folded, checksum = Signal(20), Signal(17), Signal(16)
        self.comb += [
            ecn.eq(Mux(data, ECT0, 0)),
            tos.eq(Cat(ecn, sink.dscp, C(0x45, 8))),
        ]
        self.sync += [
            partial.eq(tos + ip_length + (64 << 8 | PROTOCOL_UDP) + sink.source_ip[:16] + sink.source_ip[16:32] +
                sink.destination_ip[:16] + sink.destination_ip[16:32]),
            folded.eq(partial[:16] + partial[16:]),
        ]
        carried = Signal(16)
        self.comb += [
            carried.eq(folded[:16] + folded[16]),
            checksum.eq(~carried),
        ]

        # The bytes.
        eth, ip4, ip6, udp, bth = (Signal(8*h.length) for h in (ETH, IPV4, IPV6, UDP, BTH))
        ethertype = Signal(16)
        self.comb += [
            ethertype.eq(Mux(ipv6, ETHERTYPE_IPV6, ETHERTYPE_IPV4)),
            *ETH.encode(eth, destination=sink.destination_mac, source=sink.source_mac, ethertype=ethertype),
            *IPV4.encode(ip4, version=4, ihl=5, dscp=sink.dscp, ecn=ecn, total_length=ip_length, ttl=64,
                protocol=PROTOCOL_UDP, checksum=checksum, source=sink.source_ip[:32], destination=sink.destination_ip[:32]),
            *IPV6.encode(ip6, version=6, dscp=sink.dscp, ecn=ecn, flow_label=Cat(sink.entropy, C(0, 4)), payload_length=udp_length,
                next_header=PROTOCOL_UDP, hop_limit=64, source=sink.source_ip, destination=sink.destination_ip),
            *UDP.encode(udp, source_port=sink.entropy, destination_port=sink.udp_port, length=udp_length),
            *BTH.encode(bth, opcode=sink.opcode, pad=pad, p_key=sink.p_key, dest_qp=sink.dest_qp, a=sink.a,
                rtx=sink.rtx, ts=ts, psn=sink.psn),
            self.header.eq(Mux(ipv6, Cat(eth, ip6, udp, bth, body), Cat(eth, ip4, udp, bth, body))),
            sink.ready.eq(self.taken),
        ]

# Packet builder -----------------------------------------------------------------------------------

class PacketBuilder(LiteXModule):
    """Builds one frame per beat of `sink`.

    sink:    header values; the body is normalised. Its length on the wire follows from opcode and `ts`
             (`body_length` is not needed). `length` at most max_mtu.
    payload: for length > 0, ceil(length/lanes) words, first byte in lane 0; bytes behind the length do not
             matter. A word with `error` spoils the ICRC: the packet goes out, but nobody takes it.
    source:  frames without padding, preamble and FCS; `plane` holds with them.
    """
    def __init__(self, config):
        data_width = config.network_width
        lanes      = data_width//8
        lane_bits  = log2_int(lanes)
        self.sink    = sink    = stream.Endpoint(send_layout(config))
        self.payload = payload = stream.Endpoint(payload_layout(data_width))
        self.source  = source  = stream.Endpoint(eth_phy_description(data_width))
        self.plane   = Signal(2)    # Plane of the frame on `source`.

        self.packets = Signal(32)   # Packets built.

        # # #

        # Next packet.
        self.headers = headers = HeaderBuilder(config)
        self.comb += sink.connect(headers.sink)
        payload_words = Signal(config.length_bits)
        total_words   = Signal(16 - lane_bits)
        rounded = Signal(config.length_bits + 1)
        self.comb += rounded.eq(sink.length + (lanes - 1))
        self.sync += [
            payload_words.eq(rounded[lane_bits:]),
            total_words.eq(headers.total[lane_bits:]),  # The last word's number: a frame never ends with a word.
        ]

        # Present packet: headers shift out word by word, payload comes in behind them.
        header_words = -(-(PREFIX6_BYTES + BODY_BYTES)//lanes)
        header       = Signal(data_width*header_words)
        busy, last   = Signal(), Signal()
        whole        = Signal(max=header_words + 1)  # Words that are headers only, yet to come.
        offset       = Signal(lane_bits)             # First payload lane.
        words_left   = Signal(config.length_bits)    # Payload words yet to come.
        left         = Signal(16 - lane_bits)        # Words after the present one.
        cut          = Signal(lane_bits)             # Bytes in the last payload word, 0 for all.
        end          = Signal(lane_bits)             # Bytes in the frame's last word.
        plane        = Signal(2)
        ipv6         = Signal()
        carry        = Signal(data_width)            # The part of the last payload word that did not fit.
        spoilt       = Signal()

        # Payload word, cut to the length.
        trimmed, wide = Signal(data_width), Signal(2*data_width)
        uses_payload  = Signal()
        self.comb += uses_payload.eq((whole == 0) & (words_left != 0))
        for lane in range(lanes):
            inside = 1 if lane == 0 else (cut == 0) | (cut > lane) | (words_left != 1)
            self.comb += If(uses_payload & inside, trimmed[8*lane:8*(lane + 1)].eq(payload.data[8*lane:8*(lane + 1)]))
        offsets = sorted({(prefix + t.body + more) % lanes for prefix in (PREFIX_BYTES, PREFIX6_BYTES)
            for t in PACKET_TYPES.values() if t.data for more in (0, 4)})
        self.comb += Case(offset, {
            **{o: wide.eq(trimmed << 8*o) for o in offsets[1:]},
            "default": wide.eq(trimmed << 8*offsets[0])})

        # Word out.
        self.icrc = icrc = CrcAppender(data_width, start=IcrcMask.start, mask=IcrcMask, most=-(-MASKED_END//lanes),
            ends=range(2, lanes, 4))
        step, load, ready = Signal(), Signal(), Signal()
        self.comb += [
            last.eq(left == 0),
            icrc.mask.ipv6.eq(ipv6),
            icrc.sink.valid.eq(busy & (~uses_payload | payload.valid)),
            icrc.sink.data.eq(header[:data_width] | wide[:data_width] | carry),
            icrc.sink.last.eq(last),
            If(last, Case(end, {n: icrc.sink.last_be.eq(1 << (n - 1)) for n in range(2, lanes, 4)})),
            icrc.sink.error.eq(spoilt | (uses_payload & payload.error)),
            step.eq(icrc.sink.valid & icrc.sink.ready),
            payload.ready.eq(uses_payload & busy & icrc.sink.ready),
            # The word on `payload` may still be the present packet's last one: then nothing is known of the next packet's.
            ready.eq(headers.ready & ((sink.length == 0) | (payload.valid & ~uses_payload))),
            load.eq(ready & (~busy | (step & last))),
            headers.taken.eq(load),
        ]
        self.sync += [
            If(step,
                header.eq(header[data_width:]),
                If(whole != 0, whole.eq(whole - 1)),
                If(uses_payload,
                    words_left.eq(words_left - 1),
                    spoilt.eq(spoilt | payload.error)
                ),
                carry.eq(wide[data_width:]),
                left.eq(left - 1),
                If(last, busy.eq(0))
            ),
            If(load,
                busy.eq(1),
                header.eq(headers.header),
                whole.eq(headers.length[lane_bits:]),
                offset.eq(headers.length[:lane_bits]),
                words_left.eq(payload_words),
                left.eq(total_words),
                cut.eq(sink.length[:lane_bits]),
                end.eq(headers.total[:lane_bits]),
                plane.eq(sink.plane),
                ipv6.eq(sink.ipv6),
                carry.eq(0),
                spoilt.eq(0),
                self.packets.eq(self.packets + 1)
            )
        ]

        # Output register.
        out_plane = Signal(2)
        self.buffer = buffer = stream.Buffer([("data", data_width), ("last_be", lanes), ("plane", 2)])
        self.sync += If(icrc.sink.valid & icrc.sink.ready, out_plane.eq(plane))
        self.comb += [
            icrc.source.connect(buffer.sink, omit={"error"}),
            buffer.sink.plane.eq(out_plane),
            buffer.source.connect(source, omit={"plane"}),
            self.plane.eq(buffer.source.plane),
        ]
