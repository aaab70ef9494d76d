# SPDX-License-Identifier: BSD-2-Clause
"""The whole card elaborates in every shape, each signal has one driver, and the Verilog has no loop or latch."""

import json
import os
import subprocess

import pytest
from migen.fhdl.tools import list_targets

from gateware.config import preset
from soc.nic_soc import NicSoC
from soc.sim import verilator
from soc.sim.model import elaborate
from tests.engines.ports import check_drivers

# Waived: LiteX's style (COMBDLY, BLKANDNBLK, widths) and what only style says.
LINT = ["--lint-only", "--top-module", "card", "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-COMBDLY", "-Wno-BLKANDNBLK",
    "-Werror-UNOPTFLAT", "-Werror-MULTIDRIVEN", "-Werror-LATCH", "-Werror-PINMISSING"]

@pytest.mark.parametrize("config", [
    preset("sim", planes=4),
    preset("tiny", planes=2, host_width=64),
], ids=["sim, four planes", "tiny, two planes, 64-bit host"])
def test_verilog_has_no_loop_and_no_latch(config, tmp_path):
    elaborate(config, "soc.nic_soc:NicSoC", str(tmp_path))
    with open(tmp_path/"sources.json", encoding="utf-8") as f:
        sources = [os.path.join(tmp_path, "gateware", "card.v"), *json.load(f)]
    done = subprocess.run([verilator.executable(), *LINT, *sources], env=verilator.environment(), capture_output=True, text=True,
        check=False)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "%Error" in line)[:3000]

def test_every_signal_of_the_card_has_one_driver():
    soc = NicSoC(preset("tiny", planes=2))
    soc.finalize()
    fragment = soc.get_fragment()
    check_drivers(fragment)
    assert len(list_targets(fragment.comb)) > 1000
