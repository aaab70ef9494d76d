# SPDX-License-Identifier: BSD-2-Clause
"""Receive path of one plane: frames from the MAC become checked headers and stored payload.

    MAC -> headers, their check, ICRC -> verdict -> header FIFO -> source
                 |                         |commit / roll back
                 +-> payload words -> receive store ------------> stored

The MAC is never held back. Everything of a packet stays hidden until the frame has ended and FCS,
ICRC, headers and all lengths have proved right; a bad packet leaves nothing but a count.

Two kinds of WRITE go on without their payload, so that the responder can say why it asks for them
again: a good one for which the store has no room, and one that a switch has trimmed. A trimmed packet
is known by its DSCP; its ICRC is gone and its lengths are stale, so neither is looked at. The last quarter
of the header FIFO is for packets without a payload in the store.

Limits: those of HeaderCheck.

Sources: IBTA volume 1 (BTH, ICRC), MRC 1.0 (METH, TSETH).
"""

from functools import reduce
from operator import or_

from liteeth.common import eth_phy_description
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.headers import *
from gateware.common.layouts import Verdict, received_layout
from gateware.network.crc import CrcStep, residue
from gateware.network.header_capture import HeaderCapture
from gateware.network.header_check import HeaderCheck
from gateware.network.icrc import IcrcMask
from gateware.network.receive_store import ReceiveStore

# Receive path -------------------------------------------------------------------------------------

class ReceivePath(LiteXModule):
    """Checks, stores and announces the packets of one plane.

    sink:    frames without FCS, `last_be` one-hot with `last`, `error` with a bad FCS; always ready.
    source:  one beat per packet that is good, trimmed or without room, 4 cycles after the frame's last word.
    stored:  payload words of good data packets with a payload, in the order of `source`.
    own_ip, own_ip6, own_mac, udp_port, dscp_trimmed, dscp_trimmed_lasthop: as in HeaderCheck.

    Every frame counts once, as the first of: bad_fcs, bad_header (not for us, not RoCEv2), endpoint (an endpoint
    operation, refused), bad_opcode, bad_length, bad_icrc, store_full (no room for the header), trimmed, no_buffer
    (good, but no room for the payload), good.
    """
    counters = ("bad_fcs", "bad_header", "endpoint", "bad_opcode", "bad_length", "bad_icrc", "store_full", "trimmed", "no_buffer", "good")

    def __init__(self, config):
        data_width = config.network_width
        lanes      = data_width//8
        self.sink     = sink   = stream.Endpoint(eth_phy_description(data_width))
        self.source   = source = stream.Endpoint(received_layout(config))
        for name in self.counters:
            setattr(self, name, Signal(32, name=name))

        # # #

        lane_bits = log2_int(lanes)
        most      = (PREFIX6_BYTES + DATA_BODY_BYTES + config.max_mtu + ICRC_BYTES)//lanes + 2
        index     = Signal(max=most + 1) # Saturates; a frame that long is refused.

        # Stage A: the word and its number; the headers of the frame so far.
        self.comb += sink.ready.eq(1)
        a_valid, a_last, a_error = Signal(), Signal(), Signal()
        a_data, a_last_be, a_index = Signal(data_width), Signal(lanes), Signal.like(index)
        self.sync += [
            a_valid.eq(sink.valid),
            If(sink.valid,
                a_data.eq(sink.data),
                a_last.eq(sink.last),
                a_last_be.eq(sink.last_be),
                a_error.eq(sink.last & (sink.error != 0)),
                a_index.eq(index),
                If(sink.last,
                    index.eq(0)
                ).Elif(index != most,
                    index.eq(index + 1)
                )
            )
        ]
        self.capture = capture = HeaderCapture(data_width, sink.valid, index, sink.data)
        self.check   = check   = HeaderCheck(config, capture)
        for name in ("own_ip", "own_ip6", "own_mac", "udp_port", "dscp_trimmed", "dscp_trimmed_lasthop"):
            setattr(self, name, getattr(check, name))

        # Stage B: word, ICRC mask and verdicts on the headers so far.
        b_valid, b_last, b_error = Signal(), Signal(), Signal()
        b_data, b_index, b_masked = Signal(data_width), Signal.like(index), Signal(data_width)
        b_final     = Signal(lane_bits) # Lane of the frame's last byte.
        b_end       = Signal(17)
        b_tail_word = Signal(17 - lane_bits)
        b_header, b_sum = Signal(7), Signal(20)
        b_bad_header, b_endpoint, b_bad_opcode, b_bad_length = (Signal() for _ in range(4))
        b_store     = Signal()          # The packet has payload to store.
        b_trimmed, b_least = Signal(), Signal(7)
        self.mask = mask = IcrcMask(data_width, a_index)
        self.comb += [
            mask.data.eq(a_data),
            mask.ipv6.eq(capture.ipv6),
        ]
        self.sync += [
            b_valid.eq(a_valid),
            If(a_valid,
                b_data.eq(a_data),
                b_masked.eq(mask.result),
                b_index.eq(a_index),
                b_last.eq(a_last),
                b_error.eq(a_error),
                b_final.eq(reduce(or_, [Mux(a_last_be[i], i, 0) for i in range(lanes)])),
                b_end.eq(check.end),
                b_tail_word.eq(check.tail[lane_bits:]),
                b_header.eq(check.header),
                b_store.eq(check.known & check.data & ~check.trimmed & check.fits & (check.length != 0)),
                b_trimmed.eq(check.trimmed),
                b_least.eq(check.least),
                b_sum.eq(check.checksum),
                b_bad_header.eq(check.bad_header),
                b_endpoint.eq(check.endpoint),
                b_bad_opcode.eq(~check.known),
                b_bad_length.eq(check.bad_length),
            )
        ]

        # ICRC over the words up to the one with its last byte. Before the total length is known (the first
        # words) there is no end.
        at_end, before_end, reached = Signal(), Signal(), Signal()
        state     = Signal(32)
        end_word  = Signal(17 - lane_bits)
        end_lane  = Signal(lane_bits)
        early     = Signal()
        total_word = (ETH.length + 3)//lanes # The word with the last byte of the total length.
        self.crc = crc = CrcStep(data_width)
        self.comb += [
            end_word.eq(b_end[lane_bits:]),
            end_lane.eq(b_end[:lane_bits]),
            early.eq(b_index < total_word),
            at_end.eq(~early & (b_index == end_word)),
            before_end.eq(early | (b_index < end_word)),
            crc.state.eq(Mux(b_index == 0, IcrcMask.start, state)),
            *[crc.data[8*i:8*(i + 1)].eq(Mux(at_end & (end_lane < i), 0, b_masked[8*i:8*(i + 1)])) for i in range(lanes)],
        ]
        got_end = Signal() # In an earlier word of the frame.
        self.comb += reached.eq((got_end & (b_index != 0)) | (at_end & (~b_last | (b_final >= end_lane))))
        self.sync += If(b_valid,
            got_end.eq(reached),
            If(before_end | at_end, state.eq(crc.next)))

        # Payload words into the store.
        self.store  = store = ReceiveStore(data_width, config.receive_store)
        self.stored = store.source
        overflow    = Signal()
        in_payload  = Signal() # Never in a frame's first word: the verdict on the frame before comes with that.
        first_word  = Signal(7 - lane_bits)
        payload_possible = (PREFIX_BYTES + min(t.body for t in PACKET_TYPES.values() if t.data))//lanes
        self.comb += [
            first_word.eq(b_header[lane_bits:]),
            in_payload.eq(b_store & (b_index >= payload_possible) & (b_index >= first_word) & (b_index <= b_tail_word)),
            store.write.eq(b_valid & in_payload),
            store.data.eq(b_data),
            store.last.eq(b_index == b_tail_word),
        ]
        lost = Signal()
        self.comb += lost.eq((overflow & (b_index != 0)) | (store.write & store.full))
        self.sync += If(b_valid, overflow.eq(lost))

        # Stage C: one cycle after the frame's last word, the verdict. The header fields were taken over
        # when the last word was in stage A, because the next frame may already be coming in.
        depth   = max(16, config.receive_store//64)
        crowded = Signal() # The rest of the FIFO is for packets that leave nothing in the store.
        self.fifo = fifo = stream.SyncFIFO(received_layout(config), depth, buffered=True)
        self.comb += crowded.eq(fifo.level >= depth*3//4)
        data, imm, ts, trimmed = check.data, check.imm, check.ts, check.trimmed
        bth  = lambda name: BTH.field(capture.bth, name)
        wire = capture.body
        cut  = lambda first, count: wire[8*first:8*(first + count)]
        normal = Signal(8*BODY_BYTES)
        self.comb += If(data,
            normal[8*DATA_METH:8*(DATA_METH + METH.length)].eq(cut(0, 4)),
            If(ts, normal[8*DATA_TSETH:8*(DATA_TSETH + TSETH.length)].eq(cut(4, 4))),
            If(trimmed,
                # The rest may be left over from an earlier frame.
            ).Elif(ts,
                normal[8*DATA_RETH:8*(DATA_RETH + RETH.length)].eq(cut(8, 16)),
                If(imm, normal[8*DATA_IMMDT:8*(DATA_IMMDT + IMMDT.length)].eq(cut(24, 4)))
            ).Else(
                normal[8*DATA_RETH:8*(DATA_RETH + RETH.length)].eq(cut(4, 16)),
                If(imm, normal[8*DATA_IMMDT:8*(DATA_IMMDT + IMMDT.length)].eq(cut(20, 4)))
            )
        ).Else(
            *[If(check.body > i, normal[8*i:8*(i + 4)].eq(cut(i, 4))) for i in range(0, BODY_BYTES, 4)]
        )
        held = stream.Endpoint(received_layout(config))
        self.sync += If(a_valid & a_last,
            *[getattr(held, name).eq(bth(name)) for name in ("opcode", "p_key", "dest_qp", "a", "rtx", "psn")],
            held.ts.eq(ts),
            held.entropy.eq(UDP.field(capture.udp, "source_port")),
            held.ce.eq(check.ecn == 3),
            held.length.eq(Mux(trimmed, 0, check.length)),
            held.offset.eq(check.header[:lane_bits]),
            held.stored.eq(data & (check.length != 0) & ~trimmed),
            held.verdict.eq(Mux(trimmed, Mux(check.lasthop, Verdict.TRIMMED_LASTHOP, Verdict.TRIMMED), Verdict.GOOD)),
            held.body.eq(normal),
        )
        c_valid, c_error, c_bad_header, c_endpoint, c_bad_opcode, c_bad_length, c_full = (Signal() for _ in range(7))
        c_trimmed, c_lane, c_icrc = Signal(), Signal(lane_bits), Signal()
        c_lost = Signal()
        whole, good = Signal(), Signal()    # Goes on; with its payload.
        frame_last  = Signal(lane_bits + len(index)) # Position of the frame's last byte.
        c_head = stream.Endpoint(received_layout(config))
        folded, checksum = Signal(17), Signal(16)
        self.comb += [
            folded.eq(b_sum[:16] + b_sum[16:]),
            checksum.eq(folded[:16] + folded[16]),
            frame_last.eq(Cat(b_final, b_index)),
        ]
        names = [n for n, _ in c_head.description.payload_layout]
        self.sync += [
            c_valid.eq(b_valid & b_last),
            If(b_valid & b_last,
                c_error.eq(b_error),
                c_bad_header.eq(b_bad_header | (checksum != 0xffff)),
                c_endpoint.eq(b_endpoint),
                c_bad_opcode.eq(b_bad_opcode),
                c_bad_length.eq(Mux(b_trimmed, frame_last < b_least, b_bad_length | ~reached)),
                c_trimmed.eq(b_trimmed),
                c_full.eq(lost),
                c_lane.eq(end_lane),
                *[getattr(c_head, n).eq(getattr(held, n)) for n in names],
            )
        ]
        self.comb += [
            Case(c_lane, {lane: c_icrc.eq((state == residue(lanes - 1 - lane)) | c_trimmed) for lane in range(lanes)}),
            c_lost.eq(c_full | (crowded & c_head.stored)),
            whole.eq(c_valid & ~(c_error | c_bad_header | c_endpoint | c_bad_opcode | c_bad_length | ~c_icrc)),
            good.eq(whole & ~(c_trimmed | c_lost | ~fifo.sink.ready)),
            fifo.sink.valid.eq(whole),
            fifo.sink.last.eq(1),
            *[getattr(fifo.sink, n).eq(getattr(c_head, n)) for n in names],
            If(c_lost,
                fifo.sink.stored.eq(0),
                fifo.sink.verdict.eq(Verdict.NO_BUFFER)
            ),
            store.commit.eq(good),
            store.rollback.eq(c_valid & ~good),
            fifo.source.connect(source),
        ]

        # Counters.
        count = lambda name: getattr(self, name).eq(getattr(self, name) + 1)
        self.sync += If(c_valid,
            If(c_error,              count("bad_fcs")
            ).Elif(c_bad_header,     count("bad_header")
            ).Elif(c_endpoint,       count("endpoint")
            ).Elif(c_bad_opcode,     count("bad_opcode")
            ).Elif(c_bad_length,     count("bad_length")
            ).Elif(~c_icrc,          count("bad_icrc")
            ).Elif(~fifo.sink.ready, count("store_full")
            ).Elif(c_trimmed,        count("trimmed")
            ).Elif(c_lost,           count("no_buffer")
            ).Else(                  count("good")))
