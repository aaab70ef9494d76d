# SPDX-License-Identifier: BSD-2-Clause
"""Builds a policy: an image for the soft core, or a library for the host.

    python -m firmware.build --soc build/card --policy mrc

The image's regions and addresses come from what LiteX generated for the SoC. Results are cached by
the content of everything that goes in. Size and stack are checked: the image fits its memory, and
the sum of all frames (there is no recursion) fits the stack.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from firmware.generate import contract_header, policy_source
from firmware.subset import PolicyError, parse

RUNTIME     = Path(__file__).parent/"runtime"
DEFAULT_OUT = Path(__file__).parents[1]/"build"/"firmware"
COMPILERS   = ("riscv64-unknown-elf-gcc", "riscv32-unknown-elf-gcc", "riscv-none-elf-gcc", "riscv64-elf-gcc")
FLAGS       = ["-march=rv32i2p0_m", "-mabi=ilp32", "-O2", "-std=gnu11", "-ffreestanding", "-nostdlib", "-nostartfiles",
               "-ffunction-sections", "-fdata-sections", "-fstack-usage", "-fno-tree-loop-distribute-patterns",
               "-Wall", "-Wno-unused-function", "-Wl,--gc-sections"]
HOST_FLAGS  = ["-O1", "-std=gnu11", "-shared", "-fPIC", "-Wall", "-Wno-unused-function"]
STACK_BYTES = 1024  # Kept free above the data.
NO_ROOM     = "the data leave no room for the stack" # What the linker script says.
QUEUE_PAIRS = 16    # If neither the caller nor the SoC's constants say.

class BuildError(RuntimeError):
    """A build that failed; the text is one sentence, then what the tool said."""

# Tools --------------------------------------------------------------------------------------------

def find_compiler():
    """The RISC-V GCC that LiteX would find too."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError("The RISC-V compiler is missing; install it with `apt-get install gcc-riscv64-unknown-elf`.")

def find_host_compiler():
    path = shutil.which("cc") or shutil.which("gcc")
    if path:
        return path
    raise BuildError("The C compiler is missing; install it with `apt-get install gcc`.")

def _run(command, folder, what):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{what} failed:\n{result.stderr or result.stdout}")
    return result.stdout

def _version(compiler):
    return _run([compiler, "--version"], None, "Asking the compiler for its version").split("\n")[0]

# Cache --------------------------------------------------------------------------------------------

def _cached(out_dir, key, target, make):
    """Path of out_dir/key/target; `make(folder)` fills a new folder, which appears whole or not at all."""
    out_dir = Path(out_dir or DEFAULT_OUT)
    digest  = hashlib.sha256("\0".join(key).encode()).hexdigest()[:20]
    folder  = out_dir/digest
    if not (folder/target).is_file():
        out_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out_dir, prefix=f".{digest}-") as temporary:
            make(Path(temporary)/"image")
            try:
                os.rename(Path(temporary)/"image", folder)
            except OSError:
                if not (folder/target).is_file():
                    raise
    return folder/target

def _sources(policy, runtime_files):
    files = {name: (RUNTIME/name).read_text() for name in runtime_files}
    files["contract.h"] = contract_header()
    files["policy.c"]   = policy_source(policy)
    return files

def _write(folder, files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder/name).write_text(text)

# Image --------------------------------------------------------------------------------------------

def build_image(policy=None, soc_dir=None, out_dir=None, firmware_bytes=None, queue_pairs=None, verbose=False):
    """The image of a policy for a SoC, as bytes.

    policy         : name, path, or None for the default.
    soc_dir        : output folder of LiteX's builder (software/include/generated is read).
    firmware_bytes : largest image; None takes the length of the region `rom`.
    queue_pairs    : state kept; None takes the constant RECOVERY_QUEUE_PAIRS of the SoC, or 16.
    """
    return build_files(policy, soc_dir, out_dir, firmware_bytes, queue_pairs, verbose).read_bytes()

def build_files(policy=None, soc_dir=None, out_dir=None, firmware_bytes=None, queue_pairs=None, verbose=False):
    """As `build_image`, but gives the path of image.bin; the ELF, the C and sizes.txt lie beside it."""
    policy    = parse(policy)
    generated = Path(soc_dir or ".")/"software"/"include"/"generated"
    wanted    = ("regions.ld", "csr.h", "mem.h", "soc.h")
    missing   = [name for name in wanted if not (generated/name).is_file()]
    if missing:
        raise BuildError(f"{generated} has no {', '.join(missing)}; elaborate the SoC first (Builder.build(run=False)).")
    soc = {name: _without_dates((generated/name).read_text()) for name in wanted}
    if "RECOVERY_BASE" not in soc["mem.h"]:
        raise BuildError(f"{generated/'mem.h'} has no region `recovery`; the SoC lacks its recovery port.")
    compiler = find_compiler()
    if queue_pairs is None:
        found = re.search(r"#define\s+(?:CONFIG_)?RECOVERY_QUEUE_PAIRS\s+(\d+)", soc["soc.h"])
        queue_pairs = int(found.group(1)) if found else QUEUE_PAIRS
    rom = _region(soc["regions.ld"], "rom")
    if firmware_bytes is None:
        firmware_bytes = rom
    files = _sources(policy, ("start.S", "main.c", "helpers.h", "system.h", "link.ld"))

    def make(folder):
        _write(folder, files)
        # A copy, so that the folder is complete.
        (folder/"generated").mkdir()
        for name, text in soc.items():
            (folder/"generated"/name).write_text(text)
        command = [compiler, *FLAGS, f"-DQUEUE_PAIRS={queue_pairs}u", "-I.", "-Lgenerated", "-T", "link.ld",
            f"-Wl,--defsym=STACK_BYTES={STACK_BYTES}", "-Wl,-Map=image.map", "start.S", "main.c", "-lgcc", "-o", "image.elf"]
        try:
            _run(command, folder, f"Compiling the policy {policy.name}")
        except BuildError as error:
            if NO_ROOM in str(error):
                raise BuildError(f"The records of policy {policy.name} for {queue_pairs} queue pairs and {STACK_BYTES} bytes of stack "
                                 f"do not fit into the soft core's data memory of {_region(soc['regions.ld'], 'sram')} bytes.") from None
            raise
        tool = compiler[:-len("gcc")]
        _run([f"{tool}objcopy", "-O", "binary", "image.elf", "image.bin"], folder, "Extracting the image")
        sizes = _run([f"{tool}size", "-A", "image.elf"], folder, "Measuring the image")
        stack = _stack(folder)
        (folder/"sizes.txt").write_text(f"{sizes.strip()}\nframes {stack}\nimage {(folder/'image.bin').stat().st_size}\n")
        if stack > STACK_BYTES:
            raise BuildError(f"The functions of policy {policy.name} may need {stack} bytes of stack, there are {STACK_BYTES}.")

    key  = [repr(sorted(files.items())), repr(sorted(soc.items())), _version(compiler), repr(FLAGS), str(queue_pairs),
        str(STACK_BYTES)]
    path = _cached(out_dir, key, "image.bin", make)
    size = path.stat().st_size
    if size > firmware_bytes:
        raise BuildError(f"The image of policy {policy.name} has {size} bytes, its memory {firmware_bytes}.")
    if verbose:
        print((path.parent/"sizes.txt").read_text(), end="")
    return path

def _without_dates(text):
    """A generated file without what changes from run to run: comments, and the identifier."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("//") and "IDENTIFIER" not in line) + "\n"

def _region(text, name):
    found = re.search(rf"^\s*{name}\s*:\s*ORIGIN\s*=\s*\w+\s*,\s*LENGTH\s*=\s*(\w+)", text, re.M)
    if not found:
        raise BuildError(f"regions.ld has no region `{name}`; the SoC needs an integrated ROM for the image.")
    return int(found.group(1), 0)

def _stack(folder):
    """Sum of all frames: more than any path needs, as no function calls itself."""
    total = 0
    for path in folder.glob("*.su"):
        for line in path.read_text().splitlines():
            columns = line.split("\t")
            if columns[2] != "static":
                raise BuildError(f"The frame of {columns[0]} has no fixed size.")
            total += int(columns[1])
    return total

# Host library -------------------------------------------------------------------------------------

def build_host_library(policy=None, out_dir=None, queue_pairs=QUEUE_PAIRS):
    """Path of the shared object of a policy (firmware/runtime/host.c is its interface)."""
    policy   = parse(policy) if not hasattr(policy, "functions") else policy
    compiler = find_host_compiler()
    files    = _sources(policy, ("host.c", "helpers.h"))

    def make(folder):
        _write(folder, files)
        _run([compiler, *HOST_FLAGS, f"-DQUEUE_PAIRS={queue_pairs}u", "-I.", "host.c", "-o", "policy.so"], folder,
            f"Compiling the policy {policy.name} for the host")

    key = [repr(sorted(files.items())), _version(compiler), repr(HOST_FLAGS), str(queue_pairs)]
    return _cached(out_dir, key, "policy.so", make)

# Command line -------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description="Build the recovery firmware of a SoC from a policy in Python.")
    parser.add_argument("--policy", default="mrc", help="policy that ships, or a file (default: mrc)")
    parser.add_argument("--soc",    default=None,  help="folder of the elaborated SoC; without it the generated C is printed")
    parser.add_argument("--output", default=None,  help="write the image here")
    arguments = parser.parse_args()
    try:
        if arguments.soc is None:
            print(policy_source(parse(arguments.policy)), end="")
            return
        image = build_image(arguments.policy, arguments.soc, verbose=True)
        if arguments.output:
            Path(arguments.output).write_bytes(image)
    except (PolicyError, BuildError) as error:
        sys.exit(str(error))

if __name__ == "__main__":
    main()
