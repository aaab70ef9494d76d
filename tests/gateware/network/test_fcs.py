# SPDX-License-Identifier: BSD-2-Clause
"""CRC engine, padding, FCS and ICRC appenders against zlib, the model and captured frames."""

import random

import pytest
from litex.gen import LiteXModule

from gateware.network.crc import ONES, CrcAppender, CrcStep, crc_step, crc_undo, residue
from gateware.network.fcs import FcsChecker, FcsInserter, PaddingInserter
from gateware.network.icrc import MASKED_END, IcrcMask
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.network.frames import beats_of, frames_of
from tests.gateware.network.test_wire import roce_packets
from tests.models import wire

class Chain(LiteXModule):
    """Padding and FCS on `sink`/`tagged`, the checker apart on `received`/`checked`, the ICRC on `icrc`."""
    def __init__(self, width):
        self.padding  = PaddingInserter(width)
        self.inserter = FcsInserter(width)
        self.checker  = FcsChecker(width)
        self.icrc     = CrcAppender(width, start=IcrcMask.start, mask=IcrcMask, most=-(-MASKED_END//(width//8)),
            ends=range(2, width//8, 4))
        self.comb += self.padding.source.connect(self.inserter.sink)
        self.sink,     self.tagged  = self.padding.sink, self.inserter.source
        self.received, self.checked = self.checker.sink, self.checker.source
        self.packets,  self.signed  = self.icrc.sink, self.icrc.source

_duts = {}
def dut_of(width):
    if width not in _duts:
        _duts[width] = Chain(width)
    return _duts[width]

def through(dut, sink, source, beats, width, idle=0, stall=0, settle=40, ipv6=0):
    out = StreamSink(source, stall=stall)
    def drive():
        yield dut.icrc.mask.ipv6.eq(ipv6)
        yield from StreamSource(sink, beats, idle=idle).run()
        for _ in range(settle):
            yield
    simulate(dut, [drive(), out.run()], limit=200000)
    return frames_of(out.beats, width)

def test_steps_undo_and_residues():
    rng = random.Random(1)
    for count in range(9):
        state = rng.getrandbits(32)
        assert crc_undo(crc_step(state, bytes(count)), count) == state
        data = rng.randbytes(rng.randrange(50))
        assert crc_step(ONES, data + wire.fcs(data) + bytes(count)) == residue(count)

@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("idle,stall", [(0, 0), (0.4, 0), (0, 0.4), (0.3, 0.3)])
def test_padding_and_fcs(width, idle, stall):
    rng    = random.Random(width)
    frames = [rng.randbytes(rng.choice((rng.randrange(1, 70), rng.randrange(60, 200)))) for _ in range(250)]
    beats  = []
    for frame in frames:
        beats += beats_of(frame, width)
        # Whatever lies behind the frame must not go out.
        used = len(frame) % (width//8) or width//8
        beats[-1]["data"] |= rng.getrandbits(width) << 8*used & (1 << width) - 1
    dut    = dut_of(width)
    expect = [frame + bytes(max(0, 60 - len(frame))) for frame in frames]
    assert through(dut, dut.sink, dut.tagged, beats, width, idle, stall) == [(frame + wire.fcs(frame), 0) for frame in expect]

@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("idle", [0, 0.4])
def test_checker(width, idle):
    """Every length modulo the word, right and wrong, back to back, with dirt behind the frame's end."""
    rng, beats, expect = random.Random(width), [], []
    for _ in range(400):
        frame = rng.randbytes(rng.choice((rng.randrange(1, 40), rng.randrange(60, 120))))
        sent  = bytearray(frame + wire.fcs(frame))
        bad   = rng.random() < 0.4
        if bad:
            sent[rng.randrange(len(sent))] ^= 1 << rng.randrange(8)
        beats += beats_of(bytes(sent), width)
        used = len(sent) % (width//8) or width//8
        beats[-1]["data"] |= rng.getrandbits(width) << 8*used & (1 << width) - 1
        expect.append((bytes(sent[:-4]), bad))
    dut  = dut_of(width)
    back = through(dut, dut.received, dut.checked, beats, width, idle)
    assert [(frame, error != 0) for frame, error in back] == expect

@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("width", [64, 128])
def test_icrc_of_captured_frames(width, version):
    packets = [packet for _, _, packet in roce_packets(version)]
    dut     = dut_of(width)
    beats   = [beat for packet in packets for beat in beats_of(bytes(range(14)) + packet[:-4], width)]
    back    = through(dut, dut.packets, dut.signed, beats, width, stall=0.1, ipv6=int(version == 6))
    assert [frame[14:] for frame, _ in back] == packets and len(packets) == {4: 360, 6: 12}[version]

def test_an_engine_that_is_too_narrow_is_refused():
    with pytest.raises(ValueError, match="at least 32 bits"):
        CrcStep(16)
