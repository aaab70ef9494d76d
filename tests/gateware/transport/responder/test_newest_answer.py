# SPDX-License-Identifier: BSD-2-Clause
"""A newer snapshot is never forgotten, in whatever cycle it meets the older one on its way out."""

import pytest

from gateware.common.headers import Opcode
from tests.gateware.transport.responder.test_control_sender import Run, bench

KINDS = {"sack": Opcode.SACK, "ack": Opcode.ACKNOWLEDGE, "nack": Opcode.NACK}

@pytest.mark.parametrize("kind", KINDS)
def test_the_second_of_two_answers_leaves_at_any_distance(kind):
    run, wanted = Run(bench(), 40, stall=0), []
    def script():
        for distance in range(16):
            flags = dict.fromkeys(KINDS, 0) | {kind: 1}
            pair  = [run.due(1, **flags) for _ in range(2)]
            for d in pair:
                yield from run.give([d], idle=0)
                for _ in range(distance):
                    yield
            yield from run.quiet(60)
            wanted.append((pair[1]["psn" if kind == "nack" else "cack"], len(run.sink.beats)))
    beats = run.check(script())
    assert {b["opcode"] for b in beats} == {KINDS[kind]}
    for distance, (psn, count) in enumerate(wanted):
        assert count and beats[count - 1]["psn"] == psn, f"the second answer, {distance} cycles after the first, never left"
