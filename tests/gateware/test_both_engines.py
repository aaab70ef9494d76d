# SPDX-License-Identifier: BSD-2-Clause
"""Blocks that count do the same in Migen's simulator and in the generated Verilog, signal by signal, cycle by cycle.

The scenarios are those of the blocks' own tests, shortened; the stream blocks run theirs of test_streams.
"""

import random

import pytest

from gateware.config import preset
from gateware.transport.requester.scheduler import Scheduler
from tests.engines import simulate
from tests.engines.both import same_in_both
from tests.gateware import test_streams as streams
from tests.gateware.host import test_credit_writer as credits
from tests.gateware.host import test_doorbell as bell
from tests.gateware.host import test_payload_reader as reader
from tests.gateware.recovery import test_recovery_port as recovery
from tests.gateware.transport.harness import PSN, WINDOWS, pulse, wait
from tests.gateware.transport.requester import test_deadline as deadline
from tests.gateware.transport.requester import test_hole_finder as holes
from tests.gateware.transport.requester import test_segmenter as segmenter

CONFIG = WINDOWS[128]

def segments():
    world = segmenter.World(segmenter.Dut(CONFIG), CONFIG, 4, stall=0.3)
    def drive():
        yield from world.setup()
        for n in range(24):
            yield from world.post(n % 4, length=world.rng.randrange(3000))
            yield from wait(15)
            yield from world.acknowledge(world.rng.randrange(4))
    world.run(drive())
    assert world.new > 10

def schedule():
    dut, rng = Scheduler(CONFIG, wakers=3), random.Random(5)
    def drive():
        for _ in range(150):
            yield dut.source.ready.eq(rng.getrandbits(1))
            yield from pulse(dut.wakes[rng.randrange(3)], rng.randrange(CONFIG.queue_pairs))
    simulate(dut, drive())

def deadlines():
    world = deadline.World(deadline.Dut(), 6, 2**32 - 300)
    def drive():
        for n in range(world.count):
            yield from world.start(n, 60)
        for n in range(20):
            s = world.state[n % 4]
            yield from world.move(n % 4, unacked=(PSN - 3 + n//8) % PSN, next=(s["next"] + 1) % PSN)
            yield from wait(20)
    world.run(drive())
    assert world.sink.beats

def doorbells():
    bell.DUT = bell.Bench()
    run = bell.Run(7)
    def script():
        for n in range(20):
            yield from run.store(n % 2, run.random.randrange(12), bell.token(run.random))
            waiting = [qp for qp in range(4) if run.model.rings[qp]]
            if waiting and not n % 4:
                yield from run.leave(run.random.choice(waiting))
    run.check(script())

def credit_lines():
    credits.DUT = credits.Bench()
    credits.test_line_is_written_at_the_threshold_after_an_error_and_by_the_timer()

def reads():
    config    = preset("tiny", max_mtu=1024)
    dut       = reader.Dut(config)
    completer = reader.Completer(dut, config.host_width, 3, faults=0.3, latency=30)
    completer.dut_tags = config.read_tags
    reader.receive(dut, config, reader.requests_of(random.Random(3), config.but(max_mtu=256, receive_store=4096), 8), completer, 3)

BLOCKS = {"segmenter": segments, "scheduler": schedule, "deadline": deadlines, "doorbell": doorbells, "credit_writer": credit_lines,
    "hole_finder": lambda: holes.check(8), "payload_reader": reads, "watchdog": recovery.test_watchdog_shows_a_stopped_firmware,
    "mailbox": recovery.test_busy_mailbox_loses_nothing_that_was_taken}

@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_the_same_in_both_engines(name, monkeypatch):
    for module in (bell, credits):             # They keep one module for all their tests.
        monkeypatch.setattr(module, "DUT", module.DUT)
    assert same_in_both(BLOCKS[name]) > 20

@pytest.mark.parametrize("name", streams.CASES)
def test_stream_block_is_the_same_in_both_engines(name):
    assert same_in_both(lambda: streams.run(streams.CASES[name]())) > 50

def test_a_difference_is_named():
    from migen import Module, Signal
    class Trap(Module):                        # A sum that nobody sized: it grows in Migen's simulator only.
        def __init__(self):
            self.a, self.b, self.same = Signal(8, reset=255), Signal(8), Signal()
            self.comb += self.same.eq((self.a + 1) == self.b)
    def run():
        simulate(Trap(), wait(3))
    with pytest.raises(AssertionError, match="io.same is 0x0 in migen, but 0x1 in verilator, in cycle 0"):
        same_in_both(run)
