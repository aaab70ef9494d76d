# SPDX-License-Identifier: BSD-2-Clause
"""A requester in Python: messages in, data packets and probes out, until a Transport ACK covers every message.

Slow and obvious, after MRC 1.0: each packet takes the next entropy value, and with it the plane; nothing is sent beyond
the peer's window; a NACK or a hole in a SACK that lies far enough below its highest arrival is sent again, at once and on
the next path; after a silence the oldest packets are, with a probe. Time is a number that the caller passes.
"""

from dataclasses import dataclass

from gateware.common.headers import PACKET_TYPES, Dscp, NackReason, Opcode, Syndrome
from tests.models import wire
from tests.models.endpoint import near, signed

REORDER = 16            # A hole this far below the highest arrival counts as lost.
RESENT_BY_SILENCE = 8   # Packets.

@dataclass
class Message:
    va:        int
    rkey:      int
    data:      bytes
    immediate: int = None

@dataclass
class Packet:
    """One PSN: what its headers carry, and how it fares."""
    values: dict
    sent:   int  = 0          # Times.
    acked:  bool = False
    wanted: bool = True       # To be sent (again).

def opcode_of(first, last, imm):
    return {(1, 1, 0): Opcode.WRITE_ONLY, (1, 1, 1): Opcode.WRITE_ONLY_IMM, (1, 0, 0): Opcode.WRITE_FIRST, (1, 0, 1): Opcode.WRITE_FIRST,
        (0, 0, 0): Opcode.WRITE_MIDDLE, (0, 0, 1): Opcode.WRITE_MIDDLE, (0, 1, 0): Opcode.WRITE_LAST, (0, 1, 1): Opcode.WRITE_LAST_IMM}[
        int(first), int(last), int(imm)]

def packets_of(message, msn, rqmsn, mtu):
    """[values for wire.build_data] of a message, without PSN."""
    parts = [message.data[i:i + mtu] for i in range(0, len(message.data), mtu)] or [b""]
    imm   = message.immediate is not None
    return [dict(opcode=opcode_of(i == 0, i == len(parts) - 1, imm), payload=part, msn=msn & 0xffff, rqmsn=rqmsn & 0xffff,
        va=message.va + i*mtu, rkey=message.rkey, message_length=len(message.data), immediate=message.immediate or 0)
        for i, part in enumerate(parts)]

class Requester:
    """The sending end of one queue pair."""
    def __init__(self, end, random, silence, first_rqmsn=0):
        self.end, self.random, self.silence = end, random, silence
        self.packets  = {}                    # PSN -> Packet, of all that may be sent or is outstanding.
        self.unacked  = self.next = self.planned = end.send_psn      # Oldest unacknowledged, next new, first PSN without a packet.
        self.messages = []
        self.ends     = []                    # Last PSN of each message.
        self.imms     = []                    # Does it have an immediate?
        self.rqmsn    = first_rqmsn
        self.retired  = 0                     # Messages that a Transport ACK covers.
        self.cursor   = 0
        self.heard    = 0                     # Time of the last progress.
        self.probes   = 0
        self.last_sack = None
        self.failed   = None                  # Syndrome of a NAK.

    def post(self, message):
        """Hands a message over; it is sent as the windows allow."""
        for values in packets_of(message, len(self.ends), self.rqmsn, self.end.mtu):
            self.packets[self.planned] = Packet(values)
            self.planned += 1
        self.messages.append(message)
        self.ends.append(self.planned - 1)
        self.imms.append(message.immediate is not None)
        self.rqmsn += self.imms[-1]

    @property
    def done(self):
        return self.retired == len(self.ends)

    # Sending --------------------------------------------------------------------------------------

    def path(self):
        entropy, plane = self.end.paths[self.cursor % len(self.end.paths)]
        self.cursor += 1
        return entropy, plane

    def message_of(self, psn):
        return next(i for i, last in enumerate(self.ends) if psn <= last)

    def allowed(self, psn):
        """May this new PSN leave? Window of packets, messages in flight, immediates that the peer can keep."""
        message = self.message_of(psn)
        return (psn < self.unacked + self.end.send_window and message < self.retired + self.end.messages and
            sum(self.imms[self.retired:message + 1]) <= self.end.immediates)

    def send(self, now):
        """(plane, frame) of the next packet, None if there is nothing to send now."""
        if self.failed is None and self.next > self.unacked and now - self.heard > self.silence:
            self.heard = now
            for psn in range(self.unacked, min(self.next, self.unacked + RESENT_BY_SILENCE)):
                self.packets[psn].wanted = not self.packets[psn].acked
            return self.probe(now)
        if self.failed is None and not self.done and self.unacked == self.next and now - self.heard > self.silence:
            self.heard = now                  # All that was sent has arrived, but no Transport ACK.
            return self.probe(now)
        while self.next < self.planned and self.packets[self.next].acked:     # It left early.
            self.next += 1
        psn = next((n for n in range(self.unacked, self.next) if self.packets[n].wanted), None)
        if psn is None and self.next < self.planned and self.allowed(self.next):
            psn, self.next = self.next, self.next + 1
            if psn == self.unacked:
                self.heard = now
        if psn is None or self.failed is not None:
            return None
        return self.emit(psn, now)

    def early(self, now, beyond):
        """A packet from `beyond` the window, as no honest requester sends it, without an immediate (those have a window of
        their own): (plane, frame), None if there is none."""
        psn  = self.unacked + self.end.send_window + beyond
        fits = self.next <= psn < self.planned and not PACKET_TYPES[self.packets[psn].values["opcode"]].imm
        return self.emit(psn, now) if fits else None

    def emit(self, psn, now):
        packet = self.packets[psn]
        packet.wanted, again = False, packet.sent > 0
        packet.sent += 1
        entropy, plane = self.path()
        ask = again or psn + 1 == self.planned or psn + 1 == self.unacked + self.end.send_window
        return plane, wire.build_data(**packet.values, psn=psn & 0xffffff, rtx=int(again), a=int(ask), dscp=Dscp.TRIMMABLE,
            tx_timestamp=(now//20) & 0xffff, **self.end.frame_values(plane, entropy))

    def probe(self, now):
        entropy, plane = self.path()
        self.probes += 1
        return plane, wire.build_control(Opcode.PROBE, dscp=Dscp.DATA, probe_id=self.probes & 0xffff, ftype=1,
            tx_timestamp=(now//20) & 0xffff, spdcid=self.end.own_qpn & 0xffff, dpdcid=self.end.remote_qpn & 0xffff,
            **self.end.frame_values(plane, entropy))

    # Hearing --------------------------------------------------------------------------------------

    def take(self, p, now):
        """One good control packet for this queue pair."""
        if p["opcode"] == Opcode.NACK:
            psn = near(p["NETH"]["nack_psn"], self.unacked)
            assert p["NETH"]["reason"] != NackReason.UNEXP_EVENT
            if self.unacked <= psn < self.next and not self.packets[psn].acked:
                self.packets[psn].wanted = True
            return
        cack = near(p["psn"], self.unacked)
        assert all(self.packets[psn].sent for psn in range(self.unacked, cack + 1)), "the peer acknowledges what was never sent"
        if p["opcode"] == Opcode.ACKNOWLEDGE and p["AETH"]["syndrome"] != Syndrome.ACK:
            self.failed = p["AETH"]["syndrome"]
            return
        if cack >= self.unacked:
            for psn in range(self.unacked, cack + 1):
                del self.packets[psn]
            self.unacked, self.next, self.heard = cack + 1, max(self.next, cack + 1), now
        if p["opcode"] == Opcode.ACKNOWLEDGE:
            msn = near(p["AETH"]["msn"], self.retired, 16)
            assert msn <= len(self.ends) and (msn <= self.retired or self.ends[msn - 1] <= cack), "a message completed before its packets"
            self.retired = max(self.retired, msn)
        else:
            self.take_bitmap(p["SETH"])
            self.last_sack = p

    def take_bitmap(self, seth):
        """Marks what a SACK shows as arrived; packets far below its highest arrival are lost."""
        cack = near(seth["cack_psn"], self.unacked)
        base = cack + signed(seth["sack_offset"])
        seen = [base + i for i in range(64) if seth["bitmap"] >> i & 1]
        assert all(psn < self.unacked or self.packets[psn].sent for psn in seen), "the peer shows as arrived what was never sent"
        for psn in seen:
            if psn >= self.unacked:
                self.packets[psn].acked, self.packets[psn].wanted = True, False
        for psn in range(max(base, self.unacked), max(seen, default=0) - REORDER):
            if psn < self.next and not self.packets[psn].acked and self.packets[psn].sent == 1:
                self.packets[psn].wanted = True
