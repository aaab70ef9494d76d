# SPDX-License-Identifier: BSD-2-Clause
"""The engines agree where Migen and Verilog do, and show where they do not.

`TRAPS` documents why the generated Verilog is the truth: the same expression gives two values. Each
has the rule that avoids it beside it.
"""

import pytest
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from litex.soc.interconnect.csr import CSRStatus, CSRStorage
from migen import *

from tests.engines import ENGINES, BuildError, SimulationLimit, passive, simulate

# Agreement ----------------------------------------------------------------------------------------

class Everything(LiteXModule):
    """Ports of every kind: narrow, signed, wide, reset values, memory with content, CSRs, submodules."""
    def __init__(self):
        self.step    = Signal(8)
        self.level   = Signal((8, True), reset=-3)
        self.wide    = Signal(100)
        self.count   = Signal(8, reset=200)
        self.shifted = Signal(100, reset=7)
        self.negated = Signal((9, True))
        self.address = Signal(2)
        self.word    = Signal(8)
        self.doubled = Signal(8)
        self.list    = [Signal(4, name=f"entry{n}") for n in range(3)]
        self.control = CSRStorage(8, reset=5)
        self.status  = CSRStatus(8)
        self.fifo    = stream.SyncFIFO([("data", 64)], 4)

        # # #

        memory = Memory(8, 4, init=[0x11, 0x22, 0x33, 0x44])
        port   = memory.get_port()
        self.specials += memory, port
        self.comb += [
            port.adr.eq(self.address),
            self.word.eq(port.dat_r),
            self.negated.eq(-self.level),
            self.doubled.eq(self.control.storage << 1),
            self.status.status.eq(self.count),
            self.list[2].eq(self.list[0] ^ self.list[1]),
        ]
        self.sync += [self.count.eq(self.count + self.step), self.shifted.eq(Cat(self.wide[99], self.wide[:99]))]

def everything(dut, seen):
    outputs = [dut.count, dut.level, dut.negated, dut.shifted, dut.word, dut.doubled, dut.status.status, dut.list[2],
        dut.fifo.source.valid, dut.fifo.source.data, dut.fifo.level]
    yield dut.step.eq(3)
    for n in range(12):
        seen.append((yield outputs))
        seen.append([(yield dut.count[2:5]), (yield Cat(dut.word, dut.count)), (yield dut.level)])
        yield dut.level.eq(dut.level - n)
        yield dut.wide.eq((1 << 99) | n << 60 | n)
        yield [dut.address.eq(n), dut.list[0].eq(n), dut.list[1][1:3].eq(n), dut.control.storage.eq(n)]
        yield [dut.fifo.sink.valid.eq(n & 1), dut.fifo.sink.data.eq(n << 60), dut.fifo.source.ready.eq(n > 8)]
        yield

def test_engines_agree_on_every_kind_of_port():
    seen = {}
    for engine in ENGINES:
        dut = Everything()
        simulate(dut, [everything(dut, seen.setdefault(engine, []))], engine=engine)
    assert seen["migen"] == seen["verilator"]
    assert seen["migen"][0][:4] == [200, -3, 3, 7]

@pytest.mark.parametrize("engine", ENGINES)
def test_writes_become_visible_after_the_edge(engine):
    dut, seen = Everything(), []
    def writer():
        yield dut.step.eq(1)
        seen.append((yield dut.step))
        yield
        seen.append((yield dut.step))
        seen.append((yield dut.count))
        yield
        seen.append((yield dut.count))
    def reader():
        seen.append((yield dut.step))
        yield
    simulate(dut, [writer(), reader()], engine=engine)
    assert seen == [0, 0, 1, 200, 201]

@pytest.mark.parametrize("engine", ENGINES)
def test_one_module_runs_twice_from_reset(engine):
    dut, seen = Everything(), []
    def run():
        yield dut.step.eq(1)
        for _ in range(3):
            yield
        seen.append((yield dut.count))
    simulate(dut, [run()], engine=engine)
    simulate(dut, [run()], engine=engine)
    assert seen == [202, 202]

# Limits and refusals ------------------------------------------------------------------------------

@pytest.mark.parametrize("engine", ENGINES)
def test_limit_names_who_waits_and_how_to_repeat(engine):
    dut = Everything()
    def nobody_answers():
        while not (yield dut.fifo.source.valid):
            yield
    @passive
    def bystander():
        while True:
            yield
    with pytest.raises(SimulationLimit, match=r"(?s)within 50 cycles \(seed 7\).*waiting: .*nobody_answers.*test_engines.py:"
                       r".*passive: .*bystander.*Repeat with: ./scripts/test 'tests/engines/test_engines.py::"):
        simulate(dut, [nobody_answers(), bystander()], engine=engine, limit=50, seed=7)

@pytest.mark.parametrize("statement, sentence", [
    (lambda dut: dut.count.eq(1),   "which the module drives"),
    (lambda dut: Signal(),          "is no port of the module"),
    (lambda dut: Signal().eq(1),    "is no port of the module"),
])
def test_what_is_no_input_is_refused(statement, sentence):
    dut = Everything()
    def run():
        yield statement(dut)
        yield
    with pytest.raises(AssertionError, match=sentence):
        simulate(dut, [run()])

def tick():
    yield

def test_combinational_loop_is_an_error():
    dut = LiteXModule()
    dut.a, dut.b, dut.enable = Signal(), Signal(), Signal()
    dut.comb += [dut.a.eq(dut.b ^ dut.enable), dut.b.eq(~dut.a)]
    with pytest.raises(BuildError, match="UNOPTFLAT"):
        simulate(dut, [tick()])

@pytest.mark.parametrize("engine", ENGINES)
def test_two_drivers_are_an_error(engine):
    dut = LiteXModule()
    dut.a, dut.b = Signal(), Signal()
    dut.comb += dut.a.eq(dut.b)
    dut.sync += dut.a.eq(dut.b)
    with pytest.raises(AssertionError, match="is driven by combinational logic and by clock domain sys"):
        simulate(dut, [tick()], engine=engine)

def test_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="the engines are migen, verilator"):
        simulate(LiteXModule(), [], engine="icarus")

# Traps --------------------------------------------------------------------------------------------

TRAPS = [
    # name,                        expression,                      a,    b,    migen, verilog
    ("a sum grows",                lambda a, b: (a + 1) == b,       255,  0,    0,     1),
    ("a difference grows",         lambda a, b: (a - b) >= 128,     1,    2,    0,     1),
    ("a difference is signed",     lambda a, b: (a - b) < 0,        1,    2,    1,     0),
    ("a carry outlives its width", lambda a, b: (a + b) >> 1,       200,  100,  150,   22),
    ("an inversion is endless",    lambda a, b: ~a == b,            0x0f, 0xf0, 0,     1),
]

class Traps(LiteXModule):
    """Each trap as it should not be written, and with a named Signal of the intended width."""
    def __init__(self):
        self.a, self.b = Signal(8), Signal(8)
        self.results   = [Signal(8, name=f"result{n}") for n in range(len(TRAPS))]
        total, difference, inverse = Signal(8), Signal(8), Signal(8)
        self.ruled = Signal(4)
        self.comb += [r.eq(trap[1](self.a, self.b)) for r, trap in zip(self.results, TRAPS, strict=True)]
        self.comb += [
            total.eq(self.a + 1), difference.eq(self.a - self.b), inverse.eq(~self.a),
            self.ruled.eq(Cat(total == self.b, difference >= 128, difference[7], inverse == self.b)),
        ]

def test_traps_give_two_values_and_sized_signals_one():
    results = {}
    for engine in ENGINES:
        dut, seen = Traps(), results.setdefault(engine, [])
        def run(dut=dut, seen=seen):
            for n, (_, _, a, b, _, _) in enumerate(TRAPS):
                yield [dut.a.eq(a), dut.b.eq(b)]
                yield
                seen.append(((yield dut.results[n]), (yield dut.ruled)))
        simulate(dut, [run()], engine=engine)
    assert [r for r, _ in results["migen"]]     == [trap[4] for trap in TRAPS]
    assert [r for r, _ in results["verilator"]] == [trap[5] for trap in TRAPS]
    assert [r for _, r in results["migen"]]     == [r for _, r in results["verilator"]]
