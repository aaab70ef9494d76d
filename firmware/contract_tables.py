# SPDX-License-Identifier: BSD-2-Clause
"""The contract as tables for docs/recovery-firmware.md.

    python -m firmware.contract_tables          # prints them
    python -m firmware.contract_tables --write  # puts them into the document

Remarks are the comments of firmware/contract.py, so a code is explained in one place.
"""

import argparse
import inspect
import re
from pathlib import Path

from firmware import contract

DOCUMENT   = Path(__file__).parents[1]/"docs"/"recovery-firmware.md"
BEGIN, END = "<!-- contract tables: begin (generated) -->", "<!-- contract tables: end -->"

# Tables -------------------------------------------------------------------------------------------

def _table(head, rows):
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---"]*len(head), *rows)])

def _fields(title, table):
    rows = [(f"`{f.name}`", str(f.word), f"{f.bit + f.width - 1}:{f.bit}" if f.width > 1 else str(f.bit), f.unit) for f in table]
    return f"### {title}\n\n" + _table(("field", "word", "bits", "meaning"), rows)

def _codes(title, cls, form="{}"):
    """Codes of a class, with the comments that stand behind or below them."""
    rows, name = [], None
    for line in inspect.getsource(cls).splitlines():
        code    = re.match(r"\s+(\w+)\s*=\s*[^#]+?\s*(?:#\s*(.*))?$", line)
        comment = re.match(r"\s+#\s*(.*)$", line)
        if code:
            name = code.group(1)
            rows.append([f"`{name}`", form.format(getattr(cls, name)), code.group(2) or ""])
        elif comment and rows:
            rows[-1][2] += f" {comment.group(1)}"
    return f"### {title}\n\n" + _table(("name", "value", "meaning"), rows)

def markdown():
    """All tables of the contract, as Markdown."""
    reasons = [(f"`{name}`", str(value), contract.QP_ERROR_TEXT[value]) for name, value in vars(contract.QpError).items()
        if not name.startswith("_")]
    return "\n\n".join([
        f"Version {contract.VERSION}.",
        _codes("Window: words of the recovery port", contract.Window, "{:#04x}"),
        _codes("STATUS", contract.WindowStatus, "{:#x}"),
        _codes("Kinds of events", contract.EventKind),
        _fields(f"Event: {contract.EVENT_WORDS} words", contract.EVENT),
        _codes("PATH events: PathChange", contract.PathChange),
        _codes("States of a path: PathState", contract.PathState),
        _codes("A path in `base`", contract.Path),
        _codes("Kinds of commands", contract.CommandKind),
        _fields(f"Command: {contract.COMMAND_WORDS} words", contract.COMMAND),
        "### Reasons in error words\n\n" + _table(("name", "value", "meaning"), reasons),
    ])

def with_tables(text):
    """The document's text with the tables of today."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n\n{markdown()}\n\n{END}{rest.split(END)[1]}"

# Command line -------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description="Print the contract between gateware and firmware as tables.")
    parser.add_argument("--write", action="store_true", help=f"put them into {DOCUMENT.name}")
    if parser.parse_args().write:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
    else:
        print(markdown())

if __name__ == "__main__":
    main()
