# SPDX-License-Identifier: BSD-2-Clause
"""The transport as a whole, its send side looped to its receive side: token in, flag and credit line out.

The host is a byte array, the network a list; between them everything is the card's.
"""

import collections
import random

import pytest
from migen import *

from firmware.contract import CommandKind, EventKind, PathChange, QpError
from gateware.common import tables as t
from gateware.common.headers import DATA_RETH, PACKET_TYPES, RETH, Opcode
from gateware.common.layouts import WriteKind
from gateware.config import preset
from gateware.transport.transport import Transport
from tests.drivers.stream import StreamSink, beats_of_bytes
from tests.engines import simulate
from tests.gateware.transport.responder.model import unpack_due

CONFIG = preset("tiny")
MTU    = 256
SOURCE, TARGET, FLAG, CREDIT = 0x10000, 0x40000, 0x90000, 0xa0000

class Bench(Transport):
    def __init__(self):
        super().__init__(CONFIG)
        self.seen = {name: count for name, (count, _) in self.counters().items()}

DUT = Bench()

def feed(endpoint, queue):
    """Passive: offers what the list `queue` gets."""
    yield "passive"
    while True:
        if queue:
            yield [getattr(endpoint, k).eq(v) for k, v in queue.pop(0).items()] + [endpoint.valid.eq(1)]
            yield
            while not (yield endpoint.ready):
                yield
            yield endpoint.valid.eq(0)
        else:
            yield

class Loop:
    """Host memory and network around the card; queue pair 0 speaks to queue pair 1 and back."""
    def __init__(self, seed, lose=0.0):
        r = self.random = random.Random(seed)
        self.seed, self.lose = seed, lose
        self.memory = bytearray(1 << 20)
        self.memory[SOURCE:SOURCE + 0x10000] = r.randbytes(0x10000)
        self.read, self.send, self.out, self.jobs, self.small = (StreamSink(e, seed + n, 0.2) for n, e in
            enumerate((DUT.read, DUT.send, DUT.to_builder, DUT.jobs, DUT.small)))
        self.event  = [StreamSink(e, seed + 9, 0) for e in DUT.events]
        self.packets, self.payload, self.received, self.due, self.tokens, self.commands = ([] for _ in range(6))
        self.sent, self.stored, self.flags, self.lines, self.events = [], [], [], [], []
        self.read_fails = lambda address: False
        self.psn = [(1 << 24) - r.randrange(1, 20), r.getrandbits(24)]
        self.on_flag = lambda: None
        self.is_up   = False

    def generators(self, main):
        pairs = ((DUT.packets, self.packets), (DUT.payload, self.payload), (DUT.received[0], self.received), (DUT.due, self.due),
            (DUT.doorbell, self.tokens), (DUT.command, self.commands))
        return [main, *(s.run() for s in (self.read, self.send, self.out, self.jobs, self.small, *self.event)),
            *(feed(e, q) for e, q in pairs), self.host(), self.network()]

    def host(self):
        yield "passive"
        while True:
            while self.read.beats:
                b = self.read.beats.pop(0)
                data = bytes(self.memory[b["address"]:b["address"] + b["length"]])
                self.payload += [{**beat, "error": 0} for beat in beats_of_bytes(data, CONFIG.network_width)]
                self.packets.append({"error": int(self.read_fails(b["address"]))})
            while self.jobs.beats:
                b = self.jobs.beats.pop(0)
                if b["kind"] in (WriteKind.PAYLOAD, WriteKind.DISCARD):
                    data = self.stored.pop(0)
                    if b["kind"] == WriteKind.PAYLOAD:
                        assert len(data) == b["length"]
                        self.memory[b["address"]:b["address"] + len(data)] = data
                elif b["kind"] == WriteKind.WORD:
                    self.flags.append((b["address"], b["word"]))
                    self.on_flag()
                else:
                    self.due.append(unpack_due(b["due"]))
            while self.small.beats:
                b = self.small.beats.pop(0)
                assert b["address"] == CREDIT
                self.lines.append(t.CREDIT.unpack(b["data"]))
            for sink in self.event:
                while sink.beats:
                    self.events.append(sink.beats.pop(0))
            yield

    def network(self):
        yield "passive"
        while True:
            whole = sum(b["last"] for b in self.out.beats)
            if self.send.beats and (self.send.beats[0]["length"] == 0 or whole):
                header, data = self.send.beats.pop(0), b""
                if header["length"]:
                    while True:
                        beat  = self.out.beats.pop(0)
                        data += beat["data"].to_bytes(CONFIG.network_width//8, "little")
                        if beat["last"]:
                            break
                    data = data[:header["length"]]
                self.sent.append(header)
                if not (PACKET_TYPES[header["opcode"]].data and self.random.random() < self.lose):
                    keys = ("opcode", "p_key", "dest_qp", "a", "rtx", "ts", "psn", "entropy", "length", "body")
                    self.received.append({**{k: header[k] for k in keys}, "ce": 0, "offset": 0, "stored": int(bool(data))})
                    if data:
                        self.stored.append(data)
            yield

    # Set-up -----------------------------------------------------------------------------------------
    def write(self, table, index, refused=0, **values):
        yield [DUT.port.row.eq(table.pack(**values)), DUT.port.table.eq(table.number), DUT.port.index.eq(index), DUT.port.start.eq(1)]
        yield
        yield DUT.port.start.eq(0)
        yield
        while (yield DUT.port.busy):
            yield
        assert (yield DUT.port.refused) == refused

    def set_up(self):
        yield [DUT.own_ip.eq(1), DUT.udp_port.eq(4791), *[mac.eq(0x10 + n) for n, mac in enumerate(DUT.own_macs)]]
        yield from self.write(t.PEER, 0, ip=1, ev_count=4, mac0=0x10)
        for n in range(4):
            yield from self.write(t.EV, n, entropy=0xc000 + n)
        yield from self.write(t.REGION, 1, valid=1, variant=3, rights=7, base=0, length=1 << 20, bus=0)
        yield from self.write(t.SIGNAL, 2, valid=1, any_qp=0, qp=1, mode=t.SignalMode.SET, address=FLAG)
        yield from self.write(t.PAGE, 0, valid=1, first=0, count=4, quota=20, credit=CREDIT, credit_every=1)
        yield from self.write(t.CONTEXT, 0, valid=1, qp=0, op=2, length=700, max_length=8192, slots=4,
            local_base=SOURCE, local_stride=0x2000, remote_base=TARGET + 1, remote_stride=0x2000, lkey=0x103, rkey=0x103, immediate=2)
        yield from self.connect()
        yield from self.rest(10)
        assert [(e["kind"], e["qp"], e["life"]) for e in self.events] == [(EventKind.START, 0, 0), (EventKind.START, 1, 0)]
        self.events.clear()
        self.is_up = True

    def connect(self, generation=0x50, page=255):
        for qp in range(2):
            yield from self.write(t.QUEUE_PAIR, qp, state=t.QpState.RTS, generation=(generation + qp) % 256,
                remote_qp=(generation + 1 - qp) % 256 << 16 | 1 - qp, mtu=0, p_key=0xffff, send_psn=self.psn[qp],
                receive_psn=self.psn[1 - qp], sack_trigger=4096, timeout=2000, guard_time=0, guard_packets=3, page=page)

    def token(self, **values):
        self.tokens.append({"address": 0, "data": t.TOKEN.pack(**values), "dwords": 3})

    def command(self, kind, qp, base=0, mask=0, reason=0, life=0):
        self.commands.append({"kind": kind, "reason": reason, "qp": qp, "base": base, "life": life,
            "mask_low": mask & 0xffffffff, "mask_high": mask >> 32})

    def wait(self, what, cycles=6000):
        """Until `what()` is true."""
        for _ in range(cycles):
            if what():
                return
            yield
        raise AssertionError(f"It did not happen within {cycles} cycles (seed {self.seed}); sent {len(self.sent)}, "
            f"lines {self.lines[-1:]}, events {[e['kind'] for e in self.events]}")

    def rest(self, cycles=300):
        for _ in range(cycles):
            yield

    def completed(self, count):
        return lambda: bool(self.lines) and self.lines[-1]["completed"] == count

    def run(self, script, limit=60000):
        def main():
            yield from self.set_up()
            yield from script
        simulate(DUT, self.generators(main()), limit=limit, seed=self.seed)

def landed(loop, slot, length):
    at = 0x2000*slot
    return loop.memory[TARGET + 1 + at:TARGET + 1 + at + length] == loop.memory[SOURCE + at:SOURCE + at + length]

# Tests --------------------------------------------------------------------------------------------

def test_token_becomes_packets_a_flag_and_a_credit_line():
    loop = Loop(1)
    def on_flag():
        assert landed(loop, 3, 700), "the flag was written before the payload"
    loop.on_flag = on_flag
    def script():
        loop.token(slot=3, flag_default=1)
        yield from loop.wait(loop.completed(1))
        loop.token(slot=0, length=0, op=1)
        yield from loop.wait(loop.completed(2))
        yield from loop.rest()
    loop.run(script())
    data = [h for h in loop.sent if PACKET_TYPES[h["opcode"]].data]
    assert [h["opcode"] for h in data] == [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY]
    assert [h["length"] for h in data] == [256, 256, 188, 0]
    assert [h["psn"] for h in data] == [(loop.psn[0] + n) & 0xffffff for n in range(4)]
    assert len({h["entropy"] for h in data}) == 4 and all(h["dest_qp"] == 0x51 << 16 | 1 for h in data)
    for n, h in enumerate(data[:3]):
        reth = RETH.unpack(h["body"].to_bytes(36, "little")[DATA_RETH:])
        assert reth == dict(va=TARGET + 1 + 3*0x2000 + 256*n, rkey=0x103, length=700)
    assert loop.flags == [(FLAG, 1)] and not loop.events
    assert loop.lines[-1]["consumed"] == 2 and loop.lines[-1]["error"] == 0

@pytest.mark.parametrize("seed, lose", [(2, 0.25), (5, 0.05)])
def test_lost_packets_are_resent_on_command_until_all_is_complete(seed, lose):
    """The firmware's part: holes and timeouts are answered with RESEND, a silence and a lost path with PROBE."""
    loop, count = Loop(seed, lose), 16
    paths = collections.Counter()
    def firmware():
        yield "passive"
        while True:
            while loop.is_up and loop.events:
                e = loop.events.pop(0)
                if e["kind"] == EventKind.PATH:
                    paths[e["reason"]] += 1
                    loop.command(CommandKind.PROBE, e["qp"], e["base"])
                    continue
                assert e["kind"] in (EventKind.HOLES, EventKind.TIMEOUT)
                loop.command(CommandKind.RESEND, e["qp"], e["base"], e["mask_low"] | e["mask_high"] << 32, reason=1)
                if e["kind"] == EventKind.TIMEOUT:
                    loop.command(CommandKind.PROBE, e["qp"])
                    loop.command(CommandKind.TIMER, e["qp"], mask=100)
            yield
    def script():
        loop.command(CommandKind.TIMER, 0, mask=100)
        loop.command(CommandKind.GUARD, 0, mask=1 << 32)       # One packet, no time.
        for n in range(count):
            loop.token(slot=n % 4, length=1500)
            yield from loop.wait(lambda n=n: not loop.tokens and (not loop.lines or n - loop.lines[-1]["completed"] < 6), 30000)
        yield from loop.wait(loop.completed(count), 60000)
    def main():
        yield from loop.set_up()
        yield from script()
        for name in ("data_new", "data_resent", "messages_completed", "receive_messages"):
            counts[name] = (yield DUT.seen[name])
    counts = {}
    simulate(DUT, [*loop.generators(main()), firmware()], limit=300000, seed=seed)
    assert all(landed(loop, slot, 1500) for slot in range(4))
    values = [value for address, value in loop.flags if address == FLAG]       # Messages that complete at once share a flag.
    assert len(values) == len(loop.flags) and values == sorted(set(values)) and values[-1] == count
    assert counts["data_new"] == 6*count and counts["data_resent"] > 6*count*lose/2
    assert counts["messages_completed"] == counts["receive_messages"] == count
    assert paths[PathChange.LOST] > 0 and paths[PathChange.RETURNED] > 0

def test_failed_read_and_error_command_end_with_credit_and_refusal():
    loop = Loop(3)
    loop.read_fails = lambda address: address == SOURCE + 256
    def script():
        loop.token(slot=0, length=600)
        loop.token(slot=1, length=600)
        yield from loop.wait(lambda: any(e["kind"] == EventKind.READ_ERROR for e in loop.events))
        yield from loop.rest(1000)
        assert loop.lines[-1]["consumed"] == 2 and loop.lines[-1]["completed"] == 0
        loop.command(CommandKind.ERROR, 0, reason=QpError.READ_FAILED)
        yield from loop.wait(loop.completed(2))
        loop.token(slot=2, length=600)
        yield from loop.wait(loop.completed(3))
        yield from loop.rest()
        line = loop.lines[-1]
        assert (line["error"], line["error_qp"], line["error_count"], line["consumed"]) == (QpError.READ_FAILED, 0, 3, 3)
        assert (yield DUT.seen["token_state"]) == 1
        loop.command(CommandKind.PROBE, 1)                     # The other queue pair lives.
        yield from loop.wait(lambda: loop.sent[-1]["opcode"] == Opcode.PROBE)
    loop.run(script())
    assert not loop.flags

def test_probe_brings_the_last_acknowledgement_again():
    loop = Loop(4)
    def script():
        loop.command(CommandKind.PROBE, 0)
        yield from loop.wait(lambda: {h["opcode"] for h in loop.sent} == {Opcode.PROBE, Opcode.SACK, Opcode.ACKNOWLEDGE})
        yield from loop.rest()
    loop.run(script())
    assert len(loop.sent) == 3 and not loop.events

# Life cycle ---------------------------------------------------------------------------------------

CONTEXT = dict(valid=1, qp=0, op=2, length=700, max_length=8192, slots=4, local_base=SOURCE, local_stride=0x2000,
    remote_base=TARGET + 1, remote_stride=0x2000, lkey=0x103, rkey=0x103, immediate=2)

@pytest.mark.parametrize("seed", range(2))
def test_a_reset_under_traffic_gives_back_every_token_and_the_next_life_works_at_once(seed):
    loop   = Loop(50 + seed, lose=0.1)
    r      = loop.random
    counts = {}
    def script():
        posted = 0
        for n in range(20):
            for _ in range(r.randrange(1, 9)):
                loop.token(slot=r.randrange(4), length=r.choice([0, 1, 700, 1500]))
                posted += 1
            yield from loop.rest(r.choice([r.randrange(100), r.randrange(1500)]))
            flags = len(loop.flags)
            yield from loop.write(t.QUEUE_PAIR, 0)                     # RESET, while packets of it are everywhere.
            yield from loop.wait(lambda: not loop.tokens, 1000)        # Tokens that come later are refused.
            yield from loop.wait(loop.completed(posted))
            assert loop.lines[-1]["consumed"] == posted
            yield from loop.write(t.QUEUE_PAIR, 1)
            flags = len(loop.flags)
            yield from loop.write(t.CONTEXT, 0, **CONTEXT)             # Nothing has it in use any more.
            loop.psn = [r.getrandbits(24), r.getrandbits(24)]
            before   = len(loop.sent)
            yield from loop.connect(0x60 + 2*n)
            loop.lose = 0
            loop.memory[TARGET:TARGET + 0x1000] = bytes(0x1000)
            loop.token(slot=0, length=700)
            posted += 1
            yield from loop.wait(loop.completed(posted))
            assert landed(loop, 0, 700) and len(loop.flags) == flags + 1
            new = [h for h in loop.sent[before:] if PACKET_TYPES[h["opcode"]].data and h["dest_qp"] >> 16 == (0x61 + 2*n) % 256]
            assert [h["psn"] for h in new] == [(loop.psn[0] + i) % (1 << 24) for i in range(3)] and not any(h["rtx"] for h in new)
            loop.lose = 0.1
        for name in ("receive_unknown_qp", "ack_unknown_qp", "lives_begun", "lives_ended", "messages_failed", "tokens_flushed",
                "tokens", "token_state", "messages_completed"):
            counts[name] = (yield DUT.seen[name])
    loop.run(script(), limit=300_000)
    assert counts["lives_begun"] == 42 and counts["lives_ended"] == 40
    assert counts["receive_unknown_qp"] + counts["ack_unknown_qp"] > 5, "no packet came late"
    assert counts["messages_failed"] > 5 and counts["messages_completed"] > 20
    assert counts["tokens"] == counts["messages_failed"] + counts["messages_completed"] + counts["tokens_flushed"]
    assert {e["kind"] for e in loop.events} <= {EventKind.START, EventKind.HOLES, EventKind.TIMEOUT}

def test_a_command_for_a_former_life_is_dropped():
    loop = Loop(60)
    def script():
        yield from loop.write(t.QUEUE_PAIR, 0)
        yield from loop.write(t.QUEUE_PAIR, 0, state=t.QpState.RTS, generation=0x50, remote_qp=0x51 << 16 | 1, p_key=0xffff,
            send_psn=loop.psn[0], receive_psn=loop.psn[1], sack_trigger=4096, timeout=2000, page=255)
        loop.command(CommandKind.ERROR, 0, reason=QpError.RETRY_EXCEEDED)
        loop.command(CommandKind.PROBE, 0)
        yield from loop.rest()
        assert (yield DUT.seen["commands_stale"]) == 2 and not loop.sent
        loop.token(slot=0, length=700)
        yield from loop.wait(loop.completed(1))
        assert loop.lines[-1]["error"] == 0
    loop.run(script())

def test_rows_that_messages_use_are_refused_until_the_last_one_is_complete():
    loop = Loop(61)
    loop.lose = 1.0
    def script():
        loop.token(slot=0, length=700)
        loop.token(slot=1, length=700)
        yield from loop.rest(500)
        rows = ((t.CONTEXT, 0, CONTEXT), (t.REGION, 1, {}), (t.PAGE, 0, dict(valid=1, first=0, count=4, quota=20, credit=CREDIT,
            credit_every=1)))
        for table, index, values in rows:
            yield from loop.write(table, index, refused=t.Refusal.IN_USE, **values)
        yield from loop.write(t.CONTEXT, 1, **CONTEXT)                 # Its neighbours are free.
        yield from loop.write(t.REGION, 2, valid=1, variant=9)
        yield from loop.write(t.SIGNAL, 2, valid=1, any_qp=1, address=FLAG)
        loop.lose = 0
        loop.command(CommandKind.RESEND, 0, loop.psn[0], mask=0x3f)
        yield from loop.wait(loop.completed(2))
        for table, index, values in rows:
            yield from loop.write(table, index, **values)
        loop.token(slot=2, length=700)                                 # Its region has gone.
        yield from loop.wait(lambda: loop.lines[-1]["error"] == QpError.TOKEN_REGION)
    loop.run(script())
    assert loop.flags == [(FLAG, 1), (FLAG, 2)]

def test_a_page_hears_of_the_end_of_its_queue_pair_without_a_message():
    loop = Loop(62)
    def script():
        for qp in range(2):
            yield from loop.write(t.QUEUE_PAIR, qp)
        yield from loop.connect(0x70, page=0)
        loop.command(CommandKind.ERROR, 1, reason=QpError.REMOTE_ACCESS, life=1)
        yield from loop.wait(lambda: bool(loop.lines) and loop.lines[-1]["error"] == QpError.REMOTE_ACCESS)
        line = loop.lines[-1]
        assert (line["error_qp"], line["consumed"], line["completed"], line["error_count"]) == (1, 0, 0, 1)
        loop.token(slot=3, flag_default=1)                             # Queue pair 0 is another matter.
        yield from loop.wait(lambda: any(PACKET_TYPES[h["opcode"]].data for h in loop.sent))
    loop.run(script())
