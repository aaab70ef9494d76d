# SPDX-License-Identifier: BSD-2-Clause
"""The policy language: reads a policy's source and refuses what it cannot mean the same in C.

A policy is a module of imports from `firmware.api`, constants in capitals, one record with the state
of a queue pair, and functions. Each refusal names file, line and column, and says what to write
instead. `parse` gives a `Policy` whose syntax tree carries types; firmware/generate.py writes C.
"""

import ast
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from firmware import api
from firmware.types import TYPES

# Result -------------------------------------------------------------------------------------------

class PolicyError(ValueError):
    """A policy that is refused; the text is `file:line:column: sentence`."""

@dataclass
class Function:
    """One function; `fields` are the event's fields that it reads, its callees' included."""
    name:       str
    parameters: list                # (name, type)
    returns:    str                 # Type, or "" for none.
    node:       ast.FunctionDef
    remark:     str = ""
    fields:     set = field(default_factory=set)

@dataclass
class Policy:
    """A checked policy. `record` is (name, {field: type}), `constants` {name: (type, value)}."""
    name:      str
    path:      str
    source:    str
    record:    tuple = None
    constants: dict = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    imports:   set = field(default_factory=set)
    remark:    str = ""

    @property
    def digest(self):
        return hashlib.sha256(self.source.encode()).hexdigest()

# Parser -------------------------------------------------------------------------------------------

POLICIES = Path(__file__).parent/"policies"
LITERAL  = "literal"

def find_policy(policy=None):
    """Path of a policy: None is the default, a name one that ships, anything else a file."""
    policy = "mrc" if policy is None else str(policy)
    if re.fullmatch(r"\w+", policy):
        path = POLICIES/f"{policy}.py"
        if not path.is_file():
            names = ", ".join(sorted(p.stem for p in POLICIES.glob("*.py") if p.stem != "__init__"))
            raise PolicyError(f"There is no policy '{policy}'; the policies are {names}, or give the path of a file.")
        return path
    path = Path(policy)
    if not path.is_file():
        raise PolicyError(f"The policy file {policy} does not exist.")
    return path

def parse(policy=None):
    """Check a policy (name, path or None for the default) and give its `Policy`."""
    path = find_policy(policy)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"The policy file {path} cannot be read: {error}.") from error
    return parse_source(source, path.stem, str(path))

def parse_source(source, name="policy", path="policy.py"):
    """Check a policy given as text."""
    return _Module(source, name, path).policy

def _remark(node):
    text = ast.get_docstring(node) or ""
    return text.split("\n")[0].replace("*/", "* /")

class _Module:
    """Top level of a policy."""
    def __init__(self, source, name, path):
        self.path   = path
        self.policy = Policy(name, path, source)
        try:
            tree = ast.parse(source, path)
        except (SyntaxError, ValueError) as error:
            line, column = getattr(error, "lineno", 0) or 0, getattr(error, "offset", 0) or 0
            raise PolicyError(f"{path}:{line}:{column}: This is not Python: {getattr(error, 'msg', error)}.") from error
        self.policy.remark = _remark(tree)
        for node in tree.body:
            self.top_level(node)
        self.finish(tree)

    def refuse(self, node, sentence):
        raise PolicyError(f"{self.path}:{getattr(node, 'lineno', 1)}:{getattr(node, 'col_offset', 0) + 1}: {sentence}")

    def top_level(self, node):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        kind = {ast.ImportFrom: self.imported, ast.ClassDef: self.record, ast.FunctionDef: self.function,
            ast.Assign: self.constant}.get(type(node))
        if kind is None:
            self.refuse(node, "At the top of a policy stand imports from firmware.api, constants, one record and "
                "functions; put this into a function.")
        kind(node)

    def new_name(self, node, name):
        if not name.isascii() or name.startswith("_"):
            self.refuse(node, f"The name {name} is not usable in C; use ASCII letters and no leading underscore.")
        p = self.policy
        if name in p.constants or name in p.functions or name in api.__all__ or name in ("min", "max") \
                or (p.record and name == p.record[0]):
            self.refuse(node, f"The name {name} is taken already; choose another one.")

    def imported(self, node):
        if node.module != "firmware.api" or node.level:
            self.refuse(node, "A policy imports from firmware.api only.")
        for alias in node.names:
            if alias.name == "*" or alias.asname:
                self.refuse(node, "Import the names themselves: from firmware.api import resend, timer.")
            if alias.name not in api.__all__:
                self.refuse(node, f"firmware.api has no {alias.name}; it has {', '.join(api.__all__)}.")
            self.policy.imports.add(alias.name)

    def record(self, node):
        decorators = [d.id for d in node.decorator_list if isinstance(d, ast.Name)]
        if decorators != ["record"] or len(node.decorator_list) != 1 or node.bases or node.keywords \
                or "record" not in self.policy.imports:
            self.refuse(node, "A class of a policy is a plain record: import record from firmware.api, write @record before it.")
        if self.policy.record:
            self.refuse(node, f"The policy has its record already ({self.policy.record[0]}); put the fields there.")
        self.new_name(node, node.name)
        fields = {}
        for item in node.body:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue
            if not isinstance(item, ast.AnnAssign) or item.value or not isinstance(item.target, ast.Name):
                self.refuse(item, "A record holds fields without values only: `attempts: u8`; they start at 0.")
            name = item.target.id
            if name in fields or not name.isascii() or name.startswith("_"):
                self.refuse(item, f"The field name {name} is taken or not usable in C; choose another one.")
            fields[name] = self.integer_type(item.annotation)
        if not fields:
            self.refuse(node, "The record has no fields; write at least one, `attempts: u8`.")
        self.policy.record = (node.name, fields)

    def integer_type(self, node):
        if not isinstance(node, ast.Name) or node.id not in TYPES:
            self.refuse(node, f"This is not an integer type of a policy; write one of {', '.join(TYPES)}.")
        return self.imported_name(node, node.id)

    def imported_name(self, node, name):
        if name not in self.policy.imports:
            self.refuse(node, f"{name} is not imported; write `from firmware.api import {name}`.")
        return name

    def constant(self, node):
        from firmware.subset_expressions import Expressions
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Name) or not target.id.isupper():
            self.refuse(node, "At the top of a policy only constants are assigned, in capitals: LIMIT = u32(8).")
        self.new_name(node, target.id)
        kind = Expressions(self, None).expression(node.value)
        if getattr(node.value, "constant", None) is None:
            self.refuse(node.value, "A constant is a number, a code of the contract, or a cast of one: u32(8).")
        self.policy.constants[target.id] = (kind, node.value.constant)

    def function(self, node):
        from firmware.subset_body import Body
        self.new_name(node, node.name)
        a = node.args
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults or node.decorator_list:
            self.refuse(node, "A function of a policy has plain parameters with types, no defaults and no decorators.")
        parameters = []
        for arg in a.args:
            if arg.arg in (n for n, _ in parameters) or not arg.arg.isascii() or arg.arg.startswith("_") \
                    or arg.arg in self.policy.constants:
                self.refuse(arg, f"The parameter name {arg.arg} is taken or not usable in C; choose another one.")
            parameters.append((arg.arg, self.parameter_type(arg)))
        returns = ""
        if node.returns is not None and not (isinstance(node.returns, ast.Constant) and node.returns.value is None):
            is_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
            returns = "bool" if is_bool else self.integer_type(node.returns)
        function = Function(node.name, parameters, returns, node, _remark(node))
        self.check_handler(function)
        Body(self, function).check()
        self.policy.functions[node.name] = function

    def parameter_type(self, arg):
        name = arg.annotation.id if isinstance(arg.annotation, ast.Name) else None
        if name == "Event":
            return self.imported_name(arg, name)
        if self.policy.record and name == self.policy.record[0]:
            return name
        if name is None or name not in TYPES:
            self.refuse(arg, f"The parameter {arg.arg} needs a type: the policy's record, Event, or one of {', '.join(TYPES)}.")
        return self.integer_type(arg.annotation)

    def check_handler(self, function):
        name = function.name
        if not name.startswith("on_"):
            return
        if name != api.START and name not in api.HANDLERS:
            self.refuse(function.node, f"There is no event for {name}; the handlers are {', '.join([*api.HANDLERS, api.START])}.")
        state = self.policy.record[0] if self.policy.record else "QueuePair"
        wanted, shape = [state, "Event"], f"s: {state}, e: Event"
        if name == api.START:
            wanted, shape = [state], f"s: {state}"
        if [t for _, t in function.parameters] != wanted or function.returns:
            self.refuse(function.node, f"A handler is declared as def {name}({shape}) and returns nothing.")

    def finish(self, tree):
        if self.policy.record is None:
            self.refuse(tree, "The policy has no record; write one with the state of a queue pair.")
        if not any(name in api.HANDLERS for name in self.policy.functions):
            self.refuse(tree, f"The policy handles no event; write one of {', '.join(api.HANDLERS)}.")
