# SPDX-License-Identifier: BSD-2-Clause
"""Frame check sequence and padding of a MAC whose data path is a word wide.

They replace LiteEth's stages of the same purpose: its FCS has one CRC engine per possible number of
bytes in the last word (eight at 64 bits, more than half of all simulation time), and its padding
forgets to count anew after a frame of 57 to 59 bytes, so that a shorter frame behind it stays short.

Source: IEEE 802.3, 3.2.8 and 3.2.9.
"""

from functools import reduce
from operator import or_

from liteeth.common import eth_phy_description
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.headers import FCS_BYTES
from gateware.network.crc import ONES, CrcAppender, CrcStep, residue

MINIMUM_BYTES = 60 # Without FCS.

class FcsInserter(CrcAppender):
    """Appends the FCS. Bytes behind a frame's last must be 0, as `PaddingInserter` leaves them."""
    def __init__(self, data_width):
        CrcAppender.__init__(self, data_width)

class PaddingInserter(LiteXModule):
    """Pads frames with zeros to 60 bytes, and clears the bytes behind the last one; no latency."""
    def __init__(self, data_width):
        lanes       = data_width//8
        self.sink   = sink   = stream.Endpoint(eth_phy_description(data_width))
        self.source = source = stream.Endpoint(eth_phy_description(data_width))

        # # #

        final   = (MINIMUM_BYTES - 1)//lanes                # Word in which the shortest frame ends, and
        last_be = 1 << ((MINIMUM_BYTES - 1) % lanes)        # where.
        index   = Signal(max=final + 2)                     # Saturates behind that word.
        padding = Signal()

        # Bytes up to the last one.
        keep = Signal(lanes)
        self.comb += [
            *[keep[i].eq(~sink.last | (sink.last_be[i:] != 0)) for i in range(lanes)],
            *[If(~padding & keep[i], source.data[8*i:8*(i + 1)].eq(sink.data[8*i:8*(i + 1)])) for i in range(lanes)],
        ]

        # The frame's end.
        self.comb += [
            source.valid.eq(sink.valid | padding),
            sink.ready.eq(source.ready & ~padding),
            If(~padding, source.error.eq(sink.error)),
            If((padding | sink.last) & (index >= final),
                source.last.eq(1),
                If((index == final) & (padding | (sink.last_be < last_be)),
                    source.last_be.eq(last_be)
                ).Else(
                    source.last_be.eq(sink.last_be)
                )
            ),
        ]
        self.sync += If(source.valid & source.ready,
            padding.eq((padding | sink.last) & ~source.last),
            If(source.last,
                index.eq(0)
            ).Elif(index <= final,
                index.eq(index + 1)
            )
        )

class FcsChecker(LiteXModule):
    """Checks the FCS and takes it off; 2 to 3 cycles of latency.

    sink:   frames with FCS, `last_be` one-hot with `last`; always ready.
    source: frames without FCS, `error` (all its bits) with `last` if the FCS was wrong; must always be
            taken. Frames of 4 bytes or fewer vanish if they come in one word.
    """
    def __init__(self, data_width):
        lanes       = data_width//8
        self.sink   = sink   = stream.Endpoint(eth_phy_description(data_width))
        self.source = source = stream.Endpoint(eth_phy_description(data_width))

        # # #

        # CRC over the word that enters stage B; bytes behind the frame are zeros.
        state, start = Signal(32, reset=ONES), Signal(reset=1)
        self.crc = crc = CrcStep(data_width)
        b_valid, b_last, b_error = Signal(), Signal(), Signal()
        b_data, b_last_be = Signal(data_width), Signal(lanes)
        self.comb += [
            sink.ready.eq(1),
            crc.state.eq(Mux(start, ONES, state)),
            *[If(~sink.last | (sink.last_be[i:] != 0), crc.data[8*i:8*(i + 1)].eq(sink.data[8*i:8*(i + 1)])) for i in range(lanes)],
        ]
        self.sync += [
            b_valid.eq(sink.valid),
            If(sink.valid,
                start.eq(sink.last),
                state.eq(crc.next),
                b_data.eq(sink.data),
                b_last.eq(sink.last),
                b_last_be.eq(Mux(sink.last, sink.last_be, 0)),
                b_error.eq((sink.error != 0) | (b_error & ~start))
            )
        ]

        # Verdict, with the frame's last word in stage B.
        wrong, only_fcs = Signal(), Signal()
        self.comb += [
            wrong.eq(b_error | reduce(or_, [b_last_be[i] & (state != residue(lanes - 1 - i)) for i in range(lanes)])),
            only_fcs.eq(b_last & (b_last_be[FCS_BYTES:] == 0)), # No data in the last word.
        ]

        # A word waits until it is known whether the FCS begins in it.
        valid, final, error = Signal(), Signal(), Signal()
        data, last_be       = Signal(data_width), Signal(lanes)
        self.comb += [
            source.valid.eq(valid & (final | b_valid)),
            source.data.eq(data),
            If(final,
                source.last.eq(1),
                source.last_be.eq(last_be),
                source.error.eq(Replicate(error, lanes))
            ).Elif(only_fcs,
                source.last.eq(1),
                source.last_be.eq(Cat(C(0, lanes - FCS_BYTES), b_last_be[:FCS_BYTES])),
                source.error.eq(Replicate(wrong, lanes))
            ),
        ]
        self.sync += [
            If(b_valid,
                valid.eq(~only_fcs),
                data.eq(b_data),
                final.eq(b_last),
                last_be.eq(b_last_be[FCS_BYTES:]),
                error.eq(wrong)
            ).Elif(source.valid,
                valid.eq(0)
            )
        ]
