# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the headers of the frame that is coming in, in registers.

Bytes are caught out of the words that hold them, so nothing is shifted and a field is there the cycle
after its word. UDP, BTH and body stand 20 bytes later on IPv6: the Ethernet type chooses. What a short
frame does not reach is left over from an earlier one: whoever looks at a header must know that the frame
was long enough.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import *

# Header capture -----------------------------------------------------------------------------------

class HeaderCapture(LiteXModule):
    """Keeps the first 74 + 36 bytes of a frame, one cycle late.

    eth, ip4, ip6, udp, bth, body: headers as byte vectors; of `ip4` and `ip6` the one that `ipv6` says is meant.
    ipv6: the Ethernet type is IPv6.
    `index` is the number of the word `data` in the frame.
    """
    def __init__(self, data_width, write, index, data):
        self.eth  = Signal(8*ETH.length)
        self.ip4  = Signal(8*IPV4.length)
        self.ip6  = Signal(8*IPV6.length)
        self.udp  = Signal(8*UDP.length)
        self.bth  = Signal(8*BTH.length)
        self.body = Signal(8*BODY_BYTES)
        self.ipv6 = Signal()

        # # #

        # A register per word; the last may be short.
        lanes, length = data_width//8, PREFIX6_BYTES + BODY_BYTES
        words = [Signal(8*min(lanes, length - at)) for at in range(0, length, lanes)]
        self.sync += If(write, Case(index, {i: word.eq(data[:len(word)]) for i, word in enumerate(words)}))

        def cut(first, count):
            """Bytes `first` to `first + count - 1`."""
            parts = []
            for i, word in enumerate(words):
                low, high = max(0, first - i*lanes), min(len(word)//8, first + count - i*lanes)
                parts += [word[8*low:8*high]] if low < high else []
            return Cat(*parts)
        self.comb += [
            self.eth.eq(cut(0, ETH.length)),
            self.ip4.eq(cut(ETH.length, IPV4.length)),
            self.ip6.eq(cut(ETH.length, IPV6.length)),
            self.ipv6.eq(ETH.field(self.eth, "ethertype") == ETHERTYPE_IPV6),
        ]
        for vector, at in ((self.udp, 0), (self.bth, UDP.length), (self.body, UDP.length + BTH.length)):
            behind4, behind6 = (cut(ETH.length + ip.length + at, len(vector)//8) for ip in (IPV4, IPV6))
            self.comb += vector.eq(Mux(self.ipv6, behind6, behind4))
