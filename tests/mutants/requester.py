# SPDX-License-Identifier: BSD-2-Clause
"""Faults of the sender: windows, holes, resends, paths, what is given back."""

from tests.mutants.mutant import Mutant

SOURCE   = "gateware/transport/requester/"
TESTS    = "tests/gateware/transport/requester/test_"
ACKS     = f"{TESTS}acknowledger.py"
SEGMENTS = f"{TESTS}segmenter.py"

def mutant(name, block, old, new, *tests):
    return Mutant(name, f"{SOURCE}{block}.py", old, new, tests or (f"{TESTS}{block}.py",))

REQUESTER = (
    # Window and segmentation.
    mutant("send-window-one-too-wide", "send_window", "outstanding < limit", "outstanding <= limit", SEGMENTS),
    mutant("window-fills-unasked", "send_window", "self.closes.eq(last_place |", "self.closes.eq(0 |", SEGMENTS),
    mutant("congestion-window-fills-unasked", "send_window", "(small | (needed > cwnd))", "small", SEGMENTS),
    mutant("congestion-window-not-heeded", "send_window", "in_window & (free | (cwnd > flight))", "in_window", SEGMENTS),
    mutant("immediates-not-bounded", "send_window", "(immediates < attributes.max_wimm_dest)", "1", SEGMENTS),
    mutant("counts-of-a-peer-believed-blindly", "send_window", ".Elif(counted > span, flight.eq(span))", ".Elif(0, flight.eq(span))",
        f"{TESTS}send_window.py"),
    mutant("last-packet-asks-for-nothing", "segmenter", "(is_last & Mux(state.row.active, ~waiting, last_token))", "0"),
    mutant("held-resend-goes-anyway", "segmenter", "NextValue(self.pick.oldest, ~limits.resend_open)", "NextValue(self.pick.oldest, 0)"),
    mutant("marks-forgotten-in-digests", "digest", "state.row.marks.eq(more(", "state.row.marks.eq(0 & more("),
    mutant("resend-not-marked", "segmenter", "self.source.rtx.eq(1)", "self.source.rtx.eq(0)"),
    mutant("full-last-packet-gets-an-empty-tail", "segmenter", "ones.eq((256 << i) - 1)", "ones.eq(256 << i)"),
    mutant("empty-message-has-no-packet", "segmenter", "count.eq(Mux(ring.row.length == 0, 0, packets - 1))", "count.eq(packets - 1)"),
    mutant("rqmsn-counts-plain-writes", "segmenter", "state.row.rqmsn + ring.row.signal", "state.row.rqmsn + 1"),
    mutant("flushed-token-never-completes", "segmenter", "self.credit.completed.eq(failed)", "self.credit.completed.eq(0)"),
    mutant("message-pool-overwritten", "send_window", "(messages < config.messages)", "(messages <= config.messages)", SEGMENTS),
    mutant("ring-compared-without-wrap", "segmenter", "written.row.position != state.row.ring", "written.row.position > state.row.ring"),
    mutant("last-packet-as-long-as-the-others", "wqe", "Mux(remaining[:24] > mtu, mtu, remaining[:13])", "mtu"),
    mutant("wake-lost-while-taken", "scheduler", "(awake & ~sleeps) | woken", "(awake | woken) & ~sleeps"),
    # What leaves.
    mutant("acknowledged-packet-leaves-again", "packet_sender", "age[23] | is_acked", "age[23]"),
    mutant("no-time-in-data", "packet_sender", "tx_timestamp=self.time[:16], ftype=1", "tx_timestamp=0, ftype=1"),
    mutant("lost-path-is-not-told", "packet_sender", '.Elif(d.lost, NextState("LOST"))', '.Elif(0, NextState("LOST"))'),
    mutant("failed-read-is-sent", "packet_sender", ".Elif(error, NextState(\"FAILED\"))", ".Elif(0, NextState(\"FAILED\"))"),
    # Resends.
    mutant("acknowledged-psn-resent", "resend", 'missing = sized(self, ~acked.row.acked, 64, "missing")', "missing = C(2**64 - 1, 64)"),
    mutant("pending-count-forgets-what-was-acknowledged", "resend", "waiting - gone, len", "waiting - found, len"),
    mutant("resend-forgets-the-windows-other-end", "resend", "now.row.bits & window.under, 0)", "0, 0)"),
    mutant("resend-of-a-retired-message", "resend", "(width == 1) & inside", "(width == 1)"),
    # Acknowledgements.
    mutant("acknowledged-beyond-what-was-sent", "acknowledger", "(ahead > w.limit)", "0"),
    mutant("psn-compared-without-wrap", "acknowledger", "~ahead[23] & (ahead > w.limit)", "target > w.next_psn"),
    mutant("retired-without-its-last-psn", "ack_messages", "If(~behind[23],", "If(0,", ACKS),
    mutant("retires-what-never-started", "ack_messages", "| (claimed > w.flying)", "| 0", ACKS),
    mutant("msn-compared-without-wrap", "ack_messages", "| (claimed > w.flying)", "| (packet.msn > w.head)", ACKS),
    mutant("sender-compares-no-generation", "acknowledger", "| (packet.qpn[16:] != w.attributes.row.generation)", "| 0"),
    mutant("sender-compares-no-p-key", "acknowledger", "(packet.p_key != w.attributes.row.p_key)", "0"),
    mutant("scoreboard-not-cleared-behind-the-window", "ack_window", "board.row.acked & window.outside", "board.row.acked", ACKS),
    mutant("hole-reported-once-for-ever", "ack_window", "board.row.reported & ~w.one_bit", "board.row.reported", ACKS),
    mutant("lost-event-not-counted", "ack_window", "w.lost.eq(1)", "w.lost.eq(0)", ACKS),
    mutant("completion-without-credit", "acknowledger", "self.credit.completed.eq(1)", "self.credit.completed.eq(0)"),
    mutant("hole-without-time-guard", "hole_finder", "If(age >= self.guard_time,", "If(1,"),
    mutant("hole-without-packet-guard", "hole_finder", "top - self.guard_packets", "top - 0"),
    mutant("window-piece-without-wrap", "window_piece", "If(distance[23], count.eq(0))", "If(psn < self.origin, count.eq(0))"),
    # Time.
    mutant("progress-does-not-stop-the-timer", "deadline", "If(idle | moved,", "If(idle,"),
    mutant("time-compared-without-wrap", "deadline", "(waited >= Mux(asked,", "(self.time >= now.row.start + Mux(asked,"),
    mutant("timer-runs-while-idle", "deadline", "If(idle | moved,", "If(moved,"),
    mutant("timeout-told-again-and-again", "deadline", "late.eq(~now.row.fired & ", "late.eq("),
)
