# SPDX-License-Identifier: BSD-2-Clause
"""Builds a block's Verilog into a shared library, cached by content in build/blocks/.

Verilator translates, g++ compiles one translation unit against a runtime that is compiled once per
machine. A combinational loop (UNOPTFLAT) is an error; width warnings are off, as in LiteX's own
build, since Migen relies on Verilog's context widths. Two processes may ask for one block at a time.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile

from soc.sim import verilator

BLOCKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "blocks")
BLOCKS = os.path.normpath(BLOCKS)

VERILATOR_FLAGS = ["--cc", "--top-module", "dut", "--prefix", "Vdut", "--output-split", "0", "--x-assign", "0",
    "--x-initial", "0", "--no-assert", "-O3", "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-COMBDLY",
    "-Wno-BLKANDNBLK", "-Wno-TIMESCALEMOD", "-Werror-UNOPTFLAT", "-Werror-MULTIDRIVEN", "-Werror-LATCH"]

DEFINES = ["-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DVM_TRACE=0", "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=0",
    "-DVM_TRACE_SAIF=0", "-DVL_USER_FATAL", "-DVL_USER_STOP"]

CXX_FLAGS = ["-std=gnu++17", "-O1", "-fPIC", "-fno-gnu-unique", "-fvisibility=hidden", "-fno-strict-aliasing", "-w",
    "-faligned-new", "-fcf-protection=none"]

class BuildError(AssertionError):
    """A block that cannot be built; the text is the tool's."""

def run(command, what, cwd=None):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=verilator.environment())
    if done.returncode:
        text = (done.stdout + done.stderr).strip()
        if "UNOPTFLAT" in text:
            what += " (UNOPTFLAT: a signal depends on itself without a register in between)"
        raise BuildError(f"{what} failed:\n{text[-6000:]}")

@contextlib.contextmanager
def locked(name):
    os.makedirs(BLOCKS, exist_ok=True)
    with open(os.path.join(BLOCKS, name + ".lock"), "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield

def tool_key():
    """What the cache must not survive: other tools or other flags."""
    gxx = os.stat(verilator.check_compiler())
    return repr((verilator.version(), VERILATOR_FLAGS, DEFINES, CXX_FLAGS, gxx.st_size, int(gxx.st_mtime)))

def runtime():
    """Folder with the compiled runtime and the precompiled header."""
    key    = hashlib.sha256(tool_key().encode()).hexdigest()[:16]
    folder = os.path.join(BLOCKS, "runtime-" + key)
    if os.path.exists(folder):
        return folder
    with locked("runtime"):
        if not os.path.exists(folder):
            temporary = tempfile.mkdtemp(dir=BLOCKS)
            include   = verilator.include()
            flags     = CXX_FLAGS + DEFINES + [f"-I{include}", f"-I{include}/vltstd"]
            for name in ("verilated", "verilated_threads"):
                run(["g++", *flags, "-O2", "-c", f"{include}/{name}.cpp", "-o", f"{temporary}/{name}.o"],
                    "Compiling Verilator's runtime")
            with open(f"{temporary}/pch.h", "w", encoding="ascii") as f:
                f.write('#include "verilated.h"\n')
            run(["g++", *flags, "-x", "c++-header", f"{temporary}/pch.h", "-o", f"{temporary}/pch.h.gch"],
                "Precompiling Verilator's header")
            os.rename(temporary, folder)
    return folder

def library(verilog, data_files, shim):
    """Path of the library for this Verilog (module `dut`) and C++ `shim`; built when it is not there yet."""
    h = hashlib.sha256()
    for text in (tool_key(), verilog, shim, *(x for item in sorted(data_files.items()) for x in item)):
        h.update(text.encode())
        h.update(b"\0")
    key    = h.hexdigest()[:24]
    folder = os.path.join(BLOCKS, key)
    path   = os.path.join(folder, "dut.so")
    if os.path.exists(path):
        return path
    with locked(key):
        if not os.path.exists(path):
            temporary = tempfile.mkdtemp(dir=BLOCKS)
            try:
                _build(temporary, verilog, data_files, shim)
            except BuildError as error:
                raise BuildError(f"{error}\nThe Verilog is in {temporary}.") from None
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(temporary, folder)
    return path

def _build(folder, verilog, data_files, shim):
    def write(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    write("dut.v", verilog)
    write("shim.cpp", shim)
    for name, text in data_files.items():
        write(name, text)
    run([verilator.executable(), *VERILATOR_FLAGS, "--Mdir", "obj", "dut.v"], "Verilator", cwd=folder)
    sources = sorted(n for n in os.listdir(os.path.join(folder, "obj")) if n.endswith(".cpp"))
    write("all.cpp", "".join(f'#include "obj/{n}"\n' for n in sources) + '#include "shim.cpp"\n')
    include, built = verilator.include(), runtime()
    run(["g++", *CXX_FLAGS, *DEFINES, "-Iobj", f"-I{include}", f"-I{include}/vltstd", "-include", f"{built}/pch.h",
        "-shared", "-Wl,-Bsymbolic", "all.cpp", f"{built}/verilated.o", f"{built}/verilated_threads.o", "-lpthread",
        "-o", "dut.so"], "g++", cwd=folder)
    shutil.rmtree(os.path.join(folder, "obj"))
    os.remove(os.path.join(folder, "all.cpp"))
