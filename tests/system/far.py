# SPDX-License-Identifier: BSD-2-Clause
"""One card and a peer in Python: frames at the card's XGMII ports, an adversary on the way, the models at the far end.

`Far` stands where a second node would: the driver connects the card to it, and what would have been written to a
second card's tables is kept. Its MAC addresses are nobody's in the fabric, so what the card sends to it ends there
and is taken from the capture; what it sends is injected.

Frames from the far end reach one plane for a while and then the other, with a pause between: so the order in which the
card takes them is the order in which they end at its ports, and the model can be fed with the same.
"""

import heapq
import random
from collections import deque

from gateware.config import preset
from soc.sim.cluster import Cluster
from tests.models import wire
from tests.models.endpoint import End
from tests.system.bench import Recorder

QUANTUM, PAUSE = 100, 2500

def paths_of(evs, planes):
    """[(entropy value, plane)] of a driver's list: value n is of plane n modulo the planes, unless the list says which."""
    return [e if isinstance(e, tuple) else (e, n % planes) for n, e in enumerate(evs)]

class Far:
    """The far node, as much of it as `Cluster.connect` asks for."""
    def __init__(self, seed, planes, ip=0x0a00_0002, ip6=0xfd00 << 112 | 2):
        self.index, self.ip, self.ip6, self.random = 1, ip, ip6, random.Random(f"{seed} far")
        self.planes = planes
        self.macs  = [0x02_00_00_00_02_00 | plane for plane in range(4)]
        self.evs   = []
        self.rows  = []

    def peer(self, number, ip, macs, evs, *more):
        self.evs = paths_of(evs, self.planes)

    def queue_pair(self, **values):
        index, row = 0x20 + 3*len(self.rows), {"generation": self.random.randrange(1, 256), **values}
        self.rows.append(row)
        def write(**more):
            row.update(more)
            return row
        return index, row["generation"], write

class Session:
    """A card, the far end and the adversaries between them; `to` and `back` are the Adversary of each way.

    `ordered`: frames keep to one plane for a while, as the head of this file says. `ipv6`: the packets are IPv6's.
    """
    def __init__(self, seed, planes=2, name="tiny", ordered=True, ipv6=False, **options):
        self.random = random.Random(f"{seed} session")
        self.record = Recorder()
        self.ipv6   = ipv6
        self.c      = Cluster(nodes=1, ipv6=ipv6, config=preset(name, planes=planes), seed=seed, capture=self.record, memory=8 << 20,
            **options)
        self.card, self.far = self.c.nodes[0], Far(seed, planes)
        self.planes, self.ordered = planes, ordered
        self.evs, write = [], self.card.peer        # Entropy values that the card has for the far end.
        def peer(number, ip, macs, evs, *more):
            self.evs = paths_of(evs, planes)
            write(number, ip, macs, evs, *more)
        self.card.peer = peer
        self.to = self.back = None          # Adversaries towards the card and away from it.
        self.way_to   = [[] for _ in range(planes)]         # Heaps of arrivals.
        self.way_back = []
        self.flying = [deque() for _ in range(planes)]      # Injected, not yet captured.
        self.quiet_at, self.last_plane = 0, 0               # The far end's line: free again; its plane.
        self.ends   = []
        self.on_sent     = lambda p, plane, now: None       # A frame of the card, parsed.
        self.on_far      = lambda p, plane, now: None       # A good frame that has reached the far end.
        self.on_card     = lambda p, plane, now: None       # A good frame that has reached the card.
        self.on_step     = lambda now: None
        self.sent_frames = 0

    def close(self):
        self.c.close()

    # Set-up ---------------------------------------------------------------------------------------

    def connect(self, **options):
        """A queue pair; returns (End of the card, End of the far side, index at the card)."""
        qp, card, far, config = self.c.connect(self.card, self.far, **options), self.card, self.far, self.c.config
        row   = far.rows[-1]
        index = qp.index[card.index]
        common = dict(mtu=qp.mtu, p_key=row["p_key"], trigger=row["sack_trigger"], messages=config.messages)
        window, limit = 128*row["mpr"] if "mpr" in row else config.mpr, row.get("max_wimm_dest", config.max_wimm)
        ways  = {}
        for name, a, b in (("card", card, far), ("far", far, card)):
            ways[name] = {plane: dict(source_mac=a.macs[plane], destination_mac=b.macs[plane], ipv6=int(self.ipv6),
                source_ip=self.address(a), destination_ip=self.address(b)) for plane in range(self.planes)}
        far_end  = End(own_qpn=qp.qpn[far.index], remote_qpn=qp.qpn[card.index], send_psn=row["send_psn"], receive_psn=row["receive_psn"],
            window=window, send_window=window, immediates=limit, addresses=ways["far"], paths=far.evs, **common)
        card_end = End(own_qpn=qp.qpn[card.index], remote_qpn=qp.qpn[far.index], send_psn=row["receive_psn"], receive_psn=row["send_psn"],
            window=window, send_window=window, immediates=limit, addresses=ways["card"], paths=self.evs, **common)
        self.ends.append((card_end, far_end, index))
        return self.ends[-1]

    def address(self, node):
        return node.ip6 if self.ipv6 else node.ip

    # Time -----------------------------------------------------------------------------------------

    now = property(lambda self: self.c.cycle)

    def send(self, plane, frame):
        """The far end sends a frame."""
        for arrival in self.to.through(frame, plane, self.now):
            heapq.heappush(self.way_to[arrival.plane], arrival)

    def inject(self):
        """What is due goes to the card's ports; a change of the plane waits until the card has digested all before it."""
        for plane in sorted(range(self.planes), key=lambda plane: plane != self.last_plane):
            way = self.way_to[plane]
            if not way or way[0].time > self.now:
                continue
            if self.ordered and plane != self.last_plane and self.now < self.quiet_at + PAUSE:
                return
            self.last_plane = plane
            while way and way[0].time <= self.now:
                a = heapq.heappop(way)
                self.quiet_at = max(self.quiet_at, self.now) + len(a.frame)//8 + 4
                self.flying[plane].append(a)
                self.c.fabric.inject(self.card, a.frame, plane=plane, fcs_error=a.flip)
            if self.ordered:
                return

    def step(self, cycles=QUANTUM):
        self.inject()
        self.c.step(cycles, stop=1)
        assert self.c.sim.count(0) == 0, self.c.sim.sentences(0)
        frames, self.record.frames = self.record.frames, []
        for cycle, _, plane, direction, data in frames:
            if direction == "tx":
                self.left_card(data, plane, cycle)
            else:
                self.reached_card(data, plane, cycle)
        while self.way_back and self.way_back[0].time <= self.now:
            a = heapq.heappop(self.way_back)
            p = wire.parse(a.frame, own_ip=self.far.ip, own_ip6=self.far.ip6, own_mac=self.far.macs[a.plane])
            if not a.flip and p["error"] is None:
                self.on_far(p, a.plane, a.time)
        self.on_step(self.now)

    def left_card(self, data, plane, cycle):
        self.sent_frames += 1
        p = wire.parse(data, own_ip=self.far.ip, own_ip6=self.far.ip6, own_mac=self.far.macs[plane])
        assert p["error"] is None, f"the card sent a frame with a wrong {p['error']}"
        assert (p["eth"]["source"], p["source"], p["ipv6"]) == (self.card.macs[plane], self.address(self.card), int(self.ipv6))
        assert p["resv8a"] == p["tver"] == 0
        self.on_sent(p, plane, cycle)
        for arrival in self.back.through(data, plane, cycle):
            heapq.heappush(self.way_back, arrival)

    def reached_card(self, data, plane, cycle):
        a = self.flying[plane].popleft()
        assert data == a.frame + bytes(len(data) - len(a.frame))
        p = wire.parse(a.frame, own_ip=self.card.ip, own_ip6=self.card.ip6, own_mac=self.card.macs[plane],
            max_mtu=self.c.config.max_mtu)
        if not a.flip and p["error"] is None:
            self.on_card(p, plane, cycle)

    def run(self, until, limit):
        """Steps until `until()`; a session that takes longer has hung."""
        end = self.now + limit
        while not until():
            assert self.now < end, f"nothing more within {limit} cycles"
            self.step()

    def settle(self, cycles=3000):
        """Until nothing is under way any more."""
        self.run(lambda: not any(self.way_to) and not self.way_back and not any(self.flying), 400_000)
        for _ in range(0, cycles, QUANTUM):
            self.step()
