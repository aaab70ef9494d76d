# SPDX-License-Identifier: BSD-2-Clause
"""The acceptor: what happens to a packet that has passed FCS, lengths and ICRC.

    queue pair, life, partition -> window -> bitmap (test) -> length rules -> region, signal
       -> payload to the write queue -> bitmap (set) -> walk: flags of completed messages
       -> what is due to the peer, as a snapshot behind it all in the same queue

Direct placement: a new packet is written at its own address, in whatever order packets arrive; a
duplicate is never written again. When the oldest hole closes, the walk passes all packets that have
arrived, completes their messages in order and queues a flag for each message with an immediate:
behind its payload, through the same write port.

PSN relative to the expected one (MRC 1.0; window = MPR):
    inside, new          placed; SACK if a trigger fires; Transport ACK when messages complete
    inside, marked       not placed; SACK and Transport ACK
    below, within 2^23   not placed; SACK and Transport ACK
    above the window     not placed; NACK PSN_OOR_WINDOW
    inside, new, but the payload did not come along   NACK NO_PKT_BUFFER, TRIMMED or TRIMMED_LASTHOP

One packet takes about 12 cycles, 10 more when a SACK is due, 2 per PSN walked, 5 per flag.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import one_hot, sized
from gateware.common.counters import Counters
from gateware.common.headers import DATA_IMMDT, DATA_TSETH, IMMDT, PETH, TSETH, NackReason, Opcode, Syndrome
from gateware.common.layouts import Verdict, WriteKind, due_fields, event_layout, received_layout, write_job_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState
from gateware.transport.barriers import fence_record
from gateware.transport.queue_pair import arrivals_layout, chunk_row, chunks, init_endpoint, receive_state_layout
from gateware.transport.responder.message_tracker import MessageTracker
from gateware.transport.responder.placement_check import PlacementCheck
from gateware.transport.responder.sack_bitmap import SackBitmap

class Acceptor(LiteXModule):
    """Judges data packets and probes, keeps the receive bitmap, completes messages.

    sink:     received_layout of WRITE packets and probes; `plane` says whose store holds the payload.
    jobs:     write_job_layout, the in-order write queue.
    event:    ACCESS.
    fence:    fence_record(): between two packets, a job in the write queue that comes out as `fence` of due_fields.
    init:     start a queue pair's life.
    init_signal: clear a signal's count (SignalMode.SET).
    """
    def __init__(self, config, tables, status):
        self.sink     = stream.Endpoint(received_layout(config))
        self.plane    = Signal(config.plane_bits)
        self.jobs     = stream.Endpoint(write_job_layout(config))
        self.events   = events = stream.SyncFIFO(event_layout(), 4)
        self.event    = events.source
        self.init     = init_endpoint()
        self.fence    = fence_record()
        self.time     = Signal(32)
        self.counters = Counters(self)

        # # #

        count = self.counters.add
        foreign    = count("receive_unknown_qp", "Data packets and probes for no living queue pair.")
        accepted   = count("receive_accepted",   "Data packets placed.")
        duplicate  = count("receive_duplicate",  "Data packets that had arrived before.")
        beyond     = count("receive_window",     "Data packets above the window.")
        no_buffer  = count("receive_no_buffer",  "Data packets refused because the receive store had no room for them.")
        trimmed    = count("receive_trimmed",    "Data packets refused because a switch had trimmed them.")
        malformed  = count("receive_length",     "Data packets whose length or RQMSN does not fit their place.")
        no_access  = count("receive_access",     "Data packets refused by key, bounds, rights or signal.")
        probes     = count("probes",             "Probes answered.")
        completed  = count("receive_messages",   "Messages completed.")
        flags      = count("flags",              "Flags written.")
        lost       = count("events_lost_access", "ACCESS events that found the event queue full.")

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
        stamp    = Signal(16)
        is_probe = Signal()
        piece    = Signal(24)                          # PSN whose bitmap row is looked at.
        signal_number = Signal(config.signal_bits)
        self.check   = check   = PlacementCheck(config, tables, p, attributes.row.mtu, r.rqmsn, region.row, signal.row)
        self.tracker = tracker = MessageTracker(config, tables, bits)
        self.sacks   = sacks   = SackBitmap(config, r, board.row.arrived)
        self.init_signal = tracker.init_signal
        self.comb += [
            is_probe.eq(p.opcode == Opcode.PROBE),
            stamp.eq(Mux(is_probe, PETH.field(p.body, "tx_timestamp"),
                     Mux(p.ts, TSETH.field(p.body[8*DATA_TSETH:], "tx_timestamp"), 0))),
            *[t.index.eq(qp) for t in (attributes, life, now, state)],
            region.index.eq(check.rkey[8:8 + config.region_bits]),
            signal.index.eq(signal_number),
            *[t.index.eq(chunk_row(config, piece, qp)) for t in (board, bits)],
            state.row.raw_bits().eq(r.raw_bits()),
        ]

        # Judgement: registered in steps.
        delta     = sized(self, p.psn - r.expected, 24, "psn_from_expected")
        above     = sized(self, p.psn - r.highest, 24, "psn_from_highest")
        inside    = sized(self, delta < config.mpr, 1, "inside_window")
        old       = delta[23]
        bit       = one_hot(self, p.psn[:6], 64, "bit")
        marked    = sized(self, (board.row.arrived & bit) != 0, 1, "marked")

        # What is due.
        fenced = Signal()
        due   = Record(due_fields())
        sack, ack, nack = Signal(), Signal(), Signal()
        syndrome, reason = Signal(8), Signal(8)
        size     = Signal(13)                          # At least 1024 per packet.
        self.comb += size.eq(Mux(p.length < 1024, 1024, p.length))
        since    = sized(self, r.since + size, 17, "since_after")
        triggered = Signal()
        self.comb += triggered.eq((since > attributes.row.sack_trigger) | p.a | p.ce | p.rtx)

        cack    = sized(self, r.expected - 1, 24, "cack")
        rounded = sized(self, r.received + 255, 32, "received_rounded")
        self.comb += [
            due.qp.eq(p.dest_qp[:16]), due.generation.eq(p.dest_qp[16:]),
            due.sack.eq(sack), due.ack.eq(ack), due.nack.eq(nack),
            due.cack.eq(cack), due.base.eq(sacks.base), due.bitmap.eq(sacks.bits),
            due.psn.eq(Mux(is_probe, PETH.field(p.body, "probe_id"), p.psn)),
            due.probe.eq(is_probe), due.rtx.eq(p.rtx), due.ce.eq(p.ce),
            due.entropy.eq(p.entropy), due.plane.eq(plane), due.timestamp.eq(stamp),
            due.msn.eq(r.msn), due.syndrome.eq(syndrome), due.reason.eq(reason),
            due.rcvd.eq(rounded[8:]), due.ooo.eq(r.ooo), due.fence.eq(fenced),
        ]

        # Jobs: payload and notices from here, flags from the tracker while it walks.
        j      = self.jobs
        payload_job = [j.kind.eq(WriteKind.PAYLOAD), j.valid.eq(p.stored), j.address.eq(check.address), j.beyond.eq(check.beyond)]
        self.comb += [
            j.plane.eq(plane), j.offset.eq(p.offset), j.length.eq(p.length), j.due.eq(due.raw_bits()),
            tracker.qp.eq(qp),
            tracker.from_expected.eq(r.expected), tracker.from_msn.eq(r.msn), tracker.from_rqmsn.eq(r.rqmsn),
            tracker.stash_rqmsn.eq(check.rqmsn), tracker.stash_signal.eq(check.immediate),
            completed.eq(tracker.message_done), flags.eq(tracker.flag_done),
        ]

        self.comb += [
            events.sink.kind.eq(EventKind.ACCESS), events.sink.qp.eq(p.dest_qp[:16]), events.sink.reason.eq(syndrome),
            events.sink.life.eq(life.row.life), events.sink.base.eq(p.psn), events.sink.entropy.eq(p.entropy),
            events.sink.time.eq(self.time),
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
            NextValue(sack, 0), NextValue(ack, 0), NextValue(nack, 0), NextValue(syndrome, Syndrome.ACK),
            NextValue(reason, NackReason.PSN_OOR_WINDOW),
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
        self.comb += fenced.eq(fsm.ongoing("FENCE"))
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
        fsm.act("INIT-HIGHEST",
            NextValue(r.highest, cack),
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
            If((p.dest_qp[:16] >= config.queue_pairs) | (p.dest_qp[16:] != attributes.row.generation) |
               (p.p_key != attributes.row.p_key) | ((life.row.state != QpState.RTS) & (life.row.state != QpState.RTR)),
                foreign.eq(1),
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
            NextState("DISCARD"),
            If(is_probe,
                probes.eq(1),
                NextValue(sack, 1),
                NextValue(ack, 1)
            ).Elif(old,
                duplicate.eq(1),
                NextValue(sack, 1),
                NextValue(ack, 1)
            ).Elif(~inside,
                beyond.eq(1),
                NextValue(nack, 1)
            ).Elif(marked,
                duplicate.eq(1),
                NextValue(sack, 1),
                NextValue(ack, 1)
            ).Elif(p.verdict != Verdict.GOOD,
                no_buffer.eq(p.verdict == Verdict.NO_BUFFER),
                trimmed.eq(p.verdict != Verdict.NO_BUFFER),
                NextValue(nack, 1),
                Case(p.verdict, {
                    Verdict.TRIMMED:         NextValue(reason, NackReason.TRIMMED),
                    Verdict.TRIMMED_LASTHOP: NextValue(reason, NackReason.TRIMMED_LASTHOP),
                    "default":               NextValue(reason, NackReason.NO_PKT_BUFFER)})
            ).Elif(~check.well_formed,
                malformed.eq(1),
                NextValue(ack, 1),
                NextValue(syndrome, Syndrome.NAK_INVALID_REQUEST),
                NextState("REFUSED")
            ).Elif(~check.permitted,
                no_access.eq(1),
                NextValue(ack, 1),
                NextValue(syndrome, Syndrome.NAK_REMOTE_ACCESS),
                NextState("REFUSED")
            ).Else(
                accepted.eq(1),
                NextState("MARK" if flag_first else "PLACE")
            )
        )
        fsm.act("REFUSED",
            events.sink.valid.eq(1),
            lost.eq(~events.sink.ready),
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
        received_after = sized(self, r.received + p.length, 32, "received_after")
        fsm.act("MARK",
            bits.row.arrived.eq(board.row.arrived | bit),
            bits.row.last.eq(board.row.last | Mux(check.is_last, bit, 0)),
            bits.row.imm.eq(board.row.imm | Mux(check.has_imm, bit, 0)),
            bits.we.eq(1),
            tracker.stash.eq(check.has_imm),
            NextValue(r.received, received_after),
            NextValue(r.since, since),
            NextValue(sack, triggered),
            If(~above[23], NextValue(r.highest, p.psn)),
            If(delta == 0,
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
                NextValue(ack, tracker.completed),
                NextState(after_walk)
            )
        )

        # Answer -------------------------------------------------------------------------------------
        fsm.act("ANSWER",
            sacks.begin.eq(1),
            If(sack,
                NextValue(r.since, 0),
                NextState("BITMAP-FIRST")
            ).Elif(ack | nack,
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
