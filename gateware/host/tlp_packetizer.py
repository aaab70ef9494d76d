# SPDX-License-Identifier: BSD-2-Clause
"""TLP packetizer: memory writes, memory read requests and completions to the words of a LitePCIe PHY.

It stands in for `litepcie.tlp.packetizer`, whose request streams carry no byte enables and whose
inserters flag more dwords than the length says. Header tables and the format of the words (header
dwords as numbers, data dwords byte-swapped for a "big" endian PHY) are LitePCIe's.

Limits: traffic class 0, attributes 0 (no relaxed ordering, snooped), no digest; the caller splits
at 4 KiB, at the largest payload and at the largest request. Source: PCI Express Base, chapter 2.2.
"""

from litepcie.common import phy_layout
from litepcie.tlp.common import (
    dword_endianness_swap,
    fmt_type_dict,
    tlp_completion_header,
    tlp_completion_layout,
    tlp_request_header,
    tlp_request_layout,
)
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.host.tlp_layouts import completion_tlp_layout, read_tlp_layout, write_tlp_layout

# TLP header encoder -------------------------------------------------------------------------------

class TLPHeaders(LiteXModule):
    """The headers of the waiting write, read and completion, combinationally.

    `write_header`, `read_header`, `completion_header`: dword 0 in bits 0 to 31. `write_long`,
    `read_long`: the header has four dwords, because the address does not fit into 32 bits.
    """
    def __init__(self, data_width, write, read, completion, requester_id):
        self.write_header      = Signal(128)
        self.write_long        = Signal()
        self.read_header       = Signal(128)
        self.read_long         = Signal()
        self.completion_header = Signal(128)

        # # #

        def request(endpoint, header, long, types, tag):
            fields    = stream.Endpoint(tlp_request_layout(data_width))
            fmt_type  = Signal(7)
            short_dat = Signal(64)
            self.comb += [
                long.eq(endpoint.address[32:] != 0),
                fmt_type.eq(Mux(long, fmt_type_dict[types + "64"], fmt_type_dict[types + "32"])),
                fields.type.eq(fmt_type[:5]),
                fields.fmt.eq(fmt_type[5:]),
                fields.length.eq(endpoint.length),
                fields.requester_id.eq(requester_id),
                fields.tag.eq(tag),
                fields.first_be.eq(endpoint.first_be),
                fields.last_be.eq(endpoint.last_be),
                # The upper dword goes first.
                short_dat.eq(Cat(C(0, 2), endpoint.address[2:32], C(0, 32))),
                fields.address.eq(Mux(long, Cat(endpoint.address[32:], C(0, 2), endpoint.address[2:32]), short_dat)),
                *tlp_request_header.encode(fields, header),
            ]
        request(write, self.write_header, self.write_long, "mem_wr", 0)
        request(read,  self.read_header,  self.read_long,  "mem_rd", read.tag)

        fields   = stream.Endpoint(tlp_completion_layout(data_width))
        fmt_type = Signal(7)
        self.comb += [
            fmt_type.eq(Mux(completion.length != 0, fmt_type_dict["cpld"], fmt_type_dict["cpl"])),
            fields.type.eq(fmt_type[:5]),
            fields.fmt.eq(fmt_type[5:]),
            fields.length.eq(completion.length),
            fields.completer_id.eq(requester_id),
            fields.status.eq(completion.status),
            fields.byte_count.eq(completion.byte_count),
            fields.requester_id.eq(completion.req_id),
            fields.tag.eq(completion.tag),
            fields.lower_address.eq(completion.lower_address),
            *tlp_completion_header.encode(fields, self.completion_header),
        ]

# TLP packetizer -----------------------------------------------------------------------------------

class TLPPacketizer(LiteXModule):
    """Merges writes, read requests and completions into one TLP stream.

    `write`: `write_tlp_layout`, `read`: `read_tlp_layout`, `completion`: `completion_tlp_layout`;
    `source`: LitePCIe's `phy_layout`. Completions go first, writes and reads alternate when both
    wait; a TLP is never interleaved. While `bus_master_enable` is 0 no write and no read starts.

    Latency: header word one cycle after the request. A TLP takes ceil((header + length)/dwords per
    word) cycles, plus one between two short writes. `length` rules: data beats missing or left over
    stall or shift later TLPs, so senders must keep it (all of ours do).
    """
    def __init__(self, data_width, endianness="big"):
        if data_width not in (64, 128, 256, 512):
            raise ValueError(f"data_width is {data_width}, but a TLP packetizer is 64, 128, 256 or 512 bits wide.")
        if endianness not in ("big", "little"):
            raise ValueError(f"endianness is '{endianness}', but a PHY is 'big' or 'little' endian.")
        self.write             = write      = stream.Endpoint(write_tlp_layout(data_width))
        self.read              = read       = stream.Endpoint(read_tlp_layout())
        self.completion        = completion = stream.Endpoint(completion_tlp_layout(data_width))
        self.source            = source     = stream.Endpoint(phy_layout(data_width))
        self.requester_id      = Signal(16)
        self.bus_master_enable = Signal(reset=1)

        # # #

        dwords = data_width//32
        NONE, WRITE, READ, COMPLETION = range(4)

        # Headers ----------------------------------------------------------------------------------
        self.headers = headers = TLPHeaders(data_width, write, read, completion, self.requester_id)

        # State of the TLP that leaves -------------------------------------------------------------
        kind   = Signal(2)     # NONE: nothing leaves.
        long   = Signal()      # Header of four dwords.
        first  = Signal()
        prefix = Signal()      # 64 bit only: header dwords 0 and 1 leave as a word of their own.
        header = Signal(128)
        carry  = Signal(128)   # Dwords that come before the data word in the next word.
        left   = Signal(12)    # Dwords still to send, header included.
        need   = Signal(11)    # Data dwords still to take.

        # Arbitration ------------------------------------------------------------------------------
        wrote  = Signal()      # The last request was a write: a read goes next.
        fresh  = Signal()      # What the write port shows is the next write, not the one that leaves.
        choice = Signal(2)
        self.comb += [
            fresh.eq((kind != WRITE) | (need == 0)),
            If(completion.valid & ((kind != COMPLETION) | (need == 0)),
                choice.eq(COMPLETION)
            ).Elif(self.bus_master_enable & read.valid & (wrote | ~(write.valid & fresh)),
                choice.eq(READ)
            ).Elif(self.bus_master_enable & write.valid & fresh,
                choice.eq(WRITE)
            )
        ]

        # Words ------------------------------------------------------------------------------------
        dat_in  = Signal(data_width)
        dat     = Signal(data_width)
        present = Signal()     # The data word that this word needs is there.
        take    = Signal()     # This word uses a data word.
        last    = Signal()
        be      = Signal(data_width//8)
        self.comb += [
            If(take, dat_in.eq(Mux(kind == COMPLETION, completion.dat, write.dat))),
            *dword_endianness_swap(dat_in, dat, data_width, endianness),
            take.eq(~prefix & (need != 0)),
            present.eq(Mux(kind == COMPLETION, completion.valid, write.valid)),
            last.eq(left <= dwords),
            [be[4*i:4*i + 4].eq(Replicate(left > i, 4)) for i in range(dwords)],
            source.valid.eq((kind != NONE) & (~take | present)),
            source.first.eq(first),
            source.last.eq(last),
            source.be.eq(be),
        ]
        if dwords == 2:
            word_short, word_long = Cat(carry[:32], dat[:32]), carry[:64]
            carry_short, carry_long = dat[32:], dat
            self.comb += source.dat.eq(Mux(prefix, header[:64], Mux(long, word_long, word_short)))
        else:
            word_short = Cat(carry[:96], dat[:data_width - 96])
            word_long  = Cat(carry, dat[:data_width - 128]) if dwords > 4 else carry
            carry_short, carry_long = dat[data_width - 96:], dat[data_width - 128:]
            self.comb += source.dat.eq(Mux(long, word_long, word_short))

        # Start of a TLP, step of a TLP ------------------------------------------------------------
        done    = Signal()     # The last word leaves, or there is none.
        step    = Signal()
        header_ = Signal(128)
        long_   = Signal()
        length_ = Signal(10)
        left_   = Signal(12)
        self.comb += [
            step.eq(source.valid & source.ready),
            done.eq((kind == NONE) | (step & last)),
            write.ready.eq((kind == WRITE) & take & source.ready),
            read.ready.eq(done & (choice == READ)),
            # A completion without data is taken at its start, one with data with its words.
            completion.ready.eq(Mux((kind == COMPLETION) & (need != 0),
                take & source.ready,
                done & (choice == COMPLETION) & (completion.length == 0))),
            Case(choice, {
                WRITE:      [header_.eq(headers.write_header), long_.eq(headers.write_long), length_.eq(write.length)],
                READ:       [header_.eq(headers.read_header),  long_.eq(headers.read_long)],
                COMPLETION: [header_.eq(headers.completion_header), length_.eq(completion.length)]}),
            left_.eq(length_ + 3 + long_),
        ]
        self.sync += [
            If(step,
                first.eq(0),
                left.eq(left - dwords),
                prefix.eq(0),
                If(take,
                    need.eq(Mux(need > dwords, need - dwords, 0)),
                    carry.eq(Mux(long, carry_long, carry_short)),
                )
            ),
            If(done,
                kind.eq(choice),
                first.eq(1),
                header.eq(header_),
                carry.eq(header_[64:] if dwords == 2 else header_),
                long.eq(long_),
                prefix.eq(int(dwords == 2)),
                left.eq(left_),
                need.eq(length_),
                If(choice == WRITE, wrote.eq(1)),
                If(choice == READ,  wrote.eq(0)),
            )
        ]
