# SPDX-License-Identifier: BSD-2-Clause
"""Expressions of the policy language and their types.

Every expression node gets `kind` (u8, u16, u24, u32, bool, literal, or a record's name) and, where
it is known, `constant`. The rules mirror firmware/types.py, so that Python and C agree:
an operation has the width of its wider operand and wraps there.
"""

import ast

from firmware import api
from firmware.subset import LITERAL
from firmware.types import TYPES

# Tables -------------------------------------------------------------------------------------------

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>"}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
FOLD = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a*b,
    ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b, ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << min(b, 64), ast.RShift: lambda a, b: a >> min(b, 64),
    ast.FloorDiv: lambda a, b: a//b if b else -1, ast.Mod: lambda a, b: a % b if b else -1}
EVENT_FIELDS = {name: cls.__name__ for name, cls in api.Event.layout.items()}

def width(kind):
    return TYPES[kind].width

# Expressions --------------------------------------------------------------------------------------

class Expressions:
    """Checks the expressions of one function, or of a constant (`function` is None).

    `scopes` maps names to types, the innermost block last; `refuse(node, sentence)` does not return.
    """
    def __init__(self, module, function):
        self.module, self.policy, self.function = module, module.policy, function
        self.refuse = module.refuse
        self.scopes = [dict(function.parameters) if function else {}]

    def lookup(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def condition(self, node):
        if self.expression(node, call=True) != "bool":
            self.refuse(node, "A condition is a comparison; write `x != 0`.")

    def fits(self, node, kind, bits, what):
        """The value can be stored in `bits` bits without a cut."""
        if kind == LITERAL:
            if node.constant >= (1 << bits):
                self.refuse(node, f"{node.constant} does not fit into {what}, which has {bits} bits.")
        elif kind not in TYPES:
            self.refuse(node, f"This is {kind or 'nothing'}, but {what} is an integer; write u{bits}(...).")
        elif width(kind) > bits:
            self.refuse(node, f"This is {kind}, but {what} has {bits} bits; write `u{bits}(...)`.")

    def expression(self, node, call=False, statement=False):
        """Type of an expression. `call`: functions of the policy may be called here (evaluation order is certain)."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            self.refuse(node, "A policy has no such expression; it has integers, fields, operators, comparisons and calls.")
        node.kind = method(node, call, statement) if isinstance(node, ast.Call) else method(node, call)
        return node.kind

    def integer(self, node):
        kind = self.expression(node)
        if kind not in TYPES and kind != LITERAL:
            self.refuse(node, f"An integer is needed here, this is {kind or 'nothing'}.")
        return kind

    def on_Constant(self, node, call):
        if type(node.value) is not int:
            self.refuse(node, "A policy has integers only; write u8(1) for a flag.")
        if not 0 <= node.value < 2**32:
            self.refuse(node, f"{node.value} does not fit into 32 bits.")
        node.constant = node.value
        return LITERAL

    def on_Name(self, node, call):
        kind = self.lookup(node.id)
        if kind is not None:
            return kind
        if node.id in self.policy.constants:
            kind, node.constant = self.policy.constants[node.id]
            return kind
        self.refuse(node, f"{node.id} has no value here; assign it first, outside of the block if it is used after it.")

    def on_Attribute(self, node, call):
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        if owner in api.ENUMERATIONS and self.lookup(owner) is None:
            self.module.imported_name(node, owner)
            node.constant = getattr(api.ENUMERATIONS[owner], node.attr, None)
            if type(node.constant) is not int:
                self.refuse(node, f"{owner} has no {node.attr}.")
            return LITERAL
        kind = self.lookup(owner)
        if kind == "Event":
            fields = EVENT_FIELDS
            self.function.fields.add(node.attr)
        elif self.policy.record and kind == self.policy.record[0]:
            fields = self.policy.record[1]
        else:
            self.refuse(node, f"{ast.unparse(node.value)} is not a record.")
        if node.attr not in fields:
            self.refuse(node, f"{kind} has no field {node.attr}; it has {', '.join(fields)}.")
        node.value.kind = kind
        return fields[node.attr]

    def on_BinOp(self, node, call):
        left, right = self.integer(node.left), self.integer(node.right)
        if left == right == LITERAL:
            fold = FOLD.get(type(node.op))
            node.constant = fold(node.left.constant, node.right.constant) if fold else -1
            if not 0 <= node.constant < 2**32:
                self.refuse(node, "This constant does not fit into 32 bits.")
            return LITERAL
        if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)):
            self.refuse(node, "A policy does not divide (34 cycles or more); use >> and &.")
        if type(node.op) not in OPERATORS:
            self.refuse(node, f"A policy has the operators {' '.join(OPERATORS.values())} ~ only.")
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            if left == LITERAL:
                self.refuse(node, f"A shifted literal needs a type; write u32({ast.unparse(node.left)}).")
            return left
        for side, other, kind in ((node.left, right, left), (node.right, left, right)):
            if kind == LITERAL and side.constant >= (1 << width(other)):
                self.refuse(side, f"{side.constant} does not fit beside a {other}; write u32(...) around the other side.")
        return max((k for k in (left, right) if k != LITERAL), key=width)

    def on_UnaryOp(self, node, call):
        if isinstance(node.op, ast.Not):
            if self.expression(node.operand, call=call) != "bool":
                self.refuse(node, "`not` takes a comparison; write `x == 0`.")
            return "bool"
        if not isinstance(node.op, ast.Invert):
            self.refuse(node, "A policy has no negative numbers; write `u32(0) - x`.")
        kind = self.integer(node.operand)
        if kind == LITERAL:
            self.refuse(node, f"An inverted literal needs a type; write ~u32({ast.unparse(node.operand)}).")
        return kind

    def on_BoolOp(self, node, call):
        for value in node.values:
            if self.expression(value, call=call) != "bool":
                self.refuse(value, "`and` and `or` take comparisons; write `x != 0`.")
        return "bool"

    def on_Compare(self, node, call):
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
            self.refuse(node, "Compare two integers with one of == != < <= > >=; join comparisons with `and`.")
        if self.integer(node.left) == self.integer(node.comparators[0]) == LITERAL:
            self.refuse(node, "Both sides are constants; this is always the same.")
        return "bool"

    def on_IfExp(self, node, call):
        self.condition(node.test)
        kinds = {self.integer(node.body), self.integer(node.orelse)}
        if len(kinds) != 1 or LITERAL in kinds:
            self.refuse(node, "Both values of `a if c else b` need the same type; write u32(...) around them.")
        return kinds.pop()

    def on_Call(self, node, call, statement):
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            self.refuse(node, "Arguments are given by position.")
        if name in TYPES:
            return self.cast(node, name)
        if name in ("min", "max"):
            kinds = [self.integer(a) for a in node.args]
            if len(kinds) != 2 or kinds[0] != kinds[1] or LITERAL in kinds:
                self.refuse(node, f"{name} takes two integers of one type; write u32(...) around them.")
            return kinds[0]
        if name in api.COMMANDS:
            self.refuse(node, f"{name} is a command and has no value; write it as a line of its own.")
        callee = self.policy.functions.get(name)
        if callee is None:
            self.refuse(node, f"{ast.unparse(node.func)} cannot be called here; a function calls commands, casts, min, max and "
                "functions that stand above it.")
        if not call:
            self.refuse(node, f"Put the result of {name} into a local first: its place in the order must be certain.")
        if not callee.returns and not statement:
            self.refuse(node, f"{name} returns nothing; write it as a line of its own.")
        kinds = [self.expression(a) for a in node.args]
        wanted = [t for _, t in callee.parameters]
        if kinds != wanted:
            self.refuse(node, f"{name} takes ({', '.join(wanted)}), these are ({', '.join(kinds)}).")
        self.function.fields |= callee.fields
        return callee.returns

    def cast(self, node, name):
        self.module.imported_name(node, name)
        if len(node.args) != 1:
            self.refuse(node, f"{name} takes one value.")
        kind = self.expression(node.args[0])
        if kind == LITERAL:
            self.fits(node.args[0], kind, width(name), name)
        elif kind not in TYPES and kind != "bool":
            self.refuse(node, f"{name} takes an integer or a comparison.")
        constant = getattr(node.args[0], "constant", None)
        if constant is not None:
            node.constant = constant & ((1 << width(name)) - 1)
        return name
