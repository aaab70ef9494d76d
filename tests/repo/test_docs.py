# SPDX-License-Identifier: BSD-2-Clause
"""The documents are alive: code blocks marked `python run` run, and their links lead somewhere."""

import os
import re
import subprocess
import sys

import pytest

from tests.repo import style

DOCUMENTS = [p for p in style.tracked() if p.endswith(".md")]
FENCE     = re.compile(r"^```python run\n(.*?)^```", re.M | re.S)
LINK      = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")

BLOCKS = [(path, n, code) for path in DOCUMENTS for n, code in enumerate(FENCE.findall(style.read(path)), 1)]

@pytest.mark.xdist_group("card")
@pytest.mark.parametrize("path, number, code", BLOCKS, ids=[f"{p}-{n}" for p, n, _ in BLOCKS])
def test_code_block_runs(path, number, code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"block {number} of {path}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"

@pytest.mark.parametrize("path", DOCUMENTS)
def test_links_lead_to_files(path):
    folder = os.path.dirname(os.path.join(style.ROOT, path))
    for target in LINK.findall(style.read(path)):
        assert os.path.exists(os.path.join(folder, target)), f"{path} links to {target}, which does not exist"
