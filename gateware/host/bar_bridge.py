# SPDX-License-Identifier: BSD-2-Clause
"""BAR0 front end: doorbell stores to the doorbell stream, everything else to a Wishbone bus.

LitePCIe's Wishbone master loses the upper half of an 8-byte store, answers one dword to a longer
read and never answers a read that nothing claims; here every read is answered:

| request | where | what happens |
|---|---|---|
| store of 4 or 8 aligned bytes | doorbell window | one beat of `doorbell` |
| any other store | doorbell window | dropped, `bad_doorbells` |
| store | CSRs, firmware memory | dword by dword on `bus`, byte enables as `sel` |
| load | CSRs, firmware memory | dword by dword, completions of up to 64 bytes |
| load | elsewhere | zeros |
| store | elsewhere | dropped |

A bus access that nobody acknowledges within `BUS_TIMEOUT` cycles, or that ends with `err`, gives a
load the status Unsupported Request and drops the dword of a store (`bus_timeouts`).

Limits: one access at a time; a load does not combine with later requests, in order. Source: PCI
Express Base, chapters 2.2.5 (byte enables), 2.2.9 and 2.3.1.1 (completions).
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream, wishbone
from migen import *

from gateware.common.layouts import doorbell_layout
from gateware.common.tables import BAR0_DOORBELL, BAR0_DOORBELL_BYTES
from gateware.host.tlp_layouts import CompletionStatus, bar_request_layout, completion_tlp_layout

BUS_TIMEOUT = 2**12
CHUNK       = 16     # Dwords of a completion: it ends at a multiple of 64 bytes.

# BAR bridge ---------------------------------------------------------------------------------------

class BarBridge(LiteXModule):
    """`sink`: `bar_request_layout`; `doorbell`: `doorbell_layout`; `bus`: 32-bit Wishbone master, word
    addressed by the offset in BAR0; `completion`: `completion_tlp_layout`.

    A doorbell store is on `doorbell` in the next cycle. No token is ever lost here: a store that finds
    the queue full waits, so the consumer must take each beat within a bounded number of cycles,
    whatever the state of the queue pairs.
    """
    def __init__(self, config):
        data_width = config.host_width
        self.sink       = sink       = stream.Endpoint(bar_request_layout(data_width))
        self.doorbell   = stream.Endpoint(doorbell_layout(config))
        self.bus        = bus        = wishbone.Interface(data_width=32, address_width=32, addressing="word")
        self.completion = completion = stream.Endpoint(completion_tlp_layout(data_width))
        self.bad_doorbells  = Signal(32)
        self.bus_timeouts   = Signal(32)

        # # #

        dwords    = data_width//32
        lane_bits = log2_int(dwords)

        # Regions ----------------------------------------------------------------------------------
        def in_doorbell(address):
            window = log2_int(BAR0_DOORBELL_BYTES)
            assert BAR0_DOORBELL % BAR0_DOORBELL_BYTES == 0
            return address[window:] == BAR0_DOORBELL >> window

        address  = Signal(32)                # Of the current dword.
        on_bus   = Signal()
        self.comb += on_bus.eq(address < BAR0_DOORBELL)

        # Doorbell ---------------------------------------------------------------------------------
        self.queue = queue = stream.SyncFIFO(doorbell_layout(config), 4)
        self.comb += queue.source.connect(self.doorbell)
        store_4 = Signal()
        store_8 = Signal()
        self.comb += [
            store_4.eq((sink.length == 1) & (sink.first_be == 0xf) & (sink.last_be == 0)),
            store_8.eq((sink.length == 2) & (sink.first_be == 0xf) & (sink.last_be == 0xf) & ~sink.address[2]),
            queue.sink.address.eq(sink.address[:16] - (BAR0_DOORBELL & 0xffff)),
            queue.sink.data.eq(Mux(store_8, sink.dat[:64], Cat(sink.dat[:32], sink.dat[:32]))),
            queue.sink.dwords.eq(Mux(store_8, 0b11, Mux(sink.address[2], 0b10, 0b01))),
        ]

        # Current dword ----------------------------------------------------------------------------
        left   = Signal(11)                  # Dwords of the request from the current one on.
        begin  = Signal()                    # The current dword is the request's first.
        we     = Signal()
        lane   = Signal(lane_bits)           # Store: lane of the dword.
        be     = Signal(4)
        value  = Signal(32)
        self.comb += [
            be.eq(0xf),
            If(left == 1, be.eq(sink.last_be)),
            If(begin, be.eq(sink.first_be)),
            Case(lane, {i: value.eq(sink.dat[32*i:32*i + 32]) for i in range(dwords)}),
        ]

        # Bus --------------------------------------------------------------------------------------
        timer    = Signal(max=BUS_TIMEOUT + 1)
        bus_done = Signal()
        bus_fail = Signal()
        self.comb += [
            bus.adr.eq(address[2:]),
            bus.dat_w.eq(value),
            bus.sel.eq(be),
            bus.we.eq(we),
            bus_fail.eq(bus.cyc & ~bus.ack & (bus.err | (timer == BUS_TIMEOUT))),
            bus_done.eq(bus.cyc & (bus.ack | bus_fail)),
        ]
        self.sync += [
            If(bus.cyc & ~bus_done, timer.eq(timer + 1)).Else(timer.eq(0)),
            If(bus_fail, self.bus_timeouts.eq(self.bus_timeouts + 1)),
        ]

        # Completion -------------------------------------------------------------------------------
        chunk    = Signal(5)                 # Dwords gathered.
        buffer   = Memory(data_width, max(2, CHUNK//dwords))
        wp       = buffer.get_port(write_capable=True, we_granularity=32)
        rp       = buffer.get_port(async_read=True)
        self.specials += buffer, wp, rp
        failed   = Signal()
        lower    = Signal(7)                 # Of the chunk.
        count    = Signal(13)                # Bytes of the request from the chunk on.
        lead     = Signal(2)                 # Bytes of the first dword that are not enabled, at its start.
        trail    = Signal(2)                 # Bytes of the last dword that are not enabled, at its end.
        end_be   = Signal(4)
        total    = Signal(13)
        beat     = Signal(5)
        chunk_last = Signal(5)
        last_beat  = Signal(5)
        sent     = Signal(13)
        self.comb += [
            If(sink.first_be[0] | (sink.first_be == 0), lead.eq(0)
            ).Elif(sink.first_be[1], lead.eq(1)
            ).Elif(sink.first_be[2], lead.eq(2)
            ).Else(lead.eq(3)),
            end_be.eq(Mux(sink.length == 1, sink.first_be, sink.last_be)),
            If(end_be[3], trail.eq(0)
            ).Elif(end_be[2], trail.eq(1)
            ).Elif(end_be[1], trail.eq(2)
            ).Else(trail.eq(3)),
            total.eq((left << 2) - lead - trail),
            wp.adr.eq(chunk[lane_bits:]),
            wp.dat_w.eq(Replicate(Mux(bus.cyc, bus.dat_r, 0), dwords)),
            rp.adr.eq(beat),
            chunk_last.eq(chunk - 1),
            last_beat.eq(chunk_last >> lane_bits),
            sent.eq((chunk << 2) - lower[:2]),
            completion.dat.eq(rp.dat_r),
            completion.req_id.eq(sink.req_id),
            completion.tag.eq(sink.tag),
            completion.status.eq(Mux(failed, CompletionStatus.UR, CompletionStatus.SC)),
            completion.lower_address.eq(lower),
            completion.byte_count.eq(count),
            completion.length.eq(Mux(failed, 0, chunk)),
            completion.first.eq(beat == 0),
        ]
        write_lane = Signal()
        self.comb += If(write_lane, Case(chunk[:lane_bits], {i: wp.we.eq(1 << i) for i in range(dwords)}))

        def next_dword():
            return [
                NextValue(address, address + 4),
                NextValue(left,    left - 1),
                NextValue(begin,   0),
            ]

        # Requests ---------------------------------------------------------------------------------
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(address, sink.address),
            NextValue(left,    sink.length),
            If(sink.length == 0, NextValue(left, 1024)),
            NextValue(begin,   1),
            NextValue(we,      sink.we),
            NextValue(lane,    0),
            NextValue(chunk,   0),
            NextValue(failed,  0),
            If(sink.valid,
                If(~sink.we,
                    NextState("LOAD")
                ).Elif(in_doorbell(sink.address),
                    If(sink.poisoned | ~(store_4 | store_8),
                        NextValue(self.bad_doorbells, self.bad_doorbells + 1),
                        NextState("DISCARD")
                    ).Elif(queue.sink.ready,
                        queue.sink.valid.eq(1),
                        NextState("DISCARD")
                    )
                ).Elif(sink.poisoned,
                    NextState("DISCARD")
                ).Else(
                    NextState("STORE")
                )
            )
        )
        fsm.act("DISCARD",
            sink.ready.eq(1),
            If(sink.valid & sink.last, NextState("IDLE"))
        )
        # Store: the beat stays until its last dword is done.
        fsm.act("STORE",
            If(sink.valid,
                If(bus_done | ~bus.cyc, NextState("STORE-NEXT"))
            )
        )
        fsm.act("STORE-NEXT",
            *next_dword(),
            NextValue(lane, lane + 1),
            If(left == 1,
                NextState("DISCARD")
            ).Else(
                sink.ready.eq(lane == dwords - 1),
                If(sink.ready & sink.last, NextState("IDLE")).Else(NextState("STORE"))
            )
        )
        # Load: gather up to the next multiple of 64 bytes, then complete.
        fsm.act("LOAD",
            If(begin,
                NextValue(count, total),
                NextValue(lower, Cat(lead, address[2:7]))
            ),
            write_lane.eq(1),
            If(bus_done | ~bus.cyc,
                If(bus_fail, NextValue(failed, 1)),
                NextState("LOAD-NEXT")
            )
        )
        fsm.act("LOAD-NEXT",
            *next_dword(),
            NextValue(chunk, chunk + 1),
            NextValue(beat,  0),
            If(failed | (left == 1) | (address[2:6] == CHUNK - 1),
                NextState("COMPLETE")
            ).Else(
                NextState("LOAD")
            )
        )
        fsm.act("COMPLETE",
            If(completion.ready,
                NextValue(beat, beat + 1),
                If(completion.last,
                    NextValue(chunk, 0),
                    NextValue(count, count - sent),
                    NextValue(lower, Cat(C(0, 2), address[2:7])),
                    If(failed | (left == 0),
                        NextState("DISCARD")
                    ).Else(
                        NextState("LOAD")
                    )
                )
            )
        )
        self.comb += [
            bus.cyc.eq(on_bus & (be != 0) & ((fsm.ongoing("STORE") & sink.valid) | fsm.ongoing("LOAD"))),
            bus.stb.eq(bus.cyc),
            completion.valid.eq(fsm.ongoing("COMPLETE")),
            completion.last.eq(failed | (beat == last_beat)),
        ]
