# SPDX-License-Identifier: BSD-2-Clause
"""Every width, depth and limit of a card, in one object with named presets.

Gateware, SoC, driver and tests take a `CardConfig` and nothing else, so a number stands in one
place. A combination that cannot be built is refused here, with a sentence, before anything is
elaborated.
"""

from dataclasses import dataclass, fields, replace

# Helpers ------------------------------------------------------------------------------------------

def is_power_of_two(value):
    return value > 0 and value & (value - 1) == 0

def bits_for_index(count):
    """Width in bits of an index into `count` entries, at least 1."""
    return max(1, (count - 1).bit_length())

class ConfigError(ValueError):
    """A configuration that cannot be built; the text is one sentence for the user."""

# Card configuration -------------------------------------------------------------------------------

BROKEN_BUILDS = ("", "flag_first", "flag_second_port")

@dataclass(frozen=True)
class CardConfig:
    """Sizes of one card. Widths are bits, stores are bytes, depths are entries."""
    name:                str = "sim"
    clk_freq:            int = 156_250_000
    # Network side.
    planes:              int = 1           # Ethernet planes, one MAC each.
    network_width:       int = 64          # Data path of the network side.
    max_mtu:             int = 4096        # Largest path MTU (payload of one packet).
    receive_store:       int = 16*1024     # Payload store per plane.
    # Host side.
    host_width:          int = 128         # Data path of the PCIe side.
    max_payload:         int = 256         # Largest write TLP payload.
    max_request:         int = 512         # Largest read request.
    read_tags:           int = 32          # PCIe reads in flight.
    payload_store:       int = 32*1024     # Send payload waiting for its packet.
    # Transport.
    queue_pairs:         int = 256
    mpr:                 int = 1024        # Window in packets (Maximum PSN Range).
    messages:            int = 64          # Messages in flight per queue pair.
    ring_depth:          int = 64          # Tokens waiting per queue pair.
    contexts:            int = 1024
    pages:               int = 16          # Doorbell pages of 4 KiB.
    peers:               int = 16
    evs:                 int = 64          # Entropy values per peer.
    regions:             int = 64          # Memory regions.
    translations:        int = 4096        # Pages of all memory regions.
    signals:             int = 256         # Signal table entries.
    max_wimm:            int = 64          # Immediates that a responder can stash per queue pair.
    nacks:               int = 32          # NACKs that wait to be sent; more are dropped and counted.
    # Recovery.
    events:              int = 64          # Event queue entries.
    firmware_bytes:      int = 32*1024     # Memory of the soft core's image.
    firmware_data:       int = 16*1024     # Its data and stack: a record per queue pair.
    # All tables and stores together, copies included (soc/budget.py counts them).
    memory_bits:         int = 40*2**20
    # Deliberately broken builds, for tests that must catch them.
    broken:              str = ""

    def __post_init__(self):
        def refuse(sentence):
            raise ConfigError(sentence)
        for name in ("network_width", "host_width"):
            if getattr(self, name) not in (64, 128, 256, 512):
                refuse(f"{name} is {getattr(self, name)}, but a data path is 64, 128, 256 or 512 bits wide.")
        if self.host_width < self.network_width:
            refuse(f"host_width ({self.host_width}) is smaller than network_width ({self.network_width}); "
                    "the host side must be at least as wide as the network side.")
        if not 1 <= self.planes <= 4:
            refuse(f"planes is {self.planes}, but a card has 1 to 4 planes.")
        if self.max_mtu not in (256, 512, 1024, 2048, 4096):
            refuse(f"max_mtu is {self.max_mtu}, but a path MTU is 256, 512, 1024, 2048 or 4096 bytes.")
        for f in fields(self):
            if f.name in ("queue_pairs", "mpr", "messages", "ring_depth", "contexts", "pages", "peers",
                          "evs", "regions", "translations", "signals", "max_wimm", "nacks", "events", "read_tags", "max_payload",
                          "max_request", "receive_store", "payload_store", "firmware_bytes", "firmware_data"):
                if not is_power_of_two(getattr(self, f.name)):
                    refuse(f"{f.name} is {getattr(self, f.name)}, but it must be a power of two.")
        for name, low, high in (("queue_pairs", 2, 256), ("mpr", 128, 1024), ("messages", 4, 256),
                                ("ring_depth", 4, 256), ("contexts", 64, 4096), ("pages", 1, 64),
                                ("evs", 4, 256), ("regions", 2, 1024), ("translations", 2, 65536), ("signals", 2, 65536),
                                ("max_payload", 128, 512), ("max_request", 128, 512),
                                ("read_tags", 2, 32), ("nacks", 4, 1024), ("events", 4, 256), ("peers", 1, 256)):
            if not low <= getattr(self, name) <= high:
                refuse(f"{name} is {getattr(self, name)}, but it must be between {low} and {high}.")
        if self.max_wimm < self.messages:
            refuse(f"max_wimm ({self.max_wimm}) is smaller than messages ({self.messages}); the requester bounds its messages "
                    "in flight, so the responder must be able to stash as many immediates.")
        for name in ("receive_store", "payload_store"):
            if getattr(self, name) < 2*self.max_mtu:
                refuse(f"{name} is {getattr(self, name)} bytes, but it must hold two packets of {self.max_mtu}.")
        if self.broken not in BROKEN_BUILDS:
            refuse(f"broken is '{self.broken}', but the known broken builds are {', '.join(BROKEN_BUILDS[1:])}.")

    # Widths that follow.
    qp_bits      = property(lambda self: bits_for_index(self.queue_pairs))
    psn_bits     = property(lambda self: bits_for_index(self.mpr))      # Index of a PSN in the window.
    message_bits = property(lambda self: bits_for_index(self.messages))
    ring_bits    = property(lambda self: bits_for_index(self.ring_depth))
    context_bits = property(lambda self: bits_for_index(self.contexts))
    page_bits    = property(lambda self: bits_for_index(self.pages))
    peer_bits    = property(lambda self: bits_for_index(self.peers))
    ev_bits      = property(lambda self: bits_for_index(self.evs))
    region_bits  = property(lambda self: bits_for_index(self.regions))
    signal_bits  = property(lambda self: bits_for_index(self.signals))
    plane_bits   = property(lambda self: bits_for_index(self.planes))
    plane_shares = property(lambda self: 1 << (self.planes - 1).bit_length()) # Row n of an EV table is of plane n modulo this.
    length_bits  = property(lambda self: bits_for_index(self.max_mtu + 1)) # Bytes of payload, 0..max_mtu.
    tick_cycles  = property(lambda self: max(1, round(self.clk_freq*128e-9))) # Cycles per 128 ns tick.

    def but(self, **changes):
        """The same card with some values changed (checked again)."""
        return replace(self, **changes)

# Presets ------------------------------------------------------------------------------------------

PRESETS = {
    # Everything wraps within a test: few queue pairs, short rings and windows.
    "tiny": CardConfig(name="tiny", queue_pairs=4, mpr=128, messages=8, ring_depth=8, contexts=64, pages=2,
        peers=2, evs=8, regions=4, translations=16, signals=8, max_wimm=8, nacks=8, events=8, read_tags=8, max_mtu=1024,
        receive_store=4096, payload_store=4096, firmware_data=8*1024, memory_bits=2**20),
    "sim":  CardConfig(name="sim"),
}

def preset(name, **changes):
    """The named preset, with `changes` applied."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset '{name}'; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name].but(**changes)
