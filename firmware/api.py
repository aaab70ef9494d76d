# SPDX-License-Identifier: BSD-2-Clause
"""What a policy may import: types, the event, commands and the names of their codes.

A policy imports from here and from nowhere else. Commands that a policy issues in Python are
collected in `issued`; the generator turns the same calls into writes to the command mailbox.
"""

from firmware.contract import COMMAND, EVENT, CommandKind, EventKind, PathChange, PathState, QpError
from firmware.types import make_record, record, steps, type_of_width, u8, u16, u24, u32
from gateware.common.headers import NackReason, Syndrome

__all__ = ["Event", "EventKind", "NackReason", "PathChange", "PathState", "QpError", "Syndrome", "fail", "guard", "probe",
           "probe_path", "record", "resend", "set_path", "steps", "timer", "u8", "u16", "u24", "u32", "window"]

# Event --------------------------------------------------------------------------------------------

Event = make_record("Event", {f.name: type_of_width(f.width) for f in EVENT}, read_only=True)
Event.__doc__ = "One event, read-only; fields as in the contract's event table."

# Handlers: function of a policy -> kind of event that it gets -------------------------------------

HANDLERS = {
    "on_holes":      EventKind.HOLES,
    "on_nack":       EventKind.NACK,
    "on_timeout":    EventKind.TIMEOUT,
    "on_nak":        EventKind.NAK,
    "on_read_error": EventKind.READ_ERROR,
    "on_access":     EventKind.ACCESS,
    "on_path":       EventKind.PATH,
    "on_digest":     EventKind.DIGEST,
}
START = "on_start" # Called with the record of a queue pair when its life begins, before the first event of that life.

# Commands: call -> (kind, command fields that its arguments fill) ---------------------------------

COMMANDS = {
    "resend": (CommandKind.RESEND, ("qp", "base", "mask_low", "mask_high", "reason")),
    "probe":  (CommandKind.PROBE,  ("qp",)),
    "probe_path": (CommandKind.PROBE, ("qp", "base")),
    "set_path":   (CommandKind.PATH,  ("qp", "base", "reason")),
    "timer":  (CommandKind.TIMER,  ("qp", "mask_low")),
    "guard":  (CommandKind.GUARD,  ("qp", "mask_low", "mask_high")),
    "window": (CommandKind.WINDOW, ("qp", "mask_low", "mask_high")),
    "fail":   (CommandKind.ERROR,  ("qp", "reason")),
}
ENUMERATIONS   = {"EventKind": EventKind, "NackReason": NackReason, "PathChange": PathChange, "PathState": PathState,
                  "QpError": QpError, "Syndrome": Syndrome}
COMMAND_WIDTHS = {f.name: f.width for f in COMMAND}

issued = [] # Commands in the order in which they were issued, as dictionaries of all fields.
life   = 0  # Life that commands are meant for: that of the event at hand.

def _issue(name, *values):
    kind, names = COMMANDS[name]
    command = dict.fromkeys(COMMAND_WIDTHS, 0)
    command["kind"], command["life"] = kind, life
    for field, value in zip(names, values, strict=True):
        if not 0 <= value < (1 << COMMAND_WIDTHS[field]):
            raise ValueError(f"{name}: {field} is {value}, but it has {COMMAND_WIDTHS[field]} bits.")
        command[field] = int(value)
    issued.append(command)

def resend(qp, base, mask_low, mask_high, lost):
    """Resend PSN base + i for every bit i of the mask; what is already acknowledged is left out.

    `lost` 1: they count as lost by the paths on which they were sent last; 0: those are not to blame.
    """
    _issue("resend", qp, base, mask_low, mask_high, lost)

def probe(qp):
    """Send a reliability probe on the next path; the peer answers with SACK and Transport ACK."""
    _issue("probe", qp)

def probe_path(qp, base):
    """Send a reliability probe on one path, as a PATH event names it; its answer brings the path back."""
    _issue("probe_path", qp, base)

def set_path(qp, base, state):
    """Set the state of a path, as a PATH event names it, to a PathState."""
    _issue("set_path", qp, base, state)

def timer(qp, ticks):
    """Raise TIMEOUT after `ticks` without progress while packets are outstanding."""
    _issue("timer", qp, ticks)

def guard(qp, ticks, packets):
    """A hole is ripe `ticks` after it was sent and `packets` below the highest arrival."""
    _issue("guard", qp, ticks, packets)

def window(qp, units, ticks):
    """Congestion window in units of 256 bytes, 0: no limit; a digest every `ticks`, 0: none."""
    _issue("window", qp, units, ticks)

def fail(qp, reason):
    """End the queue pair; `reason` is a QpError and goes to the error words."""
    _issue("fail", qp, reason)
