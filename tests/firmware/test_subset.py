# SPDX-License-Identifier: BSD-2-Clause
"""The policy language: what it refuses, where, and what it says."""

import pytest

from firmware.generate import contract_header, policy_source
from firmware.subset import PolicyError, find_policy, parse, parse_source

HEAD = '''from firmware.api import Event, QpError, fail, probe, record, resend, steps, timer, u8, u16, u24, u32
LIMIT = u8(3)
COUNT = 4
@record
class State:
    a: u8
    c: u24
    d: u32
'''
HEAD_LINES = HEAD.count("\n")

def body(text):
    """A policy whose on_timeout has these lines; the first is line 2 after the head."""
    return HEAD + "def on_timeout(s: State, e: Event):\n" + "".join(f"    {line}\n" for line in text.split("\n"))

def refusal(source):
    with pytest.raises(PolicyError) as error:
        parse_source(source, path="my.py")
    return str(error.value)

@pytest.mark.parametrize("text, column, sentence", [
    ("x = 5",                        9,  "A local needs a type; write `x = u32(5)`"),
    ("x: u32 = 5",                   5,  "A local has the type of its first value"),
    ("while True:\n    pass",        5,  "There is no while; write `for i in steps(8):`"),
    ("for i in range(4):\n    pass", 5,  "A loop is `for i in steps(8):`"),
    ("for i in steps(65):\n    pass",14, "at most 64"),
    ("for i in steps(s.d):\n    pass",14,"constant of at most 64"),
    ("for i in steps(4):\n    i = s.d", 9, "counts the loop"),
    ("s.a = e.base",                 11, "This is u24, but the field a has 8 bits; write `u8(...)`"),
    ("s.a = 256",                    11, "256 does not fit into the field a"),
    ("s.b = s.a",                    5,  "has no field b"),
    ("e.base = s.c",                 5,  "an event is read-only"),
    ("s.d = e.length",               11, "Event has no field length"),
    ("s.d = s.d/3",                  11, "does not divide"),
    ("s.d = s.d//3",                 11, "does not divide"),
    ("s.d = s.d % 3",                11, "does not divide"),
    ("s.d = s.d**3",                 11, "has the operators"),
    ("s.d = -s.d",                   11, "no negative numbers; write `u32(0) - x`"),
    ("s.d = 1 << s.a",               11, "A shifted literal needs a type; write u32(1)"),
    ("s.d = s.a + 300",              17, "300 does not fit beside a u8"),
    ("s.d = 5000000000",             11, "does not fit into 32 bits"),
    ("s.d = 3 - 5",                  11, "does not fit into 32 bits"),
    ("s.d = 1.5",                    11, "integers only"),
    ("if s.a:\n    pass",            8,  "A condition is a comparison; write `x != 0`"),
    ("if s.a and s.d == 1:\n    pass", 8, "take comparisons"),
    ("if 1 < s.a < 3:\n    pass",    8,  "Compare two integers"),
    ("if not s.a:\n    pass",        8,  "`not` takes a comparison"),
    ("if 1 == 1:\n    pass",         8,  "always the same"),
    ("if s.a == 1:\n    x = u8(1)\ns.a = x", 11, "assign it first, outside of the block"),
    ("x = u8(1)\nx = u16(1)",        5,  "x is u8, this value is u16"),
    ("LIMIT = u8(1)",                5,  "LIMIT is taken already"),
    ("resend = u8(1)",               5,  "resend is taken already"),
    ("x = probe(e.qp)",              9,  "is a command and has no value"),
    ("probe()",                      5,  "probe takes 1 arguments by position: probe(qp)"),
    ("probe(qp=e.qp)",               5,  "by position"),
    ("probe(e.base)",                11, "probe's qp has 16 bits"),
    ("fail(e.qp, QpError.NOTHING)",  16, "QpError has no NOTHING"),
    ("print(s.d)",                   5,  "print cannot be called here"),
    ("on_timeout(s, e)",             5,  "functions that stand above it"),
    ("x = min(s.a, s.d)",            9,  "min takes two integers of one type"),
    ("x = max(s.a, 3)",              9,  "max takes two integers of one type"),
    ("x = 'text'",                   9,  "integers only"),
    ("x = [1]",                      9,  "no such expression"),
    ("x = s.a if s.d == 1 else s.d", 9,  "need the same type"),
    ("x = s",                        9,  "not a record"),
    ("x = y = u8(1)",                5,  "Assign one thing at a time"),
    ("x, y = u8(1), u8(2)",          12, "no such expression"),
    ("x += 1",                       5,  "x has no value here"),
    ("s.d",                          5,  "has no effect"),
    ("return s.d",                   5,  "returns nothing"),
    ("break",                        5,  "no loop here"),
    ("import os",                    5,  "no such statement"),
    ("global s",                     5,  "no such statement"),
    ("try:\n    pass\nexcept ValueError:\n    pass", 5, "no such statement"),
    ("x = lambda: 1",                9,  "no such expression"),
    ("x = ~5",                       9,  "write ~u32(5)"),
    ("_x = u8(1)",                   5,  "no leading underscore"),
    ("true = u8(1)\ngröße = u8(2)",  5,  "ASCII"),
    ("x = u16()",                    9,  "u16 takes one value"),
    ("x = u8(300)",                  12, "300 does not fit into u8"),
    ("s.a = s.a == 1",               11, "write u8(...)"),
])
def test_a_body_is_refused_with_place_and_sentence(text, column, sentence):
    message = refusal(body(text))
    place   = message.split(" ")[0].split(":")
    assert place[0] == "my.py" and int(place[1]) > HEAD_LINES + 1 and int(place[2]) == column, message
    assert sentence in message

@pytest.mark.parametrize("source, sentence", [
    ("import os\n",                                                 "imports from firmware.api"),
    ("from os import path\n",                                       "imports from firmware.api only"),
    ("from firmware.api import *\n",                                "Import the names themselves"),
    ("from firmware.api import nothing\n",                          "firmware.api has no nothing"),
    ("def f(:\n",                                                   "This is not Python"),
    ("x = 5\n",                                                     "in capitals"),
    ("class State:\n    a: u8\n",                                   "import record from firmware.api, write @record"),
    (HEAD + "@record\nclass Other:\n    a: u8\n",                   "has its record already"),
    (HEAD,                                                          "handles no event"),
    (HEAD + "def on_nothing(s: State, e: Event): pass\n",           "There is no event for on_nothing"),
    (HEAD + "def on_nack(s: State): pass\n",                        "def on_nack(s: State, e: Event) and returns nothing"),
    (HEAD + "def on_start(s: State, e: Event): pass\n",             "def on_start(s: State) and"),
    (HEAD + "def f(x) -> u8:\n    return u8(1)\n",                  "needs a type"),
    (HEAD + "def f(x: int):\n    pass\n",                           "needs a type"),
    (HEAD + "def f(x: u8 = 1):\n    pass\n",                        "no defaults"),
    (HEAD + "def f(x: u8) -> u8:\n    if x == 1:\n        return x\n", "Not every path through f returns"),
    (HEAD + "def f(x: u8) -> u8:\n    return 1\n",                  "f returns u8, this value is literal; write `u8(...)`"),
    (HEAD + "def f(x: u8) -> u8:\n    return f(x)\n",               "functions that stand above it"),
    (HEAD + "def f(x: u8) -> u8:\n    return x\ndef g(x: u8) -> u8:\n    return f(x) + f(x)\n", "into a local first"),
    (HEAD + "def f(x: u8) -> u8:\n    return x\ndef g() -> u8:\n    return f(3)\n", "f takes (u8), these are (literal)"),
    (HEAD + "BAD = LIMIT + 1\n",                                    "A constant is a number"),
    ("from firmware.api import record\n@record\nclass S:\n    a: int\n", "not an integer type"),
    ("from firmware.api import record\n@record\nclass S:\n    a: u8\n",  "u8 is not imported"),
    ("from firmware.api import record, u8\n@record\nclass S:\n    a: u8 = 1\n", "fields without values"),
])
def test_a_module_is_refused_with_a_sentence(source, sentence):
    message = refusal(source)
    assert message.startswith("my.py:") and sentence in message

def test_a_policy_that_does_not_exist_is_one_sentence():
    with pytest.raises(PolicyError, match="There is no policy 'nothing'; the policies are mrc"):
        find_policy("nothing")
    with pytest.raises(PolicyError, match="/no/such.py does not exist"):
        parse("/no/such.py")

def test_generation_is_deterministic_and_independent_of_the_place(tmp_path):
    copy = tmp_path/"mrc.py"
    copy.write_text(find_policy("mrc").read_text())
    assert policy_source(parse("mrc")) == policy_source(parse("mrc")) == policy_source(parse(copy))
    assert contract_header() == contract_header()

def test_the_c_reads_only_the_words_that_a_handler_uses():
    text = policy_source(parse_source(body("s.c = e.base")))
    assert "event_word(3)" in text and text.count("event_word(") == 3   # Kind and queue pair, life, base.
