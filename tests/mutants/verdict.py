# SPDX-License-Identifier: BSD-2-Clause
"""A plugin of pytest that says how a run failed: by a check of a test, or by something that fell over.

    python -m pytest -p tests.mutants.verdict ...      with OPENRDMA_VERDICT=FILE

FILE becomes JSON: {"failed": "check" or "error", "test": its name, "text": the first line}. A mutant
counts as caught only by a check: a card that cannot be elaborated would fail any test.
"""

import json
import os

import pytest

ENVIRONMENT = "OPENRDMA_VERDICT"
ROOT        = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

class _State:
    failed = None

def kind_of(error, path):
    """"check" or "error" of an exception whose innermost frame is in `path`, relative to the root."""
    names = {c.__name__ for c in type(error).__mro__}     # By name: this plugin imports nothing of the tree.
    if "BuildError" in names:
        return "error"
    if isinstance(error, (AssertionError, pytest.fail.Exception)) or "SimulationError" in names:
        return "check"
    # A model that meets what cannot be: an answer nobody waits for, a value that no table has.
    own = path.startswith("tests/") and not path.startswith("tests/engines/")
    return "check" if own and isinstance(error, (LookupError, ValueError)) else "error"

def _note(kind, test, text):
    if _State.failed is None:
        lines = str(text).strip().splitlines() or [""]
        _State.failed = {"failed": kind, "test": test, "text": lines[0][:200]}

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        path = os.path.relpath(str(call.excinfo.traceback[-1].path), ROOT)
        _note(kind_of(call.excinfo.value, path), item.nodeid, call.excinfo.exconly())

def pytest_collectreport(report):
    if report.failed:
        _note("error", report.nodeid, report.longreprtext.strip().splitlines()[-1] if report.longreprtext.strip() else "")

def pytest_sessionfinish():
    path = os.environ.get(ENVIRONMENT)
    if path:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(_State.failed or {}, f)
