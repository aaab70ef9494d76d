# SPDX-License-Identifier: BSD-2-Clause
"""The commands that the documents name exist, and those of scripts/simulate have possible options."""

import importlib.util
import os
import re
import shlex

import pytest

from soc.sim import cli
from tests.repo import style

LINE     = re.compile(r"^(?:    |\$ )((?:\./(?:scripts|targets|\.ci)/|\.ci/|python -m )\S.*?)(?:\s{2,}#.*|\s+# .*)?$", re.M)
COMMANDS = [(path, m.group(1)) for path in style.tracked() if path.endswith(".md") for m in LINE.finditer(style.read(path))]

def test_the_documents_name_commands():
    named = {c.split()[0] for _, c in COMMANDS}
    assert {"./scripts/simulate", "./scripts/test"} <= named

@pytest.mark.parametrize("path, command", COMMANDS)
def test_command_exists(path, command):
    words = shlex.split(command)
    if words[0] == "python":
        assert importlib.util.find_spec(words[2]), f"{path}: there is no module {words[2]}"
        return
    script = os.path.join(style.ROOT, words[0])
    assert os.access(script, os.X_OK), f"{path}: {words[0]} cannot be run"
    if words[0] == "./scripts/simulate":
        options = cli.parser().parse_args(words[1:])
        options.file = options.policy = None
        cli.check(options)
    for word in words[1:]:
        if word.startswith("tests/"):
            assert os.path.exists(os.path.join(style.ROOT, word)), f"{path}: {word} does not exist"
