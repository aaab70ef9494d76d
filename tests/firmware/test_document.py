# SPDX-License-Identifier: BSD-2-Clause
"""docs/recovery-firmware.md: its tables are those of the contract, its example runs."""

import re

from firmware.contract import CommandKind, QpError
from firmware.contract_tables import DOCUMENT, with_tables
from firmware.host_run import HostRunner
from firmware.python_run import PolicyRunner

def test_the_tables_are_up_to_date():
    text = DOCUMENT.read_text()
    assert with_tables(text) == text, "run python -m firmware.contract_tables --write"

def test_the_example_runs_in_both_forms(tmp_path):
    blocks = re.findall(r"<!-- example: begin -->\n```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    assert len(blocks) == 1
    path = tmp_path/"my_policy.py"
    path.write_text(blocks[0])
    events = [dict(kind=1, base=7, mask_low=5)] + [dict(kind=3, unacked=17, next=20, time=400*i) for i in range(6)]
    for runner in (PolicyRunner(path), HostRunner(path, out_dir=tmp_path)):
        commands = [runner.handle(event) for event in events]
        assert [c["kind"] for c in commands[0]] == [CommandKind.RESEND]
        assert [[c["kind"] for c in x] for x in commands[1:6]] == [[CommandKind.RESEND, CommandKind.PROBE, CommandKind.TIMER]]*5
        assert [(c["kind"], c["reason"]) for c in commands[6]] == [(CommandKind.ERROR, QpError.RETRY_EXCEEDED)]
