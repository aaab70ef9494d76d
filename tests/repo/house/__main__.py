# SPDX-License-Identifier: BSD-2-Clause
"""`python -m tests.repo.house`: the house checks on elaborated cards; prints what they find."""

import argparse
import logging
import sys
import time

from soc.nic_soc import NicSoC
from tests.repo import house
from tests.repo.house import lint

def main():
    parser = argparse.ArgumentParser(prog="check_style", description="Checks cards as elaborated, and their Verilog.")
    parser.add_argument("--no-verilator", action="store_true", help="leave out Verilator's lint, which takes the most time")
    options, start = parser.parse_args(), time.monotonic()
    logging.disable(logging.INFO)   # LiteX tells what it adds to the SoC.
    count = 0
    for name, config in house.CARDS.items():
        for finding in house.check(lambda config=config: NicSoC(config)):
            print(f"{finding} (card: {name})")
            count += 1
    if not options.no_verilator:
        for line in lint.findings(next(iter(house.CARDS.values()))):
            print(line)
            count += 1
    print(f"{count} findings of the house checks." if count else f"The house checks hold ({time.monotonic() - start:.0f} s).")
    return count != 0

if __name__ == "__main__":
    sys.exit(main())
