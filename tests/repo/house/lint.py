# SPDX-License-Identifier: BSD-2-Clause
"""Verilator's lint of a card's Verilog: all warnings are on, waivers.vlt takes away what does not apply.

Loops, latches and signals with two drivers are never waived.
"""

import json
import os
import re
import subprocess
import tempfile

from soc.sim import verilator
from soc.sim.model import elaborate
from tests.repo.house.watch import forget_names

WAIVERS    = os.path.join(os.path.dirname(os.path.abspath(__file__)), "waivers.vlt")
UNWAIVABLE = {"UNOPTFLAT", "LATCH", "MULTIDRIVEN", "PINMISSING", "ALWCOMBORDER"}
WAIVER     = re.compile(r"^lint_off -rule (\w+)(?: -file \"([^\"]+)\")?(?: .*)?$")

def findings(config, card="soc.nic_soc:NicSoC"):
    """Warnings about the Verilog of a card, and faults of the waiver file."""
    with open(WAIVERS, encoding="utf-8") as f:
        found = waiver_faults(f.read())
    with tempfile.TemporaryDirectory() as folder:
        forget_names()
        elaborate(config, card, folder)
        with open(os.path.join(folder, "sources.json"), encoding="utf-8") as f:
            return found + lint([os.path.join(folder, "gateware", "card.v"), *json.load(f)], "card")

def lint(sources, top):
    """Warnings of Verilator, one line each."""
    done = subprocess.run([verilator.executable(), "--lint-only", "-Wall", "-Wno-fatal", "--top-module", top, WAIVERS, *sources],
        env=verilator.environment(), capture_output=True, text=True, check=False, cwd=os.path.dirname(sources[0]))
    lines = [line for line in done.stderr.splitlines() if line.startswith("%")]
    return lines or ([] if done.returncode == 0 else [f"Verilator ended with status {done.returncode}: {done.stderr.strip()[:300]}"])

def waiver_faults(text):
    """Sentences about waivers without a reason, or of what may not be waived."""
    found, reason = [], False
    for n, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("lint_off"):
            match = WAIVER.match(line)
            if not match:
                found.append(f"waivers.vlt:{n}: a waiver names its rule: {line}")
            elif match[1] in UNWAIVABLE:
                found.append(f"waivers.vlt:{n}: {match[1]} may not be waived.")
            if not reason:
                found.append(f"waivers.vlt:{n}: a waiver needs its reason, as a comment above it.")
        reason = line.startswith("//") or line.startswith("lint_off") and reason
    return found
