# SPDX-License-Identifier: BSD-2-Clause
"""What of a module a test may see: its ports, and the domains that need a clock.

A port is a Signal found in a public attribute of the module: Signals, Records and Endpoints, lists
and dictionaries of them, CSRs, and the same of its submodules. What the module drives is an output,
anything else an input. Attributes that begin with an underscore stay hidden.
"""

import re
import weakref

from litex.soc.interconnect.csr import CSR, CSRStatus, CSRStorage, _CSRBase
from migen.fhdl.module import Module
from migen.fhdl.structure import ClockDomain, Signal, _ClockDomainList, _Fragment
from migen.fhdl.tools import list_clock_domains, list_special_ios, list_targets
from migen.genlib.record import Record

CSR_SIGNALS = {CSRStorage: ("storage", "re"), CSRStatus: ("status", "we"), CSR: ("r", "re", "w", "we")}

_fragments = weakref.WeakKeyDictionary()

def fragment_of(dut):
    """A copy of the module's fragment, finalised, that a simulator may transform."""
    if dut not in _fragments:
        _fragments[dut] = dut.get_fragment()
    f = _fragments[dut]
    return _Fragment(list(f.comb), {cd: list(statements) for cd, statements in f.sync.items()},
        set(f.specials), _ClockDomainList(f.clock_domains))

def clock_domains_of(fragment):
    """Names of the domains that the test clocks; those the module lacks are added, without reset."""
    present = {cd.name for cd in fragment.clock_domains}
    for name in sorted(set(list_clock_domains(fragment)) | {"sys"}):
        if name not in present:
            fragment.clock_domains.append(ClockDomain(name, reset_less=True))
    driven = driven_signals(fragment)
    return [cd.name for cd in fragment.clock_domains if cd.clk not in driven]

def driven_signals(fragment):
    """All signals that a statement or a special of the fragment drives."""
    return list_targets(fragment) | list_special_ios(fragment, ins=False, outs=True, inouts=True)

def check_drivers(fragment):
    """Refuses a signal with drivers in two places: Verilator does not see it once they share a block."""
    owner = {}
    def claim(signals, name):
        for s in signals:
            if s in owner and owner[s] != name:
                raise AssertionError(f"Signal {name_of(s)} is driven by {owner[s]} and by {name}.")
            owner[s] = name
    claim(list_targets(fragment.comb), "combinational logic")
    for cd, statements in fragment.sync.items():
        claim(list_targets(statements), f"clock domain {cd}")

def name_of(signal):
    """A name for messages."""
    return signal.name_override or "_".join(str(step[0]) for step in signal.backtrace[-2:])

def public_signals(dut):
    """[(path, Signal)] of every signal in public attributes, each once, in a fixed order."""
    found, seen = [], set()

    def visit(path, value):
        if isinstance(value, type) or id(value) in seen:
            return
        if isinstance(value, Signal):
            seen.add(id(value))
            found.append((path, value))
        elif isinstance(value, Record):
            seen.add(id(value))
            for field in value.layout:
                visit(f"{path}.{field[0]}", getattr(value, field[0]))
        elif isinstance(value, _CSRBase):
            seen.add(id(value))
            for kind, names in CSR_SIGNALS.items():
                if isinstance(value, kind):
                    for name in names:
                        if hasattr(value, name):
                            visit(f"{path}.{name}", getattr(value, name))
            for name, field in sorted(vars(getattr(value, "fields", None) or object).items()):
                if isinstance(field, Signal):
                    visit(f"{path}.fields.{name}", field)
        elif isinstance(value, Module):
            seen.add(id(value))
            for name, child in list(vars(value).items()):
                if not name.startswith("_"):
                    visit(f"{path}.{name}", child)
        elif isinstance(value, (list, tuple)):
            seen.add(id(value))
            for n, child in enumerate(value):
                visit(f"{path}.{n}", child)
        elif isinstance(value, dict):
            seen.add(id(value))
            for name, child in value.items():
                visit(f"{path}.{name}", child)

    visit("io", dut)
    return found

def verilog_name(path):
    """A legal and readable Verilog name of a path."""
    return re.sub(r"_+", "_", re.sub(r"\W", "_", path)).rstrip("_")
