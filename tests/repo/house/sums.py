# SPDX-License-Identifier: BSD-2-Clause
"""Raw sums: `(a + 1) == b` means one thing to Migen's simulator and another in Verilog.

In Python a sum, a difference, a product, a left shift or an inversion keeps every bit; in Verilog it
has the width of what stands around it. As a whole right side of an assignment both agree, since the
target cuts them alike. Anywhere the width matters before that, the value first goes into a named
Signal: as operand of a comparison or a shift, as an index or a part's offset, as a condition, as a
piece of a concatenation.

A bitwise AND with a sized operand is sized: what lies above is masked in both. An inversion of one bit
is allowed, being the NOT of a condition.
"""

from migen.fhdl.structure import Case, Cat, Constant, If, Replicate, _ArrayProxy, _Operator, _Part, _Value

COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
SHIFTS      = {"<<<", ">>>"}

def raw(value):
    """The operator that makes a value raw (`+`, `-`, `*`, `<<<`, `~`), else None."""
    if not isinstance(value, _Operator):
        return None
    if not hasattr(value, "house_raw"):     # A chain of operators is looked at once per link.
        value.house_raw = _raw(value)
    return value.house_raw

def _raw(value):
    inside = [raw(o) for o in value.operands]
    if value.op in ("+", "-", "*", "<<<"):
        return value.op
    if value.op == "~":
        return "~" if len(value.operands[0]) > 1 else None
    if value.op == "&":
        return inside[0] if all(inside) else None
    if value.op == ">>>":
        return inside[0]
    if value.op == "m":
        return inside[1] or inside[2]
    if value.op in ("|", "^"):
        return inside[0] or inside[1]
    return None

def complaint(value):
    """A sentence if a raw sum stands directly in `value` where its width matters, else None."""
    for place, operand in _sized_places(value):
        op = isinstance(operand, _Value) and raw(operand)
        if op:
            return f"a raw '{op}' is {place}; give it a named Signal of the intended width"
    return None

def _sized_places(value):
    if isinstance(value, _Operator):
        if value.op in COMPARISONS:
            return [(f"compared with '{value.op}'", o) for o in value.operands]
        if value.op in SHIFTS and isinstance(value.operands[1], Constant) and value.op == "<<<":
            return []                       # Raw itself: judged where it is used.
        if value.op in SHIFTS:
            return [("shifted" if n == 0 else "the distance of a shift", o) for n, o in enumerate(value.operands)]
        return [("the condition of a Mux", value.operands[0])] if value.op == "m" else []
    if isinstance(value, _ArrayProxy):
        return [("an index", value.key)]
    if isinstance(value, _Part):
        return [("the offset of a part", value.offset), ("cut into a part", value.value)]
    if isinstance(value, Cat):
        return [("a piece of a Cat", v) for v in value.l]
    if isinstance(value, Replicate):
        return [("replicated", value.v)]
    if isinstance(value, If):
        return [("the condition of an If", value.cond)]
    return [("the subject of a Case", value.test)] if isinstance(value, Case) else []
