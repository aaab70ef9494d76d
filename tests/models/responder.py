# SPDX-License-Identifier: BSD-2-Clause
"""A responder in Python: what one end of a queue pair does with the data packets and probes that reach it.

Slow and obvious, after MRC 1.0 and docs/wire-format.md: packets in (as tests.models.wire.parse gives them), answers
out; its memory and flags are plain objects. It has no clock: what it says follows from the packets alone.

PSN relative to the expected one:
    inside the window, new       placed at its own address; SACK if a trigger fires; ACK when messages complete
    inside, had arrived; below   SACK and ACK
    above                        NACK PSN_OOR_WINDOW
    inside, new, trimmed         NACK with the reason
"""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby

from gateware.common.headers import Dscp, NackReason, Opcode, Syndrome
from tests.models import wire
from tests.models.endpoint import near

COUNTED = {"new": "receive_accepted", "duplicate": "receive_duplicate", "beyond": "receive_window", "trimmed": "receive_trimmed",
    "malformed": "receive_length", "forbidden": "receive_access", "probe": "probes"}
REASONS = {Dscp.TRIMMED: NackReason.TRIMMED, Dscp.TRIMMED_LASTHOP: NackReason.TRIMMED_LASTHOP}

@dataclass
class Answer:
    """A packet that is due: `fields` are its headers' fields, the rest is of its frame."""
    opcode:  int
    psn:     int
    rtx:     int
    plane:   int
    entropy: int
    fields:  dict

    def frame(self, end):
        reflected = {Opcode.SACK: "seth_entropy", Opcode.NACK: "neth_entropy"}.get(self.opcode)
        fields    = {reflected if name == "entropy" else name: value for name, value in self.fields.items()}
        fields.update(end.frame_values(self.plane, self.entropy))
        return wire.build_control(self.opcode, psn=self.psn & 0xffffff, rtx=self.rtx, **fields)

    def seen(self):
        """What a receiver can compare. The path that an answer takes is its sender's own choice."""
        return (self.opcode, self.psn & 0xffffff, self.rtx, tuple(sorted(self.fields.items())))

def seen_of(packet):
    """The same of a parsed control packet."""
    fields = {k: v for name in ("SETH", "CC_STATE", "AETH", "NETH") for k, v in packet.get(name, {}).items()}
    return (packet["opcode"], packet["psn"], packet["rtx"], tuple(sorted((k, v) for k, v in fields.items() if v)))

class Responder:
    """One end of one queue pair; `regions` {rkey: Region}; `immediates` lists those delivered, in order; `flags`, what was written of
    them, [(immediate, its count)]: those that one packet delivers share a flag where they name the same signal in a row."""
    def __init__(self, end, regions):
        self.end, self.regions = end, regions
        self.expected = self.sweep = end.receive_psn      # First PSN that is missing; where the next SACK's bitmap starts.
        self.highest  = self.expected - 1
        self.arrived  = {}                                # PSN at or above `expected` -> (completes a message, RQMSN or None).
        self.kept     = {}                                # RQMSN -> immediate.
        self.msn = self.rqmsn = 0                         # Messages completed; immediates delivered.
        self.raised   = Counter()                         # Immediate -> messages delivered that name it.
        self.received = self.out_of_order = self.since_sack = 0
        self.immediates, self.flags = [], []
        self.counters = dict.fromkeys([*COUNTED.values(), "receive_messages", "flags"], 0)

    # Judgement ------------------------------------------------------------------------------------

    def judge(self, p, psn):
        """What a packet is."""
        if p["opcode"] == Opcode.PROBE:
            return "probe"
        if psn < self.expected or psn in self.arrived:
            return "duplicate"
        if psn >= self.expected + self.end.window:
            return "beyond"
        if p["verdict"]:
            return "trimmed"
        kind, length = p["kind"], len(p["payload"])
        if not kind.last and length != self.end.mtu or length > self.end.mtu or (length == 0 and not kind.first):
            return "malformed"
        if kind.imm and not 0 <= near(p["METH"]["rqmsn"], self.rqmsn, 16) - self.rqmsn < self.end.immediates:
            return "malformed"
        region = self.regions.get(p["RETH"]["rkey"])
        at     = p["RETH"]["va"] - (region.base if region else 0)
        if length and (not region or at < 0 or at + length > len(region.data) or p["RETH"]["length"] < length):
            return "forbidden"
        return "new"

    def take(self, p, plane):
        """One good packet for this queue pair, in the order of arrival; returns [Answer]."""
        psn     = near(p["psn"], self.expected)
        verdict = self.judge(p, psn)
        self.counters[COUNTED[verdict]] += 1
        sack = ack = False
        if verdict == "new":
            ack  = self.place(p, psn)
            sack = bool(self.since_sack > self.end.trigger or p["a"] or p["ce"] or p["rtx"])
        elif verdict in ("probe", "duplicate"):
            sack = ack = True
        answers = []
        if sack:
            answers.append(self.sack(p, psn, plane))
        if ack or verdict in ("malformed", "forbidden"):
            syndrome = {"malformed": Syndrome.NAK_INVALID_REQUEST, "forbidden": Syndrome.NAK_REMOTE_ACCESS}.get(verdict, Syndrome.ACK)
            about    = self.expected - 1 if syndrome == Syndrome.ACK else psn
            answers.append(self.answer(Opcode.ACKNOWLEDGE, about, p, plane, syndrome=syndrome, msn=self.msn & 0xffff))
        if verdict in ("beyond", "trimmed"):
            reason = NackReason.PSN_OOR_WINDOW if verdict == "beyond" else REASONS[p["dscp"]]
            answers.append(self.answer(Opcode.NACK, psn, p, plane, reason=reason, entropy=p["entropy"], nack_psn=psn & 0xffffff, cc_type=2,
                tx_timestamp=self.stamp(p), **self.contexts()))
        return answers

    # Placement and completion ---------------------------------------------------------------------

    def place(self, p, psn):
        """A new packet; True if messages completed."""
        kind, payload = p["kind"], p["payload"]
        if payload:
            assert self.regions[p["RETH"]["rkey"]].place(p["RETH"]["va"], payload)
        number = None
        if kind.imm:
            number = near(p["METH"]["rqmsn"], self.rqmsn, 16)
            self.kept[number] = p["ImmDt"]["immediate"]
        self.arrived[psn] = (kind.last, number)
        self.received   += 8 + 12 + 4 + 4*p["ts"] + 16 + 4*kind.imm + len(payload) + -len(payload) % 4 + 4 + 40    # UDP length + 40.
        self.since_sack += max(len(payload), 1024)
        self.out_of_order += psn != self.expected
        self.highest = max(self.highest, psn)
        completed, begin = False, len(self.immediates)
        while self.expected in self.arrived:
            last, number = self.arrived.pop(self.expected)
            self.expected += 1
            if number is not None:
                self.immediates.append(self.kept.pop(self.rqmsn))
                self.rqmsn += 1
            if last:
                self.msn += 1
                self.counters["receive_messages"] += 1
                completed = True
        for signal, run in groupby(self.immediates[begin:]):
            self.raised[signal] += len(list(run))
            self.flags.append((signal, self.raised[signal]))
            self.counters["flags"] += 1
        return completed

    # Answers --------------------------------------------------------------------------------------

    @staticmethod
    def stamp(p):
        return (p.get("TSETH") or p.get("PETH") or {"tx_timestamp": 0})["tx_timestamp"]

    def contexts(self):
        return {"spdcid": self.end.own_qpn & 0xffff, "dpdcid": self.end.remote_qpn & 0xffff}

    def answer(self, opcode, psn, p, plane, rtx=0, **fields):
        return Answer(opcode, psn, rtx, plane, p["entropy"], {k: v for k, v in fields.items() if v})

    def sack(self, p, psn, plane):
        self.since_sack = 0
        base, cack  = self.base(), self.expected - 1
        probe       = p["opcode"] == Opcode.PROBE
        return self.answer(Opcode.SACK, cack, p, plane, rtx=p["rtx"], m=p["ce"], pr=int(probe),
            ack_psn_offset=p["PETH"]["probe_id"] if probe else (psn - cack) & 0xffff, entropy=p["entropy"], cack_psn=cack & 0xffffff,
            sack_offset=(base - cack) & 0xffff, bitmap=sum(1 << i for i in range(64) if base + i in self.arrived),
            tx_timestamp=self.stamp(p), ooo_count=self.out_of_order & 0xffff, rcvd_bytes=-(-self.received//256) & 0xffffff,
            **self.contexts())

    def base(self):
        """First PSN of a SACK's bitmap. Arrivals that reach further than 64 PSNs are swept by successive SACKs."""
        start = self.sweep if self.expected <= self.sweep < self.expected + self.end.window else self.expected
        if self.highest - start < 64:
            start = max(self.expected, self.highest - 63)
        self.sweep = start + 64 if self.highest - start >= 64 else self.expected
        return start
