# SPDX-License-Identifier: BSD-2-Clause
"""State machines: every state that is named exists, can be reached and can be left.

`ongoing("TYPO")` makes a new state that nothing enters, a constant 0; Migen does not complain.
"""

from migen.genlib.fsm import AnonymousState, NextState

def destinations(statements):
    """NextState statements anywhere in a list of statements."""
    found, rest = [], [statements]
    while rest:
        s = rest.pop()
        if isinstance(s, NextState):
            found.append(s)
        elif isinstance(s, (list, tuple)):
            rest += s
        elif hasattr(s, "cases"):
            rest += s.cases.values()
        elif hasattr(s, "cond"):
            rest += [s.t, s.f]
    return found

def bad_states(top, watch):
    """[(place, sentence)] of states that do not exist, are never entered or never left."""
    found = []
    for place, machine, state in watch.asked:
        if place and state not in watch.acts.get(machine, {}) and state not in machine.state_aliases:
            found.append((place, f"state {state} is asked for, but has no act()"))
    for machine, acts in watch.acts.items():
        if any(acts.values()):
            found += _machine(machine, acts, watch)
    return found

def _machine(machine, acts, watch):
    found, edges = [], {}
    name = lambda state: "(anonymous)" if isinstance(state, AnonymousState) else state
    for state, place in acts.items():
        edges[state] = set()
        for statement in destinations(machine.actions[state]):
            target = machine.state_aliases.get(statement.state, statement.state)
            if target not in acts:
                found.append((watch.nexts.get(id(statement)) or place, f"NextState({name(target)}) in state {name(state)}, "
                    "but that state has no act()"))
            edges[state].add(target)
    reached, rest = set(), [machine.reset_state]
    while rest:
        state = rest.pop()
        if state not in reached:
            reached.add(state)
            rest += edges.get(state, ())
    for state, place in acts.items():
        if state not in reached:
            found.append((place, f"state {name(state)} cannot be reached from {name(machine.reset_state)}"))
        elif len(acts) > 1 and not edges[state] - {state}:
            found.append((place, f"state {name(state)} has no exit"))
    return found
