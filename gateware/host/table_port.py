# SPDX-License-Identifier: BSD-2-Clause
"""The driver's way into the tables: a row, a table number, an index.

    queue_pair          as its life cycle allows (gateware/transport/life.py); ERROR and RESET take only
                        the state from the row
    context, region     not while messages use the row; it is made invalid first, and takes its new
                        value when all reads and write jobs that might still use the old one are gone
    page                not while messages use the row; clears its counts
    signal              any time, rights are looked at with every packet; clears its count unless it
                        adds; ends when what had been allowed is written
    peer, ev            any time; a peer's paths become good and their counts 0

After `busy` has fallen nothing is read from or written to memory for what the row said before.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common import tables as t
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState, Refusal
from gateware.transport.barriers import fence_record
from gateware.transport.life import change_endpoint

class Tables(LiteXModule):
    """The tables that a driver writes, as TableRAMs named like their rows."""
    def __init__(self, config):
        depths = {t.QUEUE_PAIR: config.queue_pairs, t.PEER: config.peers, t.EV: config.peers*config.evs,
                  t.CONTEXT: config.contexts, t.PAGE: config.pages, t.REGION: config.regions, t.SIGNAL: config.signals,
                  t.TRANSLATION: config.translations}
        for table, depth in depths.items():
            setattr(self, table.name, TableRAM(table.layout(), depth))

class TablePort(LiteXModule):
    """Executes one row write at a time.

    row, table, index, start: the request; `start` for one cycle.
    busy:       1 until it is done.
    refused:    why nothing was written, a Refusal; valid until the next request.
    change:     to `Life`, with its `change_refused` and `change_write`.
    page_inits: {page}; signal_init: {signal}; peer_init: {peer}.
    hold, bell_idle, quiet: stops the doorbell between two tokens; counts stand still.
    contexts_used, regions_used, pages_used: from `InFlight`, for `index`.
    drain, fence: barriers.
    """
    def __init__(self, config, tables, page_inits, signal_init, peer_init, drain):
        self.row     = Signal(t.ROW_BITS)
        self.table   = Signal(4)
        self.index   = Signal(16)
        self.start   = Signal()
        self.busy    = Signal()
        self.refused = Signal(3)
        self.change  = change = change_endpoint()
        self.change_refused, self.change_write = Signal(), Signal()
        self.hold, self.bell_idle, self.quiet  = Signal(), Signal(), Signal()
        self.contexts_used, self.regions_used, self.pages_used = Signal(), Signal(), Signal()
        self.fence   = fence = fence_record()

        # # #

        # The row at hand; `closed` keeps it from being valid.
        closed = Signal()
        for table in t.TABLES:
            ram, row = getattr(tables, table.name), self.row[:table.width]
            if table in (t.CONTEXT, t.REGION):
                assert table.columns[0].name == "valid"
                row = Cat(self.row[0] & ~closed, self.row[1:table.width])
            self.comb += [ram.index.eq(self.index), ram.row.raw_bits().eq(row)]
        for init in page_inits:
            self.comb += init.page.eq(self.index)

        def column(table, name):
            at = sum(c.width for c in table.columns[:[c.name for c in table.columns].index(name)])
            return self.row[at:at + next(c.width for c in table.columns if c.name == name)]

        # Values that the card could not work with. A queue pair that ends needs none but its state.
        state = column(t.QUEUE_PAIR, "state")
        ends  = (state == QpState.RESET) | (state == QpState.ERROR)
        fits  = {t.QUEUE_PAIR: ends | ((state <= QpState.RTS) & (column(t.QUEUE_PAIR, "mtu") <= log2_int(config.max_mtu//256)))}
        self.comb += [
            signal_init.signal.eq(self.index),
            peer_init.peer.eq(self.index),
            change.qp.eq(self.index),
            change.state.eq(state),
        ]

        write = {table: getattr(tables, table.name).we.eq(1) for table in t.TABLES}
        used  = Signal()
        self.comb += Case(self.table, {
            t.CONTEXT.number: used.eq(self.contexts_used),
            t.REGION.number:  used.eq(self.regions_used),
            "default":        used.eq(self.pages_used)})
        first = {t.QUEUE_PAIR: "LIFE", t.CONTEXT: "HOLD", t.REGION: "HOLD", t.PAGE: "HOLD"}
        after = {t.CONTEXT: "IDLE", t.REGION: "IDLE", t.PAGE: "PAGE-0", t.SIGNAL: "FENCE", t.PEER: "PEER"}

        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        fsm.act("IDLE",
            If(self.start, NextState("CHECK"))
        )
        fsm.act("CHECK",
            NextState("IDLE"),
            NextValue(self.refused, Refusal.NO_ROW),
            Case(self.table, {table.number:
                If(self.index < getattr(tables, table.name).depth,
                    If(fits.get(table, 1),
                        NextValue(self.refused, Refusal.NONE),
                        NextState(first.get(table, "WRITE"))
                    ).Else(
                        NextValue(self.refused, Refusal.VALUE)
                    )
                ) for table in t.TABLES})
        )
        fsm.act("WRITE",
            Case(self.table, {table.number: [write[table], NextState(after.get(table, "IDLE"))]
                for table in t.TABLES if table is not t.QUEUE_PAIR})
        )

        # Queue pairs ----------------------------------------------------------------------------------
        fsm.act("LIFE",
            change.valid.eq(1),
            If(self.change_write, write[t.QUEUE_PAIR]),
            If(change.ready,
                If(self.change_refused, NextValue(self.refused, Refusal.TRANSITION)),
                NextState("IDLE")
            )
        )

        # Rows that messages use -----------------------------------------------------------------------
        # No token is between its checks and its count.
        fsm.act("HOLD",
            self.hold.eq(1),
            If(self.bell_idle & self.quiet, NextState("HELD-READ"))
        )
        fsm.act("HELD-READ", self.hold.eq(1), NextState("HELD-COUNT"))
        fsm.act("HELD-COUNT", self.hold.eq(1), NextState("HELD"))
        fsm.act("HELD",
            self.hold.eq(1),
            closed.eq(1),
            If(used,
                NextValue(self.refused, Refusal.IN_USE),
                NextState("IDLE")
            ).Elif(self.table == t.PAGE.number,
                write[t.PAGE],
                NextState("PAGE-0")
            ).Else(
                Case(self.table, {table.number: write[table] for table in (t.CONTEXT, t.REGION)}),
                drain.start.eq(1),
                NextState("DRAIN")
            )
        )
        fsm.act("DRAIN",
            If(drain.done, If(self.table == t.REGION.number, NextState("FENCE")).Else(NextState("WRITE")))
        )
        fsm.act("FENCE",
            fence.valid.eq(1),
            If(fence.ready, If(self.table == t.REGION.number, NextState("WRITE")).Else(NextState("SIGNAL")))
        )

        # Counts that belong to a row ------------------------------------------------------------------
        for i, init in enumerate(page_inits):
            fsm.act(f"PAGE-{i}",
                init.valid.eq(1),
                If(init.ready, NextState("IDLE" if i == len(page_inits) - 1 else f"PAGE-{i + 1}"))
            )
        fsm.act("SIGNAL",
            signal_init.valid.eq(1),
            If(signal_init.ready, NextState("IDLE"))
        )
        fsm.act("PEER",
            peer_init.valid.eq(1),
            If(peer_init.ready, NextState("IDLE"))
        )
