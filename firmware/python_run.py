# SPDX-License-Identifier: BSD-2-Clause
"""Runs a policy in Python: events in, commands out.

The policy's own source is executed, not a translation of it, so that it can be stepped through with
a debugger. The same events give the same commands as its C form (tests/firmware).
"""

from firmware import api
from firmware.contract import EVENT, NO_LIFE
from firmware.subset import parse

# Runner -------------------------------------------------------------------------------------------

class PolicyRunner:
    """A policy with its state for `queue_pairs` queue pairs.

    `handle(event)` takes a dictionary of event fields (missing ones are 0) and gives the list of
    commands that the policy issued, each a dictionary of all command fields. An event of a queue
    pair that does not exist gives no commands. The first event of a life starts with a new record,
    and with the policy's `on_start`, before its handler is called.
    """
    def __init__(self, policy=None, queue_pairs=16):
        self.policy  = parse(policy) if not hasattr(policy, "functions") else policy
        self.module  = {"__name__": f"policy_{self.policy.name}", "__file__": self.policy.path}
        exec(compile(self.policy.source, self.policy.path, "exec"), self.module) # Checked by the subset before.
        self.handlers = {kind: self.module.get(name) for name, kind in api.HANDLERS.items()}
        self.record   = self.module[self.policy.record[0]]
        self.start    = self.module.get(api.START)
        self.state    = [self.record() for _ in range(queue_pairs)]
        self.lives    = [None]*queue_pairs

    def handle(self, event):
        unknown = set(event) - {f.name for f in EVENT}
        if unknown:
            raise ValueError(f"An event has no field {', '.join(sorted(unknown))}.")
        for f in EVENT:
            if not 0 <= event.get(f.name, 0) < (1 << f.width):
                raise ValueError(f"{f.name} is {event[f.name]}, but it has {f.width} bits.")
        kind, qp = event.get("kind", 0), event.get("qp", 0)
        if qp >= len(self.state):
            return []
        api.issued.clear()
        if kind not in NO_LIFE and self.lives[qp] != event.get("life", 0):
            self.lives[qp] = event.get("life", 0)
            self.state[qp] = self.record()
            api.life = self.lives[qp]
            if self.start is not None:
                self.start(self.state[qp])
        api.life = self.lives[qp] or 0
        handler  = self.handlers.get(kind)
        if handler is not None:
            handler(self.state[qp], api.Event(**event))
        commands = list(api.issued)
        api.issued.clear()
        return commands
