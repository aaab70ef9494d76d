# SPDX-License-Identifier: BSD-2-Clause
"""README and command agree: the table of options is what `./scripts/simulate --help` knows.

    python -m tests.repo.test_readme     prints the table for the README
"""

import argparse

from soc.sim import cli
from tests.repo import style

def options_table():
    """Rows `| option | default | meaning |` of every option but --help."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for action in cli.parser()._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value   = "" if action.nargs == 0 else " " + (action.metavar or " or ".join(action.choices))
        default = "" if action.default in (None, False) else f"{action.default}"
        rows.append(f"| `{action.option_strings[0]}{value}` | {default} | {action.help} |")
    return rows

def test_readme_shows_every_option():
    lines   = set(style.read("README.md").splitlines())
    missing = [row for row in options_table() if row not in lines]
    assert not missing, "the README lacks these rows (python -m tests.repo.test_readme prints all):\n" + "\n".join(missing)

if __name__ == "__main__":
    print("\n".join(options_table()))
