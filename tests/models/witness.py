# SPDX-License-Identifier: BSD-2-Clause
"""A witness of a requester: hears what it sends and what it is told, and objects to what MRC 1.0 does not allow.

Fed with the messages that were posted (`post`), every data packet and probe that the requester sends (`sent`) and
every good control packet that reaches it (`heard`), in order of time. It objects (AssertionError) to a PSN out of order,
to headers or payload that do not belong to the PSN, to a path that the driver did not give, to a packet beyond the
window or beyond the messages in flight, and to a resend of what has long been acknowledged.
"""

from collections import Counter

from gateware.common.headers import PACKET_TYPES, Dscp, NackReason, Opcode, Syndrome
from tests.models.endpoint import near, signed
from tests.models.requester import packets_of

TICK  = 20              # Cycles of a timestamp's unit.
DRIFT = 120             # Ticks between the timestamp and the end of its frame: payload and other frames before it.
GRACE = 4000            # Cycles in which a resend that is under way may still leave after its acknowledgement.

class Witness:
    """Of one end of one queue pair; `end` as tests.models.endpoint.End from the requester's side.

    `ahead` is 0; for a requester that is told lies it is the window, since they may mean packets that have not left yet, which
    then need not leave any more.
    """
    def __init__(self, end):
        self.end      = end
        self.ahead    = 0
        self.plan     = []              # Values of the packet with PSN send_psn + i.
        self.message  = []              # Its message.
        self.last     = []              # Last PSN of each message.
        self.imms     = []
        self.next     = end.send_psn    # Next new PSN.
        self.cack     = end.send_psn - 1
        self.retired  = 0
        self.acked_at = {}              # PSN -> time.
        self.told     = 0               # Time of the last word from the peer.
        self.times    = Counter()       # PSN -> transmissions.
        self.counts   = Counter()
        self.offset   = None            # Ticks of the requester's clock.
        self.paths    = Counter()

    def post(self, message):
        for values in packets_of(message, len(self.last), sum(self.imms), self.end.mtu):
            self.plan.append(values)
            self.message.append(len(self.last))
        self.last.append(self.end.send_psn + len(self.plan) - 1)
        self.imms.append(message.immediate is not None)

    # What the requester sends ---------------------------------------------------------------------

    def sent(self, p, plane, now):
        """A good packet, parsed, whose last word left at `now`."""
        e = self.end
        assert (p["entropy"], plane) in e.paths, f"path {p['entropy']:#x} on plane {plane} was not given"
        assert (p["dest_qp"], p["p_key"]) == (e.remote_qpn, e.p_key)
        assert p["ip"].get("flow_label", p["entropy"]) == p["entropy"]
        self.paths[p["entropy"]] += 1
        if p["opcode"] == Opcode.PROBE:
            self.counts["probes"] += 1
            assert p["psn"] == 0 and p["dscp"] == Dscp.DATA
            return
        assert PACKET_TYPES[p["opcode"]].data and p["dscp"] == Dscp.TRIMMABLE and p["ip"]["ecn"] == 2
        psn   = near(p["psn"], self.next)
        again = psn < self.next
        assert e.send_psn <= psn <= self.next + self.ahead, f"PSN {psn:#x} is sent, the next new one is {self.next:#x}"
        index = psn - e.send_psn
        assert index < len(self.plan), f"PSN {psn:#x} belongs to no message"
        self.headers(p, self.plan[index], again)
        self.windows(psn, self.message[index])
        self.clock(p["TSETH"], now)
        if again:
            self.counts["resent"] += 1
            since = self.acked_at.get(psn)
            assert since is None or now - since < GRACE, f"PSN {psn:#x} is sent again {now - since} cycles after it was acknowledged"
        else:
            self.counts["new"] += 1
            self.next = psn + 1
        self.times[psn] += 1

    @staticmethod
    def headers(p, values, again):
        meth, reth = p["METH"], p["RETH"]
        found = dict(opcode=p["opcode"], payload=p["payload"], msn=meth["msn"], rqmsn=meth["rqmsn"], va=reth["va"], rkey=reth["rkey"],
            message_length=reth["length"], immediate=p["ImmDt"]["immediate"] if "ImmDt" in p else values["immediate"])
        assert found == values, {k: (found[k], values[k]) for k in values if found[k] != values[k]}
        assert p["rtx"] == int(again) and p["ts"] == 1 and (p["a"] or not again)

    def windows(self, psn, message):
        e = self.end
        assert psn <= self.cack + e.send_window, f"PSN {psn:#x} is beyond the window: cack is {self.cack:#x}"
        assert message < self.retired + e.messages, f"message {message} leaves while {self.retired} are retired"
        assert sum(self.imms[self.retired:message + 1]) <= e.immediates, "more immediates in flight than the peer can keep"

    def clock(self, tseth, now):
        assert (tseth["tsr"], tseth["ftype"]) == (0, 1)
        behind = (now//TICK - tseth["tx_timestamp"]) & 0xffff
        if self.offset is None:
            self.offset = behind
        assert (behind - self.offset + DRIFT) & 0xffff <= 2*DRIFT, "the timestamp is not the time of sending"

    # What the requester hears ---------------------------------------------------------------------

    def heard(self, p, now):
        """A good control packet of this queue pair, parsed; True if an honest peer that knows what was sent may send it."""
        self.told = now
        if p["opcode"] == Opcode.NACK:
            psn = near(p["NETH"]["nack_psn"], self.cack + 1)
            inside = self.cack < psn < self.next
            self.counts["nacks"] += inside
            return p["NETH"]["reason"] != NackReason.UNEXP_EVENT
        cack = near(p["psn"] if p["opcode"] == Opcode.ACKNOWLEDGE else p["SETH"]["cack_psn"], self.cack)
        if cack >= self.next + self.ahead:
            self.counts["bad"] += 1
            return False
        syndrome = p["AETH"]["syndrome"] if p["opcode"] == Opcode.ACKNOWLEDGE else Syndrome.ACK
        if syndrome >> 5:
            self.counts["naks" if syndrome >> 5 & 3 == 3 else "bad"] += 1      # The reserved bit 7 is not looked at in a NAK.
            return False
        sure = cack < self.next             # Else the requester may or may not believe it.
        for psn in range(self.cack + 1, cack + 1 if sure else self.cack):
            self.acked_at.setdefault(psn, now)
        self.cack = max(self.cack, cack)
        if p["opcode"] == Opcode.ACKNOWLEDGE:
            self.counts["acks"] += 1
            self.retire(near(p["AETH"]["msn"] & 0xffff, self.retired, 16))
        else:
            self.counts["sacks"] += 1
            base = cack + signed(p["SETH"]["sack_offset"])
            for psn in (base + i for i in range(64) if p["SETH"]["bitmap"] >> i & 1):
                if sure and self.cack < psn < self.next:
                    self.acked_at.setdefault(psn, now)
        return True

    def retire(self, msn):
        """An ACK retires messages whose packets it covers, too; more than can be in flight it cannot mean."""
        if msn <= self.retired + self.end.messages:
            while self.retired < min(msn, len(self.last)) and self.last[self.retired] <= self.cack:
                self.retired += 1
