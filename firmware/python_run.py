# SPDX-License-Identifier: BSD-2-Clause
"""Runs a policy in Python: events in, commands out.

The policy's own source is executed, not a translation of it, so that it can be stepped through with
a debugger. The same events give the same commands as its C form (tests/firmware).
"""

from firmware import api
from firmware.contract import EVENT
from firmware.subset import parse

# Runner -------------------------------------------------------------------------------------------

class PolicyRunner:
    """A policy with its state for `queue_pairs` queue pairs.

    `handle(event)` takes a dictionary of event fields (missing ones are 0) and gives the list of
    commands that the policy issued, each a dictionary of all command fields. An event of a queue
    pair that does not exist, or that the policy has no handler for, gives no commands.
    """
    def __init__(self, policy=None, queue_pairs=16):
        self.policy  = parse(policy) if not hasattr(policy, "functions") else policy
        self.module  = {"__name__": f"policy_{self.policy.name}", "__file__": self.policy.path}
        exec(compile(self.policy.source, self.policy.path, "exec"), self.module) # Checked by the subset before.
        self.handlers = {kind: self.module.get(name) for name, kind in api.HANDLERS.items()}
        self.state    = [self.module[self.policy.record[0]]() for _ in range(queue_pairs)]
        self.started  = []
        start = self.module.get(api.START)
        if start is not None:
            for state in self.state:
                self.started += self._collect(start, state)

    def handle(self, event):
        unknown = set(event) - {f.name for f in EVENT}
        if unknown:
            raise ValueError(f"An event has no field {', '.join(sorted(unknown))}.")
        for f in EVENT:
            if not 0 <= event.get(f.name, 0) < (1 << f.width):
                raise ValueError(f"{f.name} is {event[f.name]}, but it has {f.width} bits.")
        handler = self.handlers.get(event.get("kind", 0))
        if handler is None or event.get("qp", 0) >= len(self.state):
            return []
        return self._collect(handler, self.state[event["qp"] if "qp" in event else 0], api.Event(**event))

    @staticmethod
    def _collect(function, *arguments):
        api.issued.clear()
        function(*arguments)
        commands = list(api.issued)
        api.issued.clear()
        return commands
