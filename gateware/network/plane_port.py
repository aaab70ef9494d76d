# SPDX-License-Identifier: BSD-2-Clause
"""One plane's Ethernet port: XGMII PHY and MAC, between the pads and the packet streams in sys.

    source <- CDC <- FCS check  <- preamble check  <--- XGMII receiver
    sink   -> CDC -> padding -> FCS -> preamble ------> XGMII transmitter (inter-frame gap)

PHY and MAC of a plane live in one module, so that the clock domain names eth_tx and eth_rx resolve for
any number of planes. Data path of 64 bits, sys at 156.25 MHz or slower than the XGMII clocks allow.

Source: IEEE 802.3, clauses 3, 4 and 46.
"""

from migen import *
from migen.genlib.resetsync import AsyncResetSynchronizer

from litex.gen import LiteXModule

from liteeth.mac.core import LiteEthMACCore
from liteeth.phy.xgmii import LiteEthPHYXGMII

class PlanePort(LiteXModule):
    """XGMII port of one plane.

    sink:   frames to send, without padding and FCS; must come without a bubble (the transmitter has no
            underrun guard).
    source: received frames without FCS; `error` with `last` marks a bad FCS. Must always be taken.
    model:  the XGMII clocks are sys (simulation); else they come from `clock_pads`.
    """
    def __init__(self, pads, clock_pads, config, model=True):
        if config.network_width != 64:
            raise ValueError(f"network_width is {config.network_width}, but the Ethernet port of a plane has 64 bits.")
        self.phy = phy = LiteEthPHYXGMII(clock_pads, pads, model=model, dw=64)
        self.mac = mac = LiteEthMACCore(phy=phy, dw=64, with_sys_datapath=False)
        self.sink, self.source = mac.sink, mac.source

        # # #

        # The PHY leaves its clock domains without a reset: after a system reset in traffic, half frames
        # would come out.
        reset = ResetSignal("sys", allow_reset_less=True)
        for domain in (phy.crg.cd_eth_rx, phy.crg.cd_eth_tx):
            if model:
                self.comb += domain.rst.eq(reset)
            else:
                self.specials += AsyncResetSynchronizer(domain, reset)
