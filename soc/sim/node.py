# SPDX-License-Identifier: BSD-2-Clause
"""One node: a host with memory, a GPU that posts and polls, and a card behind PCI Express."""

import ctypes as C
import random

from gateware.common import tables as T
from soc.sim.driver import Driver, DriverError

class Node(Driver):
    """Memory (`memory` is all of it as a numpy array of bytes) and the driver of the card.

    Addresses are bus addresses; the memory lies above 4 GiB so that both kinds of TLP headers occur.
    """
    def __init__(self, cluster, index):
        self.cluster, self.index = cluster, index
        self.sim, self.config, self.csr = cluster.sim, cluster.config, cluster.model.csr
        self.base, self.size = cluster.memory_base, cluster.memory_size
        self.memory  = self.sim.memory_view(index, self.size)
        self.random  = random.Random(f"{cluster.seed} node {index}")
        self.pages   = []
        self.console = ""
        self._used, self._free = {}, {}
        self._variants, self._generations = {}, {}      # Of the last use of an index.
        self.peers   = {}           # Number -> entropy values.
        self._top    = 0

    @staticmethod
    def _u32(values): return (C.c_uint32*len(values))(*values)
    @staticmethod
    def _u64(values): return (C.c_uint64*len(values))(*values)

    # Memory ---------------------------------------------------------------------------------------

    def alloc(self, length, align=64, offset=0):
        """Bus address of `length` fresh bytes, `offset` bytes after a multiple of `align`."""
        at = -(-self._top//align)*align + offset
        if at + length > self.size:
            raise DriverError(f"Card {self.index} has {self.size} bytes of memory, {length} more do not fit.")
        self._top = at + length
        return self.base + at

    def view(self, address, length):
        """The bytes at a bus address as a numpy array (not a copy)."""
        at = address - self.base
        if at < 0 or at + length > self.size:
            raise DriverError(f"0x{address:x} and {length} bytes are outside of the memory of card {self.index}.")
        return self.memory[at:at + length]

    def bytes_at(self, address, length): return self.view(address, length).tobytes()
    def read_word(self, address):        return int.from_bytes(self.bytes_at(address, 8), "little")

    def fill(self, address, data):
        """Puts bytes into memory."""
        self.view(address, len(data))[:] = memoryview(data)

    def stall(self, share):
        """The host's link takes and gives nothing in this share of the cycles, from now on; 1 is a host that hangs."""
        self.sim.stall(self.index, share)

    # The soft core --------------------------------------------------------------------------------

    HOLD_CORE = 2 # In `ctrl_reset`: the core alone.

    def load_firmware(self, image):
        """Holds the core and writes its image; `release_core` starts it."""
        if len(image) > self.config.firmware_bytes:
            raise DriverError(f"The firmware has {len(image)} bytes, the card has room for {self.config.firmware_bytes}.")
        self.write("ctrl_reset", self.HOLD_CORE)
        image = bytes(image) + bytes(-len(image) % 4)
        words = [int.from_bytes(image[i:i + 4], "little") for i in range(0, len(image), 4)]
        self.store(T.BAR0_FIRMWARE, words)
        self._image_end = (T.BAR0_FIRMWARE + 4*(len(words) - 1), words[-1]) if words else None

    def release_core(self):
        """Lets the core run, after a look at the last word of its image."""
        if self._image_end:
            offset, word = self._image_end
            found = self.load(offset)
            if found != word:
                raise DriverError(f"Card {self.index}: the firmware's last word reads 0x{found:08x} instead of 0x{word:08x}.")
        self.write("ctrl_reset", 0)
