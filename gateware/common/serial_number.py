# SPDX-License-Identifier: BSD-2-Clause
"""Serial numbers: the only place where PSNs, MSNs, ring indices and times are compared.

They count modulo 2^width, so "before" means less than half the circle behind (RFC 1982); numbers
exactly half the circle apart are each before the other, and a window must be shorter than that.
Every helper takes the module, adds combinational statements to it and returns a Signal of the
width meant, since Migen and Verilog give a raw difference different values. No latency, no state.
Below them stand the same rules for Python models.
"""

from migen import Constant, Signal, wrap

# Gateware -----------------------------------------------------------------------------------------

def _operands(width, *values):
    """The values as Migen values, and the circle's width: given, else the width of all that are no constants."""
    values = [wrap(v) for v in values]
    widths = {len(v) for v in values if not isinstance(v, Constant)}
    if width is None:
        if len(widths) != 1:
            raise ValueError(f"Serial numbers of {', '.join(map(str, sorted(widths)))} bits cannot be compared; name the width.")
        width = widths.pop()
    if any(w < width for w in widths):
        raise ValueError(f"A serial number of {min(widths)} bits cannot be compared modulo 2^{width}.")
    return width, values

def distance(module, a, b, width=None, name="distance"):
    """Signal of `width` bits: how far `a` is ahead of `b`, modulo 2^width."""
    width, (a, b) = _operands(width, a, b)
    ahead = Signal(width, name=name)
    module.comb += ahead.eq(a - b)
    return ahead

def advance(module, a, count, width=None, name="advanced"):
    """Signal of `width` bits: `a` plus `count`, modulo 2^width; `width` is that of `a` unless given."""
    width = len(a) if width is None else width
    moved = Signal(width, name=name)
    module.comb += moved.eq(a + count)
    return moved

def before(module, a, b, width=None, name="before"):
    """Signal: `a` comes before `b`."""
    ahead  = distance(module, a, b, width, name=name + "_distance")
    result = Signal(name=name)
    module.comb += result.eq(ahead[-1])
    return result

def not_after(module, a, b, width=None, name="not_after"):
    """Signal: `a` is `b` or comes before it."""
    behind = distance(module, b, a, width, name=name + "_distance")
    result = Signal(name=name)
    module.comb += result.eq(~behind[-1])
    return result

def in_window(module, x, base, size, width=None, name="in_window"):
    """Signal: `x` is one of the `size` numbers from `base` on; `size` is a number or a Signal."""
    ahead  = distance(module, x, base, width, name=name + "_distance")
    result = Signal(name=name)
    module.comb += result.eq(ahead < size)
    return result

# Python -------------------------------------------------------------------------------------------

def serial_distance(a, b, width):
    """How far `a` is ahead of `b`, modulo 2^width."""
    return (a - b) & ((1 << width) - 1)

def serial_signed(a, b, width):
    """The distance from `b` to `a` as a signed number, -2^(width-1) to 2^(width-1) - 1."""
    ahead = serial_distance(a, b, width)
    return ahead - (1 << width) if ahead >> (width - 1) else ahead

def serial_advance(a, count, width):
    """`a` plus `count`, modulo 2^width."""
    return (a + count) & ((1 << width) - 1)

def serial_before(a, b, width):
    """`a` comes before `b`."""
    return bool(serial_distance(a, b, width) >> (width - 1))

def serial_not_after(a, b, width):
    """`a` is `b` or comes before it."""
    return not serial_distance(b, a, width) >> (width - 1)

def serial_in_window(x, base, size, width):
    """`x` is one of the `size` numbers from `base` on."""
    return serial_distance(x, base, width) < size
