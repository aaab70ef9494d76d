# SPDX-License-Identifier: BSD-2-Clause
"""Rebuilding a work queue entry: token record + context give any packet of a message.

    record (slot, length, first PSN) -> context (bases, strides, keys) -> region (bus address)

The same path serves new packets and resends, so a resend needs no stored packet and no stored
descriptor: the token is also the retransmission state. One packet per 9 cycles,
11 if its region has pages.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.headers import Opcode
from gateware.common.layouts import read_request_layout
from gateware.host.translation import Translation
from gateware.transport.requester.segmenter import packet_request_layout

def packet_descriptor_layout(config):
    """A packet that waits for its payload."""
    return [
        ("qp",       config.qp_bits),
        ("psn",      24),
        ("rtx",       1),
        ("lost",      1),
        ("a",         1),
        ("opcode",    8),
        ("va",       64),
        ("rkey",     32),
        ("total",    24),                   # Bytes of the message.
        ("length",   config.length_bits),   # Bytes of this packet.
        ("void",      1),                   # Its bytes have no bus address: it was not read and cannot be sent.
        ("immediate",32),
        ("msn",      16),
        ("rqmsn",    16),
    ]

class WqeBuilder(LiteXModule):
    """Rebuilds packets.

    sink:    packet_request_layout.
    read:    read_request_layout: what to fetch; one for every packet, length 0 included.
             That of a packet whose page is not in the table has length 0 too.
    source:  packet_descriptor_layout, in the order of `read`.
    """
    def __init__(self, config, tables, messages):
        self.sink   = Endpoint(packet_request_layout(config))
        self.read   = Endpoint(read_request_layout(config))
        self.source = Endpoint(packet_descriptor_layout(config))

        # # #

        attributes = tables.queue_pair.reader()
        record     = messages.reader()
        context    = tables.context.reader()
        region     = tables.region.reader()
        request    = Record(packet_request_layout(config))
        self.comb += [
            attributes.index.eq(request.qp),
            record.index.eq(Cat(request.message, request.qp)),
            context.index.eq(record.row.context),
            region.index.eq(context.row.lkey[8:8 + config.region_bits]),
        ]

        # Offset of the packet in its message, and its length.
        number    = sized(self, request.psn - record.row.first_psn, 16, "packet_number")
        shifted   = Signal(24)
        mtu       = Signal(13)
        offset    = Signal(24)
        remaining = Signal(25)
        self.comb += Case(attributes.row.mtu, {
            **{i: [shifted.eq(number << (8 + i)), mtu.eq(256 << i)] for i in range(5)},
            "default": [shifted.eq(number << 8), mtu.eq(256)]})
        left      = sized(self, record.row.length - shifted, 25, "bytes_left")
        first     = Signal()
        last      = Signal()
        local_offset, remote_offset = Signal(56), Signal(56)
        local, remote = Signal(64), Signal(64)
        length    = Signal(config.length_bits)
        self.pages = pages = Translation(config, tables, region.row, local, length)
        void      = sized(self, ~pages.mapped & (length != 0), 1, "void")

        opcodes = {                                     # (signal, last, first)
            0b000: Opcode.WRITE_MIDDLE, 0b001: Opcode.WRITE_FIRST, 0b010: Opcode.WRITE_LAST,     0b011: Opcode.WRITE_ONLY,
            0b100: Opcode.WRITE_MIDDLE, 0b101: Opcode.WRITE_FIRST, 0b110: Opcode.WRITE_LAST_IMM, 0b111: Opcode.WRITE_ONLY_IMM}

        take = Signal()
        self.sync += If(take, *[getattr(request, f[0]).eq(getattr(self.sink, f[0])) for f in packet_request_layout(config)])

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(self.sink.valid,
                self.sink.ready.eq(1),
                take.eq(1),
                NextState("RECORD")
            )
        )
        fsm.act("RECORD",  NextState("CONTEXT"))
        fsm.act("CONTEXT",
            NextValue(offset, shifted),
            NextValue(remaining, left),
            NextValue(first, request.psn == record.row.first_psn),
            NextValue(last,  request.psn == record.row.last_psn),
            NextState("OFFSET")
        )
        fsm.act("OFFSET",
            NextValue(local_offset,  record.row.slot*context.row.local_stride),
            NextValue(remote_offset, record.row.slot*context.row.remote_stride),
            NextState("ADDRESS")
        )
        fsm.act("ADDRESS",
            NextValue(local,  context.row.local_base  + local_offset  + offset),
            NextValue(remote, context.row.remote_base + remote_offset + offset),
            NextState("BUS")
        )
        fsm.act("BUS",
            pages.look.eq(1),
            # Of a resend whose message has been acknowledged meanwhile, context and region may be gone: it reads nothing.
            NextValue(length, Mux(context.row.valid & region.row.valid, Mux(remaining[:24] > mtu, mtu, remaining[:13]), 0)),
            NextState("PAGES")
        )
        fsm.act("PAGES", If(pages.done, NextState("READ")))
        fsm.act("READ",
            self.read.valid.eq(1),
            If(self.read.ready, NextState("DESCRIBE"))
        )
        fsm.act("DESCRIBE",
            self.source.valid.eq(1),
            If(self.source.ready, NextState("IDLE"))
        )
        self.comb += [
            self.read.address.eq(pages.address),
            self.read.beyond.eq(pages.beyond),
            self.read.length.eq(Mux(void, 0, length)),
            *[getattr(self.source, f).eq(getattr(request, f)) for f in ("qp", "psn", "rtx", "lost", "a", "msn")],
            Case(Cat(first, last, record.row.signal), {i: self.source.opcode.eq(o) for i, o in opcodes.items()}),
            self.source.va.eq(remote),
            self.source.rkey.eq(context.row.rkey),
            self.source.total.eq(record.row.length),
            self.source.length.eq(self.read.length),
            self.source.void.eq(void),
            self.source.immediate.eq(context.row.immediate),
            self.source.rqmsn.eq(record.row.rqmsn),
        ]
