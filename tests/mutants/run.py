# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tests of mutants in copies of the tree; the tree itself is never touched.

A copy holds the files that git knows. It shares the Python environment, and sees the built blocks and
models through links, so that only what a mutant changes is built anew, in the copy.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from tests.mutants import verdict
from tests.repo import style

CAUGHT, SURVIVED, BROKEN = "caught", "survived", "broken"
LIMIT  = 900                 # Seconds that the tests of one mutant may take.
CACHES = ("blocks", "sim", "firmware")

@dataclass
class Result:
    """What became of a mutant; `text` says which test caught it, or what went wrong."""
    name:    str
    verdict: str
    text:    str
    seconds: float

# Copies -------------------------------------------------------------------------------------------

@contextlib.contextmanager
def tree_copy():
    """Folder with a copy of the tree, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="openrdma-mutants-")
    try:
        for path in style.tracked():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(style.ROOT, path), target)
        for cache in CACHES:
            there, here = os.path.join(style.ROOT, "build", cache), os.path.join(folder, "build", cache)
            os.makedirs(here)
            for name in os.listdir(there) if os.path.isdir(there) else ():
                if not name.endswith(".lock"):
                    os.symlink(os.path.join(there, name), os.path.join(here, name))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

@contextlib.contextmanager
def planted(folder, mutant):
    """The copy in `folder` has the mutant's fault; None plants nothing."""
    if mutant is None:
        yield
        return
    path = os.path.join(folder, mutant.file)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(mutant.apply(text))
        yield
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

# One mutant ---------------------------------------------------------------------------------------

def pytest_of(folder, tests, limit=LIMIT):
    """(exit status of pytest or None after `limit` seconds, what `verdict` wrote, its last output)."""
    out = os.path.join(folder, "build", "verdict.json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(out)
    environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", verdict.ENVIRONMENT: out}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.mutants.verdict", *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, {}, ""
    failed = {}
    if os.path.exists(out):
        with open(out, encoding="utf-8") as f:
            failed = json.load(f)
    return done.returncode, failed, (done.stdout + done.stderr)[-2000:]

def judge(status, failed, output):
    """(verdict, text) of a run of pytest."""
    if status is None:
        return BROKEN, f"its tests did not end within {LIMIT} seconds"
    if status == 0:
        return SURVIVED, "its tests pass"
    if status == 1 and failed.get("failed") == "check":
        return CAUGHT, failed["test"]
    if failed:
        return BROKEN, f"{failed['test']}: {failed['text']}"
    return BROKEN, f"pytest ended with status {status}: {(output.strip().splitlines() or [''])[-1]}"

def run(folder, mutant, name=None, tests=None):
    """Result of one mutant in the copy `folder`; without a mutant, of the tree as it is."""
    start = time.monotonic()
    with planted(folder, mutant):
        word, text = judge(*pytest_of(folder, tests or mutant.tests))
    return Result(name or mutant.name, word, text, round(time.monotonic() - start, 1))

# Results ------------------------------------------------------------------------------------------

class Store:
    """Results by key in a JSON file, written after each, so that a run that was stopped goes on.

    Two runs may share the file: each adds to what is there.
    """
    def __init__(self, path):
        self.path = path
        self.rows = self._read()

    def _read(self):
        with contextlib.suppress(FileNotFoundError, ValueError), open(self.path, encoding="utf-8") as f:
            return json.load(f)
        return {}

    def get(self, key):
        row = self.rows.get(key)
        return Result(**row) if row else None

    def put(self, key, result):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.rows = {**self.rows, **self._read(), key: vars(result)}
            temporary = self.path + ".new"
            with open(temporary, "w", encoding="utf-8") as f:
                json.dump(self.rows, f, indent=1)
            os.replace(temporary, self.path)
