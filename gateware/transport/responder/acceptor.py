# SPDX-License-Identifier: BSD-2-Clause
"""The acceptor: what happens to a packet that has passed FCS, lengths and ICRC.

    queue pair, life, partition -> window -> bitmap (test) -> length rules -> region, signal
       -> payload to the write queue -> bitmap (set) -> walk: flags of completed messages
       -> what is due to the peer, as a snapshot behind it all in the same queue

Direct placement: a new packet is written at its own address, in whatever order packets arrive; a
duplicate is never written again. When the oldest hole closes, the walk passes all packets that have
arrived, completes their messages in order and queues a flag for each message with an immediate:
behind its payload, through the same write port.

PSN relative to the expected one (mrc-facts 4.2; window = MPR):
    inside, new          placed; SACK if a trigger fires; Transport ACK when messages complete
    inside, marked       not placed; SACK
    below, within 2^23   not placed; SACK and Transport ACK
    above the window     not placed; NACK PSN_OOR_WINDOW

One packet takes about 12 cycles, 10 more when a SACK is due, 1 per PSN walked, 5 per flag.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind
from gateware.common.arithmetic import one_hot, sized
from gateware.common.counters import Counters
from gateware.common.headers import (
    DATA_IMMDT,
    DATA_METH,
    DATA_RETH,
    DATA_TSETH,
    IMMDT,
    METH,
    PACKET_TYPES,
    PETH,
    RETH,
    TSETH,
    NackReason,
    Opcode,
    Syndrome,
)
from gateware.common.layouts import WriteKind, due_fields, event_layout, received_layout, write_job_layout
from gateware.common.table_ram import TableRAM
from gateware.common.tables import QpState, Rights, SignalMode
from gateware.transport.queue_pair import arrivals_layout, chunk_row, chunks, init_endpoint, receive_state_layout

class Acceptor(LiteXModule):
    """Judges data packets and probes, keeps the receive bitmap, completes messages.

    sink:     received_layout of WRITE packets and probes; `plane` says whose store holds the payload.
    jobs:     write_job_layout, the in-order write queue.
    event:    ACCESS.
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
        self.init_signal = stream.Endpoint([("signal", 16)])
        self.time     = Signal(32)
        self.counters = Counters(self)

        # # #

        count = self.counters.add
        foreign    = count("receive_unknown_qp", "Data packets and probes for no living queue pair.")
        accepted   = count("receive_accepted",   "Data packets placed.")
        duplicate  = count("receive_duplicate",  "Data packets that had arrived before.")
        beyond     = count("receive_window",     "Data packets above the window.")
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
        self.stash  = stash  = TableRAM([("signal", config.signal_bits)], config.queue_pairs*config.max_wimm)
        self.counts = counts = TableRAM([("count", 64)], config.signals)
        now, board, stashed, counted = state.reader(), bits.reader(), stash.reader(), counts.reader()

        # The packet at hand.
        p        = Record([(f[0], f[1]) for f in received_layout(config).payload_layout])
        plane    = Signal(config.plane_bits)
        qp       = p.dest_qp[:config.qp_bits]
        meth     = p.body[8*DATA_METH:8*(DATA_METH + METH.length)]
        reth     = p.body[8*DATA_RETH:8*(DATA_RETH + RETH.length)]
        rqmsn    = METH.field(meth, "rqmsn")
        va, rkey, total = (RETH.field(reth, f) for f in ("va", "rkey", "length"))
        immediate = IMMDT.field(p.body[8*DATA_IMMDT:], "immediate")
        stamp     = Signal(16)
        is_probe  = Signal()
        is_first, is_last, has_imm = Signal(), Signal(), Signal()
        types     = [t for t in PACKET_TYPES.values() if t.data]
        self.comb += [
            is_probe.eq(p.opcode == Opcode.PROBE),
            stamp.eq(Mux(is_probe, PETH.field(p.body, "tx_timestamp"),
                     Mux(p.ts, TSETH.field(p.body[8*DATA_TSETH:], "tx_timestamp"), 0))),
            Case(p.opcode, {t.opcode: [is_first.eq(t.first), is_last.eq(t.last), has_imm.eq(t.imm)] for t in types}),
        ]

        # Life of the queue pair, as it changes while the packet is processed.
        r       = Record(receive_state_layout(config))
        piece   = Signal(24)                           # PSN whose bitmap row is looked at.
        row     = chunk_row(config, piece, qp)
        signal_number = Signal(config.signal_bits)
        self.comb += [
            *[t.index.eq(qp) for t in (attributes, life, now, state)],
            region.index.eq(rkey[8:8 + config.region_bits]),
            *[t.index.eq(signal_number) for t in (signal, counts, counted)],
            *[t.index.eq(row) for t in (board, bits)],
            stash.index.eq(Cat(rqmsn[:log2_int(config.max_wimm)], qp)),
            stashed.index.eq(Cat(r.rqmsn[:log2_int(config.max_wimm)], qp)),
            stash.row.signal.eq(immediate[:config.signal_bits]),
            state.row.raw_bits().eq(r.raw_bits()),
        ]

        # Judgement: registered in steps.
        delta     = sized(self, p.psn - r.expected, 24, "psn_from_expected")
        above     = sized(self, p.psn - r.highest, 24, "psn_from_highest")
        inside    = sized(self, delta < config.mpr, 1, "inside_window")
        old       = delta[23]
        bit       = one_hot(self, p.psn[:6], 64, "bit")
        marked    = sized(self, (board.row.arrived & bit) != 0, 1, "marked")
        mtu       = Signal(13)
        self.comb += Case(attributes.row.mtu, {**{i: mtu.eq(256 << i) for i in range(5)}, "default": mtu.eq(256)})
        into      = Signal(65)                         # Offset in the region; bit 64: below its base.
        rest      = Signal(65)                         # Room after it; bit 64: none.
        into_next = sized(self, va - region.row.base, 65, "into_next")
        rest_next = sized(self, region.row.length - into[:64], 65, "rest_next")
        good_length = Signal()
        self.comb += If(is_last,
            good_length.eq((p.length <= mtu) & ((p.length != 0) | is_first))
        ).Else(
            good_length.eq(p.length == mtu)
        )
        in_region = Signal()
        self.comb += in_region.eq(
            (p.length == 0) |
            (region.row.valid & (region.row.variant == rkey[:8]) & (rkey[8 + config.region_bits:] == 0) &
             region.row.rights[log2_int(Rights.REMOTE_WRITE)] &
             ~into[64] & ~rest[64] & (rest[:64] >= p.length) & (total >= p.length)))
        allowed    = Signal()                          # The signal exists and is for this queue pair.
        may_signal = Signal()
        rqmsn_ahead = sized(self, rqmsn - r.rqmsn, 16, "rqmsn_ahead")
        good_rqmsn  = sized(self, ~has_imm | (rqmsn_ahead < config.max_wimm), 1, "good_rqmsn")
        self.comb += [
            allowed.eq(signal.row.valid & (signal.row.any_qp | (signal.row.qp == p.dest_qp[:16]))),
            may_signal.eq(~has_imm | (allowed & (immediate[config.signal_bits:] == 0))),
        ]

        # What is due.
        due   = Record(due_fields())
        sack, ack, nack = Signal(), Signal(), Signal()
        syndrome = Signal(8)
        size     = Signal(13)                          # At least 1024 per packet.
        self.comb += size.eq(Mux(p.length < 1024, 1024, p.length))
        since    = sized(self, r.since + size, 17, "since_after")
        triggered = Signal()
        self.comb += triggered.eq((since > attributes.row.sack_trigger) | p.a | p.ce | p.rtx)

        # The walk: a row of the bitmap in registers.
        walk_arrived, walk_last, walk_imm = Signal(64), Signal(64), Signal(64)
        spot   = one_hot(self, r.expected[:6], 64, "spot")
        others = sized(self, ~spot, 64, "others")
        here_arrived = sized(self, (walk_arrived & spot) != 0, 1, "here_arrived")
        here_last    = sized(self, (walk_last & spot) != 0, 1, "here_last")
        here_imm     = sized(self, (walk_imm & spot) != 0, 1, "here_imm")
        expected_after = sized(self, r.expected + 1, 24, "expected_after")

        # The SACK's bitmap (mrc-facts 4.4): successive SACKs sweep the window.
        sweep_ahead = sized(self, r.sweep - r.expected, 24, "sweep_ahead")
        start_low   = sized(self, Mux(sweep_ahead[23] | (sweep_ahead >= config.mpr), r.expected, r.sweep), 24, "start_low")
        reach       = sized(self, r.highest - start_low, 24, "reach")
        close       = sized(self, r.highest - 63, 24, "highest_minus_63")
        close_ahead = sized(self, close - r.expected, 24, "close_ahead")
        base        = Signal(24)
        base_late   = sized(self, Mux(close_ahead[23], r.expected, close), 24, "base_late")
        base_next   = sized(self, Mux((reach[23] == 0) & (reach[6:] != 0), start_low, base_late), 24, "base_next")
        last_covered = sized(self, r.highest - base, 24, "last_covered")
        base_plus   = sized(self, base + 64, 24, "base_plus")
        first_bits  = Signal(64)
        both        = Signal(128)
        bitmap      = Signal(128)
        self.comb += [both.eq(Cat(first_bits, board.row.arrived)), bitmap.eq(both >> base[:6])]

        cack    = sized(self, r.expected - 1, 24, "cack")
        rounded = sized(self, r.received + 255, 32, "received_rounded")
        self.comb += [
            due.qp.eq(p.dest_qp[:16]),
            due.sack.eq(sack), due.ack.eq(ack), due.nack.eq(nack),
            due.cack.eq(cack), due.base.eq(base), due.bitmap.eq(bitmap[:64]),
            due.psn.eq(Mux(is_probe, PETH.field(p.body, "probe_id"), p.psn)),
            due.probe.eq(is_probe), due.rtx.eq(p.rtx), due.ce.eq(p.ce),
            due.entropy.eq(p.entropy), due.plane.eq(plane), due.timestamp.eq(stamp),
            due.msn.eq(r.msn), due.syndrome.eq(syndrome), due.reason.eq(NackReason.PSN_OOR_WINDOW),
            due.rcvd.eq(rounded[8:]), due.ooo.eq(r.ooo),
        ]

        # Jobs.
        j = self.jobs
        payload_job = [j.kind.eq(WriteKind.PAYLOAD), j.plane.eq(plane), j.offset.eq(p.offset), j.length.eq(p.length)]
        target = Signal(64)
        self.comb += [j.address.eq(target), j.due.eq(due.raw_bits())]
        value = sized(self, counted.row.count + 1, 64, "flag_value")
        self.comb += [j.word.eq(value), counts.row.count.eq(value)]

        self.comb += [
            events.sink.kind.eq(EventKind.ACCESS), events.sink.qp.eq(p.dest_qp[:16]), events.sink.reason.eq(syndrome),
            events.sink.base.eq(p.psn), events.sink.entropy.eq(p.entropy), events.sink.time.eq(self.time),
        ]

        flag_first = config.broken == "flag_first"

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(sack, 0), NextValue(ack, 0), NextValue(nack, 0), NextValue(syndrome, Syndrome.ACK),
            If(self.init.valid,
                NextValue(p.dest_qp, self.init.qp),
                NextValue(piece, 0),
                NextState("INIT-READ")
            ).Elif(self.init_signal.valid,
                NextValue(signal_number, self.init_signal.signal),
                NextState("SIGNAL-READ")
            ).Elif(self.sink.valid,
                self.sink.ready.eq(1),
                *[NextValue(getattr(p, f[0]), getattr(self.sink, f[0])) for f in received_layout(config).payload_layout],
                NextValue(plane, self.plane),
                NextValue(piece, self.sink.psn),
                NextValue(signal_number, IMMDT.field(self.sink.body[8*DATA_IMMDT:], "immediate")[:config.signal_bits]),
                NextState("READ")
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
        fsm.act("SIGNAL-READ", NextState("SIGNAL-CLEAR"))
        fsm.act("SIGNAL-CLEAR",
            counts.row.count.eq(0),
            counts.we.eq(signal.row.mode == SignalMode.SET),
            self.init_signal.ready.eq(1),
            NextState("IDLE")
        )

        # Judgement ----------------------------------------------------------------------------------
        fsm.act("READ", NextState("LOOK"))
        fsm.act("LOOK",
            NextValue(r.raw_bits(), now.row.raw_bits()),
            NextValue(into, into_next),
            If((p.dest_qp[:16] >= config.queue_pairs) | (p.dest_qp[16:] != attributes.row.generation) |
               (p.p_key != attributes.row.p_key) | ((life.row.state != QpState.RTS) & (life.row.state != QpState.RTR)),
                foreign.eq(1),
                NextState("DISCARD-SILENT")
            ).Else(
                NextState("REST")
            )
        )
        fsm.act("REST",
            NextValue(rest, rest_next),
            NextState("JUDGE")
        )
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
                NextValue(sack, 1)
            ).Elif(~good_length | ~good_rqmsn,
                malformed.eq(1),
                NextValue(ack, 1),
                NextValue(syndrome, Syndrome.NAK_INVALID_REQUEST),
                NextState("REFUSED")
            ).Elif(~in_region | ~may_signal,
                no_access.eq(1),
                NextValue(ack, 1),
                NextValue(syndrome, Syndrome.NAK_REMOTE_ACCESS),
                NextState("REFUSED")
            ).Else(
                accepted.eq(1),
                NextValue(target, region.row.bus + into[:64]),
                NextState("MARK" if flag_first else "PLACE")
            )
        )
        fsm.act("REFUSED",
            events.sink.valid.eq(1),
            lost.eq(~events.sink.ready),
            NextState("DISCARD")
        )
        fsm.act("DISCARD-SILENT",
            j.kind.eq(WriteKind.DISCARD),
            j.plane.eq(plane),
            j.valid.eq(p.stored),
            If(~p.stored | j.ready, NextState("IDLE"))
        )
        fsm.act("DISCARD",
            j.kind.eq(WriteKind.DISCARD),
            j.plane.eq(plane),
            j.valid.eq(p.stored),
            If(~p.stored | j.ready, NextState("ANSWER"))
        )

        # Placement ----------------------------------------------------------------------------------
        after_walk = "LATE-PLACE" if flag_first else "ANSWER"
        if flag_first:
            late = Signal(64)
            fsm.act("LATE-PLACE",
                *payload_job,
                j.address.eq(late),
                j.valid.eq(p.stored),
                If(~p.stored | j.ready, NextState("ANSWER"))
            )
        else:
            fsm.act("PLACE",
                *payload_job,
                j.valid.eq(p.stored),
                If(~p.stored | j.ready, NextState("MARK"))
            )
        ooo_after = sized(self, r.ooo + 1, 16, "ooo_after")
        received_after = sized(self, r.received + p.length, 32, "received_after")
        fsm.act("MARK",
            *([NextValue(late, target)] if flag_first else []),
            bits.row.arrived.eq(board.row.arrived | bit),
            bits.row.last.eq(board.row.last | Mux(is_last, bit, 0)),
            bits.row.imm.eq(board.row.imm | Mux(has_imm, bit, 0)),
            bits.we.eq(1),
            stash.we.eq(has_imm),
            NextValue(r.received, received_after),
            NextValue(r.since, since),
            NextValue(sack, triggered),
            If(~above[23], NextValue(r.highest, p.psn)),
            If(delta == 0,
                NextState("WALK-READ")
            ).Else(
                NextValue(r.ooo, ooo_after),
                NextState(after_walk)
            )
        )

        # Walk ---------------------------------------------------------------------------------------
        fsm.act("WALK-READ",
            NextValue(piece, r.expected),
            NextState("WALK-WAIT")
        )
        fsm.act("WALK-WAIT", NextState("WALK-LOAD"))
        fsm.act("WALK-LOAD",
            NextValue(walk_arrived, board.row.arrived),
            NextValue(walk_last, board.row.last),
            NextValue(walk_imm, board.row.imm),
            NextState("WALK")
        )
        bits_of_walk = [bits.row.arrived.eq(walk_arrived), bits.row.last.eq(walk_last), bits.row.imm.eq(walk_imm)]
        msn_after   = sized(self, r.msn + 1, 16, "msn_after")
        rqmsn_after = sized(self, r.rqmsn + 1, 16, "rqmsn_after")
        fsm.act("WALK",
            *bits_of_walk,
            If(~here_arrived,
                bits.we.eq(1),
                NextState(after_walk)
            ).Elif(here_imm,
                NextState("FLAG-STASH")
            ).Else(
                NextState("PASS")
            )
        )
        fsm.act("PASS",
            *bits_of_walk,
            NextValue(walk_arrived, walk_arrived & others),
            NextValue(walk_last,    walk_last & others),
            NextValue(walk_imm,     walk_imm & others),
            NextValue(r.expected, expected_after),
            If(here_last,
                completed.eq(1),
                NextValue(r.msn, msn_after),
                NextValue(ack, 1)
            ),
            If(r.expected[:6] == 63,
                NextState("NEXT-ROW")
            ).Else(
                NextState("WALK")
            )
        )
        fsm.act("NEXT-ROW",
            *bits_of_walk,
            bits.we.eq(1),
            NextState("WALK-READ")
        )
        # Flag of a completed message: stash -> signal -> count -> job.
        fsm.act("FLAG-STASH", NextState("FLAG-NUMBER"))
        fsm.act("FLAG-NUMBER",
            NextValue(signal_number, stashed.row.signal),
            NextState("FLAG-READ")
        )
        fsm.act("FLAG-READ", NextState("FLAG-ADDRESS"))
        # The right is looked at again: the peer chose the RQMSN that led here, the driver may have revoked it.
        fsm.act("FLAG-ADDRESS",
            NextValue(target, signal.row.address),
            If(allowed,
                NextState("FLAG")
            ).Else(
                NextValue(r.rqmsn, rqmsn_after),
                NextState("PASS")
            )
        )
        fsm.act("FLAG",
            j.kind.eq(WriteKind.WORD),
            j.valid.eq(1),
            If(j.ready,
                flags.eq(1),
                counts.we.eq(1),
                NextValue(r.rqmsn, rqmsn_after),
                NextState("PASS")
            )
        )

        # Answer -------------------------------------------------------------------------------------
        fsm.act("ANSWER",
            NextValue(base, base_next),
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
            NextValue(piece, base),
            NextValue(r.sweep, Mux(last_covered[23] | (last_covered[6:] == 0), r.expected, base_plus)),
            NextState("BITMAP-READ")
        )
        fsm.act("BITMAP-READ",
            NextValue(piece, base_plus),
            NextState("BITMAP-SECOND")
        )
        fsm.act("BITMAP-SECOND",
            NextValue(first_bits, board.row.arrived),
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
