# SPDX-License-Identifier: BSD-2-Clause
"""A newer snapshot is never forgotten, in whatever cycle it meets the older one on its way out."""

import pytest

from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.transport.responder.test_control_sender import DUT, KINDS, Setup, rest

@pytest.mark.parametrize("kind", ["sack", "ack", "nack"])
def test_the_second_of_two_answers_leaves_at_any_distance(kind):
    setup, wanted = Setup(40), []
    sink = StreamSink(DUT.control.source, stall=0)
    def main():
        yield from setup.write(DUT)
        for distance in range(16):
            flags = dict.fromkeys(("sack", "ack", "nack"), 0) | {kind: 1}
            pair  = [setup.due(1, **flags) for _ in range(2)]
            for d in pair:
                yield from StreamSource(DUT.control.due, [d], idle=0).run()
                yield from rest(distance)
            yield from rest(60)
            wanted.append((setup.packet(kind, 1, pair[1]), len(sink.beats)))
    simulate(DUT, [main(), sink.run()], limit=20000)
    assert {KINDS[b["opcode"]] for b in sink.beats} == {kind}
    for distance, (packet, count) in enumerate(wanted):
        assert count and sink.beats[count - 1] == packet, f"the second answer, {distance} cycles after the first, never left"
