# SPDX-License-Identifier: BSD-2-Clause
"""Event counters: a pulse in, a 32-bit count out, a description for its register."""

from migen import *

class Counters:
    """The counters of one block. `add` gives the pulse that counts; `items` and `pulses` hold what was added."""
    def __init__(self, module):
        self.module = module
        self.items  = {}     # name -> (count, description)
        self.pulses = {}     # name -> pulse

    def add(self, name, description):
        """A pulse signal; each cycle in which it is 1 counts once, modulo 2^32."""
        assert name not in self.items
        pulse, count = Signal(name=f"{name}_pulse"), Signal(32, name=f"{name}_count")
        self.module.sync += If(pulse, count.eq(count + 1))
        self.items[name]  = (count, description)
        self.pulses[name] = pulse
        return pulse
