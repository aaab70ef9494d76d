# SPDX-License-Identifier: BSD-2-Clause
"""Four planes that share one network data path: the same promises."""

import pytest

from tests.system.bench import group
from tests.system.test_transfers import ROUGH, move, right, thrifty

pytestmark = [group(4), pytest.mark.timeout(600)]

def test_four_planes_carry_a_transfer():
    result = move(150_001, 4, planes=4, mtu=1024, message=20_011, queue_pairs=4, **ROUGH)
    right(result)
    thrifty(result)
    used = {p["plane"] for p in result["per_path"] if p["packets"]}
    assert used == {0, 1, 2, 3}

def test_reordering_across_four_planes_resends_nothing():
    result = move(200_000, 5, planes=4, paths=4, jitter=1000, mtu=1024)
    right(result)
    assert result["packets"]["data"]["resent"] == 0
