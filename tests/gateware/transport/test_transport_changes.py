# SPDX-License-Identifier: BSD-2-Clause
"""What the driver changes between two messages holds for the next packet, and nothing of the time before is left."""

import pytest

from gateware.common import tables as t
from gateware.common.headers import DATA_METH, METH, PACKET_TYPES
from tests.gateware.transport.test_transport import Loop, landed

def data_of(headers):
    return [h for h in headers if PACKET_TYPES[h["opcode"]].data]

def test_a_changed_address_is_used_by_the_next_packet():
    loop = Loop(21)
    def script():
        for n, mac in enumerate((0x10, 0x99, 0x10)):
            yield from loop.write(t.PEER, 0, ip=1 + n, ev_count=4, mac0=mac)
            before = len(loop.sent)
            loop.token(slot=n, flag_default=1)
            yield from loop.wait(loop.completed(n + 1))
            yield from loop.rest()
            assert len(loop.sent) > before and {h["destination_mac"] for h in loop.sent[before:]} == {mac}
            assert {h["destination_ip"] for h in loop.sent[before:]} == {1 + n}
    loop.run(script())

def test_a_queue_pair_changed_while_another_sends_is_seen_by_its_next_packet():
    """Rows are read anew for every packet: nothing of queue pair 0 is kept while queue pair 1 changes."""
    loop = Loop(22)
    def script():
        loop.token(slot=0, flag_default=1)
        yield from loop.wait(lambda: data_of(loop.sent))
        yield from loop.write(t.PEER, 1, ip=7, ev_count=4, mac0=0x77)      # Of nobody here.
        yield from loop.write(t.EV, 9, entropy=0xdead)
        yield from loop.wait(loop.completed(1))
    loop.run(script())
    assert landed(loop, 0, 700)
    assert {h["destination_mac"] for h in loop.sent} == {0x10} and 0xdead not in {h["entropy"] for h in loop.sent}

@pytest.mark.parametrize("psn", [0x900, (1 << 24) - 1])
def test_a_second_life_starts_with_its_own_numbers(psn):
    loop = Loop(23)
    def script():
        loop.token(slot=0, flag_default=1)
        yield from loop.wait(loop.completed(1))
        yield from loop.rest()
        before = len(loop.sent)
        for qp in range(2):
            yield from loop.write(t.QUEUE_PAIR, qp, state=t.QpState.RESET)
        for qp in range(2):
            yield from loop.write(t.QUEUE_PAIR, qp, state=t.QpState.RTS, generation=0x60 + qp, remote_qp=(0x61 - qp) << 16 | 1 - qp, mtu=0,
                p_key=0xffff, send_psn=psn, receive_psn=psn, sack_trigger=4096, timeout=2000, guard_packets=3)
        loop.token(slot=1, flag_default=1)
        yield from loop.wait(loop.completed(2))
        yield from loop.rest()
        data  = data_of(loop.sent[before:])
        meths = [METH.unpack(h["body"].to_bytes(64, "little")[DATA_METH:DATA_METH + METH.length]) for h in data]
        assert [h["psn"] for h in data] == [(psn + i) % (1 << 24) for i in range(3)] and not any(h["rtx"] for h in data)
        assert {(m["msn"], m["rqmsn"]) for m in meths} == {(0, 0)}
        assert {h["dest_qp"] >> 16 for h in data} == {0x61}
    loop.run(script())
    assert landed(loop, 0, 700) and landed(loop, 1, 700)
