# SPDX-License-Identifier: BSD-2-Clause
"""Two engines for block tests: the generated Verilog under Verilator, and Migen's own simulator.

`simulate` runs generators of Migen's style in either. The Verilog is the truth: the two disagree
wherever a sum is used without a signal of its width (see tests/engines/test_engines.py).
"""

from migen.sim.core import Simulator, passive

from tests.engines import ports, verilated
from tests.engines.build import BuildError
from tests.engines.generators import Generators, SimulationLimit

__all__ = ["ENGINES", "BuildError", "SimulationLimit", "passive", "simulate"]

ENGINES = ("migen", "verilator")

class _MigenSimulator(Simulator):
    """Migen's simulator with limits."""
    def __init__(self, dut):
        fragment = ports.fragment_of(dut)
        clocks   = {name: 10 for name in ports.clock_domains_of(fragment)}
        ports.check_drivers(fragment)
        super().__init__(fragment, [], clocks=clocks)

    def run_limited(self, generators):
        self.evaluator.execute(self.fragment.comb)
        self._commit_and_comb_propagate()
        domains = [cd for cd in self.time.clocks]
        while generators.active:
            self.time.tick()
            for cd in domains:
                self.evaluator.assign(self.fragment.clock_domains[cd].clk, 1)
                self.evaluator.execute(self.fragment.sync.get(cd, []))
            generators.cycle(self._evalexec_nested_lists)
            self._commit_and_comb_propagate()
            self.time.tick()
            for cd in domains:
                self.evaluator.assign(self.fragment.clock_domains[cd].clk, 0)
            self._commit_and_comb_propagate()

class _Defaults:
    """What `tests.engines.both` changes for a while."""
    engine = "verilator"
    watch  = None                # Function of the module: one more generator.

def simulate(dut, generators, engine=None, limit=20000, wall=120, seed=None):
    """Runs `generators` against the module `dut` until the last active one ends; returns the cycles.

    `engine` is "verilator" (the default) or "migen". After `limit` cycles or `wall` seconds the test fails with
    what each generator waits for; `seed` is named in that message. All clock domains that the module
    does not drive itself share one clock.
    """
    engine = engine or _Defaults.engine
    if engine not in ENGINES:
        raise ValueError(f"engine is '{engine}', but the engines are {', '.join(ENGINES)}.")
    if _Defaults.watch:
        generators = [*(generators if isinstance(generators, (list, tuple)) else [generators]), _Defaults.watch(dut)]
    if engine == "migen":
        simulator = _MigenSimulator(dut)
        run = Generators(generators, limit, wall, seed)
        simulator.run_limited(run)
    else:
        verilated.model_of(dut)                          # Building does not count against the limit.
        run = Generators(generators, limit, wall, seed)
        verilated.run(dut, run)
    return run.cycles
