# SPDX-License-Identifier: BSD-2-Clause
"""Credit lines: what a page's owner polls in its own memory.

A line of 16 bytes {consumed, completed, error, sequence} (CREDIT in gateware/common/tables.py) is
written after every `credit_every` tokens of the page, at once after an error, and by a timer, so
that the last tokens of a burst are seen too. Counts are the card's; the owner never writes them.
"""

from functools import reduce
from operator import or_

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arbiter import RoundRobinArbiter
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import small_write_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import CREDIT
from gateware.transport.queue_pair import credit_layout

FLUSH_TICKS = 64    # A line that lags behind is written after 8 us at most.

class CreditWriter(LiteXModule):
    """Counts per page, written to memory.

    sinks:   `clients` endpoints of credit_layout, taken round robin, one per 4 cycles.
    source:  small_write_layout.
    tick:    one pulse per 128 ns.
    init_page: clear a page's counts.
    """
    def __init__(self, config, tables, clients):
        self.sinks     = [stream.Endpoint(credit_layout(config)) for _ in range(clients)]
        self.source    = stream.Endpoint(small_write_layout(config))
        self.tick      = Signal()
        self.init_page = stream.Endpoint([("page", 16)])
        self.counters  = Counters(self)

        # # #

        lines = self.counters.add("credit_lines", "Credit lines written.")

        # State: the line without its sequence and address, and how many tokens it lags behind.
        self.state = state = TableRAM([
            ("consumed", 32), ("completed", 32), ("error", 8), ("error_qp", 16), ("error_count", 8),
            ("sequence", 32), ("lag", 8)], config.pages)
        now  = state.reader()
        page = tables.page.reader()
        number = Signal(config.page_bits)
        self.comb += [now.index.eq(number), page.index.eq(number), state.index.eq(number)]

        # Clients, through small queues, round robin.
        self.arbiter = arbiter = RoundRobinArbiter(credit_layout(config), clients)
        for sink, port in zip(self.sinks, arbiter.sinks, strict=True):
            fifo = stream.SyncFIFO(credit_layout(config), 8)
            self.submodules += fifo
            self.comb += [sink.connect(fifo.sink), fifo.source.connect(port)]
        request = Record(credit_layout(config))

        # Flush: every page once per FLUSH_TICKS.
        ticks = Signal(max=FLUSH_TICKS)
        flush = Signal(config.pages)
        flush_page, flush_any = Signal(config.page_bits), Signal()
        for i in reversed(range(config.pages)):
            self.comb += If(flush[i], flush_page.eq(i))
        self.comb += flush_any.eq(reduce(or_, flush))
        flushed = Signal()
        self.sync += [
            If(flushed, Case(number, {i: flush[i].eq(0) for i in range(config.pages)})),
            If(self.tick,
                ticks.eq(ticks + 1),
                If(ticks == FLUSH_TICKS - 1, ticks.eq(0), flush.eq(2**config.pages - 1))
            ),
        ]

        consumed  = sized(self, now.row.consumed  + request.consumed,  32, "consumed_after")
        completed = sized(self, now.row.completed + request.completed, 32, "completed_after")
        lag       = sized(self, now.row.lag + 1, 9, "lag_after")
        sequence  = sized(self, now.row.sequence + 1, 32, "sequence_after")
        failures  = sized(self, now.row.error_count + 1, 9, "failures_after")
        full      = Signal()
        self.comb += full.eq((lag >= page.row.credit_every) | lag[8] | (request.error != 0))

        line = Record(CREDIT.layout())
        self.comb += self.source.data.eq(line.raw_bits())

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(self.init_page.valid,
                NextValue(number, self.init_page.page),
                NextState("CLEAR")
            ).Elif(arbiter.source.valid,
                arbiter.source.ready.eq(1),
                NextValue(number, arbiter.source.page),
                *[NextValue(getattr(request, f), getattr(arbiter.source, f)) for f in ("consumed", "completed", "error", "qp")],
                NextState("READ")
            ).Elif(flush_any,
                NextValue(number, flush_page),
                NextState("READ-FLUSH")
            )
        )
        fsm.act("CLEAR",
            state.we.eq(1),
            self.init_page.ready.eq(1),
            NextState("IDLE")
        )
        fsm.act("READ", NextState("COUNT"))
        fsm.act("COUNT",
            state.we.eq(1),
            state.row.consumed.eq(consumed),
            state.row.completed.eq(completed),
            If((request.error != 0) & (now.row.error == 0),
                state.row.error.eq(request.error),
                state.row.error_qp.eq(request.qp)
            ).Else(
                state.row.error.eq(now.row.error),
                state.row.error_qp.eq(now.row.error_qp)
            ),
            state.row.error_count.eq(Mux((request.error != 0) & ~failures[8], failures[:8], now.row.error_count)),
            state.row.sequence.eq(now.row.sequence),
            state.row.lag.eq(lag),
            If(full & page.row.valid, NextState("READ-WRITE")).Else(NextState("IDLE"))
        )
        fsm.act("READ-FLUSH", NextState("FLUSH"))
        fsm.act("FLUSH",
            flushed.eq(1),
            If((now.row.lag != 0) & page.row.valid, NextState("WRITE")).Else(NextState("IDLE"))
        )
        fsm.act("READ-WRITE", NextState("WRITE"))
        fsm.act("WRITE",
            NextValue(self.source.address, page.row.credit),
            *[NextValue(getattr(line, f), getattr(now.row, f)) for f in ("consumed", "completed", "error", "error_qp", "error_count")],
            NextValue(line.sequence, sequence),
            *[getattr(state.row, f).eq(getattr(now.row, f)) for f in ("consumed", "completed", "error", "error_qp", "error_count")],
            state.row.sequence.eq(sequence),
            state.row.lag.eq(0),
            state.we.eq(1),
            NextState("SEND")
        )
        fsm.act("SEND",
            self.source.valid.eq(1),
            If(self.source.ready,
                lines.eq(1),
                NextState("IDLE")
            )
        )
