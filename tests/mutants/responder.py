# SPDX-License-Identifier: BSD-2-Clause
"""Faults of the receiver: bitmap, order of flags, rights, what it answers."""

from tests.mutants.mutant import Mutant

SOURCE   = "gateware/transport/responder/"
TESTS    = "tests/gateware/transport/responder/test_"
ACCEPTOR = f"{TESTS}acceptor.py"
CONTROL  = f"{TESTS}control_sender.py"
VERDICTS = f"{TESTS}verdicts.py"
TRACKER  = f"{TESTS}message_tracker.py"
BOUNDS   = f"{TESTS}placement_bounds.py"

def mutant(name, block, old, new, *tests):
    return Mutant(name, f"{SOURCE}{block}.py", old, new, tests or (ACCEPTOR,))

RESPONDER = (
    # Bitmap and window.
    mutant("duplicate-placed", "acceptor", '(board.row.arrived & bit) != 0, 1, "marked"', '0, 1, "marked"'),
    mutant("receive-window-one-too-wide", "judgement", 'distance >= window, 1', 'distance > window, 1', VERDICTS),
    mutant("packet-above-the-bitmap-taken", "judgement", 'distance >= config.mpr, 1', 'distance > config.mpr, 1', VERDICTS),
    mutant("own-window-of-a-queue-pair-ignored", "judgement", "Mux(attributes.mpr == 0, config.mpr,", "Mux(1, config.mpr,", VERDICTS),
    mutant("old-psn-compared-without-wrap", "judgement", "old    = distance[23]", "old    = p.psn < r.expected"),
    mutant("highest-psn-compared-without-wrap", "acceptor", "If(~above[23],", "If(p.psn > r.highest,"),
    mutant("duplicate-steps-the-msn", "acceptor", "verdict.count.eq(1),",
        "verdict.count.eq(1), If(verdict.distance[23], NextValue(r.msn, r.msn + 1)),"),
    mutant("window-slides-over-a-hole", "message_tracker", '(arrived & spot) != 0, 1, "here_arrived"', 'arrived != 0, 1, "here_arrived"'),
    mutant("plain-write-steps-no-msn", "message_tracker", "NextValue(self.msn, msn_after)", "If(here_imm, NextValue(self.msn, msn_after))"),
    # Flags.
    mutant("flag-before-payload", "acceptor", 'flag_first = config.broken == "flag_first"', "flag_first = True"),
    mutant("flags-out-of-rqmsn-order", "acceptor", "tracker.stash_rqmsn.eq(check.rqmsn)", "tracker.stash_rqmsn.eq(r.rqmsn)"),
    mutant("flag-without-a-second-look-at-its-right", "message_tracker", "NextValue(granted, signal.row.valid &", "NextValue(granted, 1 |"),
    mutant("flag-of-another-signal-merged", "message_tracker", 'stashed.row.signal == number, 1', '1, 1'),
    mutant("walk-forgets-what-lies-behind-the-hole", "message_tracker", "passed.eq(until_stop)", "passed.eq(from_here)", TRACKER),
    mutant("walk-takes-a-cycle-per-packet", "message_tracker", "(~arrived | last) & from_here", "from_here", TRACKER),
    # Who may.
    mutant("receiver-compares-no-generation", "judgement", "(p.dest_qp[16:] == attributes.generation)", "1"),
    mutant("receiver-compares-no-p-key", "judgement", "(p.p_key == attributes.p_key)", "1"),
    mutant("trimmed-header-ends-a-peer", "judgement", "~is_probe & ~was_cut)", "~is_probe)", VERDICTS),
    mutant("rkey-variant-not-compared", "placement_check", "(region.variant == self.rkey[:8])", "1", BOUNDS),
    mutant("write-without-the-right", "placement_check", "region.rights[log2_int(Rights.REMOTE_WRITE)]", "1"),
    mutant("address-wraps-past-2-64", "placement_check", "~into[64] & ~rest[64]", "~rest[64]", BOUNDS),
    mutant("region-one-byte-too-long", "placement_check", "(rest[:64] >= p.length)", "(Cat(rest[:64], C(0, 1)) + 1 >= p.length)", BOUNDS),
    mutant("signal-of-any-queue-pair", "placement_check", "(signal.any_qp | (signal.qp == p.dest_qp[:16]))", "1"),
    mutant("middle-of-any-length", "placement_check", "good_length.eq(p.length == mtu)", "good_length.eq(p.length <= mtu)"),
    mutant("empty-last-packet-accepted", "placement_check", "((p.length != 0) | is_first)", "1"),
    mutant("one-immediate-too-many", "placement_check", "(ahead < config.max_wimm)", "(ahead <= config.max_wimm)"),
    # Answers.
    mutant("a-bit-ignored", "snapshot", "| p.a | p.ce | p.rtx", "| p.ce | p.rtx"),
    mutant("congestion-mark-ignored", "snapshot", "| p.a | p.ce | p.rtx", "| p.a | p.rtx"),
    mutant("received-bytes-count-packets", "snapshot", "r.received + nominal", "r.received + 1"),
    mutant("nak-without-its-psn", "snapshot", "Mux(self.syndrome == Syndrome.ACK, cack, p.psn)", "cack", VERDICTS),
    mutant("sack-base-wrong", "sack_bitmap", "r.highest - 63", "r.highest - 64"),
    mutant("sack-bitmap-not-shifted", "sack_bitmap", "Cat(kept, row) >> base[:6]", "Cat(kept, row)"),
    mutant("ack-psn-offset-negated", "answers", "due.psn - due.cack", "due.cack - due.psn", CONTROL),
    mutant("time-not-reflected", "answers", "encode(cc, tx_timestamp=sack.timestamp", "encode(cc, tx_timestamp=0", CONTROL),
    mutant("newer-snapshot-forgotten", "control_sender", "sacks.we.eq(d.sack)", "sacks.we.eq(d.sack & ~mark.row.sack)",
        f"{TESTS}newest_answer.py"),
    mutant("nak-replaced-by-an-ack", "control_sender", "acks.we.eq(d.ack & ~kept)", "acks.we.eq(d.ack)", CONTROL),
    mutant("queue-pair-waits-twice", "control_sender", "(d.sack | d.ack) & ~mark.row.queued", "(d.sack | d.ack)", CONTROL),
    mutant("new-life-is-owed-the-old-ones", "control_sender", "marks.row.queued.eq(mark.row.queued),\n            self.init",
        "marks.row.raw_bits().eq(mark.row.raw_bits()),\n            self.init", CONTROL),
    mutant("answer-stays-on-a-dead-plane", "reverse_path", "self.moved.eq(~belongs_up & (self.planes_up != 0))",
        "self.moved.eq(0)", CONTROL),
    # Both halves together.
    Mutant("lower-rank-goes-first", "gateware/common/arbiter.py", "for i in reversed(range(count - 1))", "for i in range(count - 1)",
        ("tests/gateware/common/test_arbiter.py",)),
)
