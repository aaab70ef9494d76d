# SPDX-License-Identifier: BSD-2-Clause
"""What the Python requester and responder share: one end of a queue pair, PSNs without wrap, planes and entropy values.

A PSN on the wire has 24 bits. The models count in integers that never wrap and cut them when a packet is built;
`near` finds the integer that a number of the wire stands for. Nothing here knows of gateware.
"""

from dataclasses import dataclass, field

def near(value, reference, bits=24):
    """The integer whose low `bits` are `value` and that lies closest to `reference`, at most half of the circle above it."""
    size  = 1 << bits
    ahead = (value - reference) % size
    return reference + (ahead - size if ahead >= size//2 else ahead)

def signed(value, bits=16):
    return value - (1 << bits) if value >> (bits - 1) else value

@dataclass
class End:
    """One end of a queue pair as its driver set it up; windows in packets, `trigger` in bytes."""
    own_qpn:     int
    remote_qpn:  int
    mtu:         int
    p_key:       int
    send_psn:    int
    receive_psn: int
    trigger:     int
    window:      int              # Packets that the peer may have outstanding towards this end.
    send_window: int              # Packets that this end may have outstanding.
    immediates:  int              # Messages with an immediate that this end can keep back.
    messages:    int              # Messages that this end has in flight at most.
    addresses:   dict = field(default_factory=dict)     # plane -> address values of frames that this end sends.
    paths:       list = field(default_factory=list)     # [(entropy value, plane)].

    def frame_values(self, plane, entropy):
        """Values of tests.models.wire.build that every frame from this end has."""
        return {"dest_qp": self.remote_qpn, "p_key": self.p_key, "entropy": entropy, "minimum": 60, **self.addresses[plane]}

@dataclass
class Region:
    """Memory that the peer may write: `data` begins at the virtual address `base`."""
    rkey: int
    base: int
    data: bytearray

    def place(self, va, payload):
        """Puts the bytes where they belong; False if they do not all lie inside."""
        at = va - self.base
        if at < 0 or at + len(payload) > len(self.data):
            return False
        self.data[at:at + len(payload)] = payload
        return True
