# SPDX-License-Identifier: BSD-2-Clause
"""What the files of whole-card tests share as fixtures."""

import pytest

from firmware.contract import PathState
from soc.sim.cluster import Cluster
from tests.system.bench import LIMIT, Recorder, model

@pytest.fixture(scope="module")
def scene():
    """A captured cluster for all tests of a file, replaced when its queue pairs are used up."""
    class Scene:
        c = None
        def fresh(self, links):
            """(cluster, a, b) with room for so many more queue pairs, and no path that a card still probes for an earlier loss."""
            if self.c is None or self.c.nodes[0]._used.get("queue pairs", 0) + links > 15:
                self.close()
                self.c = Cluster(config=model(2), seed=1, capture=Recorder())
            self.c.run_until(lambda: not any(p["state"] == PathState.ASSUMED_BAD for n in self.c.nodes for p in n.paths()),
                quantum=10_000, **LIMIT)
            return self.c, *self.c.nodes
        def close(self):
            if self.c is not None:
                self.c.close()
                self.c = None
    s = Scene()
    yield s
    s.close()
