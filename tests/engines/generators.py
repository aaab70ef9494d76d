# SPDX-License-Identifier: BSD-2-Clause
"""Runs the generators of a test, one step per clock edge, for both engines.

The rules are those of migen.sim: `yield` waits for the next edge; `yield value` reads what was
settled before the edge; `yield statement` (or a list) takes effect after it. A test ends when its
last active generator ends; a limit in cycles and one in seconds end it with a sentence that says
what everyone was waiting for, and the command that repeats the test.
"""

import os
import time
from types import GeneratorType

class SimulationLimit(AssertionError):
    """A test did not end within its cycles or seconds."""

def repeat_command():
    """The command line that runs the current test again."""
    current = os.environ.get("PYTEST_CURRENT_TEST", "")
    return f"./scripts/test '{current.rsplit(' ', 1)[0]}'" if current else "the same call"

def location(generator):
    """Function, file and line of a generator's innermost frame."""
    while isinstance(generator.gi_yieldfrom, GeneratorType):
        generator = generator.gi_yieldfrom
    frame = generator.gi_frame
    if frame is None:
        return f"{generator.__name__} (ended)"
    return f"{generator.__qualname__} ({os.path.relpath(generator.gi_code.co_filename)}:{frame.f_lineno})"

class Generators:
    """The generators of one simulation; `cycle(execute)` takes each to its next edge.

    `execute(request)` reads a value or queues a statement and returns the reply.
    """
    def __init__(self, generators, limit, wall, seed=None):
        if not isinstance(generators, (list, tuple)):
            generators = [generators]
        for g in generators:
            if not isinstance(g, GeneratorType):
                raise TypeError(f"simulate() takes generators, but got {g!r}; call the function that makes it.")
        self.running = list(generators)
        self.passive = set()
        self.limit   = limit
        self.seed    = seed
        self.cycles  = 0
        self.wall    = wall
        self.end     = time.monotonic() + wall

    @property
    def active(self):
        return any(g not in self.passive for g in self.running)

    def cycle(self, execute):
        if self.cycles >= self.limit:
            self.stop(f"{self.limit} cycles")
        if not self.cycles & 0xff and time.monotonic() > self.end:
            self.stop(f"{self.wall} seconds")
        self.cycles += 1
        ended = []
        for generator in self.running:
            send, reply = generator.send, None
            try:
                while True:
                    request = send(reply)
                    if request is None:
                        break
                    if type(request) is str:
                        {"passive": self.passive.add, "active": self.passive.discard}[request](generator)
                        reply = None
                    else:
                        reply = execute(request)
            except StopIteration:
                ended.append(generator)
        for generator in ended:
            self.running.remove(generator)

    def stop(self, what):
        """Ends the test with what each generator waits for."""
        lines = [f"The simulation did not end within {what}" + (f" (seed {self.seed})." if self.seed is not None else ".")]
        for g in self.running:
            lines.append(f"  {'passive' if g in self.passive else 'waiting'}: {location(g)}")
        lines.append(f"Repeat with: {repeat_command()}")
        raise SimulationLimit("\n".join(lines))
