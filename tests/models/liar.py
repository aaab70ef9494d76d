# SPDX-License-Identifier: BSD-2-Clause
"""Control packets that no honest responder sends, at random: `harmless` ones that must have no effect but a resend, and lies.

A harmless packet acknowledges nothing that did not arrive and nothing that cannot have been sent: old news, true bitmaps at
odd places with bits where nobody looks, refusals of anything, counts out of the air, other lives, codes that do not exist.
A lie claims arrivals that were none, or ends the queue pair.
"""

from gateware.common.headers import NackReason, Opcode, Syndrome
from tests.models import wire

REASONS = [v for k, v in vars(NackReason).items() if k[0] != "_" and v != NackReason.UNEXP_EVENT]
NAKS    = [Syndrome.NAK_INVALID_REQUEST, Syndrome.NAK_REMOTE_ACCESS, Syndrome.NAK_REMOTE_OPERATION]

class Liar:
    """Speaks for the responder `far` to the requester that `witness` watches."""
    def __init__(self, random, far, witness):
        self.random, self.far, self.witness = random, far, witness

    def frame(self, opcode, **values):
        """(plane, frame): a control packet on any path."""
        entropy, plane = self.random.choice(self.far.end.paths)
        body = {name: values.pop(name) for name in list(values) if name not in ("psn", "dest_qp", "p_key", "rtx")}
        return plane, wire.build_control(opcode, **body, **{**self.far.end.frame_values(plane, entropy), **values})

    # Harmless -------------------------------------------------------------------------------------

    def beyond(self):
        """A PSN that cannot have been sent by the time this arrives."""
        return self.witness.next + self.far.end.window + self.random.choice([1, 2, 64, 1000, 1 << 20])

    def old(self):
        """A cack that is true: today's or an older one."""
        return self.far.expected - 1 - self.random.choice([0, 0, 1, 3, 64, 1000, 1 << 20])

    def sack(self, cack, bitmap, base, **values):
        return self.frame(Opcode.SACK, psn=cack & 0xffffff, cack_psn=cack & 0xffffff, sack_offset=(base - cack) & 0xffff, bitmap=bitmap,
            tx_timestamp=self.random.getrandbits(16), m=self.random.choice([0, 0, 1]), ack_psn_offset=self.random.getrandbits(16), **values)

    def true_bits(self, base):
        """Of what has arrived some, of what is long known or cannot have been sent any."""
        bits = 0
        for i in range(64):
            psn  = base + i
            free = psn < self.far.expected or psn > self.witness.next + self.far.end.window
            bits |= int((free or psn in self.far.arrived) and self.random.random() < 0.7) << i
        return bits

    def harmless(self):
        r, which = self.random, self.random.randrange(9)
        cack = self.old()
        if which == 0:
            syndrome = r.choice([Syndrome.ACK, *NAKS])
            return self.frame(Opcode.ACKNOWLEDGE, psn=self.beyond() & 0xffffff, syndrome=syndrome, msn=r.getrandbits(16))
        if which == 1:
            return self.sack(self.beyond(), r.getrandbits(64), self.beyond())
        if which == 2:
            strange = [s for s in range(0x20, 0x100) if s >> 5 & 3 != 3]      # Neither ACK nor NAK.
            return self.frame(Opcode.ACKNOWLEDGE, psn=cack & 0xffffff, syndrome=r.choice(strange), msn=self.far.msn & 0xffff)
        if which in (3, 4):
            base = max(self.far.expected - 40, cack - 0x8000) + r.randrange(90)
            if not -0x8000 <= base - cack < 0x8000:
                base = cack
            return self.sack(cack, self.true_bits(base), base)
        if which in (5, 6):
            psn = r.choice([self.far.expected + r.randrange(-3, 20), self.witness.next + r.randrange(-5, 70), r.getrandbits(24)])
            return self.frame(Opcode.NACK, psn=psn & 0xffffff, nack_psn=psn & 0xffffff, reason=r.choice(REASONS), cc_type=2)
        if which == 7:
            msn = r.choice([self.far.msn + r.randrange(-2, 9), r.getrandbits(24)])
            return self.frame(Opcode.ACKNOWLEDGE, psn=cack & 0xffffff, syndrome=Syndrome.ACK, msn=msn & 0xffffff)
        wrong = r.choice([dict(dest_qp=self.far.end.remote_qpn ^ 1 << r.randrange(8, 24)), dict(p_key=0x7fff)])
        return self.frame(Opcode.ACKNOWLEDGE, psn=(self.witness.next - 1) & 0xffffff, syndrome=r.choice([Syndrome.ACK, *NAKS]),
            msn=(self.far.msn + 1) & 0xffff, **wrong)

    # Lies -----------------------------------------------------------------------------------------

    def lie(self, fatal=0.02):
        """Acknowledges what did not arrive; now and then a NAK or an UNEXP_EVENT."""
        r, w = self.random, self.witness
        psn  = r.randrange(w.cack, w.next + 3)
        if r.random() < fatal:
            if r.random() < 0.5:
                return self.frame(Opcode.NACK, psn=psn & 0xffffff, nack_psn=psn & 0xffffff, reason=NackReason.UNEXP_EVENT, cc_type=2)
            return self.frame(Opcode.ACKNOWLEDGE, psn=psn & 0xffffff, syndrome=r.choice(NAKS), msn=self.far.msn & 0xffff)
        if r.random() < 0.4:
            return self.frame(Opcode.ACKNOWLEDGE, psn=psn & 0xffffff, syndrome=Syndrome.ACK, msn=(w.retired + r.randrange(9)) & 0xffff)
        return self.sack(psn, r.getrandbits(64), psn + r.randrange(-70, 70))
