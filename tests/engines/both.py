# SPDX-License-Identifier: BSD-2-Clause
"""One scenario in both engines, compared cycle by cycle.

Every public signal of the module counts, inputs and outputs, in every cycle: the two engines disagree
wherever a sum is used without a signal of its width, and the first difference names the signal.
"""

import contextlib

from tests import engines
from tests.engines import ENGINES, ports

@contextlib.contextmanager
def _recording(engine, traces):
    """`simulate` uses `engine` and adds to `traces` {signal path: [values]} per call."""
    def watch(dut):
        yield "passive"
        paths, signals = zip(*ports.public_signals(dut), strict=True)
        rows = []
        traces.append((paths, rows))
        signals = list(signals)
        while True:
            rows.append(tuple((yield signals)))
            yield
    defaults = engines._Defaults
    saved, (defaults.engine, defaults.watch) = (defaults.engine, defaults.watch), (engine, watch)
    try:
        yield
    finally:
        defaults.engine, defaults.watch = saved

def same_in_both(run):
    """Calls `run()` once per engine; each time it makes its modules anew and calls `simulate`. Returns the cycles."""
    traces = {engine: [] for engine in ENGINES}
    for engine in ENGINES:
        with _recording(engine, traces[engine]):
            run()
    first, second = traces.values()
    assert len(first) == len(second) > 0, "the engines did not run the same simulations"
    cycles = 0
    for (paths, a), (_, b) in zip(first, second, strict=True):
        for cycle, (x, y) in enumerate(zip(a, b, strict=False)):
            if x != y:
                path, left, right = next((p, v, w) for p, v, w in zip(paths, x, y, strict=True) if v != w)
                raise AssertionError(f"{path} is {left:#x} in {ENGINES[0]}, but {right:#x} in {ENGINES[1]}, in cycle {cycle}.")
        assert len(a) == len(b), f"{len(a)} cycles in {ENGINES[0]}, but {len(b)} in {ENGINES[1]}"
        cycles += len(a)
    return cycles
