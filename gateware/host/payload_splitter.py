# SPDX-License-Identifier: BSD-2-Clause
"""Payload splitter: the host words of a stored packet, realigned and split into write TLPs.

Two lanes matter: the one in which the first payload
byte lies (after the headers), and the one in which it belongs (any address). Since each TLP starts
with its first dword in lane 0, the splitter shifts anew for every TLP:

    window  = {next word, previous word} of host words
    TLP word = window >> (lane of the TLP's first byte in the stream - its address modulo 4)

The packet goes on at another bus address after its first 4 KiB boundary (a page of its region may end
there), so the splitter counts in the lowest 13 bits and takes the others from `address` or `beyond`.
Source of the byte enable rules: PCI Express Base, chapter 2.2.5.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.host.tlp_layouts import write_tlp_layout

# Payload splitter ---------------------------------------------------------------------------------

class PayloadSplitter(LiteXModule):
    """One payload job to write TLPs that do not cross a boundary of the payload size.

    `sink`: `offset` (lane of the first byte in the first word), `address`, `length` (1 to 4096), `beyond`
    (see `write_job_layout`), taken when idle; `words`: host words up to `last`; `tlp`: `write_tlp_layout`. `busy` from the cycle
    after the job until `done`, one cycle, when everything has been handed on and the packet's last
    word has been taken.
    """
    def __init__(self, config):
        host_bytes = config.host_width//8
        shift_bits = log2_int(host_bytes)
        self.sink  = sink  = stream.Endpoint([("offset", 6), ("address", 64), ("beyond", 52),
            ("length", config.length_bits)])
        self.words = words = stream.Endpoint([("data", config.host_width)])
        self.tlp   = tlp   = stream.Endpoint(write_tlp_layout(config.host_width))
        self.max_payload_size = Signal(16, reset=config.max_payload)
        self.busy  = Signal()
        self.done  = Signal()

        # # #

        size_bits = 11                              # Bytes of a TLP, up to 512, and a word more.
        address   = Signal(13)                      # First byte of the TLP, from the start of the job's 4 KiB.
        here      = Signal(52)                      # The bits above, on this side of the 4 KiB boundary
        beyond    = Signal(52)                      # and on the other.
        left      = Signal(config.length_bits)      # Bytes from it on.
        lane      = Signal(shift_bits)              # Where it lies in the stream.
        primed    = Signal()                        # `previous` holds the word with it.
        ended     = Signal()                        # The packet's last word was taken.

        # Size of the TLP (first step) -------------------------------------------------------------
        limit   = Signal(size_bits)
        into    = Signal(size_bits)                 # Bytes from the boundary before to the TLP's first byte.
        to_edge = Signal(size_bits)
        bytes_  = Signal(size_bits)
        size    = Signal(size_bits)                 # Bytes.
        span    = Signal(size_bits)                 # Bytes from the first dword's first byte.
        self.comb += [
            limit.eq(128),
            into.eq(address[:7]),
            *[If(self.max_payload_size >= n, limit.eq(n), into.eq(address[:log2_int(n)]))
                for n in (256, 512) if n <= config.max_payload],
            to_edge.eq(limit - into),
            bytes_.eq(to_edge),
            If(left < to_edge, bytes_.eq(left)),
        ]

        # Words of the TLP (second step) -----------------------------------------------------------
        before    = Signal()                        # The first byte moves up: the word before is void.
        dwords    = Signal(size_bits)
        span_up   = Signal(size_bits)
        out_words = Signal(size_bits)
        position  = Signal(size_bits)               # Byte after the TLP, from the previous word's start.
        reach     = Signal(size_bits)               # Byte that has to be at hand after the TLP's last word.
        tail_be   = Signal(4)
        final     = Signal()
        self.comb += [
            before.eq(lane < address[:2]),
            dwords.eq(span + 3),
            span_up.eq(span + host_bytes - 1),
            out_words.eq(span_up >> shift_bits),
            final.eq(left == size),
            Case(span[:2], {0: tail_be.eq(0b1111), 1: tail_be.eq(0b0001), 2: tail_be.eq(0b0011), 3: tail_be.eq(0b0111)}),
        ]
        shift   = Signal(shift_bits)
        shift_  = Signal(shift_bits)
        reach_words = Signal(size_bits)
        self.comb += [
            shift_.eq(lane - address[:2]),
            position.eq(shift_ + span),
            reach.eq(position - final),
            reach_words.eq(reach >> shift_bits),
        ]

        # Words ------------------------------------------------------------------------------------
        previous  = Signal(config.host_width)
        window    = Signal(2*config.host_width)
        head_be   = Signal(4)
        count     = Signal(size_bits)               # Words of the TLP still to send.
        more      = Signal()                        # The last word uses, or moves to, a further stream word.
        first     = Signal()
        take      = Signal()
        self.comb += [
            head_be.eq(0b1111 << address[:2]),
            take.eq((count != 1) | more),
            window.eq(Cat(previous, Mux(take & ~ended, words.data, 0))),
            Case(shift, {i: tlp.dat.eq(window[8*i:8*i + config.host_width]) for i in range(host_bytes)}),
            tlp.address.eq(Cat(C(0, 2), address[2:12], Mux(address[12], beyond, here))),
            tlp.first.eq(first),
            tlp.last.eq(count == 1),
        ]
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            sink.ready.eq(1),
            NextValue(address, sink.address[:12]),
            NextValue(here,    sink.address[12:]),
            NextValue(beyond,  sink.beyond),
            NextValue(left,    sink.length),
            NextValue(lane,    sink.offset[:shift_bits]),
            NextValue(primed,  0),
            NextValue(ended,   0),
            If(sink.valid, NextState("SIZE"))
        )
        fsm.act("SIZE",
            NextValue(size, bytes_),
            NextValue(span, bytes_ + address[:2]),
            NextState("PLAN")
        )
        fsm.act("PLAN",
            words.ready.eq(~primed & ~before),
            If(primed | before | words.valid,
                NextValue(tlp.length,   dwords[2:]),
                NextValue(tlp.first_be, Mux(dwords[2:] == 1, head_be & tail_be, head_be)),
                NextValue(tlp.last_be,  Mux(dwords[2:] == 1, 0, tail_be)),
                NextValue(shift,        shift_),
                NextValue(count,        out_words),
                NextValue(more,         reach_words == out_words),
                NextValue(lane,         position[:shift_bits]),
                NextValue(first,        1),
                NextValue(primed,       1),
                NextState("SEND")
            ),
            If(words.ready,
                NextValue(previous, words.data),
                NextValue(ended,    words.valid & words.last)
            )
        )
        fsm.act("SEND",
            If(tlp.valid & tlp.ready,
                NextValue(first, 0),
                NextValue(count, count - 1),
                If(take,
                    words.ready.eq(~ended),
                    NextValue(previous, Mux(ended, 0, words.data)),
                    If(words.last & ~ended, NextValue(ended, 1))
                ),
                If(tlp.last,
                    NextValue(address, address + size),
                    NextValue(left,    left - size),
                    If(final, NextState("DRAIN")).Else(NextState("SIZE"))
                )
            )
        )
        fsm.act("DRAIN",
            words.ready.eq(~ended),
            If(self.done, NextState("IDLE"))
        )
        self.comb += [
            tlp.valid.eq(fsm.ongoing("SEND") & (~take | ended | words.valid)),
            self.busy.eq(~fsm.ongoing("IDLE")),
            self.done.eq(fsm.ongoing("DRAIN") & (ended | (words.valid & words.last))),
        ]
