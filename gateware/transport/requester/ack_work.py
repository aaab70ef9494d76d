# SPDX-License-Identifier: BSD-2-Clause
"""What the acknowledger's groups of states share: the tables, the packet at hand, its queue pair's window.

Not a module: the signals and sums belong to the acknowledger, this object only names them.
"""

from migen import *

from gateware.common.arithmetic import one_hot, sized

class Work:
    """The work at hand of acknowledger `a`; `qp` says whose.

    attributes, send, acks, life, board, record, guard: readers of the tables.
    ack_state, scoreboard: tables that the acknowledger writes; `keep_row`: the scoreboard's row as it is.
    unacked, next_psn: [oldest unacknowledged PSN, next new PSN).   tail, head: the same of messages.
    rqmsn:          messages with an immediate that are retired.
    heard:          SACKs and Transport ACKs that have come, this one included.
    received, news: bytes that the peer has received, units of 256; how many more the packet tells of.
    target, ahead:  the PSN after the packet's cack; how far it is ahead of `unacked`.
    limit:          PSNs outstanding.         flying: messages in flight.
    sample:         round-trip time that the packet's timestamp tells.
    one_psn, one_bit: a PSN by itself (a resend has left, a NACK has come), and its bit in the row.
    lost:           pulse: an event found the event queue full.
    """
    def __init__(self, a, config, tables, send_state, ack_state, status, scoreboard, messages):
        self.attributes = tables.queue_pair.reader()
        self.send       = send_state.reader()
        self.acks       = ack_state.reader()
        self.life       = status.reader()
        self.board      = scoreboard.reader()
        self.record     = messages.reader()
        self.guard      = a.guards.reader()
        self.ack_state, self.scoreboard = ack_state, scoreboard
        self.keep_row   = [scoreboard.row.acked.eq(self.board.row.acked), scoreboard.row.reported.eq(self.board.row.reported)]
        self.lost       = a.counters.add("events_lost", "Events that found the event queue full.")

        self.qp                     = Signal(config.qp_bits)
        self.unacked, self.next_psn = Signal(24), Signal(24)
        self.tail, self.head        = Signal(16), Signal(16)
        self.rtt                    = Signal(16)
        self.rqmsn                  = Signal(16)
        self.received               = Signal(24)
        self.heard                  = Signal(8)
        self.one_psn                = Signal(24)

        # # #

        cack = a.packet.cack
        a.comb += [
            *[t.index.eq(self.qp) for t in (self.attributes, self.send, self.acks, self.life, self.guard, ack_state, a.guards)],
            self.record.index.eq(Cat(self.tail[:config.message_bits], self.qp)),
            ack_state.row.unacked.eq(self.unacked),
            ack_state.row.msn.eq(self.tail),
            ack_state.row.rtt.eq(self.rtt),
            ack_state.row.rqmsn.eq(self.rqmsn),
            ack_state.row.received.eq(self.received),
            ack_state.row.heard.eq(self.heard),
        ]
        self.target    = sized(a, cack + 1, 24, "target")
        self.ahead     = sized(a, self.target - self.unacked, 24, "ahead")
        self.limit     = sized(a, self.next_psn - self.unacked, 24, "limit")
        self.sample    = sized(a, a.time[:16] - a.packet.stamp, 16, "rtt_sample")
        self.news      = sized(a, a.packet.received - self.received, 24, "newly_received")
        self.flying    = sized(a, self.head - self.tail, 16, "messages_flying")
        self.next_tail = sized(a, self.tail + 1, 16, "next_tail")
        self.one_bit   = one_hot(a, self.one_psn[:6], 64, "one_bit")
