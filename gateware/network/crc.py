# SPDX-License-Identifier: BSD-2-Clause
"""CRC-32 of Ethernet, whole words at a time: the engine of ICRC and FCS.

Reflected form: bit 0 of byte 0 enters first, the state starts as ones and the complement of its end
goes out least significant byte first.

One engine eats whole words. The parts of a word that do not belong are handled by linearity:
- bytes in front are read as zeros, with an initial state that those zeros turn into the wanted one;
- on receive the bytes behind are read as zeros, and the residue depends on their number;
- on transmit the bytes behind are read as zeros and their steps are undone.

One engine per possible number of bytes, the usual way, costs as many times the logic, and most of the
time of a simulation.

Source: IEEE 802.3, 3.2.9.
"""

from liteeth.common import eth_phy_description
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

POLYNOMIAL = 0xedb88320 # Reflected.
ONES       = 0xffffffff
RESIDUE    = 0xdebb20e3 # State after a message and its own CRC.

# Python side --------------------------------------------------------------------------------------

def crc_step(state, data):
    """State after the bytes `data`."""
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return state

def crc_undo(state, count):
    """State before `count` bytes of zeros."""
    for _ in range(8*count):
        state = ((state ^ POLYNOMIAL) << 1 | 1) if state & 0x80000000 else state << 1
        state &= ONES
    return state

def residue(zeros):
    """State after a message, its CRC and `zeros` bytes of zeros."""
    return crc_step(RESIDUE, bytes(zeros))

# Gateware side ------------------------------------------------------------------------------------

def xor_tree(terms):
    """Balanced exclusive-or of a list of one-bit expressions."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [terms[i] ^ terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]

def linear(target, vector, columns):
    """Statements: `target` (32 bits) is the exclusive-or of `columns[i]` over the ones `i` of `vector`.

    One statement per bit: as one, the Verilog line would be longer than Verilator takes.
    """
    return [target[b].eq(xor_tree([vector[i] for i, c in enumerate(columns) if (c >> b) & 1])) for b in range(32)]

class CrcStep(LiteXModule):
    """CRC state after one word: `next` follows from `state` and `data`, combinational.

    `data`: `data_width` bits, byte 0 in bits 0 to 7; all bytes count. Depth: one exclusive-or of
    about half of `data_width` inputs.
    """
    def __init__(self, data_width):
        if data_width < 32 or data_width % 8:
            raise ValueError(f"data_width is {data_width}, but the CRC engine takes whole bytes and at least 32 bits.")
        self.data  = Signal(data_width)
        self.state = Signal(32)
        self.next  = Signal(32)

        # # #

        mixed = Signal(data_width)
        self.comb += [
            mixed.eq(self.data ^ self.state),
            *linear(self.next, mixed, [crc_step(0, (1 << i).to_bytes(data_width//8, "little")) for i in range(data_width)]),
        ]

class CrcUndo(LiteXModule):
    """CRC state before `count` bytes of zeros, combinational: one stage per bit of `count`."""
    def __init__(self, max_count):
        self.state  = Signal(32)
        self.count  = Signal(max=max_count + 1)
        self.result = Signal(32)

        # # #

        state = self.state
        for b in range(len(self.count)):
            undone, following = Signal(32), Signal(32)
            self.comb += [
                *linear(undone, state, [crc_undo(1 << i, 1 << b) for i in range(32)]),
                following.eq(Mux(self.count[b], undone, state)),
            ]
            state = following
        self.comb += self.result.eq(state)

class CrcAppender(LiteXModule):
    """Appends a CRC to each frame; 1 cycle of latency, combinational behind a register.

    sink:   frames; `last_be` one-hot with `last`, bytes behind it are 0. A frame with `error` anywhere
            gets the complement of its CRC, so that no receiver takes it.
    source: frames with CRC. No word is taken for one cycle after a frame whose CRC needs a word more.
    start:  first state. ends: possible numbers of bytes in a frame's last word. mask: function of
            (data_width, index) that makes a module with `data` and `result`: a word as the CRC reads it,
            `index` its number in the frame, which saturates at `most`.
    """
    def __init__(self, data_width, start=ONES, ends=None, mask=None, most=1):
        lanes       = data_width//8
        ends        = list(ends or range(1, lanes + 1))
        self.sink   = sink   = stream.Endpoint(eth_phy_description(data_width))
        self.source = source = stream.Endpoint(eth_phy_description(data_width))

        # # #

        # CRC over the word that enters the register.
        index, spoilt = Signal(max=most + 1), Signal()
        state = Signal(32)
        self.crc = crc = CrcStep(data_width)
        self.comb += crc.state.eq(Mux(index == 0, start, state))
        if mask is None:
            self.comb += crc.data.eq(sink.data)
        else:
            self.mask = mask = mask(data_width, index)
            self.comb += [
                mask.data.eq(sink.data),
                crc.data.eq(mask.result),
            ]
        valid, last, data, last_be = Signal(), Signal(), Signal(data_width), Signal(lanes)
        move, more = Signal(), Signal()
        self.comb += sink.ready.eq(move)
        self.sync += [
            If(move,
                valid.eq(sink.valid),
                If(sink.valid,
                    data.eq(sink.data),
                    last.eq(sink.last),
                    last_be.eq(Mux(sink.last, sink.last_be, 0)),
                    state.eq(crc.next),
                    spoilt.eq((sink.error != 0) | (spoilt & (index != 0))),
                    If(sink.last,
                        index.eq(0)
                    ).Elif(index != most,
                        index.eq(index + 1)
                    )
                )
            )
        ]

        # CRC behind the last byte. The zeros behind it are undone in the state.
        self.undo = undo = CrcUndo(lanes - min(ends))
        value, wide = Signal(32), Signal(data_width + 32)
        self.comb += [
            undo.state.eq(state),
            value.eq(undo.result ^ Mux(spoilt, 0, ONES)),
            Case(last_be, {
                **{1 << (end - 1): undo.count.eq(lanes - end) for end in ends},
                "default": undo.count.eq(0)}),
            Case(last_be, {
                **{1 << (end - 1): wide.eq(data | (value << 8*end)) for end in ends},
                "default": wide.eq(data)}),
        ]

        # Output.
        beyond = Signal() # The CRC needs a word more.
        self.comb += [
            beyond.eq(last_be[lanes - 4:] != 0),
            source.valid.eq(valid),
            If(more,
                source.data.eq(wide[data_width:]),
                source.last.eq(1),
                source.last_be.eq(last_be[lanes - 4:])
            ).Else(
                source.data.eq(wide[:data_width]),
                source.last.eq(last & ~beyond),
                If(~beyond, source.last_be.eq(Cat(C(0, 4), last_be)[:lanes]))
            ),
            move.eq(~valid | (source.ready & (~beyond | more))),
        ]
        self.sync += If(valid & source.ready, more.eq(beyond & ~more))
