# SPDX-License-Identifier: BSD-2-Clause
"""Queue of events between the transport and the recovery firmware.

Blocks of the transport raise events (ripe holes, NACKs, timeouts, failed reads); the soft core
reads them one by one. The queue holds `config.events` events in block RAM. A full queue does not
take the event: the source keeps it valid, or gives up and counts it itself. Nothing on the data
path may wait here, so a source needs its own room (a pending bit, a register) for an event.

Source: design, "who does what": gateware every packet, firmware every event.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *
from migen.genlib.roundrobin import SP_CE, RoundRobin

from gateware.common.layouts import event_layout

# Event queue --------------------------------------------------------------------------------------

class EventQueue(LiteXModule):
    """Round-robin arbiter of event sources, then a FIFO.

    sources added with `add_source()` : endpoint of `event_layout()`; one event a beat, a valid event
                                        is stable until taken. Before elaboration only.
    source  : `event_layout()`, the oldest event; it stays until it is taken.
    waiting : events that can be read, 0 to config.events + 1.

    Latency: 3 cycles from a granted beat to `source`, one more when the grant has to move.
    """
    def __init__(self, config):
        self.source  = stream.Endpoint(event_layout())
        self.waiting = Signal(max=config.events + 2)

        # # #

        self.sinks = []
        self.fifo  = fifo = stream.SyncFIFO(event_layout(), config.events, buffered=True)
        self.comb += [
            fifo.source.connect(self.source),
            If(fifo.source.valid, self.waiting.eq(fifo.level)),
        ]

    def add_source(self, endpoint=None):
        """A new endpoint for one source of events (or the given one)."""
        if self.finalized:
            raise ValueError("An event source was added after the event queue was elaborated; add it in a constructor.")
        endpoint = stream.Endpoint(event_layout()) if endpoint is None else endpoint
        self.sinks.append(endpoint)
        return endpoint

    def do_finalize(self):
        if not self.sinks:
            return

        # Arbiter: the grant moves when its event was taken, or when it points at nobody.
        fifo = self.fifo
        self.arbiter = arbiter = RoundRobin(len(self.sinks), SP_CE)
        grant_idle = Signal()
        self.comb += [
            arbiter.request.eq(Cat(*[sink.valid for sink in self.sinks])),
            grant_idle.eq(~fifo.sink.valid),
            arbiter.ce.eq(grant_idle | fifo.sink.ready),
        ]

        # Multiplexer.
        self.comb += Case(arbiter.grant, {i: [
            fifo.sink.valid.eq(sink.valid),
            fifo.sink.payload.eq(sink.payload),
            sink.ready.eq(fifo.sink.ready),
        ] for i, sink in enumerate(self.sinks)})
