# SPDX-License-Identifier: BSD-2-Clause
"""Watchdog of the recovery firmware: it only shows, it decides nothing.

If the firmware is late or stopped, the card may stall but never corrupts; `alive` tells the driver.
"""

from litex.gen import LiteXModule
from migen import *

TIMEOUT_BITS = 16 # 2^16 ticks of 128 ns = 8.4 ms.

# Watchdog -----------------------------------------------------------------------------------------

class Watchdog(LiteXModule):
    """heartbeat : strobe, the firmware went through its main loop.
    time         : ticks of 128 ns, input.
    alive        : the last heartbeat is less than 2^16 ticks old; 0 before the first one.
    """
    def __init__(self):
        self.heartbeat = Signal()
        self.time      = Signal(32)
        self.alive     = Signal()

        # # #

        # `alive` falls once and stays down, so that a wrap of the time does not revive it.
        last = Signal(32)
        age  = Signal(32)
        self.comb += age.eq(self.time - last)
        self.sync += [
            If(age >= 2**TIMEOUT_BITS, self.alive.eq(0)),
            If(self.heartbeat,
                last.eq(self.time),
                self.alive.eq(1),
            ),
        ]
