# SPDX-License-Identifier: BSD-2-Clause
"""Judgement: what becomes of a data packet or probe, and what its sender must hear.

The first line that fits is the verdict (MRC 1.0; PSN relative to the expected one):

    unknown queue pair, life or P_Key, or state RESET      nothing
    state INIT                                             NACK NO_RESOURCE
    state ERROR                                            NACK UNEXP_EVENT: the peer ends at once
    probe                                                  SACK and Transport ACK
    below, within 2^23                                     SACK and Transport ACK
    above the queue pair's window                          NACK PSN_OOR_WINDOW
    inside, but above the bitmap that the card has         NACK NO_BITMAP
    inside, marked                                         SACK and Transport ACK
    inside, new, without its payload                       NACK NO_PKT_BUFFER, TRIMMED or TRIMMED_LASTHOP
    inside, new, of a wrong length or RQMSN                Transport NAK invalid request
    inside, new, not allowed by key, bounds or signal      Transport NAK remote access
    inside, new                                            placed; SACK if a trigger fires; ACK when messages complete

A probe gets no answer from a queue pair in INIT or ERROR, and a trimmed packet none from one in ERROR: nobody
vouches for the header of a trimmed packet, and UNEXP_EVENT ends the peer's queue pair.
"""

from litex.gen import LiteXModule
from migen import *

from firmware.contract import QpError
from gateware.common.arithmetic import sized
from gateware.common.counters import Counters
from gateware.common.headers import NackReason, Syndrome
from gateware.common.layouts import Verdict
from gateware.common.tables import QpState

MPR_UNIT = 128      # Packets per unit of QUEUE_PAIR.mpr.

class Judgement(LiteXModule):
    """Combinational, from the packet `p`, its queue pair's rows (`attributes`, `life`), its receive state `r`, the
    placement check and `marked`, its PSN's bit of the bitmap.

    silent:   nothing is answered; valid as soon as the rows are there.
    place:    the packet is accepted.    refused: a Transport NAK. `error` is the QpError of it.
    sack, ack, nack, syndrome, reason:   what is due.
    count, count_silent: for one cycle, the verdict, or a silent one, is counted.
    distance: of the PSN from the expected one, modulo 2^24.
    """
    def __init__(self, config, p, is_probe, attributes, life, r, check, marked):
        self.silent   = Signal()
        self.place    = Signal()
        self.refused  = Signal()
        self.error    = Signal(8)
        self.sack, self.ack, self.nack = Signal(), Signal(), Signal()
        self.syndrome = Signal(8)
        self.reason   = Signal(8)
        self.count    = Signal()
        self.count_silent = Signal()
        self.distance = distance = Signal(24)
        self.counters = Counters(self)

        # # #

        count = self.counters.add
        foreign   = count("receive_unknown_qp", "Data packets and probes for no living queue pair.")
        accepted  = count("receive_accepted",   "Data packets placed.")
        duplicate = count("receive_duplicate",  "Data packets that had arrived before.")
        beyond    = count("receive_window",     "Data packets above the window.")
        no_bitmap = count("receive_no_bitmap",  "Data packets inside the queue pair's window, but above what the card keeps track of.")
        not_ready = count("receive_not_ready",  "Data packets for a queue pair that is not ready to receive yet.")
        ended     = count("receive_ended",      "Data packets for a queue pair in error.")
        no_buffer = count("receive_no_buffer",  "Data packets refused because the receive store had no room for them.")
        trimmed   = count("receive_trimmed",    "Data packets refused because a switch had trimmed them.")
        malformed = count("receive_length",     "Data packets whose length or RQMSN does not fit their place.")
        no_access = count("receive_access",     "Data packets refused by key, bounds, rights or signal.")
        probes    = count("probes",             "Probes answered.")

        # Queue pair.
        state      = life.state
        was_cut    = sized(self, (p.verdict == Verdict.TRIMMED) | (p.verdict == Verdict.TRIMMED_LASTHOP), 1, "was_cut")
        living     = sized(self, (state == QpState.RTS) | (state == QpState.RTR), 1, "living")
        answerable = sized(self, ((state == QpState.INIT) & ~is_probe) | ((state == QpState.ERROR) & ~is_probe & ~was_cut), 1, "answerable")
        known      = sized(self, (p.dest_qp[:16] < config.queue_pairs) & (p.dest_qp[16:] == attributes.generation) &
            (p.p_key == attributes.p_key), 1, "known_qp")
        self.comb += [
            self.silent.eq(~(known & (living | answerable))),
            foreign.eq(self.count_silent & self.silent),
        ]

        # Window.
        old    = distance[23]
        window = Signal(16)
        self.comb += [
            distance.eq(p.psn - r.expected),
            window.eq(Mux(attributes.mpr == 0, config.mpr, Cat(C(0, log2_int(MPR_UNIT)), attributes.mpr))),
        ]
        outside   = sized(self, distance >= window, 1, "outside_window")
        untracked = sized(self, distance >= config.mpr, 1, "outside_bitmap")

        # Verdicts in their order: condition, counter, statements.
        def nacked(reason): return [self.nack.eq(1), self.reason.eq(reason)]
        def naked(syndrome, error): return [self.ack.eq(1), self.refused.eq(1), self.syndrome.eq(syndrome), self.error.eq(error)]
        both = [self.sack.eq(1), self.ack.eq(1)]
        verdicts = [
            (state == QpState.INIT,                not_ready, nacked(NackReason.NO_RESOURCE)),
            (state == QpState.ERROR,               ended,     nacked(NackReason.UNEXP_EVENT)),
            (is_probe,                             probes,    both),
            (old,                                  duplicate, both),
            (outside,                              beyond,    nacked(NackReason.PSN_OOR_WINDOW)),
            (untracked,                            no_bitmap, nacked(NackReason.NO_BITMAP)),
            (marked,                               duplicate, both),
            (p.verdict == Verdict.TRIMMED,         trimmed,   nacked(NackReason.TRIMMED)),
            (p.verdict == Verdict.TRIMMED_LASTHOP, trimmed,   nacked(NackReason.TRIMMED_LASTHOP)),
            (p.verdict == Verdict.NO_BUFFER,       no_buffer, nacked(NackReason.NO_PKT_BUFFER)),
            (~check.well_formed,                   malformed, naked(Syndrome.NAK_INVALID_REQUEST, QpError.REFUSED_INVALID)),
            (~check.permitted,                     no_access, naked(Syndrome.NAK_REMOTE_ACCESS, QpError.REFUSED_ACCESS)),
            (1,                                    accepted,  [self.place.eq(1)]),
        ]
        chain = If(0)
        for condition, pulse, statements in verdicts:
            chain = chain.Elif(condition, *statements, pulse.eq(self.count))
        self.comb += [self.syndrome.eq(Syndrome.ACK), chain]
