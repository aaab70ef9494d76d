# SPDX-License-Identifier: BSD-2-Clause
"""Payload reader: the bytes of one packet from host memory, as a packet of network words.

The request goes to the read controller in parts and to a queue of packets; what the parts' slots hold
comes back as host words in order, is cut into network words and shifted so that the packet's first
byte lies in lane 0. `PayloadStore` follows.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import payload_layout, read_request_layout
from gateware.config import bits_for_index
from gateware.host.read_controller import ReadController
from gateware.host.request_splitter import RequestSplitter
from gateware.host.tlp_layouts import read_completion_layout, read_tlp_layout

# Payload reader -----------------------------------------------------------------------------------

class PayloadReader(LiteXModule):
    """Reads `length` bytes at any `address`; one packet out per request, in order.

    `sink`: `read_request_layout`; `source`: `payload_layout(network_width)`, first byte in lane 0,
    `error` valid with `last`; `read` and `completion`: to and from the link. A request of 0 bytes
    gives one empty beat and no TLP. One network word per cycle within a packet as far as the host
    delivers, two cycles between packets. A failed read gives a packet of the right length with
    `error` set; there is no other way to fail, see `ReadController` for the completer's faults.
    """
    def __init__(self, config, timeout=2**20, packets=16):
        self.sink       = sink   = stream.Endpoint(read_request_layout(config))
        self.source     = source = stream.Endpoint(payload_layout(config.network_width))
        self.read       = stream.Endpoint(read_tlp_layout())
        self.completion = stream.Endpoint(read_completion_layout(config.host_width))
        self.max_request_size = Signal(16, reset=config.max_request)

        # # #

        host_bytes, network_bytes = config.host_width//8, config.network_width//8
        ratio      = host_bytes//network_bytes
        host_shift = log2_int(host_bytes)
        shift_bits = log2_int(network_bytes)
        count_bits = config.length_bits + 1

        # Requests ---------------------------------------------------------------------------------
        self.splitter   = splitter   = RequestSplitter(config)
        self.controller = controller = ReadController(config, timeout)
        self.packets    = packets    = stream.SyncFIFO(
            [("offset", host_shift), ("length", config.length_bits)], packets)
        self.comb += [
            splitter.max_request_size.eq(self.max_request_size),
            splitter.sink.address.eq(sink.address),
            splitter.sink.beyond.eq(sink.beyond),
            splitter.sink.length.eq(sink.length),
            splitter.sink.valid.eq(sink.valid & packets.sink.ready),
            packets.sink.offset.eq(sink.address),
            packets.sink.length.eq(sink.length),
            packets.sink.valid.eq(sink.valid & splitter.sink.ready),
            sink.ready.eq(splitter.sink.ready & packets.sink.ready),
            splitter.source.connect(controller.sink),
            controller.read.connect(self.read),
            self.completion.connect(controller.completion),
        ]

        # Host words in order ----------------------------------------------------------------------
        slots      = controller.slots
        begun      = Signal()
        index      = Signal(len(slots.first_word))
        word       = Signal(len(slots.first_word))
        advance    = Signal()
        word_valid = Signal()
        word_error = Signal()
        word_taken = Signal()
        word_data  = controller.port.dat_r
        self.comb += [
            word.eq(Mux(begun, index, slots.first_word)),
            advance.eq(~word_valid | word_taken),
            controller.port.adr.eq(Cat(word, slots.tag)),
            controller.port.re.eq(advance),
            slots.ready.eq(advance & (word == slots.last_word)),
        ]
        self.sync += If(advance,
            word_valid.eq(slots.valid),
            word_error.eq(controller.slots_error),
            If(slots.valid,
                begun.eq(word != slots.last_word),
                index.eq(word + 1)
            )
        )

        # Network words ----------------------------------------------------------------------------
        lane      = Signal(bits_for_index(ratio))
        network   = Signal(config.network_width)
        take      = Signal()
        in_left   = Signal(count_bits)
        self.comb += [
            Case(lane, {i: network.eq(word_data[i*config.network_width:(i + 1)*config.network_width])
                for i in range(ratio)}),
            word_taken.eq(take & ((lane == ratio - 1) | (in_left == 1))),
        ]

        # Alignment --------------------------------------------------------------------------------
        request  = packets.source
        shift    = Signal(shift_bits)
        out_left = Signal(count_bits)
        previous = Signal(config.network_width)
        failed   = Signal()
        start    = Signal()
        more     = Signal()                            # There is a further word of this packet to take.
        window   = Signal(2*config.network_width)
        in_bytes, out_bytes = Signal(count_bits + 1), Signal(count_bits + 1)
        self.comb += [
            in_bytes.eq(request.length + request.offset[:shift_bits] + network_bytes - 1),
            out_bytes.eq(request.length + network_bytes - 1),
            more.eq(in_left != 0),
            window.eq(Cat(previous, Mux(more, network, 0))),
            Case(shift, {i: source.data.eq(window[8*i:8*i + config.network_width]) for i in range(network_bytes)}),
        ]
        first = Signal()
        self.comb += [
            source.first.eq(first),
            source.last.eq(out_left[1:] == 0),       # 1 or, for an empty packet, 0.
            source.error.eq(failed | (more & word_error)),
        ]
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(shift,    request.offset[:shift_bits]),
            NextValue(out_left, out_bytes >> shift_bits),
            NextValue(first, 1),
            start.eq(1),
            If(request.valid,
                If(request.length == 0,
                    NextState("EMPTY")
                ).Else(
                    NextState("PRIME")
                )
            )
        )
        fsm.act("EMPTY",
            source.valid.eq(1),
            If(source.ready,
                request.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("PRIME",
            If(word_valid,
                take.eq(1),
                NextState("RUN")
            )
        )
        fsm.act("RUN",
            source.valid.eq(~more | word_valid),
            If(source.valid & source.ready,
                take.eq(more),
                NextValue(first, 0),
                NextValue(out_left, out_left - 1),
                If(source.last,
                    request.ready.eq(1),
                    NextState("IDLE")
                )
            )
        )
        self.sync += [
            If(start,
                in_left.eq(Mux(request.length == 0, 0, in_bytes >> shift_bits)),
                failed.eq(0)
            ).Elif(take,
                previous.eq(network),
                in_left.eq(in_left - 1),
                If(word_error, failed.eq(1))
            )
        ]
        if ratio > 1:
            self.sync += If(start, lane.eq(request.offset[shift_bits:])).Elif(take, lane.eq(lane + 1))
