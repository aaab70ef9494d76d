# SPDX-License-Identifier: BSD-2-Clause
"""The tree keeps its own rules; the rules catch what they are meant to catch."""

import ast
import os
import subprocess
import sys

from tests.repo import style

def test_tree_keeps_the_rules():
    found = [f"{path} {sentence}" for path in style.tracked() for sentence in style.problems_of(path)]
    assert not found, "\n".join(found)

def test_ruff_passes():
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "ruff"), "check", "--quiet", "."],
        cwd=style.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

def test_rules_catch_a_class_without_docstring_and_a_foreign_path():
    assert style.gateware_problems(ast.parse("class A(LiteXModule): pass")) == ["class A has no docstring"]
    assert style.gateware_problems(ast.parse("import argparse"))
    assert style.FOREIGN.search("see /ho" + "me/user/x") and not style.FOREIGN.search("see docs/wire.md")
    assert style.GENERATED.search("build/x.v") and style.GENERATED.search("a/b.pyc")
