# SPDX-License-Identifier: BSD-2-Clause
"""Sized sums: the house rule that no raw sum is compared, shifted or used as an index.

Migen's simulator lets sums grow, Verilog gives them the width of their context. A sum that first
becomes a named signal of the intended width means the same in both.
"""

from migen import If, Signal

def sized(module, value, width, name):
    """A signal of `width` bits that carries `value` modulo 2^width (combinational)."""
    signal = Signal(width, name=name)
    module.comb += signal.eq(value)
    return signal

def below(module, count, width, name):
    """A vector of `width` bits whose lowest `count` bits are ones; `count` reaches `width`."""
    mask = Signal(width, name=name)
    module.comb += [mask[i].eq(count > i) for i in range(width)]
    return mask

def lowest_one(vector, index, found):
    """Statements: `found` and `index` of the lowest set bit of `vector`."""
    statements = [found.eq(vector != 0), index.eq(0)]
    for i in reversed(range(len(vector))):
        statements.append(If(vector[i], index.eq(i)))
    return statements

def highest_one(vector, index, found):
    """Statements: `found` and `index` of the highest set bit of `vector`."""
    statements = [found.eq(vector != 0), index.eq(0)]
    for i in range(len(vector)):
        statements.append(If(vector[i], index.eq(i)))
    return statements

