# SPDX-License-Identifier: BSD-2-Clause
"""Every stream block is stopped once before each beat, in front and behind, and gives what it gives undisturbed.

A stop in the middle of a packet is where stream blocks lose, repeat or mix beats: random back-pressure
meets most places, this meets all. The packets are of every kind that has gone wrong somewhere: of one word,
one word behind a long one, exactly full, and one byte more.
"""

import random
from dataclasses import dataclass, field

import pytest
from litex.gen import LiteXModule

from gateware.common.headers import Opcode
from gateware.common.layouts import WriteKind, event_layout
from gateware.config import preset
from gateware.host.bar_bridge import BAR0_DOORBELL, BarBridge
from gateware.host.host_writer import HostWriter
from gateware.host.payload_splitter import PayloadSplitter
from gateware.host.payload_store import PayloadStore
from gateware.host.request_splitter import RequestSplitter
from gateware.host.tlp_packetizer import TLPPacketizer
from gateware.host.tlp_tail import TLPTail
from gateware.network.fcs import FcsChecker, FcsInserter, PaddingInserter
from gateware.network.packet_builder import PacketBuilder
from gateware.network.packet_parser import ReceivePath
from gateware.recovery.event_queue import EventQueue
from gateware.transport.requester.packet_sender import PayloadGate
from gateware.transport.transport import ReceiveDispatcher
from tests.drivers.stream import StreamSink, StreamSource, beats_of_bytes
from tests.engines import simulate
from tests.gateware.host.tlps import completion_dwords, request_dwords, words_of
from tests.gateware.network.frames import beats_of, random_frame
from tests.gateware.network.frames import words_of as payload_words
from tests.gateware.network.test_packet_builder import job_of
from tests.models import wire

CONFIG  = preset("tiny")
HOST    = CONFIG.host_width
NETWORK = CONFIG.network_width
STOP    = 5                       # Cycles.
SETTLE  = 60

@dataclass
class Case:
    """A block, what goes into its sinks, and which of its endpoints are watched.

    rigid: endpoints that must not be stopped (a MAC does not wait; a MAC must not run dry).
    """
    dut:    object
    sinks:  dict
    sources: list
    rigid:  tuple = ()
    settings: dict = field(default_factory=dict)

def endpoint(dut, path):
    for name in path.split("."):
        dut = dut[int(name)] if name.isdigit() else getattr(dut, name)
    return dut

def run(case, stopped=None, at=0):
    """Beats of each watched endpoint, with a stop before beat `at` of `stopped`."""
    stops   = {stopped: {at: STOP}}
    sources = [StreamSource(endpoint(case.dut, n), beats, seed=3, idle=0, stops=stops.get(n)) for n, beats in case.sinks.items()]
    sinks   = {n: StreamSink(endpoint(case.dut, n), stall=0, stops=stops.get(n)) for n in case.sources}
    def main():
        yield [endpoint(case.dut, n).eq(v) for n, v in case.settings.items()]
        while any(s.sent < len(s.beats) for s in sources):
            yield
        for _ in range(SETTLE):
            yield
    simulate(case.dut, [main(), *(s.run() for s in sources), *(s.run() for s in sinks.values())], limit=6000)
    return {n: s.beats for n, s in sinks.items()}

# Blocks -------------------------------------------------------------------------------------------

LENGTHS = (1, 16, 33, 15, 17, 2, 64, 5)

def frames(lengths):
    r = random.Random(9)
    return [beat for n in lengths for beat in beats_of(r.randbytes(n), NETWORK)]

def bytes_of(lengths, width, name="data", **head):
    r = random.Random(8)
    return [beat for n in lengths for beat in beats_of_bytes(r.randbytes(n), width, field=name, **head)]

def splitter():
    r, jobs, words = random.Random(1), [], []
    for n in (*LENGTHS, 300):
        offset = r.randrange(8)
        jobs  += [{"offset": offset, "address": 0x1000 + r.randrange(256), "length": n, "first": 1, "last": 1}]
        words += beats_of_bytes(r.randbytes(offset + n + 4), HOST)
    return Case(PayloadSplitter(CONFIG), {"sink": jobs, "words": words}, ["tlp"])

def writer():
    r, jobs, stored = random.Random(2), [], []
    for i, n in enumerate(LENGTHS):
        kind = (WriteKind.PAYLOAD, WriteKind.PAYLOAD, WriteKind.DISCARD)[i % 3]
        jobs.append({"kind": kind, "offset": i % 8, "address": 0x1000*(i + 1) + i, "length": n})
        jobs.append({"kind": WriteKind.WORD, "address": 0x100*i, "word": i} if i % 2 else {"kind": WriteKind.NOTIFY, "due": i})
        stored += beats_of_bytes(r.randbytes(i % 8 + n + 4), NETWORK)
    return Case(HostWriter(CONFIG), {"jobs": jobs, "stored.0": stored}, ["write", "due"])

def packetizer(kind):
    r, beats = random.Random(3), []
    for n in (1, 2, 3, 4, 5, 1, 8, 2):
        head   = {"address": r.choice((0x1000, 1 << 40)), "first_be": 15, "last_be": 15 if n > 1 else 0} if kind == "write" else {"tag": n}
        beats += beats_of_bytes(r.randbytes(4*n), HOST, field="dat", length=n, **head)
    return Case(TLPPacketizer(HOST), {kind: beats}, ["source"], settings={"bus_master_enable": 1})

def tail():
    beats = []
    for n in (1, 5, 2, 9, 3, 4, 6):
        beats += words_of(request_dwords(0x1000, bytes(range(4*n))), HOST)
        beats += words_of(completion_dwords(n, bytes(range(4*n)), 4*n, 0), HOST)
        beats += words_of(request_dwords(0x2000, length=n), HOST)
    return Case(TLPTail(HOST), {"sink": beats}, ["source"])

def doorbells():
    beats = [{"we": 1, "address": BAR0_DOORBELL + 8*i, "length": 2 - (i % 3 == 1), "first_be": 15, "last_be": 15*(i % 3 != 1),
        "dat": i*0x0101, "first": 1, "last": 1} for i in range(9)]
    return Case(BarBridge(CONFIG), {"sink": beats}, ["doorbell"])

def requests():
    beats = [{"address": 0x1000 + 100*i, "length": n, "first": 1, "last": 1} for i, n in enumerate((1, 16, 1024, 0, 513, 2))]
    return Case(RequestSplitter(CONFIG), {"sink": beats}, ["source"])

def builder():
    r, jobs, words = random.Random(4), [], []
    for opcode, n, ts in ((Opcode.WRITE_ONLY, 1, 1), (Opcode.SACK, 0, 0), (Opcode.WRITE_FIRST, 64, 0), (Opcode.WRITE_ONLY_IMM, 13, 1),
            (Opcode.ACKNOWLEDGE, 0, 0), (Opcode.WRITE_ONLY, 0, 1), (Opcode.WRITE_LAST, 7, 1)):
        payload = r.randbytes(n)
        jobs.append({**job_of(r, opcode, payload, ts)[0], "first": 1, "last": 1})
        words += payload_words(payload, NETWORK)
    return Case(PacketBuilder(CONFIG), {"sink": jobs, "payload": words}, ["source"])

def parser():
    r, beats = random.Random(5), []
    for i, n in enumerate((1, 0, 13, 8)):
        beats += beats_of(wire.build_data(Opcode.WRITE_ONLY, r.randbytes(n), msn=i, minimum=60), NETWORK, error=int(i == 2))
        beats += beats_of(random_frame(r, psn=i, longest=9), NETWORK) if i % 2 else []
    return Case(ReceivePath(CONFIG), {"sink": beats}, ["source", "stored"])

def gate():
    return Case(PayloadGate(CONFIG), {"verdicts": [{"drop": i % 3 == 1, "first": 1, "last": 1} for i in range(len(LENGTHS))],
        "sink": bytes_of(LENGTHS, NETWORK)}, ["source"])

def events():
    class Dut(LiteXModule):
        def __init__(self):
            self.queue = EventQueue(CONFIG)
            self.sink, self.source = self.queue.add_source(), self.queue.source
    names = [n for n, _ in event_layout().payload_layout]
    return Case(Dut(), {"sink": [{names[0]: i % 8, "first": 1, "last": 1} for i in range(12)]}, ["source"])

def dispatcher():
    kinds = (Opcode.WRITE_ONLY, Opcode.SACK, Opcode.NACK, Opcode.PROBE, Opcode.ACKNOWLEDGE, Opcode.WRITE_MIDDLE)
    beats = [{"opcode": kinds[i % 6], "psn": i, "first": 1, "last": 1} for i in range(12)]
    return Case(ReceiveDispatcher(CONFIG), {"sinks.0": beats}, ["requester", "responder"])

FRAMES = (60, 14, 1, 61, 8, 63)

CASES = {
    "payload_splitter": splitter,
    "host_writer":      writer,
    "tlp_packetizer-write":      lambda: packetizer("write"),
    "tlp_packetizer-completion": lambda: packetizer("completion"),
    "tlp_tail":         tail,
    "bar_bridge":       doorbells,
    "request_splitter": requests,
    "payload_store":    lambda: Case(PayloadStore(CONFIG), {"sink": bytes_of(LENGTHS, NETWORK)}, ["source", "packets"]),
    "payload_gate":     gate,
    "packet_builder":   builder,
    "packet_parser":    parser,
    "padding":          lambda: Case(PaddingInserter(NETWORK), {"sink": frames(FRAMES)}, ["source"]),
    "fcs_inserter":     lambda: Case(FcsInserter(NETWORK), {"sink": frames(FRAMES)}, ["source"]),
    "fcs_checker":      lambda: Case(FcsChecker(NETWORK), {"sink": frames([n + 4 for n in FRAMES])}, ["source"], rigid=("source",)),
    "event_queue":      events,
    "receive_dispatcher": dispatcher,
}

@pytest.mark.parametrize("name", CASES)
def test_a_stop_before_any_beat_changes_nothing(name):
    case   = CASES[name]()
    wanted = run(case)
    assert all(wanted.values()), "a watched stream stays empty"
    if "error" in wanted.get("source", [{}])[0]:       # Frames of a MAC: the mark of the last byte is in the last word only.
        assert all(b["last"] or not b.get("last_be") for b in wanted["source"])
    stops = [(n, at) for n in [*case.sinks, *case.sources] if n not in case.rigid
             for at in range(len(case.sinks.get(n) or wanted[n]))]
    for n, at in stops:
        assert run(case, n, at) == wanted, f"a stop before beat {at} of {n}"
