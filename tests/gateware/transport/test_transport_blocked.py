# SPDX-License-Identifier: BSD-2-Clause
"""Receive never waits for transmit: packets are placed, flags written and answers noted while nothing can leave."""

from gateware.common.headers import AETH, IMMDT, METH, RETH, TSETH, NackReason, Opcode
from tests.engines import simulate
from tests.gateware.transport.test_transport import CONFIG, DUT, FLAG, Loop

COUNT, LENGTH, BASE = 60, 96, 0x50000

def packet(psn, number, opcode=Opcode.WRITE_ONLY_IMM):
    """WRITE ONLY to queue pair 1, message `number` to its own place."""
    body = (METH.pack(rqmsn=number, msn=number) + TSETH.pack(tx_timestamp=number, ftype=1) +
            RETH.pack(va=BASE + 128*number, rkey=0x103, length=LENGTH) + IMMDT.pack(immediate=2))
    return {"opcode": opcode, "p_key": 0xffff, "dest_qp": 0x51 << 16 | 1, "a": 0, "rtx": 0, "ts": 1, "psn": psn & 0xffffff,
        "entropy": 0xc000 + number % 4, "ce": 0, "length": LENGTH, "offset": 0, "stored": 1, "body": int.from_bytes(body, "little")}

def test_receive_goes_on_while_nothing_can_be_sent():
    loop = Loop(21)
    loop.send.stall = loop.out.stall = 1
    data, counts = [], {}
    def give(psn, number):
        loop.received.append(packet(psn, number))
        loop.stored.append(loop.random.randbytes(LENGTH))
        return loop.stored[-1]
    def script():
        yield from loop.set_up()
        loop.token(slot=0, length=700)                      # A packet of its own stands in the way, too.
        first = loop.psn[0]
        data.extend(give(first + n, n) for n in range(COUNT))
        for n in range(20):
            give(first + n, n)                              # Duplicates,
        for n in range(4):
            give(first + COUNT + CONFIG.mpr + n, COUNT + n) # and packets above the window.
        yield from loop.wait(lambda: not (loop.received or loop.stored or loop.due))
        yield from loop.rest()
        for name in ("receive_accepted", "receive_duplicate", "receive_window", "receive_messages", "nacks_dropped", "sent_sack"):
            counts[name] = (yield DUT.seen[name])
        assert not loop.sent
        loop.send.stall = loop.out.stall = 0
        yield from loop.wait(lambda: sum(h["opcode"] == Opcode.NACK for h in loop.sent) == 4)
        yield from loop.rest()
    simulate(DUT, loop.generators(script()), limit=30000, seed=21)
    assert counts == {"receive_accepted": COUNT, "receive_duplicate": 20, "receive_window": 4, "receive_messages": COUNT,
        "nacks_dropped": 0, "sent_sack": 0}
    for n, wanted in enumerate(data):
        assert loop.memory[BASE + 128*n:BASE + 128*n + LENGTH] == wanted
    assert loop.flags == [(FLAG, n + 1) for n in range(COUNT)]
    answers = [h for h in loop.sent if h["opcode"] in (Opcode.SACK, Opcode.ACKNOWLEDGE, Opcode.NACK)]
    last    = (loop.psn[0] + COUNT - 1) & 0xffffff
    acks    = [h for h in answers if h["opcode"] == Opcode.ACKNOWLEDGE and h["dest_qp"] >> 16 == 0x50]
    assert acks and acks[-1]["psn"] == last
    assert AETH.unpack(acks[-1]["body"].to_bytes(36, "little"))["msn"] == COUNT
    assert {h["body"] >> 16 & 0xff for h in answers if h["opcode"] == Opcode.NACK} == {NackReason.PSN_OOR_WINDOW}
