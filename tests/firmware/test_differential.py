# SPDX-License-Identifier: BSD-2-Clause
"""One policy, two forms: Python and C give the same commands and keep the same course."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firmware.contract import EVENT
from firmware.host_run import HostRunner
from firmware.python_run import PolicyRunner

# Every operator and statement of the language, with results that depend on all widths.
EVERYTHING = '''
"""All of the language."""
from firmware.api import Event, QpError, fail, guard, probe, probe_path, record, resend, set_path, steps, timer, u8, u16, u24, u32

ODD   = u16(0xfff1)
SHIFT = 3
BIG   = 1 << 31

@record
class State:
    """State."""
    a: u8
    b: u16
    c: u24
    d: u32
    register: u32

def mix(x: u32, y: u24) -> u32:
    """Operators on two widths."""
    z = (x + y)*(x ^ 0x5555) - (y << SHIFT)
    z ^= ~z >> 7
    return z | u32(y & 0xff)

def small(x: u8) -> u8:
    if x > 200:
        return x - 201
    elif x == 7 or not x != 9:
        return ~x
    else:
        return u8(x*x)

def even(x: u32) -> bool:
    return (x & 1) == 0

def on_start(s: State):
    s.d = 0xdeadbeef
    s.register = BIG

def on_holes(s: State, e: Event):
    s.a += 1
    s.b = ODD*u16(s.a) + e.rtt
    s.c -= e.base
    s.d = mix(s.d, s.c)
    n = u32(0)
    for i in steps(20):
        if i == 3:
            continue
        n += (e.mask_low >> i) & 1
        if n > 12 and even(e.mask_high):
            break
    resend(e.qp, s.c, s.d, n, s.a)

def on_timeout(s: State, e: Event):
    t = u16(s.d) if e.time > 1000 else s.b
    t = t << u8(e.base & 31)
    s.register = s.register >> (e.unacked & 0x3f)
    count = small(e.reason)
    guard(e.qp, max(t, e.rtt), count)
    timer(e.qp, min(u32(t), s.register))

def on_nack(s: State, e: Event):
    flag = even(u32(e.base)) and e.next - e.unacked < 0x800000
    x = small(e.reason)
    s.a = x + u8(e.unacked == e.next)
    if flag:
        probe(e.qp)
    else:
        probe_path(e.qp, e.base)
        set_path(e.qp, e.unacked, x)
    on_holes(s, e)
    fail(e.qp, QpError.READ_FAILED)
'''

PSN    = st.one_of(st.sampled_from([0, 1, 2, 5, 0x7fffff, 0x800000, 0xfffffe, 0xffffff]), st.integers(0, 2**24 - 1))
VALUES = {8: st.one_of(st.sampled_from([1, 2, 6, 7, 9, 10, 11, 25, 0x61, 0x62, 0x63]), st.integers(0, 255)),
    16: st.one_of(st.sampled_from([0, 1, 20, 200, 1560, 0xffff]), st.integers(0, 2**16 - 1)),
    24: PSN,
    32: st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))}

@st.composite
def traces(draw):
    """Events of few queue pairs with creeping time, so that state matters; some are nonsense."""
    events, time = [], draw(VALUES[32])
    for _ in range(draw(st.integers(1, 10))):
        event = {f.name: draw(VALUES[f.width]) for f in EVENT}
        event["kind"] = draw(st.sampled_from([0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 6, 7, 255]))
        event["life"] = draw(st.sampled_from([0, 0, 0, 0, 1, 255]))
        event["qp"]   = draw(st.sampled_from([0, 0, 0, 1, 15, 16, 0xffff]))
        if draw(st.booleans()):
            event["unacked"] = 0xfffffe
            event["next"]    = draw(st.sampled_from([0xffffff, 0, 9, 70]))
        time = (time + draw(st.sampled_from([0, 10, 160, 160, 5000]))) % 2**32
        event["time"] = time
        events.append(event)
    return events

@pytest.fixture(scope="module", params=["mrc", "everything"])
def policy(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    if request.param == "mrc":
        return "mrc", HostRunner("mrc", out_dir=folder)
    path = folder/"everything.py"
    path.write_text(EVERYTHING)
    return str(path), HostRunner(str(path), out_dir=folder)

@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture,
    HealthCheck.data_too_large, HealthCheck.too_slow])
@given(events=traces())
def test_python_and_c_give_the_same_commands(policy, events):
    source, host = policy
    python = PolicyRunner(source)
    host.restart()
    for event in events:
        assert host.handle(event) == python.handle(event)

@pytest.mark.parametrize("seed", range(4))
def test_long_traces(policy, seed):
    """A thousand events of few lives: counters and ages wrap."""
    source, host = policy
    rng, python  = random.Random(seed), PolicyRunner(source)
    host.restart()
    psn = time = 0
    for _ in range(1000):
        psn  = (psn + rng.choice([0, 0, 0, 1, 100])) % 2**24
        time = (time + rng.choice([1, 40, 160, 700])) % 2**32
        event = dict(kind=rng.randrange(1, 8), life=int(rng.randrange(20) == 0), reason=rng.choice([1, 2, 7, 11, 25, 0x62]),
            qp=rng.choice([0, 1]), unacked=psn, next=(psn + rng.randrange(130)) % 2**24, base=(psn + rng.randrange(130)) % 2**24,
            mask_low=rng.getrandbits(32), mask_high=rng.getrandbits(32), rtt=rng.choice([0, 15, 60, 300, 2000]), time=time)
        assert host.handle(event) == python.handle(event)
