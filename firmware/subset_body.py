# SPDX-License-Identifier: BSD-2-Clause
"""Statements of the policy language: which there are, where locals live, which paths return.

A local belongs to the block in which it is first assigned, as in C; using it after that block is
refused, so no path can read a local without a value.
"""

import ast

from firmware import api
from firmware.subset import LITERAL
from firmware.subset_expressions import Expressions, width
from firmware.types import MAX_STEPS, TYPES

# Body ---------------------------------------------------------------------------------------------

class Body(Expressions):
    """Checks one function with `check()`."""
    def __init__(self, module, function):
        super().__init__(module, function)
        self.counters = set()     # Loop variables.
        self.loops   = 0

    def check(self):
        ends = self.block(self.function.node.body, new_scope=False)
        if self.function.returns and not ends:
            self.refuse(self.function.node, f"Not every path through {self.function.name} returns a value; end it with return.")

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
