# SPDX-License-Identifier: BSD-2-Clause
"""WQE builder: any packet of any message, in any order, has the address, length and opcode of its place."""

import random

import pytest

from gateware.common.headers import PACKET_TYPES
from gateware.common.tables import QpState
from gateware.transport.requester.wqe import WqeBuilder
from tests.drivers.stream import StreamSink, StreamSource
from tests.engines import simulate
from tests.gateware.host.paged import pieces
from tests.gateware.transport.harness import PSN, WINDOWS, Bench, message_table, put
from tests.models.regions import bus_pieces

CONFIG = WINDOWS[128].but(max_mtu=4096, receive_store=8192, payload_store=8192)
TYPES  = {(t.first, t.last, t.imm): t.opcode for t in PACKET_TYPES.values() if t.data}

class Dut(Bench):
    def __init__(self):
        super().__init__(CONFIG)
        self.messages = message_table(CONFIG)
        self.block    = WqeBuilder(CONFIG, self.tables, self.messages)

@pytest.fixture(scope="module")
def dut():
    return Dut()

def fill(rng):
    """Rows of all tables."""
    regions  = [dict(valid=1, variant=rng.getrandbits(8), rights=7, base=rng.getrandbits(64), length=rng.getrandbits(40),
        bus=rng.getrandbits(64), page_shift=shift, first_page=rng.randrange(4)) for shift in (0, 12, 16, 21)]
    table    = [rng.getrandbits(64) for _ in range(CONFIG.translations)]
    contexts = []
    for _ in range(CONFIG.contexts):
        number = rng.randrange(CONFIG.regions)
        row    = regions[number]
        near   = (row["base"] + rng.randrange(1 << 20)) % 2**64 if row["page_shift"] else rng.getrandbits(64)
        contexts.append(dict(valid=1, local_base=near, local_stride=rng.getrandbits(1 if row["page_shift"] else 32),
            remote_base=rng.getrandbits(64), remote_stride=rng.getrandbits(32), lkey=number << 8 | rng.getrandbits(8),
            rkey=rng.getrandbits(32), immediate=rng.getrandbits(32)))
    mtus, records = [rng.randrange(5) for _ in range(CONFIG.queue_pairs)], []
    for qp in range(CONFIG.queue_pairs):
        for _ in range(CONFIG.messages):
            mtu    = 256 << mtus[qp]
            length = rng.choice((0, 1, mtu - 1, mtu, mtu + 1, 2*mtu, 7*mtu + 5, rng.getrandbits(24), 2**24 - 1))
            first  = rng.choice((PSN - 2, rng.getrandbits(24)))
            count  = max(1, -(-length//mtu))
            records.append(dict(context=rng.randrange(CONFIG.contexts), page=0, signal=rng.getrandbits(1), slot=rng.getrandbits(24),
                length=length, first_psn=first, last_psn=(first + count - 1) % PSN, rqmsn=rng.getrandbits(16)))
    return regions, table, contexts, mtus, records

def packet(request, regions, table, contexts, mtus, records):
    """(pieces to read, descriptor) that a request must give; no pieces of a packet whose page is not in the table."""
    r      = records[request["qp"]*CONFIG.messages + request["message"]]
    c      = contexts[r["context"]]
    region = regions[c["lkey"] >> 8]
    mtu    = 256 << mtus[request["qp"]]
    offset = (request["psn"] - r["first_psn"]) % PSN*mtu
    length = min(mtu, r["length"] - offset)
    first, last = request["psn"] == r["first_psn"], request["psn"] == r["last_psn"]
    local  = c["local_base"] + r["slot"]*c["local_stride"] + offset
    remote = c["remote_base"] + r["slot"]*c["remote_stride"] + offset
    parts  = bus_pieces(region, table, local % 2**64, length) if length else []
    void   = parts is None
    length = 0 if void else length
    return (parts or [],
        dict(qp=request["qp"], psn=request["psn"], rtx=request["rtx"], a=request["a"], msn=request["msn"],
            opcode=TYPES[first, last, bool(r["signal"] and last)], va=remote % 2**64, rkey=c["rkey"], total=r["length"], length=length,
            void=int(void), immediate=c["immediate"], rqmsn=r["rqmsn"]))

@pytest.mark.parametrize("seed, idle, stall", [(0, 0, 0), (1, 0.5, 0.2), (2, 0, 0.6)])
def test_every_packet_of_every_message(dut, seed, idle, stall):
    rng = random.Random(seed)
    regions, table, contexts, mtus, records = state = fill(rng)
    requests = []
    for _ in range(300):
        qp, message = rng.randrange(CONFIG.queue_pairs), rng.randrange(CONFIG.messages)
        r      = records[qp*CONFIG.messages + message]
        count  = (r["last_psn"] - r["first_psn"]) % PSN
        number = rng.choice((0, count, max(0, count - 1), rng.randrange(count + 1)))
        requests.append(dict(qp=qp, message=message, psn=(r["first_psn"] + number) % PSN, msn=rng.getrandbits(16),
            rtx=rng.getrandbits(1), a=rng.getrandbits(1)))
    read   = StreamSink(dut.block.read, seed=seed, stall=stall)
    source = StreamSink(dut.block.source, seed=seed + 9, stall=stall)
    def drive():
        for n, mtu in enumerate(mtus):
            yield from put(dut.tables.queue_pair, n, state=QpState.RTS, mtu=mtu)
        for ram, rows in ((dut.tables.region, regions), (dut.tables.context, contexts),
                (dut.tables.translation, [dict(bus=bus) for bus in table]), (dut.messages, records)):
            for n, row in enumerate(rows):
                yield from put(ram, n, **row)
        yield from StreamSource(dut.block.sink, requests, seed=seed, idle=idle).run()
        yield from source.wait(len(requests))
        for _ in range(20):
            yield
    simulate(dut, [drive(), read.run(), source.run()])
    assert len(read.beats) == len(source.beats) == len(requests)
    for request, r, s in zip(requests, read.beats, source.beats, strict=True):
        parts, expected = packet(request, *state)
        assert pieces(r["address"], r["beyond"], r["length"]) == parts, request
        assert {n: s[n] for n in expected} == expected, request
    kinds = [(s["void"], bool(regions[contexts[records[q["qp"]*CONFIG.messages + q["message"]]["context"]]["lkey"] >> 8]["page_shift"]))
        for q, s in zip(requests, source.beats, strict=True)]
    assert all(kinds.count(kind) > 5 for kind in ((0, False), (0, True), (1, True))), "one kind of packet did not come"
