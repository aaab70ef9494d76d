#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""One card in LiteX's own simulator, for those who live in litex_sim.

    ./targets/sim.py                      build, boot the recovery firmware, its console on this terminal
    ./targets/sim.py --trace --trace-fst  the same with a waveform in build/litex_sim/gateware/

The usual options of LiteX's simulation target apply (`--help`). No host sits behind PCIe here and no
network behind the planes: whole transfers run with ./scripts/simulate. The first call sets up the
project's environment.
"""

# ruff: noqa: E402, F401 - the environment has to be there before anything is imported from it.

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

if os.path.realpath(sys.prefix) != os.path.realpath(os.path.join(ROOT, ".venv")):
    subprocess.run([os.path.join(ROOT, "scripts", "setup"), "--quiet"], check=True)
    python = os.path.join(ROOT, ".venv", "bin", "python")
    os.execv(python, [python, *sys.argv])

import litex.soc.integration.soc_core  # isort: skip; LiteX's parser cannot be imported before it.
from litex.build.parser import LiteXArgumentParser
from litex.build.sim import SimPlatform
from litex.build.sim.config import SimConfig
from litex.soc.integration.builder import Builder

from firmware.build import BuildError, build_image
from firmware.subset import PolicyError, parse
from gateware.config import PRESETS, ConfigError, preset
from soc.nic_soc import NicSoC, card_io
from soc.sim import verilator

# Options of LiteX's SoC that the card takes, and those it sets itself.
TAKEN = ("bus_bursting", "bus_interconnect", "bus_timeout", "timer_uptime", "uart_baudrate", "uart_fifo_depth")
OWN   = ("cpu_type", "cpu_variant", "csr_ordering", "csr_paging", "integrated_rom_size", "integrated_rom_init", "uart_name")

# SoC ----------------------------------------------------------------------------------------------

class SimCard(NicSoC):
    """The simulated card on LiteX's platform; the policy's image goes into the soft core's memory."""
    def __init__(self, config, policy, **kwargs):
        self.policy = policy
        NicSoC.__init__(self, config, platform=SimPlatform("SIM", card_io(config)), **kwargs)
        self.comb += self.platform.trace.eq(1)

    def init_mems(self, **kwargs):
        """Builds the image as soon as LiteX has written the headers it needs."""
        self.image = build_image(self.policy, soc_dir=self.platform.output_dir, firmware_bytes=self.card.firmware_bytes)
        NicSoC.init_mems(self, **kwargs)

# Build --------------------------------------------------------------------------------------------

def main():
    parser = LiteXArgumentParser(description="One OpenRDMA card in LiteX's simulator.")
    parser.set_platform(SimPlatform)
    parser.set_defaults(output_dir=os.path.join(ROOT, "build", "litex_sim"), cpu_type="vexriscv", uart_name="sim",
        jobs=os.cpu_count())    # LiteX starts all compilers at once otherwise.
    parser.add_target_argument("--preset", default="sim", choices=list(PRESETS), help="Sizes of the card.")
    parser.add_target_argument("--planes", default=1, type=int, help="Ethernet planes, 1 to 4.")
    parser.add_target_argument("--policy", default=None, help="Recovery policy: name or file.")
    parser.add_target_argument("--non-interactive", action="store_true", help="Run without input from the terminal.")
    args = parser.parse_args()

    for name in OWN:
        if getattr(args, name) != parser.get_default(name):
            sys.exit(f"--{name.replace('_', '-')} is {getattr(args, name)}, but the card sets it itself.")
    kwargs = {name: getattr(args, name) for name in TAKEN if getattr(args, name) != parser.get_default(name)}

    try:
        parse(args.policy)
        config = preset(args.preset, planes=args.planes)
    except (ConfigError, PolicyError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    os.environ.update(verilator.environment())
    sim_config = SimConfig()
    sim_config.add_clocker("sys_clk", freq_hz=config.clk_freq)
    sim_config.add_module("serial2console", "serial")

    # The image is the only software: LiteX's BIOS is not needed.
    builder = Builder(SimCard(config, args.policy, **kwargs), **{**parser.builder_argdict, "compile_software": False})
    try:
        builder.build(sim_config=sim_config, interactive=sys.stdin.isatty() and not args.non_interactive, **parser.toolchain_argdict)
    except BuildError as error:
        sys.exit(str(error))

if __name__ == "__main__":
    main()
