# SPDX-License-Identifier: BSD-2-Clause
"""One plane's Ethernet port: XGMII PHY and MAC, between the pads and the packet streams in sys.

    source <- CDC <- FCS check  <- preamble check  <--- XGMII receiver
    sink   -> CDC -> padding -> FCS -> preamble ------> XGMII transmitter (inter-frame gap)

PHY and MAC of a plane live in one module, so that the clock domain names eth_tx and eth_rx resolve for
any number of planes. Data path of 64 bits; sys must not be slower than the XGMII clocks (156.25 MHz),
or the line's rate does not fit.

Source: IEEE 802.3, clauses 3, 4 and 46.
"""

from liteeth.common import eth_phy_description
from liteeth.mac.preamble import LiteEthMACPreambleChecker, LiteEthMACPreambleInserter
from liteeth.phy.xgmii import LiteEthPHYXGMII
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *
from migen.genlib.cdc import MultiReg
from migen.genlib.resetsync import AsyncResetSynchronizer

from gateware.network.fcs import FcsChecker, FcsInserter, PaddingInserter
from gateware.network.link_state import LinkState

class PlanePort(LiteXModule):
    """XGMII port of one plane.

    sink:   frames to send, without padding and FCS; must come without a bubble (the transmitter has no
            underrun guard).
    source: received frames without FCS; `error` with `last` marks a bad FCS. Must always be taken.
    link_up: 0 while the far side or the PHY signals a fault.
    model:  the XGMII clocks are sys (simulation); else they come from `clock_pads`.
    """
    def __init__(self, pads, clock_pads, config, model=True):
        if config.network_width != 64:
            raise ValueError(f"network_width is {config.network_width}, but the Ethernet port of a plane has 64 bits.")
        # Deficit idle count is off: its 2-bit sum wraps in Verilog, and gaps of 8 bytes came out.
        self.phy = phy = LiteEthPHYXGMII(clock_pads, pads, model=model, dw=64, dic=False)
        description = eth_phy_description(64)
        self.sink   = stream.Endpoint(description)
        self.source = stream.Endpoint(description)
        self.link_up = Signal(reset=1)

        # # #

        # The PHY leaves its clock domains without a reset: after a system reset in traffic, half frames
        # would come out.
        reset = ResetSignal("sys", allow_reset_less=True)
        for domain in (phy.crg.cd_eth_rx, phy.crg.cd_eth_tx):
            if model:
                self.comb += domain.rst.eq(reset)
            else:
                self.specials += AsyncResetSynchronizer(domain, reset)

        # Transmit.
        self.tx_cdc      = stream.ClockDomainCrossing(description, cd_from="sys", cd_to="eth_tx", depth=32)
        self.tx_padding  = ClockDomainsRenamer("eth_tx")(PaddingInserter(64))
        self.tx_fcs      = ClockDomainsRenamer("eth_tx")(FcsInserter(64))
        self.tx_preamble = ClockDomainsRenamer("eth_tx")(LiteEthMACPreambleInserter(64))
        self.tx_pipeline = stream.Pipeline(self.sink, self.tx_cdc, self.tx_padding, self.tx_fcs, self.tx_preamble, phy)

        # Receive.
        self.rx_preamble = ClockDomainsRenamer("eth_rx")(LiteEthMACPreambleChecker(64))
        self.rx_fcs      = ClockDomainsRenamer("eth_rx")(FcsChecker(64))
        self.rx_cdc      = stream.ClockDomainCrossing(description, cd_from="eth_rx", cd_to="sys", depth=32)
        self.rx_pipeline = stream.Pipeline(phy, self.rx_preamble, self.rx_fcs, self.rx_cdc, self.source)

        # Link.
        self.link = link = ClockDomainsRenamer("eth_rx")(LinkState())
        self.comb += [link.data.eq(pads.rx_data), link.ctl.eq(pads.rx_ctl)]
        self.specials += MultiReg(link.up, self.link_up, reset=1)
