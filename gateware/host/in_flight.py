# SPDX-License-Identifier: BSD-2-Clause
"""How many messages use a context, a memory region and a doorbell page right now.

From the doorbell's acceptance of a token until its message is complete or given back. The table port
refuses to change a row that is in use, so a resend always finds what the first packet found. The
count goes down before the credit line tells the owner, who may then change the row at once.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arbiter import RoundRobinArbiter
from gateware.common.arithmetic import sized
from gateware.common.table_ram import TableRAM
from gateware.transport.queue_pair import credit_layout

class InFlight(LiteXModule):
    """Counts, on the way of the credits to their writer.

    up:      {context, page, region}: a token is accepted; 4 cycles.
    sinks:   credit_layout of messages and tokens that had been accepted; each `completed` counts down.
    source:  the same credits.
    index:   row whose use is asked for; `contexts_used`, `regions_used`, `pages_used` answer 2 cycles later.
    quiet:   nothing is being counted.
    """
    def __init__(self, config, clients):
        fields = [("context", config.context_bits), ("page", config.page_bits), ("region", config.region_bits)]
        self.up     = stream.Endpoint(fields)
        self.sinks  = [stream.Endpoint(credit_layout(config)) for _ in range(clients)]
        self.source = stream.Endpoint(credit_layout(config))
        self.index  = Signal(16)
        self.quiet  = Signal()
        self.contexts_used, self.pages_used, self.regions_used = Signal(), Signal(), Signal()

        # # #

        # A context, region or page is used by at most all rings and all messages.
        width = (config.queue_pairs*(config.ring_depth + config.messages)).bit_length()
        self.contexts = TableRAM([("count", width)], config.contexts)
        self.pages    = TableRAM([("count", width)], config.pages)
        self.regions  = TableRAM([("count", width)], config.regions)
        self.arbiter  = arbiter = RoundRobinArbiter(credit_layout(config), clients)
        credit, up    = arbiter.source, Signal()
        self.comb += [
            *[sink.connect(port) for sink, port in zip(self.sinks, arbiter.sinks, strict=True)],
            credit.connect(self.source, omit={"valid", "ready"}),
        ]

        # One count of each kind at a time.
        at = Record(fields)
        for name, table, used in (("context", self.contexts, self.contexts_used), ("page", self.pages, self.pages_used),
                                  ("region", self.regions, self.regions_used)):
            count, asked = table.reader(), table.reader()
            more = sized(self, count.row.count + 1, width, f"{name}_more")
            less = sized(self, count.row.count - 1, width, f"{name}_less")
            self.comb += [
                count.index.eq(getattr(at, name)),
                table.index.eq(getattr(at, name)),
                table.row.count.eq(Mux(up, more, less)),
                asked.index.eq(self.index),
            ]
            self.sync += used.eq(asked.row.count != 0)

        counted = Signal()                      # The credit at hand has been counted.
        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += [
            self.source.valid.eq(credit.valid & (counted | ~credit.completed)),
            credit.ready.eq(self.source.ready & (counted | ~credit.completed)),
            self.quiet.eq(fsm.ongoing("IDLE") & ~self.up.valid & ~(credit.valid & credit.completed & ~counted)),
        ]
        fsm.act("IDLE",
            If(self.up.valid,
                self.up.ready.eq(1),
                NextValue(up, 1),
                *[NextValue(getattr(at, f), getattr(self.up, f)) for f, _ in fields],
                NextState("READ")
            ).Elif(credit.valid & credit.completed & ~counted,
                NextValue(up, 0),
                NextValue(counted, 1),
                *[NextValue(getattr(at, f), getattr(credit, f)) for f, _ in fields],
                NextState("READ")
            ),
            If(credit.valid & credit.ready, NextValue(counted, 0))
        )
        fsm.act("READ",
            NextState("COUNT"),
            If(credit.valid & credit.ready, NextValue(counted, 0))
        )
        fsm.act("COUNT",
            *[table.we.eq(1) for table in (self.contexts, self.pages, self.regions)],
            NextState("IDLE"),
            If(credit.valid & credit.ready, NextValue(counted, 0))
        )
