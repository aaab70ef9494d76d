# SPDX-License-Identifier: BSD-2-Clause
"""Link state of a plane: the fault signals that a MAC receives instead of frames.

A PHY that receives nothing shows *local fault*, the far side of a link that receives nothing sends
*remote fault*: one direction is dead either way, and the plane is of no use to send on. Four fault
sequences within 128 columns of each other take the link down, 128 columns without one bring it back.
A 64-bit word has two columns. Latency 2 cycles from the fourth sequence.

Source: IEEE 802.3, 46.3.4 (link fault signalling).
"""

from litex.gen import LiteXModule
from migen import *

SEQUENCE = 0x9c                  # Control character of a sequence ordered set, in lane 0 of a column.
LOCAL_FAULT, REMOTE_FAULT = 1, 2 # In lane 3.
COLUMNS  = 128
SETS     = 4

class LinkState(LiteXModule):
    """Watches a 64-bit XGMII receiver; in the clock domain of its words.

    data, ctl: the words.      up: 1 unless faults are signalled.
    """
    def __init__(self):
        self.data = Signal(64)
        self.ctl  = Signal(8)
        self.up   = Signal(reset=1)

        # # #

        fault = Signal()
        fault_words = [SEQUENCE | kind << 24 for kind in (LOCAL_FAULT, REMOTE_FAULT)]
        columns = [(self.ctl[4*n:4*n + 4] == 1) & ((self.data[32*n:32*n + 32] == fault_words[0]) |
                   (self.data[32*n:32*n + 32] == fault_words[1])) for n in range(2)]
        both = Signal()
        self.sync += [fault.eq(columns[0] | columns[1]), both.eq(columns[0] & columns[1])]

        clean = Signal(max=COLUMNS//2)      # Words since the last fault.
        sets  = Signal(max=SETS + 1)        # Faults, at most SETS.
        self.sync += [
            If(fault,
                clean.eq(0),
                If(both & (sets < SETS - 1),
                    sets.eq(sets + 2)
                ).Elif(sets < SETS,
                    sets.eq(sets + 1)
                ),
                If((sets >= SETS - 1) | (both & (sets >= SETS - 2)), self.up.eq(0))
            ).Elif(clean == COLUMNS//2 - 1,
                sets.eq(0),
                self.up.eq(1)
            ).Else(
                clean.eq(clean + 1)
            ),
        ]
