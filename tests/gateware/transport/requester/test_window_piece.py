# SPDX-License-Identifier: BSD-2-Clause
"""A window piece against sets of PSNs, also across the wrap at 2^24, in both engines."""

import random

import pytest

from gateware.transport.requester.window_piece import WindowPiece
from tests.engines import ENGINES, simulate

PSN = 1 << 24

@pytest.mark.parametrize("engine", ENGINES)
def test_bits_are_the_psns_of_the_window(engine):
    dut, rng = WindowPiece(), random.Random(9)
    def run():
        for n in range(300):
            low    = rng.choice([0, PSN - 1, PSN - 64, PSN - 40, rng.randrange(PSN)])
            size   = rng.choice([0, 1, 63, 64, 65, 128, rng.randrange(129)])
            piece  = (((low >> 6) + rng.randrange(-1, 4)) << 6) % PSN
            window = {(low + i) % PSN for i in range(size)}
            yield [dut.piece.eq(piece >> 6), dut.low.eq(low), dut.high.eq((low + size) % PSN)]
            yield
            yield
            wanted = sum(1 << i for i in range(64) if (piece + i) % PSN in window)
            assert (yield dut.origin) == piece and (yield dut.following) == ((piece >> 6) + 1) % (1 << 18)
            assert (yield dut.inside) == wanted, f"low {low:#x}, {size} PSNs, piece {piece:#x}, case {n}"
            assert (yield dut.outside) == (1 << 64) - 1 - wanted
            distance = (low + size - piece) % PSN
            assert (yield dut.ends) == (distance < 64)
    simulate(dut, [run()], engine=engine)
