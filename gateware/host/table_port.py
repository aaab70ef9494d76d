# SPDX-License-Identifier: BSD-2-Clause
"""The driver's way into the tables: a row, a table number, an index.

Writing a queue pair starts a new life (its owners clear what they hold, one after the other, the
status last); writing a page clears its counts; writing a signal clears its count unless it adds.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common import tables as t
from gateware.common.table_ram import TableRAM

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
    refused:    the last request named no table, an index past its end, or a path MTU above `max_mtu`;
                nothing was written.
    qp_inits:   init endpoints, asked in this order.
    page_inits: {page}; signal_init: {signal}.
    """
    def __init__(self, config, tables, qp_inits, page_inits, signal_init):
        self.row     = Signal(t.ROW_BITS)
        self.table   = Signal(4)
        self.index   = Signal(16)
        self.start   = Signal()
        self.busy    = Signal()
        self.refused = Signal()

        # # #

        for table in t.TABLES:
            ram = getattr(tables, table.name)
            self.comb += [ram.index.eq(self.index), ram.row.raw_bits().eq(self.row[:table.width])]
        for init in qp_inits:
            self.comb += init.qp.eq(self.index)
        for init in page_inits:
            self.comb += init.page.eq(self.index)
        self.comb += signal_init.signal.eq(self.index)

        mtu  = Signal(3)
        fits = {t.QUEUE_PAIR.number: mtu <= log2_int(config.max_mtu//256)}
        at   = sum(c.width for c in t.QUEUE_PAIR.columns[:[c.name for c in t.QUEUE_PAIR.columns].index("mtu")])
        self.comb += mtu.eq(self.row[at:at + 3])
        step = Signal(max=max(2, len(qp_inits)))
        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += self.busy.eq(~fsm.ongoing("IDLE"))
        after = {t.QUEUE_PAIR.number: "QUEUE-PAIR", t.PAGE.number: "PAGE-0", t.SIGNAL.number: "SIGNAL"}
        fsm.act("IDLE",
            NextValue(step, 0),
            If(self.start, NextState("WRITE"))
        )
        cases = {"default": [NextValue(self.refused, 1)]}
        for table in t.TABLES:
            ram = getattr(tables, table.name)
            cases[table.number] = [
                If((self.index < ram.depth) & fits.get(table.number, 1),
                    ram.we.eq(1),
                    NextValue(self.refused, 0),
                    NextState(after.get(table.number, "IDLE"))
                ).Else(
                    NextValue(self.refused, 1)
                )]
        fsm.act("WRITE", NextState("IDLE"), Case(self.table, cases))
        fsm.act("QUEUE-PAIR",
            Case(step, {i: [
                init.valid.eq(1),
                If(init.ready, NextState("IDLE") if i == len(qp_inits) - 1 else NextValue(step, i + 1))
            ] for i, init in enumerate(qp_inits)})
        )
        for i, init in enumerate(page_inits):
            fsm.act(f"PAGE-{i}",
                init.valid.eq(1),
                If(init.ready, NextState("IDLE" if i == len(page_inits) - 1 else f"PAGE-{i + 1}"))
            )
        fsm.act("SIGNAL",
            signal_init.valid.eq(1),
            If(signal_init.ready, NextState("IDLE"))
        )
