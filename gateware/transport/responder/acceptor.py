# SPDX-License-Identifier: BSD-2-Clause
"""The acceptor: what happens to a packet that has passed FCS, lengths and ICRC.

    queue pair, life, partition -> window -> bitmap (test) -> length rules -> region, signal     (judgement.py)
       -> payload to the write queue -> bitmap (set) -> walk: flags of completed messages        (message_tracker.py)
       -> what is due to the peer, as a snapshot behind it all in the same queue                 (snapshot.py)

Direct placement: a new packet is written at its own address, in whatever order packets arrive; a
duplicate is never written again. When the oldest hole closes, the walk passes all packets that have
arrived, completes their messages in order and queues a flag for the messages with an immediate:
behind their payload, through the same write port.

One packet takes about 12 cycles, 2 more if its region has pages, 10 more when a SACK is due, and what the walk takes.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import one_hot, sized
from gateware.common.counters import Counters
from gateware.common.headers import DATA_IMMDT, IMMDT, Opcode
from gateware.common.layouts import WriteKind, received_layout, write_job_layout
from gateware.common.table_ram import TableRAM
from gateware.transport.barriers import fence_record
from gateware.transport.queue_pair import arrivals_layout, chunk_row, chunks, init_endpoint, receive_state_layout
from gateware.transport.responder.judgement import Judgement
from gateware.transport.responder.message_tracker import MessageTracker
from gateware.transport.responder.placement_check import PlacementCheck
from gateware.transport.responder.refusal import RefusalReport
from gateware.transport.responder.snapshot import Snapshot

class Acceptor(LiteXModule):
    """Judges data packets and probes, keeps the receive bitmap, completes messages.

    sink:     received_layout of WRITE packets and probes; `plane` says whose store holds the payload.
    jobs:     write_job_layout, the in-order write queue.
    event:    ACCESS.
    credit:   credit_layout: the error word of a queue pair's page hears of a refused packet.
    fence:    fence_record(): between two packets, a job in the write queue that comes out as `fence` of due_fields.
    init:     start a queue pair's life.
    init_signal: clear a signal's count (SignalMode.SET).
    """
    def __init__(self, config, tables, status):
        self.sink     = stream.Endpoint(received_layout(config))
        self.plane    = Signal(config.plane_bits)
        self.jobs     = stream.Endpoint(write_job_layout(config))
        self.init     = init_endpoint()
        self.fence    = fence_record()
        self.time     = Signal(32)
        self.counters = counters = Counters(self)

        # # #

        completed = counters.add("receive_messages", "Messages completed.")
        flags     = counters.add("flags",            "Flags written.")

        # Tables.
        attributes  = tables.queue_pair.reader()
        region      = tables.region.reader()
        signal      = tables.signal.reader()
        life        = status.reader()
        self.state  = state  = TableRAM(receive_state_layout(config), config.queue_pairs)
        self.bits   = bits   = TableRAM(arrivals_layout(), config.queue_pairs*chunks(config))
        now, board  = state.reader(), bits.reader()

        # The packet at hand, and the life of its queue pair as it changes while it is processed.
        p        = Record([(f[0], f[1]) for f in received_layout(config).payload_layout])
        r        = Record(receive_state_layout(config))
        plane    = Signal(config.plane_bits)
        qp       = p.dest_qp[:config.qp_bits]
        self.at_hand = qp
        is_probe = Signal()
        piece    = Signal(24)                          # PSN whose bitmap row is looked at.
        signal_number = Signal(config.signal_bits)
        bit      = one_hot(self, p.psn[:6], 64, "bit")
        marked   = sized(self, (board.row.arrived & bit) != 0, 1, "marked")
        above    = sized(self, p.psn - r.highest, 24, "psn_from_highest")

        # Blocks.
        self.check     = check   = PlacementCheck(config, tables, p, attributes.row.mtu, r.rqmsn, region.row, signal.row)
        self.judgement = verdict = Judgement(config, p, is_probe, attributes.row, life.row, r, check, marked)
        self.snapshot  = answer  = Snapshot(config, p, is_probe, plane, check.has_imm, attributes.row, r, board.row.arrived)
        self.tracker   = tracker = MessageTracker(config, tables, bits)
        error = Signal(8)
        self.report    = report  = RefusalReport(config, p, attributes.row, life.row.life, answer.syndrome, error)
        self.event, self.credit  = report.event, report.credit
        self.init_signal = tracker.init_signal
        sacks = answer.sacks
        for block in (verdict, report):
            counters.items.update(block.counters.items)
            counters.pulses.update(block.counters.pulses)
        self.comb += [
            is_probe.eq(p.opcode == Opcode.PROBE),
            report.time.eq(self.time),
            *[t.index.eq(qp) for t in (attributes, life, now, state)],
            region.index.eq(check.rkey[8:8 + config.region_bits]),
            signal.index.eq(signal_number),
            *[t.index.eq(chunk_row(config, piece, qp)) for t in (board, bits)],
            state.row.raw_bits().eq(r.raw_bits()),
        ]

        # Jobs: payload and notices from here, flags from the tracker while it walks.
        j = self.jobs
        payload_job = [j.kind.eq(WriteKind.PAYLOAD), j.valid.eq(p.stored), j.address.eq(check.address), j.beyond.eq(check.beyond)]
        self.comb += [
            j.plane.eq(plane), j.offset.eq(p.offset), j.length.eq(p.length), j.due.eq(answer.due.raw_bits()),
            tracker.qp.eq(qp),
            tracker.from_expected.eq(r.expected), tracker.from_msn.eq(r.msn), tracker.from_rqmsn.eq(r.rqmsn),
            tracker.stash_rqmsn.eq(check.rqmsn), tracker.stash_signal.eq(check.immediate),
            completed.eq(tracker.message_done), flags.eq(tracker.flag_done),
        ]
        flag_first = config.broken == "flag_first"

        # The packet is latched outside of the machine: its many bits are then looked at only when one comes.
        take, begin = Signal(), Signal()
        self.sync += If(take,
            *[getattr(p, f[0]).eq(getattr(self.sink, f[0])) for f in received_layout(config).payload_layout],
            plane.eq(self.plane)
        ).Elif(begin,
            p.dest_qp.eq(self.init.qp)
        )

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            *[NextValue(getattr(answer, name), 0) for name in ("sack", "ack", "nack")],
            If(self.init.valid,
                begin.eq(1),
                NextValue(piece, 0),
                NextState("INIT-READ")
            ).Elif(self.fence.valid,
                NextState("FENCE")
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                take.eq(1),
                NextValue(piece, self.sink.psn),
                NextValue(signal_number, IMMDT.field(self.sink.body[8*DATA_IMMDT:], "immediate")[:config.signal_bits]),
                NextState("READ")
            )
        )

        # A job that only marks its place: nothing is due with it.
        self.comb += answer.fence.eq(fsm.ongoing("FENCE"))
        fsm.act("FENCE",
            j.kind.eq(WriteKind.NOTIFY),
            j.valid.eq(1),
            If(j.ready,
                self.fence.ready.eq(1),
                NextState("IDLE")
            )
        )

        # Life cycle ---------------------------------------------------------------------------------
        fsm.act("INIT-READ",
            NextValue(r.raw_bits(), 0),
            NextState("INIT-EXPECT")
        )
        fsm.act("INIT-EXPECT",
            NextValue(r.expected, attributes.row.receive_psn),
            NextValue(r.sweep,    attributes.row.receive_psn),
            NextState("INIT-HIGHEST")
        )
        before = sized(self, r.expected - 1, 24, "psn_before_expected")
        fsm.act("INIT-HIGHEST",
            NextValue(r.highest, before),
            NextState("INIT")
        )
        piece_after = sized(self, piece + 64, 24, "piece_after")
        fsm.act("INIT",
            bits.we.eq(1),
            NextValue(piece, piece_after),
            If(piece == 64*(chunks(config) - 1),
                state.we.eq(1),
                self.init.ready.eq(1),
                NextState("IDLE")
            )
        )

        # Judgement ----------------------------------------------------------------------------------
        fsm.act("READ", NextState("LOOK"))
        fsm.act("LOOK",
            NextValue(r.raw_bits(), now.row.raw_bits()),
            check.look.eq(1),
            verdict.count_silent.eq(1),
            If(verdict.silent,
                NextState("DISCARD-SILENT")
            ).Else(
                NextState("REST")
            )
        )
        fsm.act("REST",
            check.measure.eq(1),
            If(check.paged, NextState("PAGES")).Else(NextState("JUDGE"))
        )
        fsm.act("PAGES", If(check.done, NextState("JUDGE")))
        fsm.act("JUDGE",
            verdict.count.eq(1),
            *[NextValue(getattr(answer, name), getattr(verdict, name)) for name in ("sack", "ack", "nack", "syndrome", "reason")],
            NextValue(error, verdict.error),
            If(verdict.place,
                NextState("MARK" if flag_first else "PLACE")
            ).Elif(verdict.refused,
                NextState("REFUSED")
            ).Else(
                NextState("DISCARD")
            )
        )
        fsm.act("REFUSED",
            report.report.eq(1),
            NextState("DISCARD")
        )
        discard_job = [j.kind.eq(WriteKind.DISCARD), j.valid.eq(p.stored)]
        fsm.act("DISCARD-SILENT",
            *discard_job,
            If(~p.stored | j.ready, NextState("IDLE"))
        )
        fsm.act("DISCARD",
            *discard_job,
            If(~p.stored | j.ready, NextState("ANSWER"))
        )

        # Placement ----------------------------------------------------------------------------------
        after_walk = "LATE-PLACE" if flag_first else "ANSWER"
        fsm.act("LATE-PLACE" if flag_first else "PLACE",
            *payload_job,
            If(~p.stored | j.ready, NextState("ANSWER" if flag_first else "MARK"))
        )
        ooo_after = sized(self, r.ooo + 1, 16, "ooo_after")
        fsm.act("MARK",
            bits.row.arrived.eq(board.row.arrived | bit),
            bits.row.last.eq(board.row.last | Mux(check.is_last, bit, 0)),
            bits.row.imm.eq(board.row.imm | Mux(check.has_imm, bit, 0)),
            bits.we.eq(1),
            tracker.stash.eq(check.has_imm),
            NextValue(r.received, answer.received),
            NextValue(r.since, answer.since),
            NextValue(answer.sack, answer.triggered),
            If(~above[23], NextValue(r.highest, p.psn)),
            If(verdict.distance == 0,
                tracker.start.eq(1),
                NextState("WALK")
            ).Else(
                NextValue(r.ooo, ooo_after),
                NextState(after_walk)
            )
        )

        # The oldest hole has closed: the tracker walks on to the next one.
        fsm.act("WALK",
            tracker.jobs.connect(j, keep={"valid", "ready", "kind", "address", "word"}),
            bits.index.eq(tracker.bits_index),
            *[getattr(bits.row, f[0]).eq(getattr(tracker.bits_row, f[0])) for f in bits.layout],
            bits.we.eq(tracker.bits_we),
            If(tracker.done,
                NextValue(r.expected, tracker.expected),
                NextValue(r.msn, tracker.msn),
                NextValue(r.rqmsn, tracker.rqmsn),
                NextValue(answer.ack, tracker.completed),
                NextState(after_walk)
            )
        )

        # Answer -------------------------------------------------------------------------------------
        fsm.act("ANSWER",
            sacks.begin.eq(1),
            If(answer.sack,
                NextValue(r.since, 0),
                NextState("BITMAP-FIRST")
            ).Elif(answer.ack | answer.nack,
                NextState("NOTIFY")
            ).Else(
                NextState("FINISH")
            )
        )
        fsm.act("BITMAP-FIRST",
            NextValue(piece, sacks.base),
            NextValue(r.sweep, sacks.sweep),
            NextState("BITMAP-READ")
        )
        fsm.act("BITMAP-READ",
            NextValue(piece, sacks.second),
            NextState("BITMAP-SECOND")
        )
        fsm.act("BITMAP-SECOND",
            sacks.keep.eq(1),
            NextState("NOTIFY")
        )
        fsm.act("NOTIFY",
            j.kind.eq(WriteKind.NOTIFY),
            j.valid.eq(1),
            If(j.ready, NextState("FINISH"))
        )
        fsm.act("FINISH",
            state.we.eq(1),
            NextState("IDLE")
        )
