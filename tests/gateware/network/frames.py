# SPDX-License-Identifier: BSD-2-Clause
"""Helpers of the network tests: frames to words of a MAC stream and back, random packets."""

from gateware.common.headers import *
from tests.models import wire

def beats_of(frame, width, error=0):
    """Beats of an eth_phy_description stream."""
    lanes, beats = width//8, []
    for at in range(0, len(frame), lanes):
        chunk, last = frame[at:at + lanes], at + lanes >= len(frame)
        beats.append(dict(data=int.from_bytes(chunk, "little"), last=int(last), first=int(at == 0),
            last_be=1 << (len(chunk) - 1) if last else 0, error=(error if last else 0)))
    return beats

def words_of(payload, width, error=0):
    """Beats of a payload_layout stream."""
    lanes = width//8
    return [dict(data=int.from_bytes(payload[at:at + lanes], "little"), last=int(at + lanes >= len(payload)), error=error)
        for at in range(0, len(payload), lanes)]

def frames_of(beats, width):
    """[(frame, error)] of the beats of an eth_phy_description stream."""
    frames, data = [], b""
    for beat in beats:
        word = beat["data"].to_bytes(width//8, "little")
        if beat["last"]:
            assert beat["last_be"] and beat["last_be"] & (beat["last_be"] - 1) == 0, f"last_be is {beat['last_be']:#x}"
            frames.append((data + word[:beat["last_be"].bit_length()], beat["error"]))
            data = b""
        else:
            assert beat["last_be"] == 0, "last_be without last"
            data += word
    assert data == b"", "a frame has no end"
    return frames

def random_frame(rng, psn=0, longest=300, **values):
    """A good frame of any packet type, on IPv4 or IPv6."""
    opcode = rng.choice(list(PACKET_TYPES))
    values = dict(dict(psn=psn, entropy=rng.getrandbits(16), p_key=rng.getrandbits(16), dest_qp=rng.getrandbits(24),
        a=rng.getrandbits(1), rtx=rng.getrandbits(1), ecn=rng.randrange(4), minimum=60, ipv6=rng.getrandbits(1)), **values)
    for name in ("source_ip", "destination_ip"):
        values.setdefault(name, rng.getrandbits(128 if values["ipv6"] else 32))
    kind = PACKET_TYPES[opcode]
    if not kind.data:
        return wire.build(opcode, rng.randbytes(kind.body), **values)
    length = rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, rng.randrange(longest + 1), longest))
    return wire.build_data(opcode, rng.randbytes(length), rqmsn=rng.getrandbits(16), msn=rng.getrandbits(16), va=rng.getrandbits(64),
        rkey=rng.getrandbits(32), immediate=rng.getrandbits(32), tx_timestamp=rng.choice((None, rng.getrandbits(16))), **values)
