# SPDX-License-Identifier: BSD-2-Clause
"""Packets come whole, in order and byte-exact from a completer that splits, reorders and misbehaves."""

import random

import pytest
from litex.gen import LiteXModule

from gateware.config import preset
from gateware.host.payload_reader import PayloadReader
from gateware.host.payload_store import PayloadStore
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.paged import pieces, straight

TIMEOUT = 4096

class Dut(LiteXModule):
    def __init__(self, config):
        self.reader     = PayloadReader(config, timeout=TIMEOUT)
        self.store      = PayloadStore(config)
        self.sink       = self.reader.sink
        self.source     = self.store.source
        self.read       = self.reader.read
        self.completion = self.reader.completion
        self.idle       = self.reader.controller.idle
        self.errors     = self.reader.controller.read_errors
        self.unknown    = self.reader.controller.unknown_completions
        self.comb += [
            self.reader.source.connect(self.store.sink),
            self.store.packets.ready.eq(1),
        ]

def memory(address, length):
    """Host memory: any address has a byte."""
    return bytes((a ^ (a >> 8) ^ (a >> 16)*3 ^ 0x5a) & 0xff for a in range(address, address + length))

# Completer ----------------------------------------------------------------------------------------

FAULTS = ("unsupported", "abort", "poisoned", "byte_count", "too_long", "short", "lower_address", "no_data", "never",
    "late", "twice", "length")

class Completer:
    """Answers reads: split at `rcb`, tags interleaved, in any order; with `faults` some are wrong.

    `failed` collects the addresses of reads whose answer makes them fail; `kinds` are the faults to draw from.
    """
    kinds = FAULTS

    def __init__(self, dut, width, seed, rcb=64, latency=100, faults=0.0, stall=0.3, idle=0.2):
        self.dut, self.width, self.rcb, self.latency, self.faults, self.idle = dut, width, rcb, latency, faults, idle
        self.random = random.Random(seed)
        self.reads  = StreamSink(dut.read, seed=seed, stall=stall)
        self.queues = []                       # Per read: [time, [completion, ...]].
        self.failed = set()
        self.busy   = set()
        self.unknown_sent = 0
        self.now    = 0

    def cpl(self, tag, data, byte_count, lower, status=0, poisoned=0, has_data=1, length=None):
        step  = self.width//8
        words = [int.from_bytes(data[n:n + step], "little") for n in range(0, max(1, len(data)), step)]
        head  = {"tag": tag, "status": status, "poisoned": poisoned, "has_data": has_data, "byte_count": byte_count & 0xfff,
            "length": (len(data)//4 if length is None else length) & 0x3ff, "lower_address": lower & 0x7f}
        return [{**head, "dat": w, "first": i == 0, "last": i == len(words) - 1} for i, w in enumerate(words)]

    def answer(self, read):
        address, size, tag = read["address"], 4*read["length"], read["tag"]
        assert address//4096 == (address + size - 1)//4096 and size <= 512
        assert address % (self.width//8) == 0 and size % (self.width//8) == 0
        assert read["first_be"] == 0xf and read["last_be"] == 0xf
        parts, at, left = [], address, size
        while left:
            n = min(left, self.rcb*self.random.randrange(1, 5) - at % self.rcb)
            parts.append((at, n, left))
            at, left = at + n, left - n
        cpls  = [self.cpl(tag, memory(a, n), left, a) for a, n, left in parts]
        delay = self.random.randrange(self.latency + 1)
        if self.random.random() >= self.faults:
            return delay, cpls
        fault, k = self.random.choice(self.kinds), self.random.randrange(len(parts))
        a, n, left = parts[k]
        self.failed.add(address)
        if fault == "unsupported":
            cpls[k:] = [self.cpl(tag, b"", left, a, status=1, has_data=0)]
        elif fault == "abort":
            cpls[k:] = [self.cpl(tag, b"", left, a, status=4, has_data=0)]
        elif fault == "poisoned":
            cpls[k:] = [self.cpl(tag, memory(a, n), left, a, poisoned=1)]
        elif fault == "byte_count":
            cpls[k:] = [self.cpl(tag, memory(a, n), left + 64, a)]
        elif fault == "too_long":
            cpls[k:] = [self.cpl(tag, memory(a, left + 128), left, a)]
        elif fault == "short":
            cpls[k:] = [self.cpl(tag, memory(a, n)[:self.width//8], left, a, length=n//4 + 64)]
        elif fault == "lower_address":
            cpls[k:] = [self.cpl(tag, memory(a, n), left, a ^ 64)]
        elif fault == "no_data":
            cpls[k:] = [self.cpl(tag, b"", left, a, has_data=0)]
        elif fault == "never":
            cpls[k:] = []
        elif fault == "late":
            delay = int(TIMEOUT*1.6)
        elif fault == "length":
            cpls[k:] = [self.cpl(tag, memory(a, n), left, a, length=0)]
        elif fault == "twice":
            self.failed.discard(address)          # The read is right, the copy is unknown or hits a later read.
            cpls.append(self.cpl(tag, memory(a, n), left, a))
            self.twice = True
        return delay, cpls

    twice = False

    def run(self):
        yield "passive"
        c, seen, beats = self.dut.completion, 0, []
        names = ["tag", "status", "poisoned", "has_data", "byte_count", "length", "lower_address", "dat", "first", "last"]
        while True:
            self.now += 1
            for read in self.reads.beats[seen:]:
                delay, cpls = self.answer(read)
                self.queues.append([self.now + delay, cpls])
            seen = len(self.reads.beats)
            if not beats and self.random.random() >= self.idle:
                ripe = [q for q in self.queues if q[0] <= self.now and q[1]]
                if ripe:
                    beats = self.random.choice(ripe)[1].pop(0)
                self.queues = [q for q in self.queues if q[1]]
                if self.faults and not beats and self.random.random() < 0.01:
                    beats = self.cpl(self.random.choice([self.dut_tags, 255, 200]), bytes(64), 64, 0)
                    self.unknown_sent += 1
            if beats:
                beat, beats = beats[0], beats[1:]
                yield [getattr(c, n).eq(int(beat[n])) for n in names] + [c.valid.eq(1)]
                yield
                while not (yield c.ready):
                    yield
                    self.now += 1
                yield c.valid.eq(0)
            else:
                yield

    dut_tags = 8

def requests_of(r, config, count):
    lengths = [0, 1, 2, 7, 8, 63, 64, 65, config.max_mtu - 1, config.max_mtu]
    def address():
        return r.randrange(1 << 20, 1 << r.choice([30, 45])) & ~(r.choice([0, 0, 7, 63]))
    return [{"address": address(), "beyond": r.getrandbits(r.choice([20, 52])),
        "length": r.choice(lengths + [r.randrange(config.max_mtu + 1)])} for _ in range(count)]

def receive(dut, config, requests, completer, seed, stall=0.2, idle=0.2, limit=200000):
    source = StreamSource(dut.sink, requests, seed=seed, idle=idle)
    sink   = StreamSink(dut.source, seed=seed + 1, stall=stall)
    def rest():
        yield from sink.wait_packets(len(requests))
        for _ in range(20):
            yield
        while not (yield dut.idle):
            yield
    cycles = simulate(dut, [source.run(), sink.run(), completer.reads.run(), completer.run(), rest()], limit=limit, seed=seed)
    packets, current = [], []
    for beat in sink.beats:
        current.append(beat)
        if beat["last"]:
            packets.append(current)
            current = []
    assert not current and len(packets) == len(requests)
    return packets, cycles

def parts_of(request, config):
    """Addresses of the reads of a request."""
    reads, step = set(), config.host_width//8
    for address, length in pieces(request["address"], request["beyond"], request["length"]):
        start  = address & ~(step - 1)
        reads |= {start} | set(range((start//512 + 1)*512, address + length, 512))
    return reads

def check(packets, requests, config, failed=()):
    errors = 0
    for packet, request in zip(packets, requests, strict=True):
        step  = config.network_width//8
        assert len(packet) == max(1, -(-request["length"]//step)), "a packet of wrong length"
        assert packet[0]["first"] and not any(b["first"] for b in packet[1:])
        wrong = bool(parts_of(request, config) & set(failed))
        assert all(b["error"] == wrong for b in packet), f"error is {packet[0]['error']}, expected {wrong}"
        errors += wrong
        if not wrong:
            data = b"".join(b["data"].to_bytes(step, "little") for b in packet)[:request["length"]]
            parts = pieces(request["address"], request["beyond"], request["length"])
            assert data == b"".join(memory(a, n) for a, n in parts), f"wrong bytes for {request}"
    return errors

# Tests --------------------------------------------------------------------------------------------

WIDTHS = [(64, 64), (128, 64), (128, 128)]
DUTS   = {}

def build(host, network):
    if (host, network) not in DUTS:
        config = preset("tiny", host_width=host, network_width=network, max_mtu=4096, payload_store=16384, receive_store=8192)
        DUTS[host, network] = config, Dut(config)
    return DUTS[host, network]

@pytest.mark.parametrize("host,network", WIDTHS)
def test_any_address_and_length(host, network):
    config, dut = build(host, network)
    for seed, rcb, latency in ((1, 64, 200), (3, 128, 60)):
        requests = requests_of(random.Random(seed), config, 20)
        packets, _ = receive(dut, config, requests, Completer(dut, host, seed, rcb, latency), seed)
        check(packets, requests, config)

@pytest.mark.parametrize("host,network", WIDTHS)
def test_a_hostile_completer_hurts_only_its_reads(host, network):
    config, dut = build(host, network)
    for seed in (11, 12):
        requests  = requests_of(random.Random(seed), config, 24)
        completer = Completer(dut, host, seed, faults=0.15, latency=80)
        # A copy of a completion may hit the read that uses the tag next, which then fails: no check of data then.
        packets, _ = receive(dut, config, requests, completer, seed, limit=400000)
        if not completer.twice:
            assert check(packets, requests, config, completer.failed) > 0
        else:
            for packet, request in zip(packets, requests, strict=True):
                if not packet[0]["error"]:
                    check([packet], [request], config)

@pytest.mark.parametrize("fault", [f for f in FAULTS if f != "twice"])
def test_every_fault_fails_its_read_and_no_other(fault):
    config, dut = build(128, 64)
    completer   = Completer(dut, 128, 5, faults=0.5, latency=20, stall=0, idle=0)
    completer.kinds, completer.dut_tags = (fault,), config.read_tags
    requests    = [{"address": 0x10000 + 4096*n + 64*(n % 3), "beyond": 0, "length": 64 + 64*(n % 4)} for n in range(16)]
    packets, _  = receive(dut, config, requests, completer, 5, limit=400000)
    assert 0 < check(packets, requests, config, completer.failed) < 16

def test_a_late_answer_does_not_reach_the_next_read_of_its_tag():
    """It fits that read in every respect, and comes while that waits: only the tag's rest keeps it away."""
    config, dut = build(128, 64)
    tags        = config.read_tags
    requests    = [{"address": 0x10000 + 0x1000*n, "beyond": 0, "length": 64} for n in range(2*tags)]
    completer   = Completer(dut, 128, 6, latency=0, stall=0, idle=0)
    real        = completer.answer
    def answer(read):
        late = read["address"] < 0x10000 + 0x1000*tags
        return int(TIMEOUT*(1.6 if late else 0.8)), real(read)[1]
    completer.answer = answer
    packets, _  = receive(dut, config, requests, completer, 6, stall=0, idle=0, limit=60000)
    assert check(packets, requests, config, [q["address"] for q in requests[:tags]]) == tags

def test_reads_go_on_after_a_silent_completer():
    """No answer to any tag: every read fails in bounded time, and the tags come back."""
    config, dut = build(128, 64)
    requests    = [{"address": 0x10000 + 1024*n, "beyond": 0, "length": 512} for n in range(config.read_tags + 4)]
    completer   = Completer(dut, 128, 1)
    real        = completer.answer
    completer.answer = lambda read: real(read) if len(completer.reads.beats) > config.read_tags else (0, [])
    packets, cycles = receive(dut, config, requests, completer, 1)
    assert [p[0]["error"] for p in packets] == [1]*config.read_tags + [0]*4
    assert cycles < 5*TIMEOUT

@pytest.mark.parametrize("host,network", WIDTHS)
def test_long_packets_at_one_word_per_cycle(host, network):
    config, dut = build(host, network)
    requests  = [{"address": a, "beyond": straight(a), "length": 4096} for a in range(1 << 33, (1 << 33) + 12*4112, 4112)]
    completer = Completer(dut, host, 1, rcb=256, latency=0, stall=0, idle=0)
    packets, cycles = receive(dut, config, requests, completer, 1, stall=0, idle=0)
    check(packets, requests, config)
    words = 4096*8//network
    if host > network:
        assert cycles <= 12*(words + 8) + 2*words, f"{cycles} cycles for 12 packets of {words} words"

def test_bad_timeout_is_refused():
    with pytest.raises(ValueError, match="100"):
        PayloadReader(preset("tiny"), timeout=100)
