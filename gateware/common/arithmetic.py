# SPDX-License-Identifier: BSD-2-Clause
"""Sized sums: the house rule that no raw sum is compared, shifted or used as an index.

Migen's simulator lets sums grow, Verilog gives them the width of their context. A sum that first
becomes a named signal of the intended width means the same in both.
"""

from migen import C, Signal

def sized(module, value, width, name):
    """A signal of `width` bits that carries `value` modulo 2^width (combinational)."""
    signal = Signal(width, name=name)
    module.comb += signal.eq(value)
    return signal

def below(module, count, width, name):
    """A vector of `width` bits whose lowest `count` bits are ones; `count` reaches `width`."""
    above = sized(module, C(2**width - 1, width) << count, width, f"{name}_above")
    return sized(module, ~above, width, name)

def one_hot(module, index, width, name):
    """A vector of `width` bits with bit `index` set; none if `index` is past the end."""
    return sized(module, C(1, width) << index, width, name)

def bit_of(module, vector, index, name):
    """Bit `index` of `vector`; 0 past the end."""
    return sized(module, vector >> index, 1, name)

def ones(module, vector, name):
    """How many bits of `vector` are set; pairs are added, then pairs of pairs."""
    width = 1 << (len(vector) - 1).bit_length()
    total = sized(module, vector, width, f"{name}_of_1")
    for step in (1 << i for i in range(width.bit_length() - 1)):
        mask  = sum(((1 << step) - 1) << i for i in range(0, width, 2*step))
        total = sized(module, (total & mask) + ((total >> step) & mask), width, f"{name}_of_{2*step}")
    return sized(module, total, width.bit_length(), name)

def _encoded(single, index):
    """Statements: `index` of the only set bit of `single`, 0 if there is none."""
    statements = []
    for bit in range(len(index)):
        mask = sum(1 << i for i in range(len(single)) if (i >> bit) & 1)
        if mask:                                # Else it stays 0: a process that reads nothing would never run.
            statements.append(index[bit].eq((single & mask) != 0))
    return statements

def lowest_one(vector, index, found):
    """Statements: `found` and `index` of the lowest set bit of `vector`; `index` 0 if there is none."""
    width = len(vector)
    other, negative, single = (Signal(width) for _ in range(3))
    return [found.eq(vector != 0), other.eq(~vector), negative.eq(other + 1), single.eq(vector & negative),
            *_encoded(single, index)]

def highest_one(vector, index, found):
    """Statements: `found` and `index` of the highest set bit of `vector`; `index` 0 if there is none."""
    width, smear = len(vector), vector
    statements = [found.eq(vector != 0)]
    for step in range((width - 1).bit_length()):
        wider = Signal(width)
        statements.append(wider.eq(smear | (smear >> (1 << step))))
        smear = wider
    single = Signal(width)
    return [*statements, single.eq(smear ^ (smear >> 1)), *_encoded(single, index)]
