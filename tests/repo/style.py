# SPDX-License-Identifier: BSD-2-Clause
"""The rules of this tree that ruff does not know; `python -m tests.repo.style` prints what breaks them."""

import ast
import os
import re
import subprocess
import sys

ROOT    = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LICENCE = "SPDX-License-Identifier: BSD-2-Clause"
LONGEST = 400                                       # Lines of a file; the aim is 80 to 250.

CODE = (".py", ".c", ".cpp", ".h", ".hpp", ".S", ".ld", ".sh", ".v", ".sv")
TEXT = (*CODE, ".md", ".toml", ".yml", ".yaml", ".cfg", "")

# A path of one machine has no place in the tree; nor has what only the author's desk knows.
FOREIGN = re.compile(r"/ho" r"me/\w|/ro" r"ot/|/wo" r"rk/|/tmp/bri" r"ef|\.\./sha" r"red|#\d+\b.*\bissue|\bissue #?\d")
GENERATED = re.compile(r"(^|/)(build|__pycache__|obj_dir|\.venv|node_modules)/|\.(pyc|o|so|vcd|fst|bit|pcapng|log)$|\.egg-info/")

def tracked():
    """Paths that git tracks or would add, relative to the root."""
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True)
    return [p for p in out.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, p))]

def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read()

def is_script(path, text):
    return "." not in os.path.basename(path) and text.startswith("#!")

def problems_of(path):
    """Sentences about one file."""
    if GENERATED.search(path):
        return ["is generated and must not be tracked"]
    if os.path.splitext(path)[1] not in TEXT or path == "LICENSE":
        return []
    text, found = read(path), []
    code = path.endswith(CODE) or is_script(path, text)
    lines = text.splitlines()
    if code and text.strip() and LICENCE not in "\n".join(lines[:2]):
        found.append("lacks the licence line at its top")
    if path.endswith(".py") and len(lines) > 1 and ast.get_docstring(ast.parse(text)) is None:
        found.append("has no module docstring")
    if code and len(lines) > LONGEST:
        found.append(f"has {len(lines)} lines, but a file has at most {LONGEST}")
    for n, line in enumerate(lines, 1):
        if FOREIGN.search(line):
            found.append(f"names something of one machine or desk in line {n}: {line.strip()[:80]}")
        if line != line.rstrip() and not path.endswith(".md"):
            found.append(f"has white space at the end of line {n}")
    if path.startswith("gateware/") and path.endswith(".py"):
        found += gateware_problems(ast.parse(text))
    return found

def gateware_problems(tree):
    """Gateware opens no files, parses no command line and documents its classes."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("Module" in ast.unparse(b) for b in node.bases) \
                and ast.get_docstring(node) is None:
            found.append(f"class {node.name} has no docstring")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
            for bad in ("argparse", "subprocess", "litex_boards"):
                if any(n.split(".")[0] == bad for n in names):
                    found.append(f"imports {bad}, which gateware does not need")
    return found

def main():
    count = 0
    for path in tracked():
        for sentence in problems_of(path):
            print(f"{path} {sentence}.")
            count += 1
    print(f"{count} breaches of the rules of tests/repo/style.py." if count else "The rules of tests/repo/style.py hold.")
    return count != 0

if __name__ == "__main__":
    sys.exit(main())
