# SPDX-License-Identifier: BSD-2-Clause
"""Runs the C form of a policy on the host: same interface as `PolicyRunner`."""

import ctypes

from firmware.build import build_host_library
from firmware.contract import COMMAND_WORDS, command_values, event_words

ROOM = 1024 # Commands that one call may issue.

# Runner -------------------------------------------------------------------------------------------

class HostRunner:
    """A policy compiled for the host; `handle(event)` gives the list of commands.

    Two runners of one policy share the library's state: use one at a time.
    """
    def __init__(self, policy=None, queue_pairs=16, out_dir=None):
        self.library  = ctypes.CDLL(str(build_host_library(policy, out_dir, queue_pairs)))
        self.commands = (ctypes.c_uint32*(COMMAND_WORDS*ROOM))()
        self.library.host_start.restype  = None
        self.library.host_handle.restype = ctypes.c_uint32
        self.restart()

    def restart(self):
        """Boot again: state 0."""
        self.library.host_start()

    def handle(self, event):
        words = event_words(event)
        return self._collect(self.library.host_handle((ctypes.c_uint32*len(words))(*words), self.commands, ROOM))

    def _collect(self, count):
        if count > ROOM:
            raise RuntimeError("The event was not popped exactly once, or too many commands were issued.")
        return [command_values(self.commands[COMMAND_WORDS*i:COMMAND_WORDS*(i + 1)]) for i in range(count)]
