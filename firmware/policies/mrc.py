# SPDX-License-Identifier: BSD-2-Clause
"""The default policy: selective resends, a reorder guard, a probe before a resend by timeout.

Losses show as holes in SACKs. The gateware reports a hole once it is ripe: packets far enough above
it have arrived, and it is older than the guard. This policy resends it at once and keeps the guard
above the round-trip times that it sees. What no hole can show, the lost end of a burst, the timeout
finds: first a probe, then resends of the oldest packets, at even intervals and then at doubling
ones. The budget belongs to the oldest unacknowledged PSN and is returned when that moves.

A hole or a timeout blames the path of its packet, which the gateware then leaves; a NACK does not. A
path that was left is probed at once, and when the gateware reminds of it, ever more rarely until one of the
queue pair's peer comes back.

Limits: all of the budget is below 2.5 ms; times in ticks of 128 ns. Sources: MRC 1.0, loss detection
and retransmission; timers and budget.
"""

from firmware.api import (
    Event,
    NackReason,
    PathChange,
    QpError,
    Syndrome,
    fail,
    guard,
    probe,
    probe_path,
    record,
    resend,
    timer,
    u8,
    u16,
    u24,
    u32,
)

# Reorder guard.
MAX_RTT        = u16(1560)     # 200 us: a longer sample counts as this.
GUARD_MARGIN   = u16(32)       # 4.1 us above the peak round-trip time.
GUARD_PACKETS  = 3             # Packets above a hole.
GUARD_REFRESH  = u8(64)        # Events after which the guard is set again in any case.
PEAK_DECAY     = 5             # The peak loses 1/32 of its distance to a smaller sample.

# Timeout.
MIN_INTERVAL   = u32(160)      # 20 us.
MAX_INTERVAL   = u32(780)      # 100 us, before it doubles.
LINEAR         = u8(8)         # Attempts at even intervals.
DOUBLINGS      = u8(5)         # Then attempts at doubling intervals.
BUDGET         = u32(18000)    # 2.3 ms from the first timeout of a PSN.
WINDOW         = u24(64)       # PSNs that one resend can name.
HALF           = u24(0x800000) # A larger PSN difference is a step back: an event that was overtaken.

# Paths.
PROBE_INTERVAL = u32(256)      # 33 us between probes of paths that stay bad,
PROBE_DOUBLINGS = u8(4)        # doubled up to 524 us.

@record
class QueuePair:
    """State of one queue pair."""
    unacked:    u24     # Oldest unacknowledged PSN at the last event.
    next:       u24     # Next new PSN at the last timeout.
    first:      u32     # Time of the first timeout of `unacked`.
    nack_psn:   u24     # Last PSN that was resent for a NACK,
    nack_time:  u32     # and when.
    peak:       u16     # Peak round-trip time.
    guard:      u16     # Guard that the gateware has.
    refused:    u16     # Packets that the responder refused.
    attempts:   u8      # Timeouts of `unacked`.
    guard_age:  u8      # Events since the guard was set.
    nacked:     u8      # 1: nack_psn and nack_time are valid.
    path_time:  u32     # Last probe of a path that stays bad,
    path_fails: u8      # and how many of them since one came back.

# Estimates ----------------------------------------------------------------------------------------

def interval(s: QueuePair) -> u32:
    """Timeout interval before it doubles: four peak round trips."""
    return min(max(u32(s.peak) << 2, MIN_INTERVAL), MAX_INTERVAL)

def sample(s: QueuePair, e: Event):
    """Round-trip time: the peak follows a larger sample at once, a smaller one slowly."""
    if e.rtt == 0:
        return
    rtt = min(e.rtt, MAX_RTT)
    if rtt >= s.peak:
        s.peak = rtt
    else:
        s.peak -= (s.peak - rtt) >> PEAK_DECAY

def set_guard(s: QueuePair, e: Event):
    """Tell the gateware when the guard changed by an eighth, or after many events."""
    if s.peak == 0:
        return
    wanted = s.peak + GUARD_MARGIN
    change = wanted - s.guard if wanted > s.guard else s.guard - wanted
    s.guard_age += 1
    if change > (s.guard >> 3) or s.guard_age >= GUARD_REFRESH:
        s.guard = wanted
        s.guard_age = 0
        guard(e.qp, wanted, GUARD_PACKETS)

def progress(s: QueuePair, e: Event):
    """The oldest unacknowledged PSN moved: the budget is whole again, the interval short."""
    moved = e.unacked - s.unacked
    if moved != 0 and moved < HALF:
        s.unacked = e.unacked
        if s.attempts != 0:
            s.attempts = 0
            ticks = interval(s)
            timer(e.qp, ticks)

def observe(s: QueuePair, e: Event):
    """What every event of the requester tells."""
    progress(s, e)
    sample(s, e)
    set_guard(s, e)

# Events -------------------------------------------------------------------------------------------

def on_holes(s: QueuePair, e: Event):
    """Ripe holes: resend them, then learn."""
    if (e.mask_low | e.mask_high) != 0:
        resend(e.qp, e.base, e.mask_low, e.mask_high, 1)
    observe(s, e)

def on_nack(s: QueuePair, e: Event):
    """Refused packets: trimmed ones at once, the others not faster than one guard time each."""
    if e.reason == NackReason.UNEXP_EVENT:
        fail(e.qp, QpError.REMOTE_OPERATION)
        return
    observe(s, e)
    if e.base - e.unacked >= e.next - e.unacked:
        return
    if e.reason != NackReason.TRIMMED and e.reason != NackReason.TRIMMED_LASTHOP:
        wait = u32(s.peak) + GUARD_MARGIN
        if s.nacked != 0 and e.base == s.nack_psn and e.time - s.nack_time < wait:
            return
        s.nacked = 1
        s.nack_psn = e.base
        s.nack_time = e.time
    resend(e.qp, e.base, 1, 0, 0)

def resend_oldest(e: Event, count: u24):
    """Resend `count` PSNs from the oldest unacknowledged one on, 1 to 64."""
    if count > 32:
        resend(e.qp, e.unacked, ~u32(0), ~u32(0) >> (64 - u32(count)), 1)
    else:
        resend(e.qp, e.unacked, ~u32(0) >> (32 - u32(count)), 0, 1)

def on_timeout(s: QueuePair, e: Event):
    """No progress: probe, then resend, then give up."""
    if e.unacked != s.unacked or s.attempts == 0:
        s.unacked = e.unacked
        s.attempts = 0
        s.first = e.time
    quiet = s.attempts != 0 and e.next == s.next
    s.next = e.next
    s.attempts += 1
    sample(s, e)
    ticks = interval(s)
    if s.attempts > LINEAR:
        ticks = ticks << (s.attempts - LINEAR)
    if s.attempts > LINEAR + DOUBLINGS or e.time - s.first + ticks > BUDGET:
        fail(e.qp, QpError.RETRY_EXCEEDED)
        s.attempts = 0
        return
    set_guard(s, e)
    # The first time the acknowledgement may be what was lost: the probe tells.
    if s.attempts > 1:
        # Nothing new was sent for an interval: what is not acknowledged by now is lost.
        outstanding = e.next - e.unacked
        if quiet and outstanding != 0:
            resend_oldest(e, min(outstanding, WINDOW))
        else:
            resend(e.qp, e.unacked, 1, 0, 1)
    probe(e.qp)
    timer(e.qp, ticks)

def on_nak(s: QueuePair, e: Event):
    """Transport NAK: the queue pair ends."""
    if e.reason == Syndrome.NAK_REMOTE_ACCESS:
        fail(e.qp, QpError.REMOTE_ACCESS)
    elif e.reason == Syndrome.NAK_REMOTE_OPERATION:
        fail(e.qp, QpError.REMOTE_OPERATION)
    else:
        fail(e.qp, QpError.REMOTE_INVALID)

def on_read_error(s: QueuePair, e: Event):
    """Its PSN can never be filled: the queue pair ends."""
    fail(e.qp, QpError.READ_FAILED)

def on_access(s: QueuePair, e: Event):
    """The responder refused a packet and has answered it."""
    s.refused += 1

def on_path(s: QueuePair, e: Event):
    """A path was left, is still bad, or is back: probe it at once, then ever more rarely."""
    if e.reason == PathChange.LOST:
        probe_path(e.qp, e.base)
    elif e.reason == PathChange.RETURNED:
        s.path_fails = 0
    elif e.reason == PathChange.REMINDER and e.time - s.path_time >= PROBE_INTERVAL << s.path_fails:
        s.path_time = e.time
        s.path_fails = min(s.path_fails + 1, PROBE_DOUBLINGS)
        probe_path(e.qp, e.base)
