# SPDX-License-Identifier: BSD-2-Clause
"""One mutant: a fault planted on purpose, and the tests that must notice it."""

import ast
import hashlib
import os
from dataclasses import dataclass

from tests.repo import style

@dataclass(frozen=True)
class Mutant:
    """`old` occurs once in `file` and becomes `new`; one of `tests` must then fail.

    tests: files, or path::name, all relative to the root; the fastest first.
    """
    name:  str
    file:  str
    old:   str
    new:   str
    tests: tuple

    def apply(self, text):
        """The file with the fault; a sentence as ValueError when that cannot be."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"Mutant {self.name}: its old text occurs {count} times in {self.file}, but it must occur once.")
        changed = text.replace(self.old, self.new)
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise ValueError(f"Mutant {self.name}: {self.file} is no Python with the new text (line {error.lineno}).") from None
        return changed

    def key(self, sources):
        """What a result depends on: the mutant, and all sources but the tests that it does not name."""
        named  = {t.split("::")[0] for t in self.tests}
        digest = hashlib.sha256(repr((self.file, self.old, self.new, self.tests)).encode())
        for path in sorted(sources):
            if os.path.basename(path).startswith("test_") and path not in named:
                continue
            digest.update(f"{path}\0{sources[path]}\0".encode())
        return digest.hexdigest()[:24]

def sources():
    """{path: text} of everything that a test of the gateware can depend on."""
    return {path: style.read(path) for path in style.tracked()
        if path.endswith((".py", ".h", ".cpp", ".c", ".S", ".ld", ".toml")) and not path.startswith(("tests/mutants/", "tests/repo/"))}
