# SPDX-License-Identifier: BSD-2-Clause
"""What may happen to a frame between two ends: lost, doubled, late, trimmed, marked, damaged.

One draw decides what a frame suffers; times are in the caller's unit. `fates` counts what was done, for the test to compare
with what the receiver counted.
"""

from collections import Counter
from dataclasses import dataclass

from gateware.common.headers import BTH, ETH, ICRC_BYTES, IPV4, IPV6, PACKET_TYPES, UDP, Dscp
from tests.models import wire

@dataclass(order=True)
class Arrival:
    """A frame on its way; `flip` goes over its FCS."""
    time:  int
    order: int
    plane: int
    frame: bytes
    flip:  int = 0

def opcode_of(frame):
    return BTH.unpack(frame[wire.prefix(frame) - BTH.length:])["opcode"]

class Adversary:
    """Probabilities per frame; `late`: up to so much more delay for one frame in three; trimming and marks need data."""
    def __init__(self, random, delay=0, late=0, lose=0.0, double=0.0, trim=0.0, mark=0.0, damage=0.0):
        self.random, self.delay, self.late = random, delay, late
        self.odds  = dict(lose=lose, double=double, trim=trim, mark=mark, damage=damage)
        self.fates = Counter()
        self.count = 0

    def gentle(self):
        """From now on nothing happens to a frame."""
        self.late, self.odds = 0, dict.fromkeys(self.odds, 0.0)

    def through(self, frame, plane, now):
        """[Arrival] of a frame that leaves now."""
        r, dice, fate = self.random, self.random.random(), "whole"
        for name, odds in self.odds.items():
            if dice < odds:
                fate = name
                break
            dice -= odds
        kind = PACKET_TYPES.get(opcode_of(frame))
        if fate in ("trim", "mark") and not (kind and kind.data):
            fate = "whole"
        self.fates[fate] += 1
        if fate == "lose":
            return []
        flip = 0
        if fate == "trim":
            left  = wire.prefix(frame) - ETH.length + r.choice([8, 24])       # At least METH and TSETH.
            frame = wire.trim(frame, size=left, dscp=r.choice([Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP]))
        elif fate == "mark":
            frame = self.marked(frame)
        elif fate == "damage":
            frame, flip = self.damaged(frame)
        copies = [self.arrival(frame, plane, now, flip) for _ in range(2 if fate == "double" else 1)]
        return copies

    def arrival(self, frame, plane, now, flip):
        self.count += 1
        late = self.random.randrange(self.late) if self.late and self.random.random() < 1/3 else 0
        return Arrival(now + self.delay + late, self.count, plane, frame, flip)

    @staticmethod
    def marked(frame):
        """ECN: congestion experienced."""
        if wire.is_ipv6(frame):
            ip = IPV6.pack(**{**IPV6.unpack(frame[ETH.length:]), "ecn": 3})
        else:
            ip = wire.with_checksum({**IPV4.unpack(frame[ETH.length:]), "ecn": 3})
        return frame[:ETH.length] + ip + frame[ETH.length + len(ip):]

    def damaged(self, frame):
        """A bit flipped behind the BTH; half of the time with a right FCS, so that the ICRC has to find it."""
        r, frame = self.random, bytearray(frame)
        if r.random() < 0.5:
            self.fates["damage_fcs"] += 1
            return bytes(frame), r.getrandbits(32) or 1
        first = wire.prefix(frame)
        end   = first - BTH.length - UDP.length + UDP.unpack(frame[first - BTH.length - UDP.length:])["length"]
        at    = r.randrange(first, end - ICRC_BYTES)
        frame[at] ^= 1 << r.randrange(8)
        self.fates["damage_icrc"] += 1
        return bytes(frame), 0
