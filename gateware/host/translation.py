# SPDX-License-Identifier: BSD-2-Clause
"""Translation: bus addresses of a packet's bytes in a memory region.

A region is one contiguous range, or a table of equal pages of 4 KiB to 2 MiB that may lie anywhere:

    page number = (va >> page_shift) - (base >> page_shift)      row = first_page + page number
    bus address = the row's page, with the lowest page_shift bits of va

So a region may begin anywhere in its first page. A page has 4 KiB or more and a packet 4096 bytes or
less, so a packet crosses one boundary at most, and that is a 4 KiB boundary of the bus address too:
`address` is the first byte's, `beyond` where the bytes go on after the first 4 KiB boundary.

Bounds and rights are the caller's to check; a row past the end of the table is found here. Source: the design.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.common.tables import PAGE_SIZES

SHIFTS = [size.bit_length() - 1 for size in PAGE_SIZES]

class Translation(LiteXModule):
    """Translates one address at a time.

    look:    for one cycle, with the region's row (`region`, held until `done`) and `va` there; `va` and
             `length` (bytes, from the cycle after) are held until `done`.
    done:    the results are valid from the next cycle to the next `look`: 1 cycle after `look` for a
             contiguous region, 3 for pages. `paged` tells which, from the cycle after `look`.
    mapped:  the region is of a known kind and all pages of the bytes are in the table.
    address: bus address of the first byte.
    beyond:  number of the 4 KiB of bus addresses in which the bytes after the first boundary lie.
    """
    def __init__(self, config, tables, region, va, length):
        self.look    = Signal()
        self.done    = Signal()
        self.paged   = Signal()
        self.mapped  = Signal()
        self.address = Signal(64)
        self.beyond  = Signal(52)

        # # #

        table = tables.translation.reader()
        bits  = len(table.index)
        shift = region.page_shift

        # Page and place in it.
        known  = Signal()                          # A page size there is.
        inner  = Signal(SHIFTS[-1])                # Ones in the bits of a place in a page.
        outer  = sized(self, ~inner, SHIFTS[-1], "outer")
        start  = Signal(64)                        # Base of the region, or of its first page.
        into   = Signal(64)
        number = Signal(64)
        self.comb += [
            Case(shift, {**{s: [known.eq(1), inner.eq(2**s - 1), number.eq(into >> s)] for s in SHIFTS}, 0: known.eq(1)}),
            start.eq(Cat(region.base[:SHIFTS[-1]] & outer, region.base[SHIFTS[-1]:])),
        ]
        into_next = sized(self, va - start, 64, "into_next")
        row       = sized(self, region.first_page + number, 65, "translation_row")
        row_after = sized(self, row + 1, 65, "translation_row_after")
        there     = sized(self, row < config.translations, 1, "row_there")
        after_there = sized(self, row_after < config.translations, 1, "row_after_there")

        # Does the packet go on after the 4 KiB boundary, and is that the end of the page?
        reach   = sized(self, va[:12] + length, 14, "reach")
        crosses = sized(self, reach > 4096, 1, "crosses")
        ends    = sized(self, (va[12:SHIFTS[-1]] | outer[12:]) == 2**(SHIFTS[-1] - 12) - 1, 1, "page_ends")

        line    = sized(self, region.bus + into, 64, "line_address")
        page    = Signal(64)                       # The row of the table, without bits of a place in it.
        place   = Signal(64)
        self.comb += [
            page.eq(Cat(table.row.bus[:SHIFTS[-1]] & outer, table.row.bus[SHIFTS[-1]:])),
            place.eq(page | (va[:SHIFTS[-1]] & inner)),
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE", If(self.look, NextState("FIRST")))
        fsm.act("FIRST",
            table.index.eq(row[:bits]),
            If(self.paged,
                NextState("SECOND")
            ).Else(
                self.done.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("SECOND",
            table.index.eq(row_after[:bits]),
            NextState("THIRD")
        )
        fsm.act("THIRD",
            self.done.eq(1),
            NextState("IDLE")
        )
        def following(address):
            return sized(self, address[12:] + 1, 52, "following")
        line_following, page_following = following(line), following(place)
        self.sync += [
            If(self.look, into.eq(into_next), self.paged.eq(shift != 0)),
            If(fsm.ongoing("FIRST"),
                self.address.eq(line),
                self.beyond.eq(line_following),
                self.mapped.eq(known)
            ),
            If(fsm.ongoing("SECOND"),
                self.address.eq(place),
                self.beyond.eq(page_following),
                self.mapped.eq(known & there & (~(crosses & ends) | after_there))
            ),
            If(fsm.ongoing("THIRD") & ends, self.beyond.eq(page[12:])),
        ]
