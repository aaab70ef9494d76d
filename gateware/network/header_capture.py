# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the headers of the frame that is coming in, one register per header.

Each register catches its bytes out of the words that hold them, so nothing is shifted and a field is
there the cycle after its word. What a short frame does not reach is left over from an earlier one:
whoever looks at a header must know that the frame was long enough.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import *

# Header capture -----------------------------------------------------------------------------------

class HeaderCapture(LiteXModule):
    """Keeps the first 54 + 36 bytes of a frame: `eth`, `ip`, `udp`, `bth`, `body`, one cycle late.

    `index` is the number of the word `data` in the frame.
    """
    def __init__(self, data_width, write, index, data):
        self.eth  = Signal(8*ETH.length)
        self.ip   = Signal(8*IPV4.length)
        self.udp  = Signal(8*UDP.length)
        self.bth  = Signal(8*BTH.length)
        self.body = Signal(8*BODY_BYTES)

        # # #

        lanes, base, cases = data_width//8, 0, {}
        for vector in (self.eth, self.ip, self.udp, self.bth, self.body):
            length = len(vector)//8
            for word in range(base//lanes, (base + length - 1)//lanes + 1):
                first, end = max(base, word*lanes), min(base + length, (word + 1)*lanes)
                cases.setdefault(word, []).append(
                    vector[8*(first - base):8*(end - base)].eq(data[8*(first - word*lanes):8*(end - word*lanes)]))
            base += length
        self.sync += If(write, Case(index, cases))
