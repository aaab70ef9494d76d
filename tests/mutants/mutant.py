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
        """What a result depends on: the mutant, and all sources that its tests import."""
        digest = hashlib.sha256(repr((self.file, self.old, self.new, self.tests)).encode())
        needed = sources.closure({t.split("::")[0] for t in self.tests} | ({self.file} if self.file else set()))
        for path in sorted(needed):
            digest.update(f"{path}\0{sources.texts[path]}\0".encode())
        return digest.hexdigest()[:24]

class Sources:
    """The texts of the tree, {path: text}, and which of them a file imports."""
    def __init__(self, texts):
        self.texts   = texts
        self.imports = {}

    @classmethod
    def of_the_tree(cls):
        return cls({p: style.read(p) for p in style.tracked() if p.endswith((".py", ".h", ".cpp", ".c", ".S", ".ld", ".toml"))})

    def imported(self, path):
        """Paths of the tree that `path` names in its imports, with the packages they are in."""
        if path not in self.imports:
            names = set()
            for node in ast.walk(ast.parse(self.texts[path])):
                if isinstance(node, ast.Import):
                    names |= {a.name for a in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
            parts = {".".join(n.split(".")[:i + 1]).replace(".", "/") for n in names for i in range(n.count(".") + 1)}
            self.imports[path] = {p for part in parts for p in (part + ".py", part + "/__init__.py") if p in self.texts}
        return self.imports[path]

    def closure(self, paths):
        """`paths`, all that they import, directly or not, each conftest.py above, and whatever is no Python."""
        found = {p for p in self.texts if not p.endswith(".py") or os.path.basename(p) == "conftest.py"}
        todo  = [p for p in paths if p in self.texts]
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += self.imported(path)
        return found
