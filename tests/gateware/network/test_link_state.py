# SPDX-License-Identifier: BSD-2-Clause
"""Link faults: four within 128 columns of each other take the link down, 128 columns without bring it up."""

import random

import pytest

from gateware.network.link_state import LinkState
from tests.engines import simulate

DUTS = {engine: LinkState() for engine in ("migen", "verilator")}
IDLE = (0x07070707, 0xf)
LOCAL, REMOTE = (0x0100009c, 0x1), (0x0200009c, 0x1)

class Model:
    def __init__(self):
        self.sets, self.clean, self.up = 0, 0, 1
    def word(self, columns):
        found = sum(c in (LOCAL, REMOTE) for c in columns)
        if found:
            self.sets, self.clean = min(4, self.sets + found), 0
            if self.sets == 4:
                self.up = 0
        else:
            self.clean += 1
            if self.clean >= 64:
                self.sets, self.up = 0, 1

def run(words, engine="verilator"):
    """What `up` was after each word."""
    dut, seen = DUTS[engine], []
    def main():
        for low, high in [*words, (IDLE, IDLE), (IDLE, IDLE)]:
            yield [dut.data.eq(high[0] << 32 | low[0]), dut.ctl.eq(high[1] << 4 | low[1])]
            yield
            seen.append((yield dut.up))
    simulate(dut, [main()], engine=engine)
    return seen

def wanted(words):
    model, out = Model(), []
    for w in words:
        model.word(w)
        out.append(model.up)
    return out

def check(words, engine="verilator"):
    seen, model = run(words, engine), wanted(words)
    assert seen[2:2 + len(model)] == model, "`up` comes two cycles after its word"
    return model

def test_single_faults_and_other_sequences_change_nothing():
    other = [(0x0100009c, 0xf), (0x0300009c, 0x1), (0x0001009c, 0x1), (0x01000000, 0x0), (0x0100009c, 0x0)]
    words = [(IDLE, LOCAL)] + [(IDLE, IDLE)]*70 + [(LOCAL, REMOTE), (LOCAL, IDLE)] + [(IDLE, IDLE)]*64
    words += [(c, c) for c in other]*5
    assert all(check(words))

@pytest.mark.parametrize("gap", [0, 1, 30, 62, 63, 64])
def test_four_faults_close_together_take_it_down(gap):
    words = ([(REMOTE, IDLE)] + [(IDLE, IDLE)]*gap)*4 + [(IDLE, IDLE)]*70
    model = check(words)
    assert (0 in model) == (gap < 64) and model[-1] == 1

@pytest.mark.parametrize("engine", DUTS)
def test_random_words(engine):
    r, words = random.Random(3), []
    for _ in range(40):
        p = r.choice([0, 0, 0.02, 0.3, 1])
        words += [tuple(r.choice([LOCAL, REMOTE]) if r.random() < p else IDLE for _ in range(2)) for _ in range(r.randrange(100))]
    model = check(words, engine)
    assert 0.1 < sum(model)/len(model) < 0.95
