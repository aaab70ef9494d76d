# SPDX-License-Identifier: BSD-2-Clause
"""The card's model: elaborated and verilated once per configuration, then cached by content.

`card_model(config)` returns a `Model` with the library and what LiteX generated beside it. Two keys:
sources and configuration name an elaboration (`build/sim/elaborated/<key>`), the Verilog that came out
of it, the harness, the tools and the CPU name a library (`build/sim/<key>`). Contents of ROMs and dates
are in neither, so a new firmware or policy needs no build. A lock keeps two processes apart.

Limits: one clock; pads as in soc/nic_soc.py. Errors are `ModelError` with a sentence.
"""

import dataclasses
import fcntl
import functools
import glob
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time

from soc.sim import verilator

ROOT    = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD   = os.path.join(ROOT, "build", "sim")
HARNESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness")
CARD    = "soc.nic_soc:NicSoC"

PACKAGES = ("migen", "litex", "liteeth", "litepcie", "pythondata-cpu-vexriscv")

VERILATOR_FLAGS = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-WIDTH",
    "-Wno-CASEINCOMPLETE", "-Wno-BLKANDNBLK", "-Wno-COMBDLY", "-Wno-INITIALDLY", "-Wno-UNSIGNED", "-Wno-CMPCONST"]
COMPILER_FLAGS  = ["-fPIC", "-std=c++17", "-march=native", "-w"]

class ModelError(RuntimeError):
    """The model could not be built; the text is for the user."""

@dataclasses.dataclass
class Model:
    """A built model: its library, the folder LiteX wrote to, and the addresses of its registers."""
    config:  object
    library: str
    folder:  str         # Elaboration: csr.json, gateware/, software/include/generated/.
    planes:  int
    trace:   bool

    @property
    def gateware(self):
        """Folder with the memory contents that the instance reads when it is made."""
        return os.path.join(self.folder, "gateware")

    @functools.cached_property
    def csr(self):
        """The contents of csr.json; empty for a card without registers."""
        return self._json("csr.json")

    @functools.cached_property
    def descriptions(self):
        """Register name -> description, of those that have one."""
        return self._json("descriptions.json")

    def _json(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return {}
        with open(path) as f:
            return json.load(f)

# Keys ---------------------------------------------------------------------------------------------

def _digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:16]

def _read(path):
    with open(path, "rb") as f:
        return f.read()

def _sources():
    """Python sources that can change the Verilog."""
    found = glob.glob(os.path.join(ROOT, "gateware", "**", "*.py"), recursive=True)
    found += glob.glob(os.path.join(ROOT, "soc", "*.py")) + [os.path.join(ROOT, "firmware", "contract.py")]
    return sorted(found)

@functools.cache
def _cpu():
    """Model of the CPU: the library is built for it."""
    try:
        with open("/proc/cpuinfo") as f:
            lines = f.read().splitlines()
        return "".join(line for line in lines[:40] if line.startswith(("model name", "flags", "Features", "CPU part")))
    except OSError:
        return ""

def _elaboration_key(config, card):
    versions = [importlib.metadata.version(p) for p in PACKAGES]
    module   = importlib.util.find_spec(card.split(":")[0])
    extra    = _read(module.origin) if module and module.origin else b""
    return _digest(config, card, sys.version, *versions, extra, *[_read(p) for p in _sources()], *_sources())

def _normal_verilog(path):
    """Verilog without comments: LiteX writes dates into them."""
    return re.sub(rb"//[^\n]*", b"", _read(path))

# Elaboration --------------------------------------------------------------------------------------

def _descriptions(soc):
    """Register name -> what its source says of it; csr.json has addresses only."""
    return {f"{name}_{register.name}": register.description for name, region in soc.csr.regions.items() if isinstance(region.obj, list)
        for register in region.obj if getattr(register, "description", None)}

def elaborate(config, card, folder):
    """Writes the Verilog of `card` (module:class) and what belongs to it; runs in its own process."""
    module, name = card.split(":")
    soc = getattr(importlib.import_module(module), name)(config)
    if hasattr(soc, "write_verilog"):
        sources = soc.write_verilog(folder)
    else:
        from litex.soc.integration.builder import Builder
        builder = Builder(soc, output_dir=folder, compile_software=False, compile_gateware=False,
            csr_json=os.path.join(folder, "csr.json"), csr_csv=os.path.join(folder, "csr.csv"))
        builder.build(build_name="card", run=False)
        sources = [s[0] for s in soc.platform.sources if s[0].endswith(".v")]
        with open(os.path.join(folder, "descriptions.json"), "w") as f:
            json.dump(_descriptions(soc), f, indent=1)
    sources = [os.path.abspath(s) for s in sources if os.path.basename(s) != "card.v"]
    with open(os.path.join(folder, "sources.json"), "w") as f:
        json.dump(sources, f)

def _run_elaboration(config, card, folder, log):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    program = ("import json, sys; from gateware.config import CardConfig; from soc.sim.model import elaborate; "
               "elaborate(CardConfig(**json.loads(sys.argv[1])), sys.argv[2], sys.argv[3])")
    with open(log, "w") as f:
        done = subprocess.run([sys.executable, "-c", program, json.dumps(dataclasses.asdict(config)), card, folder],
            cwd=ROOT, stdout=f, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        lines = [line for line in _read(log).decode(errors="replace").splitlines() if line.strip()]
        raise ModelError(f"The card could not be elaborated: {lines[-1] if lines else 'no message'} (all of it in {_relative(log)}).")

# Verilation ---------------------------------------------------------------------------------------

def _ports(verilog):
    """Names and widths of the ports of module card."""
    head = verilog[verilog.index("module card"):]
    head = head[:head.index(");")]
    found = {}
    for direction, high, name in re.findall(r"(input|output|inout)\s+(?:wire|reg)?\s*(?:\[(\d+):0\])?\s*([A-Za-z_]\w*)", head):
        found[name] = (direction, int(high or 0) + 1)
    return found

def _port_header(ports):
    """ports.h: the pins that differ between configurations."""
    for name in ("sys_clk", "sys_rst", "pcie_rx_dat", "pcie_tx_dat", "serial_source_valid", "serial_sink_valid"):
        if name not in ports:
            raise ModelError(f"The card has no pin '{name}'; the harness needs it.")
    planes = sorted((int(m[1] or 0), m[0][:-len("rx_data")]) for m in (re.fullmatch(r"xgmii(\d*)_rx_data", n) for n in ports) if m)
    lines  = ["#pragma once", f"#define CARD_PLANES {len(planes)}", f"#define CARD_PCIE_DWORDS {ports['pcie_rx_dat'][1]//32}",
        "static inline void card_xgmii_in(Vcard& m, int plane, uint64_t data, uint8_t control) {", "    switch (plane) {"]
    lines += [f"        case {i}: m.{p}rx_data = data; m.{p}rx_ctl = control; break;" for i, (_, p) in enumerate(planes)]
    lines += ["    }", "}", "static inline void card_xgmii_out(const Vcard& m, int plane, uint64_t& data, uint8_t& control) {",
        "    switch (plane) {", "        default: data = XGMII_IDLE_WORD; control = 0xff; break;"]
    lines += [f"        case {i}: data = m.{p}tx_data; control = m.{p}tx_ctl; break;" for i, (_, p) in enumerate(planes)]
    return "\n".join(lines + ["    }", "}", ""]), len(planes)

def _compile(folder, header, sources, flags, say):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "ports.h"), "w") as f:
        f.write(header)
    verilator.check_compiler()
    log, env, objects = os.path.join(folder, "build.log"), verilator.environment(), os.path.join(folder, "obj")
    shutil.rmtree(objects, ignore_errors=True)
    cflags  = " ".join([*COMPILER_FLAGS, f"-I{HARNESS}", f"-I{folder}"])
    command = [verilator.executable("verilator_bin"), "--cc", *sources, os.path.join(HARNESS, "api.cpp"), "--exe", "--top-module", "card",
        "--prefix", "Vcard", "--Mdir", objects, "-o", "libcard.so", *flags, "-CFLAGS", cflags, "-LDFLAGS", "-shared"]
    make = ["make", "-j2", "-C", objects, "-f", "Vcard.mk", "libcard.so", "OPT_FAST=-O2", "OPT_SLOW=-O1", "OPT_GLOBAL=-O2"]
    with open(log, "w") as f:
        for what, line in (("translate the Verilog", command), ("compile the model", make)):
            say(f"building the card's model: {what} ...")
            if subprocess.run(line, env=env, stdout=f, stderr=subprocess.STDOUT, check=False).returncode:
                f.flush()
                lines = _read(log).decode(errors="replace").splitlines()
                fault = next((t for t in lines if re.search(r"%Error|error:|Error ", t)), "no message")
                raise ModelError(f"Could not {what}: {fault.strip()} (all of it in {_relative(log)}).")
    shutil.copy(os.path.join(objects, "libcard.so"), os.path.join(folder, "libcard.so.new"))
    os.replace(os.path.join(folder, "libcard.so.new"), os.path.join(folder, "libcard.so"))
    shutil.rmtree(objects, ignore_errors=True)

def _relative(path):
    return os.path.relpath(path, ROOT)

# The whole of it ----------------------------------------------------------------------------------

def card_model(config, trace=False, card=CARD, say=lambda text: None):
    """The model of `config`, built if need be; `say` is called with lines of progress."""
    os.makedirs(os.path.join(BUILD, "elaborated"), exist_ok=True)
    folder = os.path.join(BUILD, "elaborated", _elaboration_key(config, card))
    done   = os.path.join(folder, f"done-{'trace' if trace else 'plain'}.json")
    ready  = _ready(done)
    if ready is None:
        with open(os.path.join(BUILD, "lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another process builds a model, waiting for it ...")
                fcntl.flock(lock, fcntl.LOCK_EX)
            ready = _ready(done) or _build(config, trace, card, folder, done, say)
    return Model(config, ready["library"], folder, ready["planes"], trace)

def _harness():
    return [_read(p) for p in sorted(glob.glob(os.path.join(HARNESS, "*")))]

def _ready(done):
    """What an earlier build left, if its library is still there and made from this harness."""
    try:
        with open(done) as f:
            ready = json.load(f)
    except (OSError, ValueError):
        return None
    fits = ready["harness"] == _digest(_cpu(), *_harness()) and os.path.exists(ready["library"])
    return ready if fits else None

def _build(config, trace, card, folder, done, say):
    start = time.monotonic()
    if not os.path.exists(os.path.join(folder, "sources.json")):
        say("building the card's model: elaborate ...")
        _run_elaboration(config, card, folder, folder + ".log")
    verilog = os.path.join(folder, "gateware", "card.v")
    with open(os.path.join(folder, "sources.json")) as f:
        others = json.load(f)
    header, planes = _port_header(_ports(_normal_verilog(verilog).decode()))
    flags   = VERILATOR_FLAGS + (["--trace-fst"] if trace else [])
    key     = _digest(_normal_verilog(verilog), *[_read(p) for p in others], *_harness(), header, verilator.version(), flags,
        COMPILER_FLAGS, _cpu())
    target  = os.path.join(BUILD, key)
    library = os.path.join(target, "libcard.so")
    if not os.path.exists(library):
        _compile(target, header, [verilog, *others], flags, say)
        say(f"building the card's model: done in {time.monotonic() - start:.0f} s.")
    ready = {"library": library, "planes": planes, "harness": _digest(_cpu(), *_harness())}
    with open(done, "w") as f:
        json.dump(ready, f)
    return ready
