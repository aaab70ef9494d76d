# SPDX-License-Identifier: BSD-2-Clause
"""The tree of modules: every child is registered, and no signal has two drivers.

A module that nobody registered is silently absent from the Verilog. Two drivers of one signal bring no
error either: statements of one clock domain end up in one always block, where the last one wins.
"""

import inspect

from migen.fhdl.module import Module
from migen.fhdl.tools import list_targets
from migen.genlib.fsm import FSM

from tests.engines.ports import check_drivers, name_of
from tests.repo.house.watch import is_ours

def tree(top):
    """[(path, module)] of all registered modules, each once, children first."""
    found, seen = [], set()
    def walk(module, path):
        if id(module) in seen:
            return
        seen.add(id(module))
        for n, (name, child) in enumerate(vars(module).get("_submodules", [])):
            walk(child, f"{path}.{name or f'{type(child).__name__.lower()}{n}'}")
        found.append((path, module))
    walk(top, "card")
    return found

# Children -----------------------------------------------------------------------------------------

def unregistered(top, watch):
    """[(place, sentence)] of modules that were made and are not in the tree."""
    registered = {id(module) for _, module in tree(top)}
    found = []
    for place, module in watch.modules:
        if id(module) not in registered:
            name = type(module).__name__
            found.append((place, f"a module {name} is made here, but is no registered child of any module: it is not in the Verilog"))
    return found

def unregistered_attributes(top, watch):
    """[(place, sentence)] of modules in attributes, lists and dictionaries that are registered nowhere."""
    nodes      = tree(top)
    registered = {id(module) for _, module in nodes}
    found = []
    for path, module in nodes:
        for name, value in vars(module).items():
            values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
            if name not in ("_submodules", "_fragment"):
                found += [(path, f"attribute {name} holds a module {type(v).__name__} that is no registered child")
                    for v in values if isinstance(v, Module) and id(v) not in registered]
    return found

# Drivers ------------------------------------------------------------------------------------------

def two_drivers(top, watch):
    """[(place, sentence)] of signals with drivers in two domains, two modules, or a statement and a special."""
    found, owner, counted = [], {}, set()
    for path, module in tree(top):
        ours = is_ours(inspect.getfile(type(module)))
        if isinstance(module, FSM):         # Part of the module that made it: its states override defaults.
            path, ours = path.rpartition(".")[0], True
        fragment = vars(module).get("_fragment")
        if fragment is None:
            continue
        own = []
        for statements in (fragment.comb, *fragment.sync.values()):
            for s in statements:
                if id(s) not in counted:
                    counted.add(id(s))
                    own.append(s)
        specials = {s for s in fragment.specials if id(s) not in counted}
        counted |= {id(s) for s in specials}
        for s in list_targets(own):
            _claim(owner, s, path, ours, found)
        for special in specials:
            for s in special.list_ios(ins=False, outs=True, inouts=False):
                _claim(owner, s, f"a {type(special).__name__} in {path}", ours, found)
    try:
        check_drivers(top._fragment)
    except AssertionError as error:
        found.append(("card", str(error).rstrip(".")))
    return found

def _claim(owner, signal, who, ours, found):
    other, others = owner.setdefault(signal, (who, ours))
    if other != who and (ours or others):
        found.append((who, f"signal {name_of(signal)} is driven here and in {other}"))
