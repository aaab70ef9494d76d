# SPDX-License-Identifier: BSD-2-Clause
"""Payload store: packets wait here until they are whole.

A packet may compete for a plane only when all of its payload is there, because the MAC must never
run dry, and a failed read has to be known before the packet's header leaves.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import payload_layout

# Payload store ------------------------------------------------------------------------------------

class PayloadStore(LiteXModule):
    """Keeps packets and shows only whole ones; `error` is known with the first beat.

    `sink`, `source`: `payload_layout(network_width)`; the sink's `error` is looked at with `last`.
    `packets`: one beat {error} per whole packet, in order: what the packet sender decides by, while
    the payload of the packet before may still be leaving through `source`.
    Holds `payload_store` bytes in at most `packets` packets; when either is used up the sink waits.
    Latency: two cycles after the packet's last word.
    """
    def __init__(self, config, packets=64):
        self.sink   = sink   = stream.Endpoint(payload_layout(config.network_width))
        self.source = source = stream.Endpoint(payload_layout(config.network_width))

        # # #

        self.announced = announced = stream.SyncFIFO([("error", 1)], packets)
        self.packets   = announced.source
        self.words = words = stream.SyncFIFO([("data", config.network_width)],
            config.payload_store//(config.network_width//8), buffered=True)
        self.flags = flags = stream.SyncFIFO([("error", 1)], packets)
        self.comb += [
            # Words; the last one together with the packet's flag.
            words.sink.data.eq(sink.data),
            words.sink.first.eq(sink.first),
            words.sink.last.eq(sink.last),
            words.sink.valid.eq(sink.valid & (~sink.last | (flags.sink.ready & announced.sink.ready))),
            flags.sink.error.eq(sink.error),
            flags.sink.valid.eq(sink.valid & sink.last & words.sink.ready & announced.sink.ready),
            announced.sink.error.eq(sink.error),
            announced.sink.valid.eq(sink.valid & sink.last & words.sink.ready & flags.sink.ready),
            sink.ready.eq(words.sink.ready & (~sink.last | (flags.sink.ready & announced.sink.ready))),
            # A flag is there: so is the whole packet.
            source.valid.eq(words.source.valid & flags.source.valid),
            source.data.eq(words.source.data),
            source.first.eq(words.source.first),
            source.last.eq(words.source.last),
            source.error.eq(flags.source.error),
            words.source.ready.eq(source.ready & flags.source.valid),
            flags.source.ready.eq(source.ready & words.source.valid & words.source.last),
        ]
