# SPDX-License-Identifier: BSD-2-Clause
"""The message tracker: completes messages in order when the oldest hole closes.

It walks the receive bitmap from the expected PSN over all packets that have arrived, clears their
bits, counts messages and queues the flags of messages with an immediate. RQMSN orders those
messages; what their immediates named was stashed when their last packets arrived. Messages in a row
that name the same signal share one flag, which counts all of them and is queued behind the last.

All packets up to the next end of a message cost 1 cycle, each end 1, a flag 4 more, each row of 64 PSNs 3.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import below, lowest_one, one_hot, sized
from gateware.common.layouts import WriteKind, write_job_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import SignalMode
from gateware.transport.queue_pair import chunk_row

class MessageTracker(LiteXModule):
    """Walks one queue pair at a time.

    start:     for one cycle, with `qp` held until `done`: begin at `from_expected`, `from_msn`, `from_rqmsn`.
    done:      for one cycle; `expected`, `msn`, `rqmsn` and `completed` (a message was) are the outcome.
    jobs:      WORD jobs, the flags.
    stash:     a packet with an immediate was accepted: `stash_rqmsn` belongs to signal `stash_signal`.
    init_signal: clear a signal's count (SignalMode.SET).
    bits_we, bits_index, bits_row: writes to the bitmap while it walks.
    message_done, flag_done: pulses that count.
    """
    def __init__(self, config, tables, bits):
        self.qp    = Signal(config.qp_bits)
        self.start = Signal()
        self.done  = Signal()
        self.from_expected, self.expected = Signal(24), Signal(24)
        self.from_msn,      self.msn      = Signal(16), Signal(16)
        self.from_rqmsn,    self.rqmsn    = Signal(16), Signal(16)
        self.completed    = Signal()
        self.jobs         = stream.Endpoint(write_job_layout(config))
        self.stash        = Signal()
        self.stash_rqmsn  = Signal(16)
        self.stash_signal = Signal(config.signal_bits)
        self.init_signal  = stream.Endpoint([("signal", 16)])
        self.bits_we      = Signal()
        self.bits_index   = Signal.like(bits.index)
        self.bits_row     = Record(bits.layout)
        self.message_done, self.flag_done = Signal(), Signal()

        # # #

        # Tables.
        board  = bits.reader()
        signal = tables.signal.reader()
        self.stashes = stashes = TableRAM([("signal", config.signal_bits)], config.queue_pairs*config.max_wimm)
        self.counts  = counts  = TableRAM([("count", 64)], config.signals)
        stashed, counted = stashes.reader(), counts.reader()
        number = Signal(config.signal_bits)
        place  = log2_int(config.max_wimm)
        rqmsn_now = Signal(16)                     # Of the next cycle, so that its stash is there in time.
        self.comb += [
            self.bits_index.eq(chunk_row(config, self.expected, self.qp)),
            board.index.eq(self.bits_index),
            *[t.index.eq(number) for t in (signal, counts, counted)],
            stashes.index.eq(Cat(self.stash_rqmsn[:place], self.qp)),
            stashes.row.signal.eq(self.stash_signal),
            stashes.we.eq(self.stash),
            stashed.index.eq(Cat(rqmsn_now[:place], self.qp)),
        ]

        # A row of the bitmap in registers.
        arrived, last, imm = Signal(64), Signal(64), Signal(64)
        spot         = one_hot(self, self.expected[:6], 64, "spot")
        from_here    = sized(self, ~below(self, self.expected[:6], 64, "up_to_here"), 64, "from_here")
        here_arrived = sized(self, (arrived & spot) != 0, 1, "here_arrived")
        here_last    = sized(self, (last & spot) != 0, 1, "here_last")
        here_imm     = sized(self, (imm & spot) != 0, 1, "here_imm")
        expected_after = sized(self, self.expected + 1, 24, "expected_after")
        msn_after      = sized(self, self.msn + 1, 16, "msn_after")
        rqmsn_after    = sized(self, self.rqmsn + 1, 16, "rqmsn_after")
        row_after      = sized(self, self.expected[6:] + 1, 18, "row_after")
        self.comb += [self.bits_row.arrived.eq(arrived), self.bits_row.last.eq(last), self.bits_row.imm.eq(imm)]

        # Where the walk has to look closely again: the next hole or end of a message.
        stops      = sized(self, (~arrived | last) & from_here, 64, "stops")
        stop, more = Signal(6), Signal()
        until_stop = sized(self, from_here & below(self, stop, 64, "up_to_stop"), 64, "until_stop")
        passed, rest = Signal(64), Signal(64)
        self.comb += [
            *lowest_one(stops, stop, more),
            If(here_last, passed.eq(spot)).Elif(more, passed.eq(until_stop)).Else(passed.eq(from_here)),
            rest.eq(~passed),
        ]

        # The flag of one signal: its count goes to memory, for all messages in a row that name it.
        opened  = Signal()                         # `number`, `address` and `granted` are those of a signal,
        merged  = Signal(16)                       # named by so many messages since its flag was last queued.
        granted = Signal()
        address = Signal(64)
        value   = sized(self, counted.row.count + merged, 64, "flag_value")
        same    = sized(self, stashed.row.signal == number, 1, "same_signal")
        merge   = Signal()
        self.comb += [
            rqmsn_now.eq(Mux(merge, rqmsn_after, self.rqmsn)),
            self.jobs.kind.eq(WriteKind.WORD),
            self.jobs.address.eq(address),
            self.jobs.word.eq(value),
            counts.row.count.eq(value),
        ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(self.start,
                NextValue(self.expected, self.from_expected),
                NextValue(self.msn, self.from_msn),
                NextValue(self.rqmsn, self.from_rqmsn),
                NextValue(self.completed, 0),
                NextState("READ")
            ).Elif(self.init_signal.valid,
                NextValue(number, self.init_signal.signal),
                NextState("SIGNAL-READ")
            )
        )
        fsm.act("SIGNAL-READ", NextState("SIGNAL-CLEAR"))
        fsm.act("SIGNAL-CLEAR",
            counts.row.count.eq(0),
            counts.we.eq(signal.row.mode == SignalMode.SET),
            self.init_signal.ready.eq(1),
            NextState("IDLE")
        )
        fsm.act("READ", NextState("LOAD"))
        fsm.act("LOAD",
            NextValue(arrived, board.row.arrived),
            NextValue(last, board.row.last),
            NextValue(imm, board.row.imm),
            NextState("WALK")
        )
        walk = [
            NextValue(arrived, arrived & rest),
            NextValue(last,    last & rest),
            NextValue(imm,     imm & rest),
            If(here_last,
                self.message_done.eq(1),
                NextValue(self.msn, msn_after),
                NextValue(self.completed, 1),
                NextValue(self.expected, expected_after),
                If(self.expected[:6] == 63, NextValue(self.expected, self.expected), NextState("NEXT-ROW"))
            ).Elif(more,
                NextValue(self.expected, Cat(stop, self.expected[6:]))
            ).Else(
                NextState("NEXT-ROW")
            )
        ]
        fsm.act("WALK",
            If(~here_arrived,
                If(opened,
                    NextState("FLAG")
                ).Else(
                    self.bits_we.eq(1),
                    NextState("DONE")
                )
            ).Elif(~here_imm,
                *walk
            ).Elif(~opened,
                NextValue(number, stashed.row.signal),
                NextState("OPEN-READ")
            ).Elif(same,
                merge.eq(1),
                NextValue(merged, merged + 1),
                NextValue(self.rqmsn, rqmsn_after),
                *walk
            ).Else(
                NextState("FLAG")
            )
        )
        fsm.act("NEXT-ROW",
            self.bits_we.eq(1),
            NextValue(self.expected, Cat(C(0, 6), row_after)),
            NextState("READ")
        )
        fsm.act("DONE",
            self.done.eq(1),
            NextState("IDLE")
        )

        # Flags --------------------------------------------------------------------------------------
        fsm.act("OPEN-READ", NextState("OPEN"))
        # The right is looked at again: the peer chose the RQMSN that led here, the driver may have revoked it.
        fsm.act("OPEN",
            NextValue(address, signal.row.address),
            NextValue(granted, signal.row.valid & (signal.row.any_qp | (signal.row.qp == self.qp))),
            NextValue(merged, 0),
            NextValue(opened, 1),
            NextState("WALK")
        )
        self.comb += self.jobs.valid.eq(fsm.ongoing("FLAG") & granted)
        fsm.act("FLAG",
            If(~granted | self.jobs.ready,
                self.flag_done.eq(granted),
                counts.we.eq(granted),
                NextValue(opened, 0),
                NextState("WALK")
            )
        )
