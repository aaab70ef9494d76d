# SPDX-License-Identifier: BSD-2-Clause
"""The SoC of a simulated card: VexRiscv, LitePCIe on a PHY model, LiteEth on XGMII, the NIC.

The same SoC as on boards; only the PHYs differ. Features are steps: each `add_...` is one.
"""

from litepcie.common import get_bar_mask, phy_layout
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import stream, wishbone
from migen import *

from gateware.common.tables import BAR0_BYTES, BAR0_FIRMWARE
from gateware.network.plane_port import PlanePort
from soc import budget
from soc.nic import NIC

BRIDGE_ID = 0x0100         # Bus 1, device 0, function 0: what the PHY model answers to.
SPIN      = 0x0000006f     # `j .`: what the soft core does until an image is loaded.

# Pads ---------------------------------------------------------------------------------------------

def card_io(config):
    """Pads of a simulated card (litex_sim's names where it has them)."""
    width = config.host_width
    beat  = lambda way: [Subsignal(f"{way}_{name}", Pins(n)) for name, n in (
        ("valid", 1), ("ready", 1), ("first", 1), ("last", 1), ("dat", width), ("be", width//8))]
    pads = [
        ("sys_clk", 0, Pins(1)),
        ("sys_rst", 0, Pins(1)),
        ("serial", 0, *[Subsignal(name, Pins(n)) for name, n in (
            ("source_valid", 1), ("source_ready", 1), ("source_data", 8),
            ("sink_valid", 1), ("sink_ready", 1), ("sink_data", 8))]),
        ("pcie", 0, *beat("rx"), *beat("tx")),
    ]
    for i in range(config.planes):
        pads += [
            ("xgmii", i, *[Subsignal(name, Pins(n)) for name, n in (
                ("rx_data", 64), ("rx_ctl", 8), ("tx_data", 64), ("tx_ctl", 8))]),
            ("xgmii_clocks", i, Subsignal("rx", Pins(1)), Subsignal("tx", Pins(1))),
        ]
    return pads

# Clock, PCIe PHY model ----------------------------------------------------------------------------

class CRG(LiteXModule):
    """One clock; a power-on reset, without which VexRiscv stays dead."""
    def __init__(self, platform):
        self.rst    = Signal()
        self.cd_sys = ClockDomain()
        self.cd_por = ClockDomain(reset_less=True)

        # # #

        clk   = platform.request("sys_clk")
        reset = platform.request("sys_rst")
        count = Signal(4, reset=15)
        self.sync.por += If(count != 0, count.eq(count - 1))
        self.comb += [
            self.cd_por.clk.eq(clk),
            self.cd_sys.clk.eq(clk),
            self.cd_sys.rst.eq(reset | self.rst | (count != 0)),
        ]

class PCIePHYModel(LiteXModule):
    """A LitePCIe PHY whose link is TLP words on pads; the host behind it is a model."""
    endianness = "big"

    def __init__(self, pads, config):
        self.data_width = config.host_width
        self.bar0_mask  = get_bar_mask(BAR0_BYTES)
        self.sink       = stream.Endpoint(phy_layout(config.host_width))
        self.source     = stream.Endpoint(phy_layout(config.host_width))
        self.id                = Signal(16, reset=BRIDGE_ID)
        self.bus_master_enable = Signal(reset=1)
        self.max_request_size  = Signal(16, reset=config.max_request)
        self.max_payload_size  = Signal(16, reset=config.max_payload)

        # # #

        for name in ("valid", "first", "last", "dat", "be"):
            self.comb += [
                getattr(self.source, name).eq(getattr(pads, f"rx_{name}")),
                getattr(pads, f"tx_{name}").eq(getattr(self.sink, name)),
            ]
        self.comb += [pads.rx_ready.eq(self.source.ready), self.sink.ready.eq(pads.tx_ready)]

# SoC ----------------------------------------------------------------------------------------------

class NicSoC(SoCCore):
    """A simulated card. `image` (bytes) is the firmware in the soft core's memory at power-on; without
    one the core waits in a loop until the host loads an image through BAR0."""

    def __init__(self, config, platform=None, image=None, **kwargs):
        self.card = config
        self.image  = image
        if platform is None:
            platform = SimPlatform("SIM", card_io(config))
            platform.name = "card"
            self.comb += platform.trace.eq(1)
        self.crg = CRG(platform)
        SoCCore.__init__(self, platform, clk_freq=config.clk_freq,
            ident                = "OpenRDMA on LiteX",
            ident_version        = False,
            cpu_type             = "vexriscv",
            cpu_variant          = "standard",
            csr_ordering         = "little",
            csr_paging           = 0x1000,
            uart_name            = "sim",
            integrated_rom_size  = config.firmware_bytes,
            integrated_rom_mode  = "rwx",
            integrated_rom_init  = [SPIN],
            integrated_sram_size = config.firmware_data,
            **kwargs)
        self.add_ethernet_planes()
        self.add_rdma()
        self.add_recovery_cpu()

    def add_ethernet_planes(self):
        """One XGMII port with its MAC per plane."""
        self.planes = []
        for i in range(self.card.planes):
            plane = PlanePort(self.platform.request("xgmii", i), self.platform.request("xgmii_clocks", i), self.card, model=True)
            self.add_module(name=f"plane{i}", module=plane)
            self.planes.append(plane)

    def add_rdma(self):
        """The NIC on its PHY; BAR0 reaches the registers and the soft core's memory."""
        self.pcie_phy = PCIePHYModel(self.platform.request("pcie"), self.card)
        self.nic      = NIC(self.card, self.pcie_phy, self.planes)
        budget.check(self.card, self.nic.transport)
        bar = wishbone.Interface(data_width=32, address_width=32, addressing="word")
        offset, firmware = self.nic.bus.adr, BAR0_FIRMWARE >> 2
        words  = log2_int(BAR0_FIRMWARE) - 2
        size   = log2_int(self.card.firmware_bytes) - 2
        in_firmware = Signal()
        self.comb += [
            in_firmware.eq(offset[words:] == firmware >> words),
            self.nic.bus.connect(bar, omit={"adr"}),
            If(in_firmware,
                bar.adr.eq(Cat(offset[:size], C(self.mem_map["rom"] >> (size + 2), 30 - size)))
            ).Else(
                bar.adr.eq(Cat(offset[:words], C(self.mem_map["csr"] >> (words + 2), 30 - words)))
            ),
        ]
        self.bus.add_master("pcie", bar)

    def add_recovery_cpu(self):
        """The recovery port on the soft core's bus."""
        self.add_constant("RECOVERY_QUEUE_PAIRS", self.card.queue_pairs)
        self.bus.add_slave("recovery", self.nic.recovery.bus, SoCRegion(origin=0x9000_0000, size=0x1000, cached=False))

    def init_mems(self, **kwargs):
        """LiteX's builder asks for the memories' contents."""
        if self.image is not None:
            words = [int.from_bytes(self.image[i:i + 4].ljust(4, b"\0"), "little") for i in range(0, len(self.image), 4)]
            self.init_rom("rom", words, auto_size=False)
