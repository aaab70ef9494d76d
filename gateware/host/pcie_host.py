# SPDX-License-Identifier: BSD-2-Clause
"""The host side of a card on a LitePCIe PHY.

```
 phy.source -> tail -> depacketizer -+-> BAR bridge -> doorbell, bus
                                     +-> completions -> payload reader -> payload store -> payload
 phy.sink <- packetizer <--------------- completions of the bridge, read requests, host writer
```

Kept from LitePCIe: PHY interface, layouts, header tables and the depacketizer. Limits: PHYs with one
request and completion stream; one BAR (0), reached by requests with 32-bit addresses only, since the
depacketizer drops the others.
"""

from litepcie.tlp.depacketizer import LitePCIeTLPDepacketizer
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.config import ConfigError
from gateware.host.bar_bridge import BarBridge
from gateware.host.host_writer import HostWriter
from gateware.host.payload_reader import PayloadReader
from gateware.host.payload_store import PayloadStore
from gateware.host.tlp_layouts import bar_request_layout
from gateware.host.tlp_packetizer import TLPPacketizer
from gateware.host.tlp_tail import TLPTail

# PCIe host ----------------------------------------------------------------------------------------

class PCIeHost(LiteXModule):
    """Everything between a PHY and the card's streams.

    `doorbell` (`doorbell_layout`, taken within bounded time), `bus` (Wishbone master for CSRs and firmware
    memory), `read_request` (`read_request_layout`), `payload` (`payload_layout(network_width)`, whole
    packets only) and `packets` (one beat per packet, see `PayloadStore`), `jobs`, `stored[plane]`,
    `small`, `due` of `HostWriter`. Counters are 32 bits and wrap. No write and no read leaves before
    the link's bus master enable.
    """
    def __init__(self, phy, config, read_timeout=2**20):
        if phy.data_width != config.host_width:
            raise ConfigError(f"host_width is {config.host_width}, but the PCIe PHY is {phy.data_width} bits wide.")
        if not (hasattr(phy, "sink") and hasattr(phy, "source")):
            raise ConfigError("The PCIe PHY has separate request and completion streams, which the host side does not support.")
        endianness = getattr(phy, "endianness", "big")

        # Blocks -----------------------------------------------------------------------------------
        self.tail         = TLPTail(config.host_width)
        self.depacketizer = LitePCIeTLPDepacketizer(
            data_width   = config.host_width,
            endianness   = endianness,
            address_mask = phy.bar0_mask,
            capabilities = ["REQUEST", "COMPLETION"])
        self.packetizer   = TLPPacketizer(config.host_width, endianness)
        self.bridge       = BarBridge(config)
        self.reader       = PayloadReader(config, timeout=read_timeout)
        self.store        = PayloadStore(config)
        self.writer       = HostWriter(config)

        # Endpoints --------------------------------------------------------------------------------
        self.doorbell     = self.bridge.doorbell
        self.bus          = self.bridge.bus
        self.read_request = self.reader.sink
        self.payload      = self.store.source
        self.packets      = self.store.packets
        self.jobs         = self.writer.jobs
        self.stored       = self.writer.stored
        self.small        = self.writer.small
        self.due          = self.writer.due

        # Status -----------------------------------------------------------------------------------
        self.read_errors         = self.reader.controller.read_errors
        self.read_timeouts       = self.reader.controller.timeouts
        self.unknown_completions = self.reader.controller.unknown_completions
        self.bad_doorbells       = self.bridge.bad_doorbells
        self.bus_timeouts        = self.bridge.bus_timeouts

        # # #

        # Link -------------------------------------------------------------------------------------
        self.comb += [
            phy.source.connect(self.tail.sink),
            self.tail.source.connect(self.depacketizer.sink),
            self.packetizer.source.connect(phy.sink),
            self.packetizer.requester_id.eq(phy.id),
            self.packetizer.bus_master_enable.eq(phy.bus_master_enable),
            self.reader.max_request_size.eq(phy.max_request_size),
            self.writer.max_payload_size.eq(phy.max_payload_size),
        ]

        # Requests of the host; the queue keeps them from holding up completions -------------------
        self.requests = requests = stream.SyncFIFO(bar_request_layout(config.host_width), 32)
        source, header = self.depacketizer.req_source, self.depacketizer.tlp_req
        self.comb += [
            requests.sink.valid.eq(source.valid),
            requests.sink.first.eq(source.first),
            requests.sink.last.eq(source.last),
            requests.sink.dat.eq(source.dat),
            requests.sink.we.eq(source.we),
            requests.sink.address.eq(Cat(C(0, 2), source.adr[2:])),
            requests.sink.length.eq(source.len),
            requests.sink.first_be.eq(header.first_be),
            requests.sink.last_be.eq(header.last_be),
            requests.sink.poisoned.eq(header.ep),
            requests.sink.req_id.eq(source.req_id),
            requests.sink.tag.eq(source.tag),
            source.ready.eq(requests.sink.ready),
            requests.source.connect(self.bridge.sink),
            self.bridge.completion.connect(self.packetizer.completion),
        ]

        # Reads ------------------------------------------------------------------------------------
        source, header = self.depacketizer.cmp_source, self.depacketizer.tlp_cmp
        sink = self.reader.completion
        self.comb += [
            sink.valid.eq(source.valid),
            sink.first.eq(source.first),
            sink.last.eq(source.last),
            sink.dat.eq(source.dat),
            sink.tag.eq(source.tag),
            sink.status.eq(header.status),
            sink.has_data.eq(header.fmt[1]),
            sink.poisoned.eq(header.ep),
            sink.length.eq(header.length),
            sink.byte_count.eq(header.byte_count),
            sink.lower_address.eq(header.lower_address),
            source.ready.eq(sink.ready),
            self.reader.read.connect(self.packetizer.read),
            self.reader.source.connect(self.store.sink),
        ]

        # Writes -----------------------------------------------------------------------------------
        self.comb += self.writer.write.connect(self.packetizer.write)
