# SPDX-License-Identifier: BSD-2-Clause
"""Tail stage before LitePCIe's TLP depacketizer.

The depacketizer moves the data of a TLP with a header of three dwords down by three lanes and ends
the packet with the PHY's last word. What that word carries above lane 2 is lost: at 64 bit every
TLP with an odd number of data dwords from 3 on, at 128 bit those with 5, 9, 13... This stage gives
such a TLP one more, empty, word.
"""

from litepcie.common import phy_layout
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

# TLP tail -----------------------------------------------------------------------------------------

class TLPTail(LiteXModule):
    """`sink` and `source`: LitePCIe's `phy_layout`. No latency; one extra word where it is needed."""
    def __init__(self, data_width):
        self.sink   = sink   = stream.Endpoint(phy_layout(data_width))
        self.source = source = stream.Endpoint(phy_layout(data_width))

        # # #

        dwords  = data_width//32
        lane    = 3 % dwords                  # Lane of the first data dword in the last header word.
        headers = 2 if dwords == 2 else 1     # Words with header dwords.
        word    = Signal(2)                   # Counts the header words.
        in_data = Signal()
        extra   = Signal()                    # The empty word is on its way.
        cut     = Signal()                    # The last word has dwords that would be lost.
        self.comb += [
            in_data.eq(word == headers),
            cut.eq(in_data & sink.last & (sink.be[4*lane:] != 0)),
            If(extra,
                source.valid.eq(1),
                source.last.eq(1),
            ).Else(
                sink.connect(source),
                source.last.eq(sink.last & ~cut),
            )
        ]
        self.sync += If(source.valid & source.ready,
            extra.eq(cut & ~extra),
            If(source.last,
                word.eq(0)
            ).Elif(~in_data,
                word.eq(word + 1)
            )
        )
