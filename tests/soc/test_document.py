# SPDX-License-Identifier: BSD-2-Clause
"""The generated parts of the documents are those of today's gateware."""

import pytest

from gateware.common import headers as H
from soc import document

@pytest.mark.parametrize("name", document.PARTS)
def test_generated_parts_are_up_to_date(name):
    text = (document.DOCS/name).read_text(encoding="utf-8")
    assert document.up_to_date(name, text) == text, "run python -m soc.document --write"

def test_a_lost_mark_is_named():
    text = (document.DOCS/"wire-format.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="wire-format.md lacks the marks of the part 'codes'"):
        document.up_to_date("wire-format.md", text.replace("<!-- codes: end -->", ""))

@pytest.mark.parametrize("header, field, expected", [
    (H.BTH, "opcode", "0"), (H.BTH, "psn", "9-11"), (H.BTH, "rtx", "8, bit 5"), (H.IPV4, "ihl", "0, bits 3:0"),
    (H.IPV4, "fragment", "6-7, from bit 4")])
def test_positions_read_as_the_standards_count(header, field, expected):
    assert document.position(header.fields[field]) == expected

def test_a_bar_inside_a_cell_is_escaped():
    assert document.table(("a",), [("x | y",)]).endswith("| x \\| y |")
