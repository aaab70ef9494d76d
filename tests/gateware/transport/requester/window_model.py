# SPDX-License-Identifier: BSD-2-Clause
"""What acknowledgements mean, as sets: the model that the acknowledger is held to."""

import collections

from firmware.contract import EventKind
from gateware.common.headers import NackReason
from gateware.common.tables import QpState
from tests.gateware.transport.harness import PSN, ahead

class Window:
    """One sending queue pair. Methods return the events that they must cause."""
    def __init__(self, start):
        self.unacked = self.next = start
        self.acked, self.reported = set(), set()
        self.sent = {}                         # PSN -> time of its last transmission.
        self.resent = collections.Counter()    # Place in the window -> times that its PSN was sent again.
        self.tail = self.head = 0              # Messages retired, messages started.
        self.messages = {}                     # msn -> (first, last, page, signal).
        self.rqmsn = self.received = 0         # Messages with an immediate that are retired; units that the peer has received.
        self.rtt, self.guard_time, self.guard_packets = 0, 0, 0
        self.state = QpState.RTS
        self.credits = []                      # (page, error) in the order of completion.

    def holds(self, psn):
        return 0 <= ahead(psn, self.unacked) < ahead(self.next, self.unacked)

    def advance(self, cack):
        """False if `cack` acknowledges what was never sent."""
        target = (cack + 1) % PSN
        if ahead(target, self.unacked) > ahead(self.next, self.unacked):
            return False
        if ahead(target, self.unacked) > 0:
            self.unacked  = target
            self.acked    = {p for p in self.acked if self.holds(p)}
            self.reported = {p for p in self.reported if self.holds(p)}
        return True

    def sack(self, cack, base, bitmap, entropy, stamp, time, received, clear=True, room=True):
        """True if it counts; with the list of events. `clear`: it is known which transmission it answers."""
        if not self.advance(cack):
            return False, []
        sample = (time - stamp) % 65536
        if sample < 32768 and clear:
            self.rtt = sample
        if (received - self.received) % PSN < PSN//2:
            self.received = received
        psns = [(base + i) % PSN for i in range(64)]
        self.acked |= {p for i, p in enumerate(psns) if bitmap >> i & 1 and self.holds(p)}
        mask = 0
        for i, p in enumerate(psns):
            if (self.holds(p) and p not in self.acked and p not in self.reported and i <= bitmap.bit_length() - 1 - self.guard_packets
                    and (time - self.sent[p]) % 65536 >= self.guard_time):
                mask |= 1 << i
        if not mask or not room:
            return True, []
        self.reported |= {p for i, p in enumerate(psns) if mask >> i & 1}
        return True, [self.event(EventKind.HOLES, base=base, mask_low=mask % 2**32, mask_high=mask >> 32, entropy=entropy)]

    def nack(self, psn, reason, entropy):
        if not self.holds(psn):
            return []
        if reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP):
            if psn in self.acked | self.reported:
                return []
            self.reported.add(psn)
        return [self.event(EventKind.NACK, base=psn, mask_low=1, mask_high=0, reason=reason, entropy=entropy)]

    def ack(self, cack, msn):
        if not self.advance(cack):
            return False
        claimed = (msn - self.tail) % 65536
        if claimed <= self.head - self.tail:
            while claimed and ahead(self.messages[self.tail][1], self.unacked) < 0:
                self.credits.append((self.messages[self.tail][2], 0))
                self.rqmsn = (self.rqmsn + self.messages[self.tail][3]) % 65536
                self.tail += 1
                claimed   -= 1
        return True

    def fail(self, reason):
        while self.tail < self.head:
            self.credits.append((self.messages[self.tail][2], reason))
            self.rqmsn = (self.rqmsn + self.messages[self.tail][3]) % 65536
            self.tail += 1
        self.unacked, self.state = self.next, QpState.ERROR

    def event(self, kind, **values):
        return dict(values, kind=kind, unacked=self.unacked, next=self.next, rtt=self.rtt)
