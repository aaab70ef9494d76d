# SPDX-License-Identifier: BSD-2-Clause
"""Damaged, misshapen and stray frames: dropped by the receive path in silence, counted, no byte written;
afterwards the card works as before."""

import random

import pytest

from gateware.common.headers import ENDPOINT_OPCODES, ETH, IPV4, UDP
from tests.system.bench import group
from tests.system.hostile import inject, make, poke, reseal, works, write_frame

pytestmark = [group(2), pytest.mark.timeout(300)]

def bad_lengths(link):
    good = write_frame(link, bytes(100))
    yield poke(good, UDP, "length", UDP.unpack(good[34:])["length"] - 4, 34)
    yield poke(good, IPV4, "total_length", 1480, 14)
    yield poke(good, IPV4, "total_length", 30, 14)
    yield poke(poke(good, IPV4, "total_length", 56, 14), UDP, "length", 36, 34)
    yield write_frame(link, bytes(4100))
    yield write_frame(link, bytes(200))[:150]
    ip = IPV4.unpack(good[14:])["total_length"]
    yield poke(poke(good, IPV4, "total_length", ip - 1, 14), UDP, "length", ip - 21, 34)      # Not a multiple of four.
    empty = bytearray(write_frame(link, b""))
    empty[43] |= 0x30                                                                         # A pad without payload.
    yield bytes(empty)

def test_bad_lengths_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for i, frame in enumerate(bad_lengths(link)):
        change, answers = inject(c, b, reseal(frame))
        assert answers == [] and link.untouched(), i
        assert sum(change.values()) == 1 and change.keys() <= {"plane0_bad_length", "plane0_bad_icrc"}, (i, change)
        if i < 4 or i > 5:
            assert change == {"plane0_bad_length": 1}, (i, change)
    works(link)

def test_a_bad_fcs_is_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for size in range(100, 110):        # The last word of the frame holds 0 to 7 bytes.
        for error in (1, 1 << 31, 0xffffffff):
            change, answers = inject(c, b, write_frame(link, bytes(size)), fcs_error=error, cycles=300)
            assert change == {"plane0_bad_fcs": 1} and answers == []
    assert link.untouched()
    works(link)

def test_a_bad_icrc_is_dropped(scene):
    """Single bits of everything that the ICRC covers, with a right FCS."""
    c, a, b = scene.fresh(1)
    link  = make(c, a, b)
    frame = write_frame(link, bytes(range(64)))
    rng   = random.Random(3)
    covered = [at for at in range(54, len(frame))] + [34, 35]       # BTH's extension headers to ICRC, the entropy value.
    for at in rng.sample(covered, 40):
        bad = bytearray(frame)
        bad[at] ^= 1 << rng.randrange(8)
        change, answers = inject(c, b, bytes(bad), plane=0, cycles=300)
        assert change == {"plane0_bad_icrc": 1} and answers == [], at
    assert link.untouched()
    works(link)

def test_unknown_opcodes_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    for opcode in (0x00, 0x0a, 0xc0, 0xc5, 0xcc, 0xd0, 0xd8, 0xd9, 0xda, 0xdf, 0xff):
        frame = bytearray(write_frame(link))
        frame[42] = opcode
        change, answers = inject(c, b, reseal(frame), cycles=300)
        counter = "plane0_endpoint" if opcode in ENDPOINT_OPCODES else "plane0_bad_opcode"
        assert change == {counter: 1} and answers == [], opcode
    assert link.untouched()
    works(link)

def test_frames_for_others_are_dropped(scene):
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    good = write_frame(link)
    frames = [
        write_frame(link, destination_ip=0x0a0000ff), write_frame(link, udp_port=4792), write_frame(link, destination_mac=0x020000000199),
        poke(good, ETH, "ethertype", 0x0806, 0), poke(good, ETH, "ethertype", 0x86dd, 0), poke(good, ETH, "ethertype", 0x8100, 0),
        poke(good, IPV4, "version", 6, 14), poke(good, IPV4, "ihl", 6, 14), poke(good, IPV4, "protocol", 6, 14),
        poke(good, IPV4, "flags", 1, 14), poke(good, IPV4, "fragment", 1, 14),
        good[:43] + bytes([good[43] | 1]) + good[44:],              # Transport version 1.
    ]
    for i, frame in enumerate(frames):
        change, answers = inject(c, b, reseal(frame), cycles=300)
        assert change == {"plane0_bad_header": 1} and answers == [], (i, change)
    wrong_sum = poke(good, IPV4, "checksum", IPV4.unpack(good[14:])["checksum"] ^ 1, 14)
    change, answers = inject(c, b, wrong_sum, cycles=300)
    assert change == {"plane0_bad_header": 1} and answers == []
    assert link.untouched()
    works(link)

def test_noise_is_dropped(scene):
    """Random bytes, truncated and flipped frames, back to back on both planes."""
    c, a, b = scene.fresh(1)
    link = make(c, a, b)
    rng  = random.Random(5)
    for plane in (0, 1):
        frames = []
        for i in range(60):
            if i % 3 == 0:
                frames.append(rng.randbytes(rng.randrange(60, 1600)))
            else:
                bad = bytearray(write_frame(link, rng.randbytes(rng.randrange(1, 1025)), plane=plane))
                for _ in range(rng.randrange(1, 6)):
                    bad[rng.randrange(54, len(bad))] ^= rng.randrange(1, 256)
                frames.append(bytes(bad[:rng.randrange(60, len(bad))] if i % 3 == 1 else bad))
        change, answers = inject(c, b, *frames, plane=plane)
        assert answers == [] and sum(change.values()) == len(frames), change
        assert all(name.startswith(f"plane{plane}_bad_") for name in change), change
    assert link.untouched()
    works(link)
