# SPDX-License-Identifier: BSD-2-Clause
"""The send limits of a queue pair: may its next packet go, and must that packet ask for an acknowledgement?

Two independent gates and a bound (MRC 1.0):
    MPR          PSN <= cack + the peer's receive window: `mpr_dest`, at most the card's own.
    cwnd         a packet may go while the congestion window is larger than the bytes in flight.
    immediates   at most `max_wimm_dest` messages with an immediate are in flight.

Bytes in flight are the nominal sizes of the packets sent for the first time less the receiver's own
count of what has arrived (`rcvd_bytes` of its SACKs). A PSN counts once on both sides, so neither a loss nor
a needless resend can leave anything behind; a packet that waits to be sent again is taken off until
it leaves. The sum is bounded by what is outstanding: a peer that counts otherwise costs a
little window and never all of it. cwnd 0 means no limit.
"""

from litex.gen import LiteXModule
from migen import *

from gateware.common.arithmetic import sized
from gateware.transport.queue_pair import nominal_size

class SendWindow(LiteXModule):
    """Combinational on the rows of one queue pair: attributes, send state, ack state, congestion window.

    waiting:   packets that wait to be sent again.     token_signal: the next token is a WRITE with immediate.
    length:    payload bytes of the next new packet; `immediate`: it carries one.
    open:      MPR and cwnd let a new packet go.       resend_open: cwnd lets a resend go.
    room:      a new message may start: pool and immediates.
    closes:    the new packet leaves no room for another: it has to ask for an acknowledgement.
    sent:      count of bytes sent, with the new packet.
    """
    def __init__(self, config, attributes, state, acks, congestion):
        self.waiting      = Signal(config.psn_bits + 1)
        self.token_signal = Signal()
        self.length       = Signal(13)
        self.immediate    = Signal()
        self.open, self.resend_open, self.room, self.closes = Signal(), Signal(), Signal(), Signal()
        self.sent         = Signal(32)

        # # #

        # Packets.
        outstanding = sized(self, state.next_psn - acks.unacked, 24, "outstanding")
        following   = sized(self, outstanding + 1, 24, "outstanding_after")
        limit       = Signal(24)
        units       = config.mpr//128
        self.comb  += limit.eq(Mux((attributes.mpr_dest == 0) | (attributes.mpr_dest >= units), config.mpr,
            Cat(C(0, 7), attributes.mpr_dest)))
        in_window   = sized(self, outstanding < limit, 1, "in_window")
        last_place  = sized(self, following >= limit, 1, "last_place_of_the_window")

        # Messages.
        messages    = sized(self, state.msn - acks.msn, 16, "messages_in_flight")
        immediates  = sized(self, state.rqmsn - acks.rqmsn, 16, "immediates_in_flight")
        self.comb  += self.room.eq((messages < config.messages) & (~self.token_signal | (attributes.max_wimm_dest == 0) |
            (immediates < attributes.max_wimm_dest)))

        # Bytes: between 0 and the largest that the outstanding packets can be.
        full        = Signal(13)
        self.comb  += Case(attributes.mtu, {**{i: full.eq(nominal_size(256 << i, immediate=True)) for i in range(5)},
                                            "default": full.eq(nominal_size(256, immediate=True))})
        span        = sized(self, outstanding[:config.psn_bits + 1]*full, 26, "largest_in_flight")
        arrived     = Cat(C(0, 8), acks.received)
        counted     = sized(self, state.sent - arrived, 32, "counted_in_flight")
        flight      = Signal(26)
        self.comb  += If(counted[31], flight.eq(0)).Elif(counted > span, flight.eq(span)).Else(flight.eq(counted))
        lost        = sized(self, self.waiting*full, 26, "bytes_to_send_again")
        nominal     = sized(self, self.length + nominal_size(1, immediate=False) - 1, 14, "nominal_unaligned")
        size        = sized(self, Cat(C(0, 2), nominal[2:]) + Cat(C(0, 2), self.immediate), 14, "nominal")
        after       = sized(self, flight + size, 27, "in_flight_after")
        needed      = sized(self, after + full, 27, "in_flight_after_another")
        rest        = sized(self, flight - lost, 27, "in_flight_without_lost")

        cwnd        = Cat(C(0, 8), congestion.cwnd)
        free        = sized(self, congestion.cwnd == 0, 1, "no_congestion_window")
        small       = sized(self, cwnd <= attributes.sack_trigger, 1, "cwnd_below_sack_trigger")
        self.comb  += [
            self.open.eq(in_window & (free | (cwnd > flight))),
            self.resend_open.eq(free | rest[26] | (cwnd > rest)),
            self.closes.eq(last_place | (~free & (small | (needed > cwnd)))),
            self.sent.eq(arrived + after),
        ]
