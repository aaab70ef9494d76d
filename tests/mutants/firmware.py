# SPDX-License-Identifier: BSD-2-Clause
"""Faults of the recovery path: its window into the transport, and the policy."""

from tests.mutants.mutant import Mutant

RECOVERY = ("tests/gateware/recovery/test_recovery_port.py",)

def policy(name, old, new):
    return Mutant(name, "firmware/policies/mrc.py", old, new, ("tests/firmware/test_mrc.py",))

FIRMWARE = (
    Mutant("command-for-no-queue-pair", "gateware/recovery/command_mailbox.py", "sink.qp < config", "sink.qp <= config", RECOVERY),
    Mutant("lost-command-not-counted", "gateware/recovery/command_mailbox.py", "If(self.go & ~taken &", "If(self.go & taken &", RECOVERY),
    Mutant("dead-core-revived-by-a-wrap", "gateware/recovery/watchdog.py", "If(age >= 2**TIMEOUT_BITS, self.alive.eq(0))",
        "self.alive.eq(age < 2**TIMEOUT_BITS)", RECOVERY),
    policy("overtaken-event-counts-as-progress", "if moved != 0 and moved < HALF:", "if moved != 0:"),
    policy("first-timeout-resends-at-once", "if s.attempts > 1:", "if s.attempts > 0:"),
    policy("guard-without-margin", "wanted = s.peak + GUARD_MARGIN", "wanted = s.peak"),
    policy("intervals-never-double", "ticks = ticks << (s.attempts - LINEAR)", "ticks = ticks"),
    policy("budget-without-end", "+ ticks > BUDGET", "+ ticks > ~u32(0)"),
    policy("every-nack-resends-again", "and e.time - s.nack_time < wait", "and e.time - s.nack_time < 0"),
)
