# SPDX-License-Identifier: BSD-2-Clause
"""Why a sender had to wait: timeouts explained from the fabric's record, without asking a card.

The record says when each frame of a queue pair left, what became of it and when it arrived. From it
follows what a sender can know: the oldest PSN that no answer has covered (the first one above the
highest `cack` of a SACK or Transport ACK that arrived intact), and whether it still waits for a
Transport ACK. A *stall* is a time of at least `interval` in which the sender has something outstanding
and that PSN does not move; a card may raise a TIMEOUT only in one.

A stall is explained by a frame that the fabric spoiled (lost, damaged or trimmed):

    tail     a transmission of the oldest PSN itself, or
    answer   a SACK or Transport ACK that would have moved it (or, if only the Transport ACK of what was
             sent last is missing, such an ACK),
    refused  or by a NACK for the oldest PSN.

Anything else is a fault: the responder did not answer, or the sender was not patient.
"""

from dataclasses import dataclass

import numpy as np

from gateware.common.headers import Opcode
from soc.sim.library import Fate, Kind

SPOILED = Fate.LOST | Fate.CORRUPTED | Fate.TRIMMED | Fate.UNKNOWN
SLACK   = 1000     # Cycles from an answer's arrival until the card has acted on it, at most.

@dataclass
class Stall:
    """`psn`: the oldest that was not acknowledged. `why`: "tail", "answer", "refused", or "" if nothing explains it."""
    start: int
    end:   int
    psn:   int
    why:   str = ""

    def timeouts(self, interval):
        """How many TIMEOUTs it may have brought."""
        return (self.end - self.start + SLACK)//interval

def signed(psn, first):
    """Distances of PSNs (array) from the first one, 24 bits, signed."""
    d = (psn.astype(np.int64) - first) & 0xffffff
    return np.where(d >= 1 << 23, d - (1 << 24), d)

def arrival(records):
    """When the first intact copy of each frame arrived, 0 = never."""
    first, copy = records["delivered"], records["delivered_copy"]
    both = np.where((first == 0) | ((copy != 0) & (copy < first)), copy, first)
    return np.where((records["fate"] & SPOILED) != 0, 0, both)

def stalls(records, sender, receiver, qpn_there, qpn_here, first_psn, interval, end):
    """[Stall] of one direction of a queue pair: `sender` sends to `qpn_there` and hears answers to `qpn_here`."""
    data    = records[(records["node"] == sender) & (records["kind"] == Kind.DATA) & (records["qpn"] == qpn_there)]
    answers = records[(records["node"] == receiver) & (records["qpn"] == qpn_here) &
                      np.isin(records["opcode"], (Opcode.SACK, Opcode.ACKNOWLEDGE, Opcode.NACK)) & (records["kind"] == Kind.CONTROL)]
    sent, cack, came = signed(data["psn"], first_psn), signed(answers["psn"], first_psn), arrival(answers)
    events  = [(int(c), 0, int(p), False) for c, p in zip(data["cycle"], sent, strict=True)]
    events += [(int(t), 1, int(p), bool(o == Opcode.ACKNOWLEDGE))
               for t, p, o in zip(came, cack, answers["opcode"], strict=True) if t and o != Opcode.NACK]
    events.sort()
    found, oldest, highest, acked, since = [], 0, -1, -1, None
    def close(now):
        if since is not None and now - since + SLACK >= interval:
            found.append(Stall(since, now, oldest))
    for cycle, is_answer, psn, is_ack in events:
        if not is_answer:
            highest = max(highest, psn)
            if since is None:
                since = cycle
            continue
        if is_ack:
            acked = max(acked, psn)
        idle = acked >= highest and psn >= highest
        if psn >= oldest or idle:
            close(cycle)
            oldest, since = max(oldest, psn + 1), cycle
        if idle:
            since = None
    close(end)
    for stall in found:
        stall.why = _why(stall, data, sent, highest_sent(data, sent, stall.end), answers, cack)
        stall.psn = (stall.psn + first_psn) & 0xffffff
    return found

def highest_sent(data, sent, cycle):
    before = sent[data["cycle"] <= cycle]
    return int(before.max()) if len(before) else -1

def _why(stall, data, sent, highest, answers, cack):
    spoiled_data = data[(sent == stall.psn) & (data["cycle"] <= stall.end)]
    if np.any((spoiled_data["fate"] & SPOILED) != 0):
        return "tail"
    # All packets may be acknowledged: then only a Transport ACK is missing.
    wanted = cack >= min(stall.psn, highest)
    kinds  = np.isin(answers["opcode"], (Opcode.SACK, Opcode.ACKNOWLEDGE) if stall.psn <= highest else (Opcode.ACKNOWLEDGE,))
    spoiled = (answers["fate"] & SPOILED) != 0
    if np.any(wanted & kinds & spoiled & (answers["cycle"] <= stall.end)):
        return "answer"
    if np.any((answers["opcode"] == Opcode.NACK) & (cack == stall.psn) & (answers["cycle"] <= stall.end)):
        return "refused"
    return ""
