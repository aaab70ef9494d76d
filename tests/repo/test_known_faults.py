# SPDX-License-Identifier: BSD-2-Clause
"""The list of known faults names tests that exist, and says of each fault whether it applies."""

import re

import pytest

from tests.repo import style
from tests.repo.named import missing_test

ROW  = re.compile(r"^\| (?!fault \|)([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", re.M)
ROWS = [tuple(cell.strip() for cell in m.groups()) for m in ROW.finditer(style.read("docs/known-faults.md"))]
TEST = re.compile(r"`([^`]+)`")

@pytest.mark.parametrize("name, what, here, tests", ROWS, ids=[r[0] for r in ROWS])
def test_row_names_tests_or_a_reason(name, what, here, tests):
    named = TEST.findall(tests)
    if here == "now":
        assert named, f"{name} applies, but no test shows it"
        assert all("::" in t for t in named)
        assert not [m for m in map(missing_test, named) if m]
    else:
        assert re.match(r"(later|no): \S", here), f"'{here}' is neither now, nor later or no with a reason"
        assert not named

def test_the_list_is_read_and_its_names_are_unique():
    text = style.read("docs/known-faults.md")
    assert len(ROWS) == sum(line.startswith("| ") and not line.startswith("| fault |") for line in text.splitlines()) > 90
    assert len({r[0] for r in ROWS}) == len(ROWS)
