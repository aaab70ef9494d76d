# SPDX-License-Identifier: BSD-2-Clause
"""The driver's tables: rows go in and out unchanged, numbers and windows do not collide."""

import random

import pytest

from gateware.common import tables

ALL = (*tables.TABLES, tables.TOKEN, tables.CREDIT)

@pytest.mark.parametrize("table", ALL, ids=lambda t: t.name)
def test_unpack_returns_what_was_packed(table):
    rng = random.Random(table.number)
    for _ in range(50):
        values = {c.name: rng.getrandbits(c.width) for c in table.columns}
        row    = table.pack(**values)
        assert row < 1 << table.width <= 1 << tables.ROW_BITS
        assert table.unpack(row) == values

def test_columns_follow_each_other_from_bit_0():
    assert tables.EV.pack(entropy=0x1234) == 0x1234
    assert tables.TOKEN.pack(op=1, slot=2, length=3) == 1 << 60 | 2 << 24 | 3
    assert tables.TOKEN.width == 64 and tables.CREDIT.width == 128
    assert tables.TOKEN.pack(flag_default=1) == 1 << 48

def test_numbers_and_names_are_unique():
    assert len({t.number for t in ALL}) == len(ALL) == len({t.name for t in ALL})
    for t in ALL:
        assert len({c.name for c in t.columns}) == len(t.columns)

def test_wrong_rows_are_refused():
    with pytest.raises(ValueError, match="table ev has no column entrpy"):
        tables.EV.pack(entrpy=1)
    with pytest.raises(ValueError, match="ev.entropy is 65536, but it has 16 bits"):
        tables.EV.pack(entropy=65536)

def test_windows_of_bar0_do_not_overlap():
    assert tables.BAR0_CSR < tables.BAR0_FIRMWARE < tables.BAR0_DOORBELL
    assert tables.BAR0_DOORBELL + tables.BAR0_DOORBELL_BYTES <= tables.BAR0_BYTES
