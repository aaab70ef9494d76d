# SPDX-License-Identifier: BSD-2-Clause
"""The house checks hold for the cards, and each of them finds a planted fault."""

import pytest
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from litex.soc.interconnect.csr import CSRField, CSRStatus, CSRStorage
from migen import *

from soc.nic_soc import NicSoC
from tests.repo import house
from tests.repo.house import lint

class Planted(LiteXModule):
    """A module with what `plant(module)` puts into it."""
    def __init__(self, plant):
        self.a, self.b, self.c, self.q = Signal(8), Signal(8), Signal(8), Signal(32)
        self.bit = Signal()
        self.fsm_of = lambda **states: plant_fsm(self, states)
        plant(self)

def plant_fsm(module, states):
    module.fsm = fsm = FSM(reset_state="IDLE")
    for state, statements in states.items():
        fsm.act(state, *statements)
    return fsm

def found(plant, checks=tuple(house.CHECKS)):
    return house.check(lambda: Planted(plant), checks)

# The tree -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", house.CARDS)
def test_checks_hold_for_the_card(name):
    findings = house.check(lambda: NicSoC(house.CARDS[name]))
    assert not findings, "\n".join(findings)

def test_a_card_shows_what_the_checks_look_at():
    with house.Watch() as watch:
        top = NicSoC(house.CARDS["tiny, two planes, 64-bit host"])
        top.finalize()
    assert len(watch.csrs) > 50 and len(watch.connects) > 50 and len(watch.modules) > 100
    assert len(watch.acts) > 20 and len(watch.asked) > 10 and len(watch.nexts) > 200
    assert all(":" in place and not place.startswith("/") for place, *_ in watch.csrs + watch.connects + watch.modules)

# Raw sums -----------------------------------------------------------------------------------------

RAW = {
    "a sum compared":          lambda m: (m.a + 1) == m.b,
    "a difference compared":   lambda m: (m.a - m.b) >= 128,
    "a sum within":            lambda m: Mux(m.bit, m.a, m.a + m.b) < 3,
    "a sum in an OR":          lambda m: ((m.a + m.b) | m.c) != 0,
    "an inversion compared":   lambda m: ~m.a == m.b,
    "a minus compared":        lambda m: -m.a == m.b,
    "a product compared":      lambda m: (m.a*m.b) > 3,
    "a left shift compared":   lambda m: (m.a << 1) == m.b,
    "a sum shifted":           lambda m: (m.a + m.b) >> 1,
    "a sum as distance":       lambda m: m.q >> (m.a + m.b),
    "a sum as index":          lambda m: Array([m.a, m.b, m.c])[m.a + 1],
    "a sum as offset":         lambda m: m.q.part(m.a + 1, 4),
    "a sum in a Cat":          lambda m: Cat(m.a + m.b, m.c),
    "a difference in a Mux":   lambda m: Mux(m.a - m.b, m.a, m.b),
}

@pytest.mark.parametrize("what", RAW)
def test_finds_a_raw_sum(what):
    def plant(m):
        m.comb += m.q.eq(RAW[what](m))
    findings = found(plant)
    assert len(findings) == 1 and findings[0].startswith("tests/repo/test_house.py:") and "raw '" in findings[0], findings

def test_finds_a_raw_sum_in_if_and_case():
    def plant(m):
        m.comb += If(m.a - m.b, m.q.eq(1))
        m.comb += Case(m.a + m.b, {0: m.c.eq(1)})
    assert ["the condition of an If" in f or "the subject of a Case" in f for f in found(plant)] == [True, True]

def test_lets_sized_values_pass():
    def plant(m):
        total = Signal(9)
        m.comb += [
            total.eq(m.a + m.b),
            m.c.eq(~m.a),
            If((total == 256) & ~m.bit & ~(m.a == m.b), m.q.eq(m.q + 1)),
            m.b.eq(Array([m.a, m.c])[total[0]]),
        ]
        m.sync += If((m.a & ~m.c) == 0, m.bit.eq((m.a + m.b)[3]))
    assert found(plant) == []

# Modules ------------------------------------------------------------------------------------------

class Child(LiteXModule):
    def __init__(self):
        self.x = Signal()
        self.comb += self.x.eq(1)

def test_finds_children_in_a_plain_list():
    def plant(m):
        m.children_of = [Child(), Child()]
    findings = found(plant)
    assert sum("attribute children_of holds a module Child" in f for f in findings) == 1
    assert sum("no registered child of any module" in f for f in findings) == 1     # One place for both.

def test_finds_a_child_that_only_a_name_held():
    def plant(m):
        child = Child()
        m.comb += m.bit.eq(child.x)
    assert ["a module Child is made here" in f for f in found(plant)] == [True]

def test_lets_registered_children_pass():
    def plant(m):
        m.one = Child()
        m.several = [Child(), Child()]
        m.submodules += m.several
        m.fifo = stream.SyncFIFO([("data", 8)], 4)
    assert found(plant) == []

def test_finds_a_signal_with_two_drivers():
    def twice(m):
        m.child = Child()
        m.comb += m.child.x.eq(m.bit)
    def domains(m):
        m.comb += m.a.eq(1)
        m.sync += m.a.eq(2)
    def special(m):
        memory = Memory(8, 4)
        port   = memory.get_port()
        m.specials += memory, port
        m.comb += port.dat_r.eq(m.a)
    assert ["is driven here and in card.child" in f for f in found(twice)] == [True]
    assert ["is driven by combinational logic and by clock domain sys" in f for f in found(domains)] == [True]
    assert ["is driven here and in" in f for f in found(special)] == [True]

def test_lets_a_state_override_a_default():
    def plant(m):
        m.comb += m.a.eq(1)
        m.fsm_of(IDLE=[m.a.eq(2), NextState("RUN")], RUN=[NextState("IDLE")])
    assert found(plant) == []

# Registers ----------------------------------------------------------------------------------------

def test_finds_registers_without_description():
    def plant(m):
        m.r = CSRStorage(8)
        m.s = CSRStatus(fields=[CSRField("x", 1), CSRField("y", 1, description="Known.")])
        m.t = CSRStatus(8, description="Known.")
    findings = found(plant, ["registers"])
    assert len(findings) == 2 and "register r has no description" in findings[0]
    assert "field x of register s has no description" in findings[1]

def test_finds_a_register_on_no_bus():
    def plant(m):
        m.hidden = {"r": CSRStorage(8, name="lost", description="Out of reach.")}
    assert any("register lost is on no bus" in f for f in found(plant))

# Connections --------------------------------------------------------------------------------------

def test_finds_wrong_names_of_connect():
    def plant(m):
        m.sink   = stream.Endpoint([("data", 8)])
        m.source = stream.Endpoint([("data", 8)])
        m.comb += m.sink.connect(m.source, omit={"dta"})
    def record(m):
        m.sink   = stream.Endpoint([("data", 8)])
        m.source = stream.Endpoint([("data", 8)])
        m.comb += m.sink.connect(m.source, omit={"payload"})
    def right(m):
        m.sink   = stream.Endpoint([("data", 8)])
        m.source = stream.Endpoint([("data", 8)])
        m.comb += m.sink.connect(m.source, keep={"valid", "ready", "data"})
    assert ["connect() is given dta" in f for f in found(plant)] == [True]
    assert ["connect() is given payload" in f for f in found(record)] == [True]
    assert found(right) == []

# States -------------------------------------------------------------------------------------------

def test_finds_bad_states():
    def typo(m):
        m.comb += m.bit.eq(m.fsm_of(IDLE=[NextState("RUN")], RUN=[NextState("IDLE")]).ongoing("RNU"))
    def nowhere(m):
        fsm = m.fsm_of(IDLE=[If(m.a == 1, NextState("RNU")).Else(NextState("RUN"))], RUN=[NextState("IDLE")])
        m.comb += m.bit.eq(fsm.ongoing("RNU"))
    def island(m):
        m.fsm_of(IDLE=[NextState("RUN")], RUN=[NextState("IDLE")], ISLAND=[NextState("IDLE")])
    def trap(m):
        m.fsm_of(IDLE=[NextState("RUN")], RUN=[If(m.bit, NextState("RUN"))])
    def right(m):
        fsm = m.fsm_of(IDLE=[Case(m.a, {1: NextState("RUN"), "default": []})], RUN=[NextState("IDLE")])
        m.comb += m.bit.eq(fsm.ongoing("RUN") | fsm.before_entering("RUN"))
    assert ["state RNU is asked for, but has no act()" in f for f in found(typo)] == [True]
    assert any("NextState(RNU) in state IDLE" in f for f in found(nowhere))
    assert ["state ISLAND cannot be reached from IDLE" in f for f in found(island)] == [True]
    assert ["state RUN has no exit" in f for f in found(trap)] == [True]
    assert found(right) == []

# Lint ---------------------------------------------------------------------------------------------

VERILOG = {
    "LATCH":       "module top(input a, input b, output reg q); always @(*) if (a) q = b; endmodule",
    "MULTIDRIVEN": "module top(input c, input d, input a, output reg q); "
                   "always @(posedge c) q <= a; always @(posedge d) q <= ~a; endmodule",
    "UNOPTFLAT":   "module top(input a, output [3:0] q); assign q = {q[2:0] ^ q[3:1], a}; endmodule",
}

@pytest.mark.parametrize("rule", VERILOG)
def test_lint_finds(rule, tmp_path):
    source = tmp_path/"card.v"
    source.write_text(VERILOG[rule] + "\n")
    assert any(rule in line for line in lint.lint([str(source)], "top"))

def test_waivers_need_a_reason_and_some_rules_have_none():
    assert lint.waiver_faults('lint_off -rule WIDTHTRUNC -file "*card.v"') == \
        ["waivers.vlt:1: a waiver needs its reason, as a comment above it."]
    assert lint.waiver_faults("// Because.\nlint_off -rule LATCH") == ["waivers.vlt:2: LATCH may not be waived."]
    assert "names its rule" in lint.waiver_faults('// Because.\nlint_off -file "*"')[0]
    with open(lint.WAIVERS, encoding="utf-8") as f:
        assert lint.waiver_faults(f.read()) == []
