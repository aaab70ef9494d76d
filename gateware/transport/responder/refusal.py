# SPDX-License-Identifier: BSD-2-Clause
"""A refused packet, told on this side: to the firmware, and to whoever polls the queue pair's page.

The peer hears of it by a Transport NAK. Here an ACCESS event tells the firmware, and the credit line of
QUEUE_PAIR.page its error word: REFUSED_ACCESS or REFUSED_INVALID. The queue pair goes on. Source: the design.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.layouts import event_layout
from gateware.transport.queue_pair import credit_layout

class RefusalReport(LiteXModule):
    """Tells of the packet `p` with a Transport NAK of this `syndrome`; `error` is the QpError.

    report: for one cycle. Neither event nor credit is waited for: one that finds its queue full is counted and
            left out; the packet comes again, since its PSN stays missing.
    event, credit: event_layout, credit_layout. A page that the card does not have hears nothing.
    """
    def __init__(self, config, p, attributes, life, syndrome, error):
        self.report   = Signal()
        self.time     = Signal(32)
        self.events   = events = stream.SyncFIFO(event_layout(), 4)
        self.event    = events.source
        self.credits  = credits = stream.SyncFIFO(credit_layout(config), 4)
        self.credit   = credits.source
        self.counters = Counters(self)

        # # #

        lost   = self.counters.add("events_lost_access", "ACCESS events that found the event queue full.")
        untold = self.counters.add("refusals_untold",    "Refused packets of which a credit line was not told: its queue was full.")
        page   = attributes.page
        named  = sized(self, page < config.pages, 1, "page_exists")
        self.comb += [
            events.sink.valid.eq(self.report),
            events.sink.kind.eq(EventKind.ACCESS), events.sink.qp.eq(p.dest_qp[:16]), events.sink.reason.eq(syndrome),
            events.sink.life.eq(life),
            events.sink.base.eq(p.psn), events.sink.entropy.eq(p.entropy), events.sink.time.eq(self.time),
            lost.eq(self.report & ~events.sink.ready),
            credits.sink.valid.eq(self.report & named),
            credits.sink.page.eq(page[:config.page_bits]), credits.sink.error.eq(error), credits.sink.qp.eq(p.dest_qp[:16]),
            untold.eq(credits.sink.valid & ~credits.sink.ready),
        ]
