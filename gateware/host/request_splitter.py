# SPDX-License-Identifier: BSD-2-Clause
"""Request splitter: the bytes of a packet as PCIe read requests.

A request covers whole host words (bytes of the same words around the wanted ones are read, never
another page) and ends at a multiple of the largest request size, so it never crosses 4 KiB. After the
packet's first 4 KiB boundary its bytes may lie elsewhere on the bus (a page of its region may end there).
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import read_request_layout
from gateware.config import bits_for_index

def part_layout(config):
    """One part of a read: address of its first host word, and where its words go in their slot."""
    word_bits = bits_for_index(config.max_request//(config.host_width//8))
    return [("address", 64), ("first_word", word_bits), ("last_word", word_bits)]

# Request splitter ---------------------------------------------------------------------------------

class RequestSplitter(LiteXModule):
    """Bytes to host-word aligned parts that do not cross a boundary of the request size.

    `sink`: `read_request_layout`; `source`: address of the part's first word, first and last word in
    its slot, `last` on the packet's last part. `max_request_size` in bytes comes from the link.
    A request of 0 bytes gives no part, one of more than 4096 is not allowed. Two cycles per part.
    """
    def __init__(self, config):
        words     = config.max_request//(config.host_width//8)
        word_bits = bits_for_index(words)
        self.sink   = sink   = stream.Endpoint(read_request_layout(config))
        self.source = source = stream.Endpoint(part_layout(config))
        self.max_request_size = Signal(16, reset=config.max_request)

        # # #

        shift   = log2_int(config.host_width//8)
        address = Signal(13 - shift)     # Of the part, in host words from the start of the packet's 4 KiB.
        here    = Signal(52)             # The bits above, on this side of the 4 KiB boundary
        beyond  = Signal(52)             # and on the other.
        stop    = Signal(13 - shift)     # Last host word of the packet.
        end     = Signal(13)             # Last byte of the packet.
        edge    = Signal(13 - shift)     # Last host word before the boundary.
        mask    = Signal(word_bits)
        self.comb += [
            end.eq(sink.address[:12] + sink.length - 1),
            mask.eq(128//(config.host_width//8) - 1),
            *[If(self.max_request_size >= size, mask.eq(size//(config.host_width//8) - 1))
                for size in (256, 512) if size <= config.max_request],
            edge.eq(Cat(address[:word_bits] | mask, address[word_bits:])),
            source.address.eq(Cat(C(0, shift), address[:12 - shift], Mux(address[-1], beyond, here))),
            source.first_word.eq(address),
            source.last.eq(stop <= edge),
            source.last_word.eq(Mux(source.last, stop, edge)),
        ]
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(address, sink.address[shift:12]),
            NextValue(here, sink.address[12:]),
            NextValue(beyond, sink.beyond),
            NextValue(stop, end[shift:]),
            If(sink.valid & (sink.length != 0), NextState("SPLIT"))
        )
        fsm.act("SPLIT",
            If(source.ready,
                NextValue(address, edge + 1),
                If(source.last, NextState("IDLE"))
            )
        )
        self.comb += [
            sink.ready.eq(fsm.ongoing("IDLE")),
            source.valid.eq(fsm.ongoing("SPLIT")),
        ]
