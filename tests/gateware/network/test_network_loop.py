# SPDX-License-Identifier: BSD-2-Clause
"""The whole network side: two planes back to back, from send headers and payload to received ones."""

import random

from litex.gen import LiteXModule
from migen import *

from gateware.common.headers import *
from gateware.config import preset
from gateware.network.packet_builder import PacketBuilder
from gateware.network.packet_parser import ReceivePath
from gateware.network.plane_port import PlanePort
from tests.drivers.stream import StreamSink, StreamSource, packets
from tests.engines import simulate
from tests.gateware.network.frames import words_of
from tests.gateware.network.test_packet_builder import job_of, jobs
from tests.models import wire

class Planes(LiteXModule):
    """Builder -> plane 0 -> XGMII -> plane 1 -> receive path."""
    def __init__(self, config):
        pads = [Record([("tx_data", 64), ("tx_ctl", 8), ("rx_data", 64), ("rx_ctl", 8)]) for _ in range(2)]
        self.builder = PacketBuilder(config)
        self.plane0  = PlanePort(pads[0], None, config)
        self.plane1  = PlanePort(pads[1], None, config)
        self.receive = ReceivePath(config)
        self.sink, self.payload  = self.builder.sink, self.builder.payload
        self.source, self.stored = self.receive.source, self.receive.stored
        self.passed = Signal(32) # Random DSCPs: some packets come as if a switch had trimmed them.
        self.comb += [
            self.builder.source.connect(self.plane0.sink),
            self.plane1.source.connect(self.receive.sink),
            self.plane0.source.ready.eq(1),
            pads[1].rx_data.eq(pads[0].tx_data),
            pads[1].rx_ctl.eq(pads[0].tx_ctl),
            pads[0].rx_data.eq(pads[1].tx_data),
            pads[0].rx_ctl.eq(pads[1].tx_ctl),
            self.passed.eq(self.receive.good + self.receive.trimmed),
        ]

def test_every_packet_type_crosses_two_planes():
    rng, block = random.Random(1), Planes(preset("tiny"))
    work   = [(*job_of(rng, opcode, payload, ts), payload) for opcode, payload, ts in jobs(rng, 1024)]
    heads  = StreamSink(block.source, stall=0.1)
    stored = StreamSink(block.stored, stall=0)
    def finish():
        while (yield block.passed) < len(work):
            yield
        for _ in range(300):
            yield
    words = [w for _, _, payload in work for w in words_of(payload, 64)]
    simulate(block, [StreamSource(block.sink, [beat for beat, _, _ in work], idle=0).run(),
        StreamSource(block.payload, words, idle=0).run(), heads.run(), stored.run(), finish()], limit=60000)
    payloads = packets(stored)
    for (_, frame, payload), beat in zip(work, heads.beats, strict=True):
        parsed = wire.parse(frame)
        assert beat["body"] == int.from_bytes(parsed["body"], "little") and beat["psn"] == parsed["psn"]
        assert beat["verdict"] == parsed["verdict"] and beat["stored"] == (parsed["payload"] != b"")
        if beat["stored"]:
            data = b"".join(w.to_bytes(8, "little") for w in payloads.pop(0))
            assert data[beat["offset"]:beat["offset"] + beat["length"]] == payload
    assert payloads == []
