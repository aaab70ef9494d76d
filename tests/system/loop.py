# SPDX-License-Identifier: BSD-2-Clause
"""One small card that talks to itself: half the simulation of two, and all of a transfer's way through the card."""

import contextlib

from gateware.config import preset
from soc.sim.cluster import Cluster

class Alias:
    """The same node under the number 1, so that `Cluster.connect` and `Link` can tell the ends of a queue pair apart."""
    def __init__(self, node):
        self.node, self.index = node, 1

    def __getattr__(self, name):
        return getattr(self.node, name)

@contextlib.contextmanager
def looped(planes=2, memory=8 << 20, **options):
    """(cluster, a, b): `a` and `b` are the same `tiny` card."""
    c = Cluster(nodes=1, config=preset("tiny", planes=planes), memory=memory, **options)
    try:
        yield c, c.nodes[0], Alias(c.nodes[0])
    finally:
        c.close()
