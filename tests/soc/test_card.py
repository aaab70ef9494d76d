# SPDX-License-Identifier: BSD-2-Clause
"""The whole card elaborates in every shape, each signal has one driver, and Verilator's lint is content."""

import pytest
from migen.fhdl.tools import list_targets

from gateware.config import preset
from soc.nic_soc import NicSoC
from tests.engines.ports import check_drivers
from tests.repo.house import lint

@pytest.mark.parametrize("config", [
    preset("sim", planes=4),
    preset("tiny", planes=2, host_width=64),
], ids=["sim, four planes", "tiny, two planes, 64-bit host"])
def test_verilog_has_no_loop_and_no_latch(config):
    findings = lint.findings(config)
    assert not findings, "\n".join(findings)[:3000]

def test_every_signal_of_the_card_has_one_driver():
    soc = NicSoC(preset("tiny", planes=2))
    soc.finalize()
    fragment = soc.get_fragment()
    check_drivers(fragment)
    assert len(list_targets(fragment.comb)) > 1000
