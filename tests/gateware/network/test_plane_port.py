# SPDX-License-Identifier: BSD-2-Clause
"""Ethernet port in a loop over XGMII, with a monitor of the wire: all lengths, gaps, damaged frames."""

import random

import pytest
from litex.gen import LiteXModule
from migen import *

from gateware.config import preset
from gateware.network.plane_port import PlanePort
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import passive, simulate
from tests.gateware.network.frames import beats_of, frames_of
from tests.models import wire

class Loop(LiteXModule):
    """A port whose transmitter feeds its receiver; `flip` inverts bits of the word on the wire."""
    def __init__(self):
        pads = Record([("tx_data", 64), ("tx_ctl", 8), ("rx_data", 64), ("rx_ctl", 8)])
        self.tx_data = Signal(64)
        self.tx_ctl  = Signal(8)
        self.flip    = Signal(64)
        self.port    = PlanePort(pads, None, preset("tiny"))
        self.sink, self.source = self.port.sink, self.port.source
        self.comb += [
            self.tx_data.eq(pads.tx_data),
            self.tx_ctl.eq(pads.tx_ctl),
            pads.rx_data.eq(pads.tx_data ^ self.flip),
            pads.rx_ctl.eq(pads.tx_ctl),
        ]

_dut = []
def dut():
    if not _dut:
        _dut.append(Loop())
    return _dut[0]

def frames_on_wire(words):
    """([frame with FCS], [bytes from each terminate, counted, to the next start]) of (data, ctl) words."""
    frames, gaps, frame, gap = [], [], None, None
    for data, ctl in words:
        for lane in range(8):
            byte, control = (data >> 8*lane) & 0xff, (ctl >> lane) & 1
            if frame is None:
                assert control, "data outside of a frame"
                if byte == 0xfb:
                    assert lane in (0, 4)
                    if gap is not None:
                        gaps.append(gap)
                    frame, gap = b"", None
                else:
                    assert byte == 0x07, hex(byte)
                    gap = gap + 1 if gap is not None else None
            elif control:
                assert byte == 0xfd, hex(byte)
                assert frame[:7] == b"\x55"*6 + b"\xd5", frame[:7].hex()
                frames.append(frame[7:])
                frame, gap = None, 1
            else:
                frame += bytes([byte])
    assert frame is None
    return frames, gaps

def run(frames, damage=None, idle=0, count=None, seed=1):
    """Sends frames; returns what came back and the words on the wire. `damage(word number in the frame, frame
    number)` gives the bits to invert."""
    block, words = dut(), []
    sink  = StreamSink(block.source, seed=seed, stall=0)
    beats = [b for frame in frames for b in beats_of(frame, 64)]
    @passive
    def watch():
        while True:
            yield
            words.append(tuple((yield [block.tx_data, block.tx_ctl])))
    @passive
    def wire_damage():
        # The flip takes effect a cycle after it is given, so it is chosen by the sent frame's progress.
        number, word, inside = -1, 0, False
        while True:
            yield
            data, ctl = (yield [block.tx_data, block.tx_ctl])
            started = (ctl & 1 and data & 0xff == 0xfb) or (ctl & 0x10 and (data >> 32) & 0xff == 0xfb)
            if started:
                number, word, inside = number + 1, 0, True
            elif inside:
                word += 1
                if ctl:
                    inside = False
            yield block.flip.eq(damage(number, word) if inside else 0)
    def gather():
        while sum(b["last"] for b in sink.beats) < len(frames):
            yield
        for _ in range(50):
            yield
    simulate(block, [StreamSource(block.sink, beats, idle=idle, seed=seed).run(), sink.run(), watch(), gather()] +
        ([wire_damage()] if damage else []), limit=200000)
    return frames_of(sink.beats, 64), words

def test_all_lengths_come_back_and_the_wire_is_proper():
    rng    = random.Random(1)
    frames = [rng.randbytes(n) for n in [*range(60, 201), 1514, 4182, 4187, 4200]]
    back, words = run(frames)
    assert back == [(frame, 0) for frame in frames]
    sent, gaps = frames_on_wire(words)
    assert sent == [frame + wire.fcs(frame) for frame in frames]
    assert min(gaps) >= 12, min(gaps)
    print(f"Mean gap {sum(gaps)/len(gaps):.1f} bytes.")

def test_short_frames_are_padded():
    rng    = random.Random(2)
    frames = [rng.randbytes(rng.randrange(14, 66)) for _ in range(150)]
    back, words = run(frames)
    for frame, (got, error) in zip(frames, back, strict=True):
        assert got[:len(frame)] == frame and len(got) == max(60, len(frame)) and not error
    sent, _ = frames_on_wire(words)
    assert all(len(frame) >= 64 and wire.fcs(frame[:-4]) == frame[-4:] for frame in sent)

def test_every_damaged_frame_is_flagged():
    """One bit inverted, at every length modulo 8 and in every part of the frame; the frames around stay good."""
    rng    = random.Random(3)
    frames = [rng.randbytes(60 + (i//2) % 24) for i in range(192)]
    bits   = {i: (rng.randrange(2, 8), 1 << rng.randrange(64)) for i in range(1, len(frames), 2)}
    back, _ = run(frames, damage=lambda number, word: bits[number][1] if number in bits and bits[number][0] == word else 0)
    assert len(back) == len(frames)
    for i, (frame, error) in enumerate(back):
        assert bool(error) == (i in bits), i
        assert i in bits or frame == frames[i]

@pytest.mark.parametrize("length", [62, 142, 1096])
def test_rate_of_back_to_back_frames(length):
    """Cycles per frame against the line's own: preamble 8, FCS 4, gap 12, starts at multiples of 4 bytes."""
    count = 30
    _, words = run([bytes(length)]*count)
    starts = [8*i + (0 if ctl & 1 and data & 0xff == 0xfb else 4) for i, (data, ctl) in enumerate(words)
        if (ctl & 1 and data & 0xff == 0xfb) or (ctl & 0x10 and (data >> 32) & 0xff == 0xfb)]
    mean, line = (starts[-1] - starts[0])/(count - 1), length + 24
    print(f"{length} bytes: {mean:.1f} bytes per frame on the wire, {100*line/mean:.1f} % of the line.")
    assert len(starts) == count and mean <= line + 12

def test_a_width_that_the_mac_lacks_is_refused():
    with pytest.raises(ValueError, match="64 bits"):
        PlanePort(None, None, preset("tiny", network_width=128))
