# SPDX-License-Identifier: BSD-2-Clause
"""What the files of whole-card tests share as fixtures."""

import pytest

from soc.sim.cluster import Cluster
from tests.system.bench import Recorder, model

@pytest.fixture(scope="module")
def scene():
    """A captured cluster for all tests of a file, replaced when its queue pairs are used up."""
    class Scene:
        c = None
        def fresh(self, links):
            """(cluster, a, b) with room for so many more queue pairs."""
            if self.c is None or self.c.nodes[0]._used.get("queue pairs", 0) + links > 15:
                self.close()
                self.c = Cluster(config=model(2), seed=1, capture=Recorder())
            return self.c, *self.c.nodes
        def close(self):
            if self.c is not None:
                self.c.close()
                self.c = None
    s = Scene()
    yield s
    s.close()
