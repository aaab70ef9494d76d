# SPDX-License-Identifier: BSD-2-Clause
"""What all tests share: the --slow option, and the command that repeats a failed test.

Tests of whole cards carry `@pytest.mark.xdist_group("card")`, so that one process builds the model.
"""

import pytest

def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes as well")

def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report  = outcome.get_result()
    if report.failed:
        slow = " --slow" if item.config.getoption("--slow") else ""
        report.sections.append(("repeat with", f"./scripts/test -n 0{slow} '{item.nodeid}'"))
