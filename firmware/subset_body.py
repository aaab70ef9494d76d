# SPDX-License-Identifier: BSD-2-Clause
"""Function bodies of the policy language: types of expressions, and which statements there are.

Every expression node gets `kind` (u8, u16, u24, u32, bool, literal, or a record's name) and, where
it is known, `constant`. The rules mirror firmware/types.py, so that Python and C agree:
an operation has the width of its wider operand and wraps there.
"""

import ast

from firmware import api
from firmware.subset import LITERAL
from firmware.types import MAX_STEPS, TYPES

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

# Body ---------------------------------------------------------------------------------------------

class Body:
    """Checks one function, or the expression of a constant (`function` is None)."""
    def __init__(self, module, function):
        self.module, self.policy, self.function = module, module.policy, function
        self.refuse  = module.refuse
        self.scopes  = [dict(function.parameters) if function else {}]
        self.counters = set()     # Loop variables.
        self.loops   = 0

    def check(self):
        ends = self.block(self.function.node.body, new_scope=False)
        if self.function.returns and not ends:
            self.refuse(self.function.node, f"Not every path through {self.function.name} returns a value; end it with return.")

    # Statements.
    def block(self, statements, new_scope=True):
        """True when every path through the statements returns."""
        if new_scope:
            self.scopes.append({})
        ends = False
        for statement in statements:
            ends = self.statement(statement) or ends
        if new_scope:
            self.scopes.pop()
        return ends

    def statement(self, node):
        if isinstance(node, ast.Expr):
            self.expression_statement(node)
        elif isinstance(node, ast.Assign):
            if len(node.targets) != 1:
                self.refuse(node, "Assign one thing at a time.")
            self.assign(node.targets[0], node.value, self.expression(node.value, call=True))
        elif isinstance(node, ast.AugAssign):
            load = ast.copy_location(ast.BinOp(self.as_load(node.target), node.op, node.value), node)
            self.assign(node.target, load, self.expression(load), declare=False)
            node.value = load
        elif isinstance(node, ast.If):
            self.condition(node.test)
            ends = self.block(node.body)
            return self.block(node.orelse) and ends
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.Return):
            self.returned(node)
            return True
        elif isinstance(node, (ast.Break, ast.Continue)):
            if not self.loops:
                self.refuse(node, "There is no loop here to leave.")
        elif not isinstance(node, ast.Pass):
            what = {ast.While: "There is no while; write `for i in steps(8):`, whose end is certain.",
                ast.AnnAssign: "A local has the type of its first value; write `x = u32(0)`."}
            self.refuse(node, what.get(type(node), "A policy has no such statement; it has =, if, for over steps(), return "
                "and calls."))
        return False

    def as_load(self, target):
        load = ast.parse(ast.unparse(target), mode="eval").body
        for child in ast.walk(load):
            ast.copy_location(child, target)
        return load

    def expression_statement(self, node):
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return
        if not isinstance(value, ast.Call):
            self.refuse(node, "This expression has no effect; assign its value or remove it.")
        if isinstance(value.func, ast.Name) and value.func.id in api.COMMANDS:
            self.command(value)
        else:
            self.expression(value, call=True, statement=True)

    def command(self, node):
        name = self.module.imported_name(node, node.func.id)
        _, fields = api.COMMANDS[name]
        if node.keywords or len(node.args) != len(fields):
            self.refuse(node, f"{name} takes {len(fields)} arguments by position: {name}({', '.join(fields)}).")
        for argument, field in zip(node.args, fields, strict=True):
            self.fits(argument, self.expression(argument), api.COMMAND_WIDTHS[field], f"{name}'s {field}")
        node.kind = ""

    def assign(self, target, value, kind, declare=True):
        if isinstance(target, ast.Attribute):
            owner = target.value.id if isinstance(target.value, ast.Name) else None
            if not self.policy.record or self.lookup(owner) != self.policy.record[0]:
                self.refuse(target, "Only fields of the policy's record can be written; an event is read-only.")
            field = self.policy.record[1].get(target.attr)
            if field is None:
                self.refuse(target, f"The record {self.policy.record[0]} has no field {target.attr}.")
            self.fits(value, kind, width(field), f"the field {target.attr}")
            return
        if not isinstance(target, ast.Name):
            self.refuse(target, "Assign to a local or to a field of the record.")
        name, known = target.id, self.lookup(target.id)
        if name in self.counters:
            self.refuse(target, f"{name} counts the loop and cannot be assigned; use another local.")
        if kind == LITERAL:
            self.refuse(value, f"A local needs a type; write `{name} = u32({ast.unparse(value)})`.")
        if kind not in TYPES and kind != "bool":
            self.refuse(value, "A local holds an integer or a condition, not a record.")
        target.declares = known is None
        if known is None:
            if not declare:
                self.refuse(target, f"{name} has no value yet; assign it first, outside of the block if it is used after it.")
            self.module.new_name(target, name)
            self.scopes[-1][name] = kind
        elif known != kind:
            self.refuse(target, f"{name} is {known}, this value is {kind}; write `{known}(...)`.")

    def loop(self, node):
        it = node.iter
        if node.orelse or not isinstance(node.target, ast.Name) or not isinstance(it, ast.Call) \
                or not isinstance(it.func, ast.Name) or it.func.id != "steps" or len(it.args) != 1 or it.keywords:
            self.refuse(node, "A loop is `for i in steps(8):` with a constant count.")
        self.module.imported_name(it, "steps")
        self.expression(it.args[0])
        count = getattr(it.args[0], "constant", None)
        if count is None or count > MAX_STEPS:
            self.refuse(it, f"The count of a loop is a constant of at most {MAX_STEPS}.")
        name = node.target.id
        if self.lookup(name) is not None:
            self.refuse(node.target, f"{name} is in use; give the loop a name of its own.")
        self.module.new_name(node.target, name)
        self.scopes.append({name: "u32"})
        self.counters.add(name)
        self.loops += 1
        self.block(node.body)
        self.loops -= 1
        self.counters.discard(name)
        self.scopes.pop()

    def returned(self, node):
        wanted = self.function.returns
        if node.value is None:
            if wanted:
                self.refuse(node, f"{self.function.name} returns {wanted}; write the value.")
            return
        if not wanted:
            self.refuse(node, f"{self.function.name} returns nothing; declare `-> u32` if it should.")
        kind = self.expression(node.value, call=True)
        if kind != wanted:
            self.refuse(node, f"{self.function.name} returns {wanted}, this value is {kind}; write `{wanted}(...)`.")

    # Expressions.
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
