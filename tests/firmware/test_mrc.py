# SPDX-License-Identifier: BSD-2-Clause
"""Rules of the default policy as tables: events in, commands out."""

import random

import pytest

from firmware.contract import CommandKind, EventKind, PathChange, QpError, path_word
from firmware.python_run import PolicyRunner
from gateware.common.headers import NackReason, Syndrome

NAMES = {value: name for name, value in vars(CommandKind).items() if not name.startswith("_")}
TICK  = 128e-9

def holes(**values):      return dict(kind=EventKind.HOLES, **values)
def timeout(**values):    return dict(kind=EventKind.TIMEOUT, **values)
def nack(reason, **more): return dict(kind=EventKind.NACK, reason=reason, **more)

def short(commands):
    """[(name, the fields that matter)]"""
    fields = {"RESEND": ("base", "mask_low", "mask_high", "reason"), "PROBE": (), "PATH": ("base", "reason"), "TIMER": ("mask_low",),
        "GUARD": ("mask_low", "mask_high"), "ERROR": ("reason",)}
    return [(NAMES[c["kind"]], *[c[f] for f in fields[NAMES[c["kind"]]]]) for c in commands]

def run(*events, runner=None):
    runner = runner or PolicyRunner("mrc")
    return [short(runner.handle(event)) for event in events]

# Holes and the reorder guard ----------------------------------------------------------------------

def test_ripe_holes_are_resent_at_once_and_on_their_queue_pair():
    commands = PolicyRunner("mrc").handle(holes(qp=7, base=0xfffffe, mask_low=5, mask_high=1 << 31, unacked=0xfffffe))
    assert commands == [dict(kind=CommandKind.RESEND, reason=1, qp=7, life=0, base=0xfffffe, mask_low=5, mask_high=1 << 31)]

def test_a_hole_event_without_holes_resends_nothing():
    assert run(holes(base=5)) == [[]]

def test_the_guard_follows_the_peak_round_trip_time():
    guards = run(
        holes(mask_low=1, rtt=20),      # First sample: 20 + 32.
        holes(mask_low=1, rtt=22),      # Less than an eighth more: not worth a command.
        holes(mask_low=1, rtt=100),     # Follows a larger sample at once.
        holes(mask_low=1, rtt=50),      # Decays slowly: not worth a command.
        holes(mask_low=1, rtt=0),       # No sample.
    )
    assert [g[1:] for g in guards] == [[("GUARD", 52, 3)], [], [("GUARD", 132, 3)], [], []]

def test_the_guard_comes_down_and_is_refreshed():
    runner = PolicyRunner("mrc")
    run(holes(mask_low=1, rtt=400), runner=runner)
    rest   = run(*[holes(mask_low=1, rtt=20)]*400, runner=runner)
    values = [g[1][1] for g in rest if len(g) > 1]
    assert values == sorted(values, reverse=True) and values[0] > 350 and values[-1] < 90
    gaps = [i for i, g in enumerate(rest) if len(g) > 1]
    assert max(b - a for a, b in zip(gaps, gaps[1:], strict=False)) <= 64

def test_an_absurd_round_trip_time_is_bounded():
    assert run(holes(mask_low=1, rtt=0xffff))[0][1] == ("GUARD", 1560 + 32, 3)

# Timeouts -----------------------------------------------------------------------------------------

def test_the_first_timeout_probes_and_the_next_resends_what_is_left():
    assert run(
        timeout(unacked=10, next=20, time=1000),
        timeout(unacked=10, next=20, time=1160),
    ) == [
        [("PROBE",), ("TIMER", 160)],
        [("RESEND", 10, 0x3ff, 0, 1), ("PROBE",), ("TIMER", 160)],
    ]

def test_while_new_packets_leave_only_the_oldest_is_resent():
    assert run(
        timeout(unacked=10, next=20, time=1000),
        timeout(unacked=10, next=30, time=1160),
    )[1] == [("RESEND", 10, 1, 0, 1), ("PROBE",), ("TIMER", 160)]

@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 128])
def test_a_resend_by_timeout_names_at_most_64_psns(count):
    unacked = 0xfffff0
    event   = dict(unacked=unacked, next=(unacked + count) & 0xffffff)
    resend  = run(timeout(time=0, **event), timeout(time=160, **event))[1][0]
    mask    = (1 << min(count, 64)) - 1
    assert resend == ("RESEND", unacked, mask & 0xffffffff, mask >> 32, 1)

def timeouts_until_error(rtt, start=0):
    """Follows the timer with nothing ever acknowledged; (intervals, time of the error in ticks)."""
    runner, time, intervals = PolicyRunner("mrc"), start, []
    while True:
        commands = short(runner.handle(timeout(unacked=5, next=9, time=time % 2**32, rtt=rtt)))
        if ("ERROR", QpError.RETRY_EXCEEDED) in commands:
            assert commands == [("ERROR", QpError.RETRY_EXCEEDED)]
            return intervals, time - start
        interval = [c[1] for c in commands if c[0] == "TIMER"]
        assert len(interval) == 1
        intervals += interval
        time      += interval[0]

def test_intervals_are_even_and_then_double():
    intervals, _ = timeouts_until_error(rtt=0)
    assert intervals == [160]*8 + [320, 640, 1280, 2560, 5120]

@pytest.mark.parametrize("rtt", [0, 1, 39, 41, 100, 150, 195, 400, 1560, 65535])
def test_the_budget_is_spent_within_2_5_ms(rtt):
    intervals, spent = timeouts_until_error(rtt, start=0xffff_f000)
    assert spent*TICK < 2.5e-3
    assert len(intervals) >= 10                          # And not before ten attempts.
    assert intervals[0] >= min(4*rtt, 780)               # A timeout is no earlier than an answer.

def test_progress_gives_the_budget_back():
    runner = PolicyRunner("mrc")
    for i in range(10):
        runner.handle(timeout(unacked=5, next=9, time=160*i))
    assert run(timeout(unacked=6, next=9, time=5000), runner=runner) == [[("PROBE",), ("TIMER", 160)]]

def test_progress_seen_in_another_event_makes_the_interval_short_again():
    runner = PolicyRunner("mrc")
    for i in range(10):
        runner.handle(timeout(unacked=5, next=9, time=160*i))
    assert run(holes(unacked=6, base=7, mask_low=1), holes(unacked=7, base=8, mask_low=1), runner=runner) == [
        [("RESEND", 7, 1, 0, 1), ("TIMER", 160)], [("RESEND", 8, 1, 0, 1)]]

def test_an_event_that_was_overtaken_is_no_progress():
    runner = PolicyRunner("mrc")
    for i in range(3):
        runner.handle(timeout(unacked=5, next=9, time=160*i))
    assert run(holes(unacked=4, base=7, mask_low=1), runner=runner) == [[("RESEND", 7, 1, 0, 1)]]

def test_a_new_life_has_the_whole_budget_and_an_old_guard_is_forgotten():
    runner = PolicyRunner("mrc")
    run(holes(mask_low=1, rtt=100), *[timeout(unacked=5, next=6, time=160*n) for n in range(6)], runner=runner)
    first  = run(holes(mask_low=1, rtt=100), timeout(unacked=5, next=6, time=1000), runner=PolicyRunner("mrc"))
    second = run(dict(kind=EventKind.START, life=1), holes(mask_low=1, rtt=100, life=1),
        timeout(unacked=5, next=6, time=1000, life=1), runner=runner)
    assert second == [[], *first]

def test_commands_are_meant_for_the_life_of_their_event():
    runner = PolicyRunner("mrc")
    for life in (0, 3, 4, 3, 255, 0):
        commands = runner.handle(timeout(qp=2, unacked=5, next=6, life=life))
        assert commands and all((c["qp"], c["life"]) == (2, life) for c in commands)
    assert {c["life"] for c in runner.handle(timeout(qp=1, unacked=5, next=6))} == {0}

def test_queue_pairs_do_not_share_their_budget():
    runner = PolicyRunner("mrc")
    for i in range(8):
        runner.handle(timeout(qp=1, unacked=5, next=9, time=160*i))
    assert run(timeout(qp=2, unacked=5, next=9, time=9999), runner=runner) == [[("PROBE",), ("TIMER", 160)]]

@pytest.mark.parametrize("loss", [0.05, 0.2])
def test_heavy_random_loss_does_not_fail_a_queue_pair(loss):
    """A tail loss is repaired when a resend and the answer to it, or to its probe, both get through."""
    rng = random.Random(7)
    runner = PolicyRunner("mrc")
    for psn in range(20000):
        time, missing = 0, True
        while True:
            commands = short(runner.handle(timeout(unacked=psn, next=psn + 1, time=time)))
            assert ("ERROR", QpError.RETRY_EXCEEDED) not in commands
            answered = False
            for command in commands:
                if command[0] == "RESEND" and rng.random() > loss:
                    missing, answered = False, answered or rng.random() > loss
                if command[0] == "PROBE" and rng.random() > loss and rng.random() > loss:
                    answered = answered or not missing
            if answered:
                break
            time += [c[1] for c in commands if c[0] == "TIMER"][0]

# Refusals of the peer -----------------------------------------------------------------------------

RESENT = [NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP, NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER,
    NackReason.NO_RESOURCE, NackReason.PSN_OOR_WINDOW]

@pytest.mark.parametrize("reason", RESENT)
def test_a_nacked_packet_is_resent(reason):
    assert run(nack(reason, unacked=5, next=9, base=7)) == [[("RESEND", 7, 1, 0, 0)]]

@pytest.mark.parametrize("reason", RESENT)
@pytest.mark.parametrize("base", [4, 9, 0x800000])
def test_a_nack_outside_of_the_window_is_ignored(reason, base):
    assert run(nack(reason, unacked=5, next=9, base=base)) == [[]]

def test_a_resource_nack_repeats_a_resend_once_per_guard_time_and_a_trimmed_one_always():
    event = dict(unacked=5, next=9, base=7)
    for reason, expected in ((NackReason.NO_PKT_BUFFER, [1, 0, 1]), (NackReason.TRIMMED, [1, 1, 1])):
        got = run(*[nack(reason, time=t % 2**32, **event) for t in (0xffff_fff0, 0xffff_fff0 + 31, 0xffff_fff0 + 40)])
        assert [len(g) for g in got] == expected

def test_an_unexpected_event_ends_the_queue_pair():
    assert run(nack(NackReason.UNEXP_EVENT, unacked=5, next=9, base=100)) == [[("ERROR", QpError.REMOTE_OPERATION)]]

@pytest.mark.parametrize("syndrome, reason", [
    (Syndrome.NAK_INVALID_REQUEST,  QpError.REMOTE_INVALID),
    (Syndrome.NAK_REMOTE_ACCESS,    QpError.REMOTE_ACCESS),
    (Syndrome.NAK_REMOTE_OPERATION, QpError.REMOTE_OPERATION),
    (0x7f,                          QpError.REMOTE_INVALID),
])
def test_a_transport_nak_ends_the_queue_pair(syndrome, reason):
    assert run(dict(kind=EventKind.NAK, reason=syndrome)) == [[("ERROR", reason)]]

def test_a_failed_read_ends_the_queue_pair():
    assert run(dict(kind=EventKind.READ_ERROR)) == [[("ERROR", QpError.READ_FAILED)]]

def test_a_refusal_by_the_own_responder_is_counted_only():
    runner = PolicyRunner("mrc")
    assert run(*[dict(kind=EventKind.ACCESS, qp=3)]*3, runner=runner) == [[], [], []]
    assert runner.state[3].refused == 3

# Paths --------------------------------------------------------------------------------------------

def path(reason, **more): return dict(kind=EventKind.PATH, reason=reason, base=path_word(3, 17), **more)

def probes(*events):
    """Which of the events are answered with a probe of their path."""
    runner = PolicyRunner("mrc")
    result = []
    for event in events:
        commands = runner.handle(event)
        assert all((c["kind"], c["base"]) == (CommandKind.PROBE, path_word(3, 17)) for c in commands) and len(commands) <= 1
        result.append(len(commands))
    return result

def test_a_lost_path_is_probed_at_once_each_time():
    assert probes(*[path(PathChange.LOST, time=t) for t in (5, 6, 7)]) == [1, 1, 1]

def test_a_path_that_stays_bad_is_probed_ever_more_rarely_but_for_ever():
    times  = range(1 << 31, (1 << 31) + 40_000, 100)
    probed = [t for t, p in zip(times, probes(*[path(PathChange.REMINDER, time=t) for t in times]), strict=True) if p]
    gaps   = [b - a for a, b in zip(probed, probed[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[0] <= 600 and set(gaps[5:]) == {4100} and len(gaps) > 8

def test_a_path_that_is_back_makes_the_others_probed_soon():
    events = [path(PathChange.REMINDER, time=1000*n + 1000) for n in range(20)]
    again  = [path(PathChange.RETURNED, time=21_000), path(PathChange.REMINDER, time=21_300), path(PathChange.REMINDER, time=21_900)]
    assert probes(*events, *again)[-3:] == [0, 1, 1]

@pytest.mark.parametrize("event", [dict(kind=0), dict(kind=99), dict(kind=EventKind.TIMEOUT, qp=16)])
def test_unknown_events_and_queue_pairs_give_nothing(event):
    assert run(event) == [[]]
