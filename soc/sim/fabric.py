# SPDX-License-Identifier: BSD-2-Clause
"""The fabric seen from Python: faults to set, and statistics out of its own record of every frame.

`records` is a numpy structured array (soc/sim/library.py RECORD), one line per frame that a card sent,
in the order of sending. Nothing here asks a card.
"""

import numpy as np

from soc.sim.library import Fate, Kind

ANY = 255
DIRECTIONS = {"from": 1, "to": 2, "both": 3}
LOCAL_FAULT, REMOTE_FAULT = 4, 8

def _before(keys, marks):
    """For each element: is a mark set at an earlier element with the same key?"""
    order  = np.argsort(keys, kind="stable")
    sorted_keys, sorted_marks = keys[order], marks[order].astype(np.int64)
    sums   = np.cumsum(sorted_marks) - sorted_marks
    starts = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]] if len(keys) else np.zeros(0, bool)
    base   = np.maximum.accumulate(np.where(starts, sums, 0)) if len(keys) else sums
    out    = np.empty(len(keys), bool)
    out[order] = sums - base > 0
    return out

class Fabric:
    """Faults and figures of a cluster's fabric."""
    def __init__(self, cluster):
        self._cluster, self._sim = cluster, cluster.sim
        self.planes, self.paths = cluster.planes, cluster.paths

    # Faults ---------------------------------------------------------------------------------------

    def set_loss(self, probability, plane=None, path=None):
        """Loss of one path, of all paths of a plane, or of all."""
        for p in range(self.planes) if plane is None else (plane,):
            for k in range(self.paths) if path is None else (path,):
                self._sim.path_loss(p, k, probability)

    def set_rates(self, duplicate=0.0, corrupt=0.0, trim=0.0, mark=0.0):
        self._sim.rates(duplicate, corrupt, trim, mark)

    def plane_down(self, plane, node=None, down=True, direction="both", told=False):
        """Takes a plane down (or up again) at one node or at all: every frame "from" it, "to" it, or both, is lost.
        `told`: its card gets link faults instead of frames (remote ones if "from", and nothing passes either
        way); else it has to find out."""
        if direction not in DIRECTIONS:
            raise ValueError(f"direction is '{direction}', but it is {', '.join(DIRECTIONS)}.")
        mask = DIRECTIONS[direction]
        if told:
            mask = DIRECTIONS["both"] | (REMOTE_FAULT if direction == "from" else LOCAL_FAULT)
        for n in self._cluster.nodes if node is None else (node,):
            self._sim.plane_down(n.index, plane, mask if down else 0)

    def drop(self, node=None, opcode=ANY, skip=0, count=1):
        """Loses `count` frames of this opcode that `node` sends, after `skip` of them."""
        self._sim.drop(ANY if node is None else node.index, opcode, skip, count)

    def inject(self, node, frame, plane=0, fcs_error=0):
        """A frame of the test's own (without FCS) to a node."""
        self._sim.inject(node.index, plane, bytes(frame), len(frame), fcs_error)

    # Figures --------------------------------------------------------------------------------------

    @property
    def records(self):
        return self._sim.record_array()

    def statistics(self, start=0):
        """The counts of a report, of frames sent from cycle `start` on."""
        r = self.records
        r = r[r["cycle"] >= start]
        lost, corrupted = (r["fate"] & Fate.LOST) != 0, (r["fate"] & Fate.CORRUPTED) != 0
        trimmed = (r["fate"] & Fate.TRIMMED) != 0
        gone    = lost | corrupted | trimmed | ((r["fate"] & Fate.UNKNOWN) != 0)
        data    = r["kind"] == Kind.DATA
        control = r["kind"] == Kind.CONTROL
        d       = r[data]
        key     = (d["node"].astype(np.uint64) << np.uint64(56)) | (d["qpn"].astype(np.uint64) << np.uint64(24)) | d["psn"]
        resent  = _before(key, np.ones(len(d), bool))
        spurious = _before(key, ~gone[data])
        def n(mask): return int(np.count_nonzero(mask))
        return {
            "data": {
                "sent":       n(data),
                "delivered":  n(data & ~gone & (r["delivered"] > 0)),
                "lost":       n(data & lost),
                "corrupted":  n(data & corrupted),
                "trimmed":    n(data & trimmed),
                "marked":     n(data & ((r["fate"] & Fate.MARKED) != 0)),
                "duplicated": n(data & ((r["fate"] & Fate.DUPLICATED) != 0)),
                "reordered":  self._reordered(d[~trimmed[data]]),
                "resent":     n(resent),
                "spurious":   n(spurious),
            },
            "control": {"sent": n(control), "lost": n(control & lost), "corrupted": n(control & corrupted)},
            "other": n(r["kind"] == Kind.OTHER),
            "unknown_destination": n((r["fate"] & Fate.UNKNOWN) != 0),
        }

    @staticmethod
    def _reordered(d):
        """Delivered frames that a later one of the same sender and queue pair had overtaken."""
        count = 0
        d     = d[d["delivered"] > 0]
        flow  = (d["node"].astype(np.uint64) << np.uint64(32)) | d["qpn"]
        for f in np.unique(flow):
            times = d["delivered"][flow == f]
            order = np.argsort(times, kind="stable")      # Send indices in the order of delivery.
            count += int(np.count_nonzero(order < np.maximum.accumulate(order)))
        return count

    def per_path(self, start=0):
        """[{plane, path, packets, lost}] of all frames."""
        r = self.records
        r = r[r["cycle"] >= start]
        out = []
        for plane in range(self.planes):
            for path in range(self.paths):
                mine = r[(r["plane"] == plane) & (r["path"] == path)]
                out.append({"plane": plane, "path": path, "packets": len(mine), "lost": int(np.count_nonzero(mine["fate"] & Fate.LOST))})
        return out
