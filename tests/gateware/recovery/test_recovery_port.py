# SPDX-License-Identifier: BSD-2-Clause
"""Recovery port: events in any rhythm, commands good and bad, one bus."""

import random

import pytest
from migen import *
from migen.sim import passive

from firmware.contract import (
    COMMAND,
    COMMAND_WORDS,
    EVENT,
    EVENT_WORDS,
    VERSION,
    CommandKind,
    Window,
    WindowStatus,
    path_word,
)
from gateware.config import preset
from gateware.recovery.recovery_port import RecoveryPort
from tests.engines import simulate

SOURCES = 3

class Bench(Module):
    """The port with its event sources as attributes."""
    def __init__(self, config):
        self.submodules.port = port = RecoveryPort(config)
        self.bus     = port.bus
        self.command = port.command
        self.time    = port.time
        self.alive   = Signal()
        self.refused = Signal(32)
        self.comb += [self.alive.eq(port.alive), self.refused.eq(port.commands_refused)]
        for i in range(SOURCES):
            setattr(self, f"event{i}", port.add_event_source())

# Bus master ---------------------------------------------------------------------------------------

def access(bus, word, value=None, sel=0xf):
    yield bus.adr.eq(word)
    yield bus.sel.eq(sel)
    yield bus.we.eq(value is not None)
    yield bus.dat_w.eq(value or 0)
    yield bus.cyc.eq(1)
    yield bus.stb.eq(1)
    yield
    for _ in range(4):
        yield
        if (yield bus.ack):
            break
    else:
        raise AssertionError(f"the port did not answer word {word:#x}")
    data = yield bus.dat_r
    yield bus.cyc.eq(0)
    yield bus.stb.eq(0)
    yield
    return data

def send(bus, words):
    """Wait for the mailbox, write the words, submit."""
    while (yield from access(bus, Window.STATUS)) & WindowStatus.BUSY:
        pass
    for i, word in enumerate(words):
        yield from access(bus, Window.COMMAND + i, word)
    yield from access(bus, Window.GO, 1)

# Events -------------------------------------------------------------------------------------------

def random_record(table, rng):
    return {f.name: rng.getrandbits(f.width) for f in table}

def raise_events(endpoint, events, rng):
    for event in events:
        while rng.random() < 0.4:
            yield
        for name, value in event.items():
            yield getattr(endpoint, name).eq(value)
        yield endpoint.valid.eq(1)
        yield
        while not (yield endpoint.ready):
            yield
        yield endpoint.valid.eq(0)
        yield

def read_events(bus, count, rng, got):
    while len(got) < count:
        waiting = (yield from access(bus, Window.STATUS)) & WindowStatus.EVENTS_MASK
        if not waiting:
            assert not (yield from access(bus, Window.POP)) # Reads 0, pops nothing.
            continue
        words = []
        for i in range(EVENT_WORDS):
            words.append((yield from access(bus, Window.EVENT + i)))
            for _ in range(rng.randrange(3)):
                yield
        yield from access(bus, Window.POP, 0, sel=0x1) # A narrow write is ignored.
        assert (yield from access(bus, Window.EVENT + 1)) == words[1]
        yield from access(bus, Window.POP, 0)
        got.append({f.name: (words[f.word] >> f.bit) & ((1 << f.width) - 1) for f in EVENT})

def test_every_event_arrives_once_and_whole():
    """Three sources, one of them bursty; each source's order is kept, nothing is lost or torn."""
    rng    = random.Random(1)
    dut    = Bench(preset("tiny"))
    events = []
    for i in range(SOURCES):
        events.append([dict(random_record(EVENT, rng), entropy=i) for _ in range(20)])
    got = []
    simulate(dut, [
        *[raise_events(getattr(dut, f"event{i}"), events[i], random.Random(10 + i)) for i in range(SOURCES)],
        read_events(dut.bus, 20*SOURCES, random.Random(5), got),
    ], limit=50000)
    for i in range(SOURCES):
        assert [e for e in got if e["entropy"] == i] == events[i]
    # No source is starved: among the first six events every source shows.
    assert {e["entropy"] for e in got[:6]} == set(range(SOURCES))

# Commands -----------------------------------------------------------------------------------------

def command_words(values):
    words = [0]*COMMAND_WORDS
    for f in COMMAND:
        words[f.word] |= values.get(f.name, 0) << f.bit
    return words

BAD = [
    dict(kind=0, qp=0),
    dict(kind=8, qp=0),
    dict(kind=CommandKind.PATH, qp=0, base=3),                              # No path named,
    dict(kind=CommandKind.PATH, qp=0, base=path_word(0, 3), reason=4),      # no such state,
    dict(kind=CommandKind.PATH, qp=0, base=path_word(2, 3)),                # no such peer,
    dict(kind=CommandKind.PATH, qp=0, base=path_word(1, 8)),                # no such entropy value.
    dict(kind=CommandKind.PROBE, qp=0, base=path_word(1, 8)),
    dict(kind=CommandKind.PROBE, qp=0, base=7),
    dict(kind=255, qp=1),
    dict(kind=CommandKind.PROBE, qp=4),
    dict(kind=CommandKind.PROBE, qp=0xffff),
    dict(kind=CommandKind.RESEND, qp=0, base=77),
    dict(kind=CommandKind.ERROR, qp=0, reason=0),
    dict(kind=CommandKind.ERROR, qp=0, reason=16),
]

def good_command(rng):
    kind = rng.choice([1, 2, 3, 4, 5, 6])
    path = path_word(rng.randrange(2), rng.randrange(8))
    base = {2: rng.choice((0, path)), 6: path}.get(kind, rng.getrandbits(24))
    return dict(kind=kind, reason=rng.randrange(1, 4 if kind == 6 else 16), qp=rng.randrange(4), base=base, life=rng.getrandbits(8),
        mask_low=rng.getrandbits(32) | 1, mask_high=rng.getrandbits(32))

def test_commands_arrive_and_the_impossible_are_refused():
    rng  = random.Random(2)
    dut  = Bench(preset("tiny"))
    good = [good_command(rng) for _ in range(40)]
    got, seen = [], {}

    def core():
        assert (yield from access(dut.bus, Window.VERSION)) == VERSION
        assert (yield from access(dut.bus, Window.QUEUE_PAIRS)) == 4
        assert (yield from access(dut.bus, Window.EVENT)) == 0
        assert (yield from access(dut.bus, 0x1f)) == 0
        for i, command in enumerate(good):
            yield from send(dut.bus, command_words(command))
            if i % 2 == 0 and i//2 < len(BAD):
                yield from send(dut.bus, command_words(BAD[i//2]))
        for _ in range(2000):
            yield
        seen["refused"] = yield from access(dut.bus, Window.REFUSED)

    @passive
    def transport():
        stall = random.Random(3)
        while True:
            ready = stall.random() < 0.02
            yield dut.command.ready.eq(ready)
            yield
            if ready and (yield dut.command.valid):
                beat = {}
                for f in COMMAND:
                    beat[f.name] = yield getattr(dut.command, f.name)
                got.append(beat)
            yield dut.command.ready.eq(0)
            yield

    simulate(dut, [core(), transport()], limit=100000)
    assert got == good
    assert seen["refused"] == len(BAD)

def test_busy_mailbox_loses_nothing_that_was_taken():
    """A `go` against a full queue is counted as refused; the four that were taken stay as they were."""
    dut, result, beats = Bench(preset("tiny")), {}, []
    def core():
        for i in range(6):
            for word, value in enumerate(command_words(dict(kind=CommandKind.TIMER, qp=1, base=i))):
                yield from access(dut.bus, Window.COMMAND + word, value)
            yield from access(dut.bus, Window.GO, 1)
        result["status"]  = yield from access(dut.bus, Window.STATUS)
        result["refused"] = yield from access(dut.bus, Window.REFUSED)
        for _ in range(8):
            yield dut.command.ready.eq(1)
            yield
            if (yield dut.command.valid):
                beats.append((yield dut.command.base))
            yield dut.command.ready.eq(0)
            yield
    simulate(dut, [core()], limit=5000)
    assert result["status"] & WindowStatus.BUSY
    assert result["refused"] == 2
    assert beats == [0, 1, 2, 3]

# Time and watchdog --------------------------------------------------------------------------------

def test_watchdog_shows_a_stopped_firmware():
    dut, alive = Bench(preset("tiny")), []
    def core():
        def look():
            yield
            yield
            alive.append((yield dut.alive))
        yield dut.time.eq(0xffff_ff00)
        yield from look()
        yield from access(dut.bus, Window.HEARTBEAT, 1)
        yield from look()
        yield dut.time.eq(0x0000_fe00) # Over the wrap, 0xff00 ticks old: still alive.
        yield from look()
        assert (yield from access(dut.bus, Window.TIME)) == 0xfe00
        yield dut.time.eq(0x0000_ff00)
        yield from look()
        yield dut.time.eq(0xffff_ff00) # A whole wrap later it is not alive again by itself.
        yield from look()
        yield from access(dut.bus, Window.HEARTBEAT, 1)
        yield from look()
    simulate(dut, [core()], limit=1000)
    assert alive == [0, 1, 1, 0, 0, 1]

def test_event_source_after_elaboration_is_refused():
    port = RecoveryPort(preset("tiny"))
    port.add_event_source()
    port.get_fragment()
    with pytest.raises(ValueError, match="after the event queue was elaborated"):
        port.add_event_source()
