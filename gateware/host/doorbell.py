# SPDX-License-Identifier: BSD-2-Clause
"""The doorbell: from an 8-byte store to a checked entry of a send ring.

    store -> page -> context -> checks (token, slot, length, local region, quota) -> send ring

The context is chosen by the address of the store, so whoever has no mapping of a page cannot touch
its contexts. A token may come as one 8-byte store or as two 4-byte stores, low half first; it fires
on the high half. A token that fails a check is dropped, counted, and shows in its page's error word;
the doorbell never waits for a queue pair. One token takes 10 cycles.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect.stream import Endpoint
from migen import *

from firmware.contract import QpError
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import doorbell_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import TOKEN, QpState, Rights
from gateware.transport.queue_pair import credit_layout, init_endpoint

# Send ring ----------------------------------------------------------------------------------------

def ring_entry_layout(config):
    """A checked token: all that the requester needs to start its message."""
    return [
        ("context", config.context_bits),
        ("page",    config.page_bits),
        ("signal",   1),
        ("slot",    24),
        ("length",  24),
        ("region",  config.region_bits),    # Region of the local buffer.
    ]

# Doorbell -----------------------------------------------------------------------------------------

class Doorbell(LiteXModule):
    """Checks tokens and fills the send rings.

    sink:          doorbell_layout; taken one per 10 cycles.
    credit:        credit_layout; what the page's owner must hear of a refused token.
    wake:          `valid` for one cycle with the `qp` that has new work.
    consumed:      `valid` for one cycle with the `page` one of whose tokens has left its ring.
    in_flight:     {context, page, region}: a token is accepted.
    hold, idle:    while `hold` is 1 no token is begun; with `idle` none is at hand.
    init, init_page: clear the ring of a queue pair; the quota count and the half tokens of a page.
    ring:          TableRAM of ring entries, index = queue pair * ring_depth + position.
    written:       TableRAM, per queue pair: ring write position with a wrap bit.
    """
    def __init__(self, config, tables, send_state, status):
        self.sink      = Endpoint(doorbell_layout(config))
        self.credit    = Endpoint(credit_layout(config))
        self.wake      = Endpoint([("qp", config.qp_bits)])
        self.consumed  = Endpoint([("page", config.page_bits)])
        self.in_flight = Endpoint([("context", config.context_bits), ("page", config.page_bits), ("region", config.region_bits)])
        self.hold      = Signal()
        self.idle      = Signal()
        self.init      = init_endpoint()
        self.init_page = Endpoint([("page", 16)])
        self.ring      = TableRAM(ring_entry_layout(config), config.queue_pairs*config.ring_depth)
        self.written   = TableRAM([("position", config.ring_bits + 1)], config.queue_pairs)
        self.counters  = Counters(self)

        # # #

        refused = {reason: self.counters.add(f"token_{name}", f"Tokens dropped: {text}.") for reason, name, text in (
            (QpError.TOKEN_CONTEXT, "context", "no such context on the page"),
            (QpError.TOKEN_FORMAT,  "format",  "operation, flags or half a token"),
            (QpError.TOKEN_SLOT,    "slot",    "slot outside of the context"),
            (QpError.TOKEN_LENGTH,  "length",  "length over the context's limit"),
            (QpError.TOKEN_QUOTA,   "quota",   "page over its quota, or ring full"),
            (QpError.TOKEN_REGION,  "region",  "local memory outside of the region or without the right"),
            (QpError.TOKEN_STATE,   "state",   "queue pair not ready to send"))}
        accepted = self.counters.add("tokens", "Tokens accepted.")

        # Tables.
        page    = tables.page.reader()
        context = tables.context.reader()
        region  = tables.region.reader()
        state   = status.reader()
        send    = send_state.reader()
        written = self.written.reader()

        # Waiting tokens per page, and the low halves that wait for their high halves.
        self.waiting = waiting = TableRAM([("count", 16)], config.pages)
        self.halves  = halves  = TableRAM([("data", 32), ("held", 1)], config.pages*64)
        waits, half = waiting.reader(), halves.reader()

        # Address: page, context on the page; the alias (bits 3 to 5) does not matter.
        page_number = Signal(config.page_bits)
        self.page_at_hand = page_number
        on_page     = Signal(6)
        raw         = Signal(64)
        low, high   = Signal(), Signal()
        number      = Signal(config.context_bits)
        token       = Record(TOKEN.layout())
        outside     = sized(self, self.sink.address[12:] >= config.pages, 1, "outside")
        self.comb += [
            token.raw_bits().eq(raw),
            page.index.eq(page_number),
            waits.index.eq(page_number),
            half.index.eq(Cat(on_page, page_number)),
        ]

        # Values of the token after defaults.
        op     = Signal(4)
        length = Signal(24)
        offset = Signal(56)                       # slot * stride
        start  = Signal(65)                       # Local address, carry kept.
        into   = Signal(66)                       # Offset in the region; bit 65: below its base.
        rest   = Signal(65)                       # Room in the region after `into`; bit 64: none.
        reason = Signal(8)
        concerned = Signal(16)                    # Queue pair of a refused token; 0 when it named none.
        first  = sized(self, page.row.first + on_page, 17, "first_context")
        wanted = sized(self, waits.row.count + 1, 17, "waiting_after")
        used   = sized(self, written.row.position - send.row.ring, config.ring_bits + 1, "ring_used")
        after  = sized(self, written.row.position + 1, config.ring_bits + 1, "ring_after")
        less   = sized(self, waits.row.count - 1, 16, "waiting_less")
        into_next = sized(self, start - region.row.base, 66, "into_next")
        rest_next = sized(self, region.row.length - into[:64], 65, "rest_next")
        key_index = context.row.lkey[8:8 + config.region_bits]
        qp        = context.row.qp[:config.qp_bits]
        self.comb += [
            context.index.eq(number),
            region.index.eq(key_index),
            state.index.eq(qp),
            send.index.eq(qp),
            written.index.eq(qp),
            halves.index.eq(half.index),
            waiting.index.eq(page_number),
            self.ring.index.eq(Cat(written.row.position[:config.ring_bits], qp)),
            self.ring.row.context.eq(number),
            self.ring.row.page.eq(page_number),
            self.ring.row.signal.eq(op == 2),
            self.ring.row.slot.eq(token.slot),
            self.ring.row.length.eq(length),
            self.ring.row.region.eq(key_index),
            self.in_flight.context.eq(number),
            self.in_flight.page.eq(page_number),
            self.in_flight.region.eq(key_index),
            self.written.index.eq(qp),
            self.written.row.position.eq(after),
            self.credit.page.eq(page_number),
            self.credit.consumed.eq(1),
            self.credit.completed.eq(1),
            self.credit.error.eq(reason),
            self.credit.qp.eq(concerned),
            self.wake.qp.eq(qp),
        ]

        # One request at a time: clear, count down, or take a store.
        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += self.idle.eq(fsm.ongoing("IDLE"))
        fsm.act("IDLE",
            NextValue(reason, 0),
            NextValue(concerned, 0),
            If(self.init.valid,
                self.written.index.eq(self.init.qp),
                self.written.row.position.eq(0),
                self.written.we.eq(1),
                self.init.ready.eq(1)
            ).Elif(self.init_page.valid,
                NextValue(page_number, self.init_page.page),
                NextValue(on_page, 0),
                NextState("CLEAR")
            ).Elif(self.consumed.valid,
                self.consumed.ready.eq(1),
                NextValue(page_number, self.consumed.page),
                NextState("LEFT")
            ).Elif(self.sink.valid & ~self.hold,
                self.sink.ready.eq(1),
                NextValue(page_number, self.sink.address[12:12 + config.page_bits]),
                NextValue(on_page,     self.sink.address[6:12]),
                NextValue(raw,         self.sink.data),
                NextValue(low,         self.sink.dwords[0]),
                NextValue(high,        self.sink.dwords[1]),
                If(~outside, NextState("STORE"))
            )
        )
        # A page's new owner finds no tokens counted, and no half token of the owner before.
        fsm.act("CLEAR",
            waiting.we.eq(1),
            halves.we.eq(1),
            NextValue(on_page, on_page + 1),
            If(on_page == 63,
                self.init_page.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("LEFT", NextState("COUNT-DOWN"))
        fsm.act("COUNT-DOWN",
            waiting.row.count.eq(less),
            waiting.we.eq(waits.row.count != 0),
            NextState("IDLE")
        )
        fsm.act("STORE", NextState("JOIN"))
        # Join halves; number of the context.
        fsm.act("JOIN",
            halves.row.data.eq(raw[:32]),
            halves.row.held.eq(low & ~high),
            halves.we.eq(1),
            NextValue(number, first),
            If(~page.row.valid | (on_page >= page.row.count) | (first >= config.contexts),
                NextValue(reason, QpError.TOKEN_CONTEXT),
                NextState("REFUSE")
            ).Elif(low & ~high,
                # A second low half: the first one never fired.
                If(half.row.held,
                    NextValue(reason, QpError.TOKEN_FORMAT),
                    NextState("REFUSE")
                ).Else(
                    NextState("IDLE")
                )
            ).Elif(high & ~low,
                NextValue(raw[:32], half.row.data),
                If(half.row.held,
                    NextState("CONTEXT")
                ).Else(
                    NextValue(reason, QpError.TOKEN_FORMAT),
                    NextState("REFUSE")
                )
            ).Elif(half.row.held,
                NextValue(reason, QpError.TOKEN_FORMAT),
                NextState("REFUSE")
            ).Else(
                NextState("CONTEXT")
            )
        )
        fsm.act("CONTEXT", NextState("DEFAULTS"))
        fsm.act("DEFAULTS",
            NextValue(op,     Mux(token.op == 0, context.row.op, token.op)),
            NextValue(length, Mux(token.flag_default, context.row.length, token.length)),
            NextValue(offset, token.slot*context.row.local_stride),
            NextState("ADDRESS")
        )
        fsm.act("ADDRESS",
            NextValue(start, context.row.local_base + offset),
            NextState("REGION")
        )
        fsm.act("REGION",
            NextValue(into, into_next),
            NextState("REST")
        )
        fsm.act("REST",
            NextValue(rest, rest_next),
            NextState("CHECK")
        )
        inside = Signal()
        self.comb += inside.eq(
            (length == 0) |
            (region.row.valid & (region.row.variant == context.row.lkey[:8]) & (context.row.lkey[8 + config.region_bits:] == 0) &
             region.row.rights[log2_int(Rights.LOCAL_READ)] &
             ~start[64] & (into[64:66] == 0) & ~rest[64] & (rest[:64] >= length)))
        fsm.act("CHECK",
            NextState("REFUSE"),
            NextValue(concerned, context.row.qp),
            If(~context.row.valid | (context.row.qp >= config.queue_pairs),
                NextValue(reason, QpError.TOKEN_CONTEXT)
            ).Elif(((op != 1) & (op != 2)) | (token.flags != 0),
                NextValue(reason, QpError.TOKEN_FORMAT)
            ).Elif(token.slot >= context.row.slots,
                NextValue(reason, QpError.TOKEN_SLOT)
            ).Elif(length > context.row.max_length,
                NextValue(reason, QpError.TOKEN_LENGTH)
            ).Elif(~inside,
                NextValue(reason, QpError.TOKEN_REGION)
            ).Elif(state.row.state != QpState.RTS,
                NextValue(reason, QpError.TOKEN_STATE)
            ).Elif((waits.row.count >= page.row.quota) | used[config.ring_bits],
                NextValue(reason, QpError.TOKEN_QUOTA)
            ).Else(
                NextState("PUSH")
            )
        )
        # Counted when it can be seen first, hence before it can be counted down.
        fsm.act("PUSH",
            self.in_flight.valid.eq(1),
            waiting.row.count.eq(wanted),
            If(self.in_flight.ready,
                accepted.eq(1),
                self.ring.we.eq(1),
                self.written.we.eq(1),
                waiting.we.eq(1),
                self.wake.valid.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("REFUSE",
            self.credit.valid.eq(1),
            If(self.credit.ready,
                *[If(reason == number_, pulse.eq(1)) for number_, pulse in refused.items()],
                NextState("IDLE")
            )
        )
