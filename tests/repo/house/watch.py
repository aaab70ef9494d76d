# SPDX-License-Identifier: BSD-2-Clause
"""Watches an elaboration: what our sources wrote, and where.

Migen keeps neither file nor line of an expression, and forgets the names given to `connect()` and which
states were only asked for with `ongoing()`. While a `Watch` is open, the constructors that matter note
them. Only what our own packages write is noted: LiteX and its cores answer for themselves.

Limits: one watch at a time; what was made before it opened is unknown to it.
"""

import os
import sys

from litex.soc.interconnect import csr
from migen.fhdl import structure, tracer
from migen.fhdl.module import Module
from migen.genlib import fsm
from migen.genlib.record import Record

from tests.repo.house import sums

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
OURS = ("gateware", "soc", "targets", "tests")
HERE = os.path.join("tests", "repo", "house")

# Places -------------------------------------------------------------------------------------------

def is_ours(path):
    relative = os.path.relpath(path, ROOT)
    return relative.split(os.sep)[0] in OURS and not relative.startswith(HERE)

def place(frame):
    """`file:line` of a frame in our sources, else None."""
    path = frame.f_code.co_filename
    return f"{os.path.relpath(path, ROOT)}:{frame.f_lineno}" if is_ours(path) else None

def written(depth=2, beyond=(structure.__file__, __file__)):
    """Where the expression now under construction was written; None if not in our sources."""
    frame = sys._getframe(depth)
    while frame is not None and frame.f_code.co_filename in beyond:
        frame = frame.f_back
    return frame and place(frame)

def maker(module):
    """Where a module was made: the first frame beyond its own methods."""
    frame = sys._getframe(2)
    while frame is not None and (frame.f_locals.get("self") is module or frame.f_code.co_filename.endswith("module.py")
            or isinstance(frame.f_locals.get("self"), type) or frame.f_locals.get("m") is module):
        frame = frame.f_back
    return frame and place(frame)

def forget_names():
    """Empties what Migen remembers of earlier designs for the names of signals; it searches all of it for every signal."""
    tracer.classname_to_objs.clear()

# Watch --------------------------------------------------------------------------------------------

class Watch:
    """`with Watch() as w: soc = ...; soc.finalize()`; then w holds what our sources did.

    sums:      [(place, sentence)] of raw sums where their width matters.
    connects:  [(place, record, names)] of names given to keep= and omit=.
    csrs:      [(place, register)].
    modules:   [(place, module)] made by our sources, with or without a parent.
    acts:      {state machine: {state: place}} of states that have an `act()`.
    asked:     [(place, state machine, state)] of `ongoing()` and its like.
    nexts:     {id of NextState: place}.
    """
    def __init__(self):
        self.sums, self.connects, self.csrs, self.modules, self.asked = [], [], [], [], []
        self.acts, self.nexts, self._kept, self._replaced = {}, {}, [], []

    def __enter__(self):
        forget_names()
        for name in ("_Operator", "_ArrayProxy", "_Part", "Cat", "Replicate", "If", "Case"):
            self._watch_width(getattr(structure, name))
        self._after(csr._CSRBase, "__init__", lambda register, *_, **__: self._note(self.csrs, register))
        self._after(fsm.NextState, "__init__", self._next_state)
        self._watch_modules()
        self._watch_connect()
        self._watch_states()
        return self

    def __exit__(self, *_):
        for owner, name, original in reversed(self._replaced):
            setattr(owner, name, original)

    def _replace(self, owner, name, function):
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def _after(self, owner, name, note):
        original = getattr(owner, name)
        def watched(self, *arguments, **options):   # LiteX's search for a register's name passes over `self`.
            original(self, *arguments, **options)
            note(self, *arguments, **options)
        self._replace(owner, name, watched)

    def _note(self, noted, *what, depth=4):
        where = written(depth, (structure.__file__, __file__, csr.__file__))
        if where:
            noted.append((where, *what))

    def _watch_width(self, kind):
        def note(value, *_, **__):
            sentence = sums.complaint(value)
            if sentence:
                self._note(self.sums, sentence)
        self._after(kind, "__init__", note)

    def _next_state(self, statement, *_, **__):
        self._kept.append(statement)
        self.nexts[id(statement)] = written(3)

    def _watch_modules(self):
        """A module's fragment is made when the module gets its first content."""
        original = Module.__getattr__
        def watched(module, name):
            if name == "_fragment":
                where = maker(module)
                if where:
                    self.modules.append((where, module))
            return original(module, name)
        self._replace(Module, "__getattr__", watched)

    def _watch_connect(self):
        original, inside = Record.connect, []
        def watched(record, *slaves, keep=None, omit=None):
            where = None if inside else written(2)
            if where:
                self.connects.append((where, record, sorted({*(keep or ()), *(omit or ())})))
            inside.append(record)
            try:
                return original(record, *slaves, keep=keep, omit=omit)
            finally:
                inside.pop()
        self._replace(Record, "connect", watched)

    def _watch_states(self):
        act, ongoing, get_signal, inside = fsm.FSM.act, fsm.FSM.ongoing, fsm.FSM._get_signal, []
        beyond = (fsm.__file__, __file__)
        def watched_act(machine, state, *statements):
            if not inside:
                self.acts.setdefault(machine, {}).setdefault(state, written(2, beyond))
            return act(machine, state, *statements)
        def asks(original):
            def watched(machine, *arguments):
                self.asked.append((written(2, beyond), machine, arguments[-1]))
                inside.append(machine)
                try:
                    return original(machine, *arguments)
                finally:
                    inside.pop()
            return watched
        self._replace(fsm.FSM, "act", watched_act)
        self._replace(fsm.FSM, "ongoing", asks(ongoing))
        self._replace(fsm.FSM, "_get_signal", asks(get_signal))
