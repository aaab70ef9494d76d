# SPDX-License-Identifier: BSD-2-Clause
"""Every script answers --help quickly, and refuses what it does not know with a sentence."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.repo import style

SCRIPTS = sorted(p for p in style.tracked() if p.startswith((".ci/", "scripts/"))
    or p.startswith("targets/") and p.endswith(".py") and not p.endswith("__init__.py"))

def call(script, *arguments, **environment):
    return subprocess.run([os.path.join(style.ROOT, script), *arguments], cwd=style.ROOT, capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, **environment})

@pytest.mark.parametrize("script", SCRIPTS)
def test_script_answers_help(script):
    assert os.access(os.path.join(style.ROOT, script), os.X_OK), f"{script} lacks the run bit"
    done = call(script, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:") or "usage:" in done.stdout.lower()

@pytest.mark.parametrize("script", ["scripts/setup", "scripts/lint", "scripts/check_style"])
def test_unknown_option_is_refused(script):
    done = call(script, "--nonsense")
    assert done.returncode == 2 and "there is no option --nonsense" in done.stderr

def test_setup_names_a_python_that_is_too_old(tmp_path):
    old = tmp_path/"python3.8"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo Python 3.8.1 && exit 0\nexit 1\n")
    old.chmod(0o755)
    done = call("scripts/setup", "--force", PYTHON=str(old))
    assert done.returncode == 2
    assert "Python 3.10 or newer is needed" in done.stderr and "Python 3.8.1" in done.stderr

@pytest.mark.parametrize("user", [1000, 0])
def test_setup_without_tools_names_the_apt_line(tmp_path, user):
    """No compiler for the soft core, and no way to install it: the line to type, status 2, nothing half done."""
    for name in ("bash", "cat", "dirname", "env", "flock", "mkdir", "perl", "sha256sum"):
        (tmp_path/name).symlink_to(shutil.which(name))
    for name in ("g++", "make", "python3"):
        (tmp_path/name).symlink_to(sys.executable)
    (tmp_path/"id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path/"id").chmod(0o755)
    done = call("scripts/setup", PATH=str(tmp_path), PYTHON=sys.executable)
    assert done.returncode == 2
    assert "gcc-riscv64-unknown-elf" in done.stderr and "apt-get" in done.stderr
    assert user == 0 or "apt-get install -y --no-install-recommends gcc-riscv64-unknown-elf" in done.stderr
    assert os.path.exists(os.path.join(style.ROOT, ".venv", "openrdma.stamp"))
