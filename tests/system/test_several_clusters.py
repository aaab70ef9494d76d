# SPDX-License-Identifier: BSD-2-Clause
"""Two clusters in one process do not know of each other."""

import pytest

from tests.system.bench import Link, cluster, group

@group(2)
@pytest.mark.timeout(300)
def test_clusters_may_live_and_end_in_any_order():
    managers = [cluster(seed=s) for s in range(3)]
    clusters = [m.__enter__() for m in managers]
    links    = [Link(c, *c.nodes, size=3000) for c in clusters]
    for i in (2, 0, 1):
        for link in links:
            if link is not None:
                link.post()
                link.finish()
        managers[i].__exit__(None, None, None)
        links[i] = None
