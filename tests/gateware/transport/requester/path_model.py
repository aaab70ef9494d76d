# SPDX-License-Identifier: BSD-2-Clause
"""The paths of the peers as lists: the model that `Paths` is held to."""

from firmware.contract import EventKind, PathChange, PathState, path_word
from gateware.transport.requester.paths import Change

GOOD, SKIP, ASSUMED_BAD, DENIED = PathState.GOOD, PathState.SKIP, PathState.ASSUMED_BAD, PathState.DENIED

class PathModel:
    """Operations return what the card must answer: a chosen value, or the event that must be raised (None: none)."""
    def __init__(self, config, entropies):
        self.config, self.entropies = config, entropies
        self.shares  = config.plane_shares
        self.states  = [[DENIED]*config.evs for _ in range(config.peers)]
        self.in_use  = [set() for _ in range(config.peers)]
        self.cursors = [[0]*config.planes for _ in range(config.peers)]
        self.turns   = [0]*config.peers
        self.qps     = [0]*config.peers
        self.counts  = [[dict(sent=0, lost=0, marked=0) for _ in range(config.evs)] for _ in range(config.peers)]

    def start(self, peer, ev_count):
        self.in_use[peer]  = {n for n in range(min(ev_count, self.config.evs)) if n % self.shares < self.config.planes}
        self.states[peer]  = [GOOD if n in self.in_use[peer] else DENIED for n in range(self.config.evs)]
        self.cursors[peer] = [0]*self.config.planes
        self.turns[peer]   = self.qps[peer] = 0
        self.counts[peer]  = [dict(sent=0, lost=0, marked=0) for _ in range(self.config.evs)]

    def count(self, peer, ev, name):
        self.counts[peer][ev][name] = min(self.counts[peer][ev][name] + 1, 0xffff)

    # Choice.
    def rotation(self, peer, plane):
        """Values of a plane, from its cursor on."""
        values = list(range(plane, self.config.evs, self.shares))
        at     = self.cursors[peer][plane] % len(values)
        return values[at:] + values[:at]

    def planes_for(self, peer, up):
        """(planes that may have the packet, states that it may use)."""
        states = self.states[peer]
        planes = range(self.config.planes)
        alive  = [p for p in planes if up >> p & 1] or list(planes)
        for among in (alive, planes):
            for allowed in ((GOOD, SKIP), (ASSUMED_BAD,)):
                found = [p for p in among if any(states[n] in allowed for n in self.rotation(peer, p))]
                if found:
                    return found, allowed
        return [0], ()

    def choose(self, qp, peer, up):
        states = self.states[peer]
        planes, allowed = self.planes_for(peer, up)
        plane  = next((p for p in planes if p >= self.turns[peer]), planes[0])
        values = self.rotation(peer, plane)
        order  = [n for wanted in allowed for n in values if states[n] == wanted]
        ev     = order[0] if order else 0
        met    = next((n for n in values if states[n] in (GOOD, SKIP)), None)
        if GOOD in allowed and met is not None and states[met] == SKIP:
            states[met] = GOOD
        place = order[0]//self.shares if order else 0
        self.cursors[peer][plane] = (place + 1) % (self.config.evs//self.shares)
        self.turns[peer] = (plane + 1) % self.shares
        self.qps[peer]   = qp
        self.count(peer, ev, "sent")
        return ev

    # Changes.
    def change(self, qp, peer, ev, kind, state=0):
        states, now = self.states[peer], self.states[peer][ev]
        if kind == Change.SET:
            if ev in self.in_use[peer]:
                states[ev] = state
            return None
        for name, kinds in (("lost", (Change.LOST,)), ("marked", (Change.MARKED, Change.BACK))):
            if kind in kinds:
                self.count(peer, ev, name)
        if now == DENIED:
            return None
        states[ev] = {Change.MARKED: SKIP if now == GOOD else now, Change.CLEAN: GOOD, Change.BACK: SKIP}.get(kind, ASSUMED_BAD)
        if now != ASSUMED_BAD and states[ev] == ASSUMED_BAD:
            return self.event(qp, peer, ev, PathChange.LOST)
        if now == ASSUMED_BAD and states[ev] != ASSUMED_BAD:
            return self.event(self.qps[peer], peer, ev, PathChange.RETURNED)
        return None

    def event(self, qp, peer, ev, reason):
        return dict(kind=EventKind.PATH, qp=qp, base=path_word(peer, ev), reason=reason, entropy=self.entropies[peer][ev])
