# SPDX-License-Identifier: BSD-2-Clause
"""Writes the C of a checked policy, and the contract as a C header.

The output is deterministic and meant to be read: one C function per function of the policy, one
expression per expression. Integers live in `uint32_t` and are cut to their width after an operation
that may leave it. An event's words are read from the window once, and only those that its handler uses.
"""

import ast

from firmware import api, contract
from firmware.subset import LITERAL
from firmware.subset_expressions import COMPARISONS, OPERATORS
from firmware.types import TYPES

# Names --------------------------------------------------------------------------------------------

KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int
    long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    asm typeof bool true false main state window command event qp""".split())
STORED = {"u8": "uint8_t", "u16": "uint16_t", "u24": "uint32_t", "u32": "uint32_t"}

def c_name(name):
    """A local, parameter or field in C."""
    return f"{name}_" if name in KEYWORDS or name.endswith("_t") else name

# Contract -----------------------------------------------------------------------------------------

def _codes(prefix, cls):
    return [f"#define {prefix}_{name} {value:#x}u" for name, value in vars(cls).items() if not name.startswith("_")]

def contract_header():
    """contract.h: the words of the recovery port."""
    return "\n".join([
        "/* Generated from firmware/contract.py by firmware/generate.py: do not edit. */",
        "#ifndef CONTRACT_H",
        "#define CONTRACT_H",
        f"#define CONTRACT_VERSION {contract.VERSION}u",
        f'#define CONTRACT_VERSION_TEXT "{contract.VERSION}"',
        f"#define EVENT_WORDS {contract.EVENT_WORDS}u",
        f"#define COMMAND_WORDS {contract.COMMAND_WORDS}u",
        *_codes("EVENT", contract.EventKind),
        *_codes("COMMAND", contract.CommandKind),
        *_codes("WINDOW", contract.Window),
        *_codes("STATUS", contract.WindowStatus),
        "",
        "struct event {",
        "    uint32_t word[EVENT_WORDS]; /* Only those that the handler uses are filled. */",
        "};",
        "",
        *[_accessor(f) for f in contract.EVENT],
        "#endif",
        "",
    ])

def _accessor(f):
    value = f"e->word[{f.word}]"
    if f.bit:
        value = f"{value} >> {f.bit}"
    if f.bit + f.width < 32:
        value = f"({value}) & {(1 << f.width) - 1:#x}u" if f.bit else f"{value} & {(1 << f.width) - 1:#x}u"
    return f"static inline uint32_t event_{f.name}(const struct event *e) {{ return {value}; }} /* {f.unit} */"

# Policy -------------------------------------------------------------------------------------------

def policy_source(policy):
    """policy.c: records, functions and the dispatcher."""
    lines = [
        f"/* Generated from {policy.name}.py by firmware/generate.py: do not edit. */",
        *([f"/* {policy.remark} */"] if policy.remark else []),
        "",
        f'#define POLICY_NAME "{policy.name}"',
        "",
    ]
    for name, (kind, value) in policy.constants.items():
        lines.append(f"#define POLICY_{name} {value}u" + ("" if kind == LITERAL else f" /* {kind} */"))
    record, fields = policy.record
    lines += ["", f"struct {record} {{"]
    lines += [f"    {STORED[kind]} {c_name(name)};" for name, kind in fields.items()]
    lines += ["};", "", f"static struct {record} policy_state[QUEUE_PAIRS];",
        "static uint16_t policy_life[QUEUE_PAIRS]; /* Life that a record belongs to + 1; 0: none yet. */", ""]
    for function in policy.functions.values():
        lines += _Writer(policy, function).lines() + [""]
    return "\n".join(lines + _dispatcher(policy)) + "\n"

def _dispatcher(policy):
    """policy_begin(): a record for a new life. policy_event(): read an event, drop it from the queue, handle it."""
    start = policy.functions.get(api.START)
    record, fields = policy.record
    words = {f.name: f.word for f in contract.EVENT}
    first = sorted({0, words["life"]})
    bound = " && ".join(f"event_kind(&e) != {kind}u" for kind in contract.NO_LIFE)
    lines = [f"static void policy_begin(struct {record} *s)", "{",
        *[f"    s->{c_name(name)} = 0;" for name in fields],
        *([f"    policy_{api.START}(s);"] if start else []),
        "}", "", "static void policy_event(void)", "{", "    struct event e;",
        *[f"    e.word[{word}] = event_word({word});" for word in first],
        "    uint32_t qp = event_qp(&e);",
        "    if (qp >= QUEUE_PAIRS) {", "        event_pop();", "        return;", "    }",
        f"    if (policy_life[qp] != event_life(&e) + 1 && {bound}) {{",
        "        policy_life[qp] = event_life(&e) + 1;",
        "        command_life = event_life(&e);",
        "        policy_begin(&policy_state[qp]);",
        "    }",
        "    command_life = policy_life[qp] ? policy_life[qp] - 1u : 0;",
        "    switch (event_kind(&e)) {"]
    kinds = {v: k for k, v in vars(contract.EventKind).items() if not k.startswith("_")}
    for name, kind in api.HANDLERS.items():
        function = policy.functions.get(name)
        if function is None:
            continue
        lines.append(f"    case EVENT_{kinds[kind]}:")
        used = sorted({words[field] for field in function.fields} - set(first))
        lines += [f"        e.word[{word}] = event_word({word});" for word in used]
        lines += ["        event_pop();", f"        policy_{name}(&policy_state[qp], &e);", "        break;"]
    return lines + ["    default:", "        event_pop();", "    }", "}"]

class _Writer:
    """C of one function."""
    def __init__(self, policy, function):
        self.policy, self.function = policy, function

    def lines(self):
        f = self.function
        result = {"": "void"}.get(f.returns, "uint32_t")
        parameters = ", ".join(self.parameter(n, t) for n, t in f.parameters) or "void"
        remark = [f"/* {f.remark} */"] if f.remark else []
        return [*remark, f"static {result} policy_{f.name}({parameters})", "{", *self.block(f.node.body, 1), "}"]

    def parameter(self, name, kind):
        if kind in TYPES:
            return f"uint32_t {c_name(name)}"
        return f"const struct event *{c_name(name)}" if kind == "Event" else f"struct {kind} *{c_name(name)}"

    # Statements.
    def block(self, statements, depth):
        lines = []
        for statement in statements:
            lines += self.statement(statement, depth)
        return lines

    def statement(self, node, depth):
        pad = "    "*depth
        if isinstance(node, ast.Expr):
            return [] if isinstance(node.value, ast.Constant) else [f"{pad}{self.call(node.value)};"]
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Attribute):
                return [f"{pad}{c_name(target.value.id)}->{c_name(target.attr)} = {self.value(node.value)};"]
            declare = "uint32_t " if target.declares else ""
            return [f"{pad}{declare}{c_name(target.id)} = {self.value(node.value)};"]
        if isinstance(node, ast.If):
            lines = [f"{pad}if ({self.value(node.test)}) {{", *self.block(node.body, depth + 1)]
            while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                lines += [f"{pad}}} else if ({self.value(node.test)}) {{", *self.block(node.body, depth + 1)]
            if node.orelse:
                lines += [f"{pad}}} else {{", *self.block(node.orelse, depth + 1)]
            return [*lines, f"{pad}}}"]
        if isinstance(node, ast.For):
            i = c_name(node.target.id)
            return [f"{pad}for (uint32_t {i} = 0; {i} < {node.iter.args[0].constant}u; {i}++) {{",
                *self.block(node.body, depth + 1), f"{pad}}}"]
        if isinstance(node, ast.Return):
            return [f"{pad}return;" if node.value is None else f"{pad}return {self.value(node.value)};"]
        return {ast.Break: [f"{pad}break;"], ast.Continue: [f"{pad}continue;"]}.get(type(node), [])

    # Expressions.
    def value(self, node):
        """C expression whose value is within the width of the node's type."""
        text = self.expression(node)
        return text[1:-1] if text.startswith("(") and _matched(text) else text

    def cut(self, kind, text):
        return text if kind in (LITERAL, "u32", "bool") else f"({text} & {(1 << TYPES[kind].width) - 1:#x}u)"

    def expression(self, node):
        if isinstance(node, ast.Name):
            return f"POLICY_{node.id}" if getattr(node, "constant", None) is not None else c_name(node.id)
        if getattr(node, "constant", None) is not None:
            remark = f" /* {ast.unparse(node)} */" if isinstance(node, ast.Attribute) else ""
            return f"{node.constant}u{remark}"
        if isinstance(node, ast.Attribute):
            name = c_name(node.value.id)
            return f"event_{node.attr}({name})" if node.value.kind == "Event" else f"{name}->{c_name(node.attr)}"
        if isinstance(node, ast.BinOp):
            return self.binary(node)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return f"(!{self.expression(node.operand)})"
            return self.cut(node.kind, f"(~{self.expression(node.operand)})")
        if isinstance(node, ast.BoolOp):
            return "(" + (" && " if isinstance(node.op, ast.And) else " || ").join(self.expression(v) for v in node.values) + ")"
        if isinstance(node, ast.Compare):
            return f"({self.expression(node.left)} {COMPARISONS[type(node.ops[0])]} {self.expression(node.comparators[0])})"
        if isinstance(node, ast.IfExp):
            return f"({self.expression(node.test)} ? {self.expression(node.body)} : {self.expression(node.orelse)})"
        return self.call(node)

    def binary(self, node):
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            name  = "shift_left" if isinstance(node.op, ast.LShift) else "shift_right"
            count = getattr(node.right, "constant", None)
            text  = f"{name}({left}, {right})" if count is None else (
                f"({left} {OPERATORS[type(node.op)]} {right})" if count < 32 else "0u")
            return text if isinstance(node.op, ast.RShift) else self.cut(node.kind, text)
        text = f"({left} {OPERATORS[type(node.op)]} {right})"
        return text if isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) else self.cut(node.kind, text)

    def call(self, node):
        name, arguments = node.func.id, node.args
        if name in api.COMMANDS:
            return f"command_{name}({', '.join(self.value(a) for a in arguments)})"
        if name in TYPES:
            text, kind = self.expression(arguments[0]), arguments[0].kind
            narrower = kind in TYPES and TYPES[kind].width <= TYPES[name].width
            return text if narrower or kind == "bool" else self.cut(name, text)
        values = ", ".join(self.value(a) for a in arguments)
        return f"{name}_u32({values})" if name in ("min", "max") else f"policy_{name}({values})"

def _matched(text):
    """True when the first bracket closes at the end."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i == len(text) - 1
    return False
