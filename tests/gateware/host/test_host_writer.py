# SPDX-License-Identifier: BSD-2-Clause
"""Writes land byte-exact and in order: payload at any alignment, flags, credit lines, due answers."""

import random

import pytest

from gateware.common.layouts import WriteKind, due_fields
from gateware.config import preset
from gateware.host.host_writer import HostWriter
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.paged import pieces, straight
from tests.gateware.host.tlps import enables

def due_bits(values):
    bits, at = 0, 0
    for name, width in due_fields():
        bits |= values.get(name, 0) << at
        at   += width
    return bits

class Scenario:
    """Random jobs with their expected effect, byte for byte, in order."""
    def __init__(self, config, seed, count, lengths=None, kinds=None, early=False):
        r, step = random.Random(seed), config.network_width//8
        self.config, self.jobs, self.order, self.extent = config, [], [], 0
        self.stored   = [[] for _ in range(config.planes)]
        self.expected = []                           # ("bytes", address, data) or ("due", qp).
        for n in range(count):
            kind = r.choice(kinds or [WriteKind.PAYLOAD]*4 + [WriteKind.DISCARD, WriteKind.WORD, WriteKind.NOTIFY])
            plane, offset = r.randrange(config.planes), r.randrange(step)
            address = r.randrange(1 << 12, 1 << r.choice([24, 44])) & ~r.choice([0, 0, 3, 63])
            job     = {"kind": kind, "plane": plane, "offset": offset, "address": address, "beyond": r.getrandbits(r.choice([20, 52]))}
            if kind in (WriteKind.PAYLOAD, WriteKind.DISCARD):
                length = r.choice(lengths or [1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, r.randrange(1, config.max_mtu + 1)])
                data   = r.randbytes(length)
                frame  = r.randbytes(offset) + data + r.randbytes(r.choice([0, 4, 7, 11, 30]))
                if early and r.random() < 0.3:
                    frame = frame[:max(1, len(frame)//3)]
                    data  = None
                words  = [int.from_bytes(frame[i:i + step], "little") for i in range(0, len(frame), step)]
                self.stored[plane] += [{"data": w, "first": i == 0, "last": i == len(words) - 1} for i, w in enumerate(words)]
                if kind == WriteKind.PAYLOAD:
                    job["length"] = length
                    self.land(job, data or length)
            elif kind == WriteKind.WORD:
                job["address"] &= ~7
                job["word"]     = r.getrandbits(64)
                self.expected.append(("bytes", job["address"], job["word"].to_bytes(8, "little")))
            else:
                job["due"] = due_bits({"qp": n, "reason": n & 0xff, "rcvd": n})
                self.expected.append(("due", n))
            self.jobs.append(job)
        self.small = [{"address": 16*r.randrange(1 << 40), "data": r.getrandbits(128)} for _ in range(count//4)]

    def land(self, job, data):
        """The bytes of a payload job must be seen where they belong; of a number only so many."""
        for address, n in pieces(job["address"], job["beyond"], job["length"]):
            self.expected.append(("bytes", address, n if isinstance(data, int) else data[:n]))
            data = data if isinstance(data, int) else data[n:]

def run(dut, config, scenario, seed, idle=0.2, stall=0.3, limit=200000, smalls=True):
    """Returns the trace of writes [(address, bytes with enables)] and due answers, in order."""
    jobs   = StreamSource(dut.jobs, scenario.jobs, seed=seed, idle=idle)
    small  = StreamSource(dut.small, scenario.small if smalls else [], seed=seed + 1, idle=0.9)
    stored = [StreamSource(s, beats, seed=seed + 2 + i, idle=idle)
        for i, (s, beats) in enumerate(zip(dut.stored, scenario.stored, strict=True))]
    write  = StreamSink(dut.write, seed=seed + 10, stall=stall)
    due    = StreamSink(dut.due, seed=seed + 11, stall=0)
    positions = []
    def watch():
        yield "passive"
        while True:
            positions.append((len(write.beats), len(due.beats)))
            yield
    def rest():
        while jobs.sent < len(scenario.jobs) or small.sent < len(small.beats):
            yield
        while not (yield dut.idle):
            yield
        for _ in range(10):
            yield
    sources = [jobs, small, *stored]
    cycles  = simulate(dut, [*(s.run() for s in sources), write.run(), due.run(), watch(), rest()], limit=limit, seed=seed)
    for s in sources:
        assert s.sent == len(s.beats), "words of a packet were left over"
    # TLPs, and due answers at their place between them.
    seen_due = 0
    at = {}
    for beats, dues in positions:
        for k in range(seen_due, dues):
            at[k] = beats
        seen_due = max(seen_due, dues)
    current = []
    events = []
    for n, beat in enumerate(write.beats):
        current.append(beat)
        if beat["last"]:
            events.append((n, "write", tlp_of(current, config)))
            current = []
    assert not current
    for k, beat in enumerate(due.beats):
        events.append((at[k] - 0.5, "due", beat["qp"]))
        assert beat["rcvd"] == beat["qp"] and beat["reason"] == beat["qp"] & 0xff
    events.sort(key=lambda e: e[0])
    return events, cycles

def tlp_of(beats, config):
    head   = beats[0]
    length = head["length"]
    assert len(beats) == -(-length*32//config.host_width), "words do not fit the length"
    assert head["first"] and not any(b["first"] for b in beats[1:])
    assert all(b[k] == head[k] for b in beats for k in ("address", "length", "first_be", "last_be"))
    address = head["address"]
    assert address % 4 == 0 and address//config.max_payload == (address + 4*length - 1)//config.max_payload
    data = b"".join(b["dat"].to_bytes(config.host_width//8, "little") for b in beats)[:4*length]
    bits = enables(head["first_be"], head["last_be"], length)
    first = bits.index(True)
    return address + first, bytes(d for d, b in zip(data, bits, strict=True) if b)

def check(events, scenario):
    small = [(s["address"], s["data"].to_bytes(16, "little")) for s in scenario.small]
    queue = [(kind, value) for _, kind, value in events]
    seen  = []
    for wanted in scenario.expected:
        while queue and queue[0][0] == "write" and len(queue[0][1][1]) == 16 and queue[0][1] in small:
            seen.append(queue.pop(0)[1])
        if wanted[0] == "due":
            assert queue.pop(0) == ("due", wanted[1]), "a due answer is missing or out of order"
            continue
        address, data = wanted[1], wanted[2]
        left = data if isinstance(data, int) else len(data)
        done = 0
        while done < left:
            kind, value = queue.pop(0)
            assert kind == "write"
            if value in small:
                seen.append(value)
                continue
            assert value[0] == address + done, f"a write to {value[0]:#x} instead of {address + done:#x}"
            if not isinstance(data, int):
                assert value[1] == data[done:done + len(value[1])], "wrong bytes"
            done += len(value[1])
        assert done == left
    seen += [value for kind, value in queue]
    assert seen == small, "credit lines differ"

# Tests --------------------------------------------------------------------------------------------

WIDTHS = [(64, 64), (128, 64), (128, 128)]
DUTS   = {}

def build(host, network, **changes):
    key = (host, network, *changes.items())
    if key not in DUTS:
        config    = preset("tiny", host_width=host, network_width=network, planes=2, **changes)
        DUTS[key] = config, HostWriter(config)
    return DUTS[key]

@pytest.mark.parametrize("host,network", WIDTHS)
def test_everything_lands_in_order(host, network):
    config, dut = build(host, network)
    for seed, idle, stall in ((1, 0.2, 0.3), (2, 0, 0), (3, 0.5, 0.1)):
        scenario = Scenario(config, seed, 40)
        events, _ = run(dut, config, scenario, seed, idle, stall)
        check(events, scenario)

@pytest.mark.parametrize("host,network", WIDTHS)
def test_all_alignments(host, network):
    config, dut = build(host, network)
    scenario = Scenario(config, 1, 0)
    step = network//8
    r    = random.Random(7)
    for offset in range(step):
        for lane in range(host//8):
            length  = r.choice([1, 2, 5, 9, 17, 33, 130])
            data    = r.randbytes(length)
            frame   = r.randbytes(offset) + data + r.randbytes(4)
            address = (1 << 33) + 4096*r.randrange(1000) + 256 - host//8 + lane - r.choice([0, host//8])
            scenario.jobs.append({"kind": WriteKind.PAYLOAD, "plane": 0, "offset": offset, "address": address,
                "beyond": straight(address), "length": length})
            words = [int.from_bytes(frame[i:i + step], "little") for i in range(0, len(frame), step)]
            scenario.stored[0] += [{"data": w, "last": i == len(words) - 1} for i, w in enumerate(words)]
            scenario.land(scenario.jobs[-1], data)
    events, _ = run(dut, config, scenario, 1, 0, 0)
    check(events, scenario)

@pytest.mark.parametrize("host,network", WIDTHS)
def test_bytes_after_the_4_kib_boundary_lie_elsewhere(host, network):
    """Every number of bytes from 1 to two host words on either side of it, and far ones."""
    config, dut = build(host, network)
    scenario    = Scenario(config, 1, 0)
    step, near  = network//8, 2*host//8
    r           = random.Random(8)
    for before in [*range(near + 1), 255, 256, 257, 1000]:
        for after in {0, 1, r.randrange(1, near + 1), r.randrange(1, near + 1)} - ({0} if not before else set()):
            data, offset = r.randbytes(before + after), r.randrange(step)
            frame   = r.randbytes(offset) + data + r.randbytes(4)
            scenario.jobs.append({"kind": WriteKind.PAYLOAD, "plane": 0, "offset": offset, "length": len(data),
                "address": 4096*r.getrandbits(52) + (4096 - before) % 4096, "beyond": r.getrandbits(52)})
            words = [int.from_bytes(frame[i:i + step], "little") for i in range(0, len(frame), step)]
            scenario.stored[0] += [{"data": w, "last": i == len(words) - 1} for i, w in enumerate(words)]
            scenario.land(scenario.jobs[-1], data)
    events, _ = run(dut, config, scenario, 1, 0, 0)
    check(events, scenario)

@pytest.mark.parametrize("host,network", WIDTHS)
def test_a_packet_that_ends_early_stops_nothing(host, network):
    config, dut = build(host, network)
    scenario    = Scenario(config, 4, 40, early=True)
    events, _   = run(dut, config, scenario, 4)
    check(events, scenario)

def test_a_credit_line_waits_for_one_tlp_only():
    """It comes in the middle of long packets and leaves before the second TLP after that."""
    config, dut = build(128, 64)
    scenario    = Scenario(config, 5, 6, lengths=[1024], kinds=[WriteKind.PAYLOAD])
    scenario.small = []
    jobs   = [StreamSource(s, b, idle=0) for s, b in zip([dut.jobs, *dut.stored], [scenario.jobs, *scenario.stored], strict=True)]
    small  = [{"address": 16*n, "data": n} for n in range(1, 9)]
    write, marks = StreamSink(dut.write, stall=0), []
    def lines():
        for line in small:
            for _ in range(60):
                yield
            ended = sum(b["last"] for b in write.beats)
            yield from StreamSource(dut.small, [line], idle=0).run()
            marks.append(ended)
    def rest():
        while jobs[0].sent < len(scenario.jobs) or len(marks) < len(small) or not (yield dut.idle):
            yield
        yield
        yield
    simulate(dut, [*(s.run() for s in jobs), lines(), write.run(), rest()], limit=20000)
    tlps = [b for b in write.beats if b["first"]]
    for line, ended in zip(small, marks, strict=True):
        place = next(i for i, b in enumerate(tlps) if b["address"] == line["address"] and b["length"] == 4)
        assert place <= ended + 2, f"credit line {line['data']} waited for {place - ended} TLPs"

def test_rate():
    """4096 bytes at one network word per cycle with at most 10 cycles more, 64 bytes in at most 20."""
    config, dut = build(128, 64, max_mtu=4096, receive_store=8192, payload_store=8192)
    for length, limit in ((4096, 512 + 10), (64, 20)):
        scenario  = Scenario(config, 5, 16, lengths=[length], kinds=[WriteKind.PAYLOAD])
        for job in scenario.jobs:
            job["plane"] = 0
        scenario.stored = [sum(([b for b in s] for s in scenario.stored), []), []]
        step  = config.network_width//8
        beats = []
        for job in scenario.jobs:
            n = -(-(length + job["offset"] + 4)//step)
            beats += [{"data": i, "last": i == n - 1} for i in range(n)]
        scenario.stored = [beats, []]
        _, cycles = run(dut, config, scenario, 5, idle=0, stall=0, smalls=False)
        assert cycles <= 16*limit + 60, f"{cycles/16} cycles per packet of {length} bytes"

def first_flag(broken):
    """True if a flag leaves before the payload that was queued before it."""
    config, dut = build(128, 64, broken=broken)
    scenario    = Scenario(config, 6, 0)
    scenario.jobs = [{"kind": WriteKind.PAYLOAD, "address": 0x10000, "length": 1024},
        {"kind": WriteKind.WORD, "address": 0x20000, "word": 1}]
    scenario.stored[0] = [{"data": i, "last": i == 127} for i in range(128)]
    events, _ = run(dut, config, scenario, 6, idle=0, stall=0)
    addresses = [value[0] for _, _, value in events]
    return addresses.index(0x20000) < len(addresses) - 1

def test_the_broken_build_lets_flags_pass_and_the_right_one_does_not():
    assert first_flag("flag_second_port")
    assert not first_flag("")
