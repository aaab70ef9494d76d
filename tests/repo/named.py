# SPDX-License-Identifier: BSD-2-Clause
"""Tests that something names: `path`, or `path::name`."""

import ast
import functools
import os

from tests.repo import style

@functools.cache
def functions(path):
    """Names of the test functions in a file."""
    return {n.name for n in ast.walk(ast.parse(style.read(path))) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}

def missing_test(test):
    """A sentence if there is no such test, else an empty string."""
    path, _, name = test.partition("::")
    if not os.path.isfile(os.path.join(style.ROOT, path)):
        return f"{path} does not exist"
    if name and name not in functions(path):
        return f"{path} has no test {name}"
    return ""
