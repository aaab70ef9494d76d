# SPDX-License-Identifier: BSD-2-Clause
"""Frames made by hand: good ones, spoilt ones, and what a card does with them.

Frames are bytes of tests/models/wire.py; the harness adds preamble and FCS. `inject` returns what the
card counted and what it answered, as its registers and the capture at its MAC say.
"""

from gateware.common.headers import ETH, PREFIX_BYTES, Opcode
from gateware.network.icrc import icrc
from tests.models import wire
from tests.system.bench import Link, addresses, moved

START = 0xfffff0        # First PSN of every link here: the window wraps.

def make(c, a, b, **values):
    return Link(c, a, b, **({"size": 3000, "slots": 4, "mtu": 1024, "psns": (START, START)} | values))

def write_frame(link, payload=bytes(range(100)), opcode=Opcode.WRITE_ONLY_IMM, psn=START, plane=0, **values):
    """A good frame of the link's requester, but for `values`."""
    a, b = link.a, link.b
    return wire.build_data(opcode, payload, **({"va": link.destination, "rkey": link.rkey, "immediate": link.signal.index,
        "dest_qp": link.qpn(b), "psn": psn & 0xffffff, "tx_timestamp": 7, "minimum": 60} | addresses(a, b, plane) | values))

def control_frame(link, opcode, plane=0, **values):
    """A control frame of the link's responder to its requester."""
    a, b = link.a, link.b
    return wire.build_control(opcode, **({"dest_qp": link.qpn(a), "minimum": 60} | addresses(b, a, plane) | values))

def reseal(frame):
    """IP checksum and ICRC made right again, where the lengths say that they are."""
    frame = bytearray(frame)
    frame[24:26] = b"\0\0"
    frame[24:26] = wire.ip_checksum(bytes(frame[14:34])).to_bytes(2, "big")
    end = ETH.length + int.from_bytes(frame[16:18], "big") - 4
    if PREFIX_BYTES <= end <= len(frame) - 4:
        frame[end:end + 4] = icrc(bytes(frame[14:end]))
    return bytes(frame)

def poke(frame, header, field, value, at):
    """The frame with one header field changed; `at`: where the header begins."""
    values = header.unpack(frame[at:]) | {field: value}
    return frame[:at] + header.pack(**values) + frame[at + header.length:]

def inject(c, node, *frames, plane=0, fcs_error=0, cycles=2500):
    """Sends frames to a card; returns (counters that moved, answers of the card)."""
    c.step(500, stop=1)
    before, since = node.counters(), len(c.capture.frames)
    for f in frames:
        c.fabric.inject(node, f, plane=plane, fcs_error=fcs_error)
    c.run_until(lambda: c.sim.count(4) == 0, limit=200_000, quantum=200)
    c.step(cycles, stop=1)
    assert c.sim.count(0) == 0, c.sim.sentences(0)
    return moved(before, node.counters()), c.capture.sent(node, since)

def works(*links):
    for link in links:
        link.post(slot=link.slots - 1, length=2999)
    for link in links:
        link.finish()
