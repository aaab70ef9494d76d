# SPDX-License-Identifier: BSD-2-Clause
"""The hole finder: ripe are exactly the missing PSNs far enough below the highest arrival and old enough."""

import random

from gateware.transport.requester.hole_finder import HoleFinder
from tests.engines import passive, simulate

def check(count, seed=4):
    dut, rng, times = HoleFinder(), random.Random(seed), {}
    @passive
    def sent():
        while True:                              # A table in block RAM: the answer comes one cycle later.
            psn = (yield dut.sent_psn)
            yield dut.sent_time.eq(times.get(psn, 0))
            yield
    def run():
        for _ in range(count):
            base, now = rng.choice([0, (1 << 24) - 30, rng.randrange(1 << 24)]), rng.randrange(1 << 16)
            bitmap    = rng.choice([0, 1, 1 << 63, (1 << 64) - 1, rng.getrandbits(64), rng.getrandbits(64) & rng.getrandbits(64)])
            guard_time, guard_packets = rng.choice([0, 10, 80]), rng.choice([0, 1, 3, 10, 64, 200])
            ages      = [rng.choice([0, 9, 10, 79, 80, 3000]) for _ in range(64)]
            missing   = ~bitmap & rng.choice([(1 << 64) - 1, rng.getrandbits(64)]) & ((1 << 64) - 1)
            times.clear()
            times.update({(base + i) % (1 << 24): (now - ages[i]) % (1 << 16) for i in range(64)})
            yield [dut.base.eq(base), dut.bitmap.eq(bitmap), dut.time.eq(now), dut.guard_time.eq(guard_time),
                   dut.guard_packets.eq(guard_packets), dut.clear.eq(1), dut.second.eq(0)]
            yield
            yield dut.clear.eq(0)
            yield
            shift  = base % 64
            pieces = missing << shift
            placed = bitmap << shift
            for second in (0, 1):
                yield [dut.second.eq(second), dut.missing.eq((pieces >> 64*second) & ((1 << 64) - 1)), dut.take.eq(1)]
                yield
                yield dut.take.eq(0)
                yield
                assert (yield dut.arrived) == (placed >> 64*second) & ((1 << 64) - 1)
            yield dut.second.eq(0)
            yield
            yield
            yield dut.start.eq(1)
            yield
            while not (yield dut.done):
                yield
            yield dut.start.eq(0)
            yield
            top    = bitmap.bit_length() - 1
            wanted = sum(1 << i for i in range(64)
                if (missing >> i) & 1 and top >= 0 and top - i >= guard_packets and ages[i] >= guard_time)
            assert (yield dut.ripe) == wanted
            assert (yield dut.reported) == (wanted << shift) & ((1 << 64) - 1)
    simulate(dut, [run(), sent()], limit=40000)

def test_ripe_holes_are_far_and_old():
    check(150)
