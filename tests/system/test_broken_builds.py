# SPDX-License-Identifier: BSD-2-Clause
"""Cards that break the promise "flag after data" are caught: what the flag check is worth.

flag_first:       the acceptor queues the flag before the payload of the packet that closes the message.
flag_second_port: flags go to memory by a second path, past the write queue.
"""

import random

import pytest

from soc.sim.report import figures
from soc.sim.transfer import Transfer
from tests.system.bench import cluster, group

def flags_before_data(broken, seed):
    """(flags before their data, report) of a transfer between two such cards."""
    with cluster(1, broken, seed=seed, paths=4, jitter=3000) as c:
        t = Transfer(c, lambda flow: random.Random(seed).randbytes(60_000), message=3000, mtu=1024, queue_pairs=2)
        t.run(limit=1_000_000, wall=60)
        return c.sim.count(1), figures(t, "mrc")

@pytest.mark.timeout(600)
@pytest.mark.parametrize("broken", [pytest.param("flag_first", marks=group(1, "flag_first")),
                                    pytest.param("flag_second_port", marks=group(1, "flag_second_port"))])
def test_a_card_that_raises_flags_early_is_caught(broken):
    for seed in range(8):
        early, report = flags_before_data(broken, seed)
        if early:
            break
    assert early, "no flag came before its data in 8 runs"
    assert not report["ok"] and report["flags_before_data"] == early
    assert any("flags came before their data" in p for p in report["problems"])
    assert report["match"], "in the end all bytes are there: only the check of each flag can tell"

@group(1)
@pytest.mark.timeout(300)
def test_the_real_card_passes_the_same_transfers():
    for seed in range(2):
        early, report = flags_before_data("", seed)
        assert early == 0 and report["ok"], report["problems"]
