# SPDX-License-Identifier: BSD-2-Clause
"""Timeouts explained from made-up records: what was lost, what was late, and what nothing excuses."""

import numpy as np
import pytest

from gateware.common.headers import Opcode
from soc.sim.library import RECORD, Fate, Kind
from soc.sim.stalls import SLACK, stalls

FIRST, INTERVAL, FLIGHT = 0xfffffe, 3200, 100
THERE, HERE = 0x110001, 0x220002

class Record:
    """Frames in the order of sending; node 0 sends data, node 1 answers."""
    def __init__(self):
        self.rows = []

    def frame(self, cycle, node, qpn, psn, opcode, fate=0, late=0):
        row = np.zeros((), RECORD)
        row["cycle"], row["node"], row["qpn"], row["opcode"], row["fate"] = cycle, node, qpn, opcode, fate
        row["psn"]  = (FIRST + psn) & 0xffffff
        row["kind"] = Kind.DATA if node == 0 else Kind.CONTROL
        row["delivered"] = 0 if fate & Fate.LOST else cycle + FLIGHT + late
        self.rows.append(row)

    def data(self, cycle, psn, fate=0):           self.frame(cycle, 0, THERE, psn, Opcode.WRITE_MIDDLE, fate)
    def sack(self, cycle, cack, fate=0, late=0):  self.frame(cycle, 1, HERE, cack, Opcode.SACK, fate, late)
    def ack(self, cycle, cack, fate=0):           self.frame(cycle, 1, HERE, cack, Opcode.ACKNOWLEDGE, fate)
    def nack(self, cycle, psn):                   self.frame(cycle, 1, HERE, psn, Opcode.NACK)

    def stalls(self, end=20_000):
        return stalls(np.array(self.rows), 0, 1, THERE, HERE, FIRST, INTERVAL, end)

def test_steady_progress_is_no_stall():
    r = Record()
    for i in range(10):
        r.data(2000*i, i)
        r.sack(2000*i + 200, i)
    r.ack(18_300, 9)
    assert r.stalls(100_000) == []

def test_an_idle_sender_may_wait_as_long_as_it_likes():
    r = Record()
    r.data(0, 0)
    r.ack(200, 0)
    r.sack(201, 0)
    r.data(90_000, 1)
    r.ack(90_200, 1)
    assert r.stalls(200_000) == []

@pytest.mark.parametrize("fate", [Fate.LOST, Fate.CORRUPTED, Fate.TRIMMED])
def test_a_spoiled_tail_explains(fate):
    r = Record()
    r.data(0, 0)
    r.data(50, 1, fate)
    r.sack(200, 0)
    r.data(8000, 1)
    r.ack(8200, 1)
    s, = r.stalls()
    assert (s.psn, s.why, s.start, s.end) == ((FIRST + 1) & 0xffffff, "tail", 300, 8300)
    assert s.timeouts(INTERVAL) == (8000 + SLACK)//INTERVAL

def test_a_lost_answer_explains_and_one_that_says_nothing_new_does_not():
    for cack, why in ((1, "answer"), (0, "")):
        r = Record()
        r.data(0, 0)
        r.sack(100, 0)
        r.data(150, 1)
        r.sack(300, cack, Fate.LOST)
        r.ack(9000, 1)
        s, = r.stalls()
        assert s.why == why

def test_only_a_lost_transport_ack_explains_when_all_packets_are_acknowledged():
    for opcode, why in ((Opcode.ACKNOWLEDGE, "answer"), (Opcode.SACK, "")):
        r = Record()
        r.data(0, 0)
        r.sack(100, 0)
        r.frame(120, 1, HERE, 0, opcode, Fate.LOST)
        r.ack(9000, 0)
        s, = r.stalls()
        assert s.why == why and s.psn == (FIRST + 1) & 0xffffff

def test_a_refused_packet_explains():
    r = Record()
    r.data(0, 0)
    r.nack(200, 0)
    r.data(7000, 0)
    r.ack(7200, 0)
    assert [s.why for s in r.stalls()] == ["refused"]

def test_a_responder_that_does_not_answer_is_not_excused():
    """Nor by what is lost of other queue pairs."""
    r = Record()
    r.data(0, 0)
    r.frame(10, 0, THERE + 1, 0, Opcode.WRITE_ONLY, Fate.LOST)
    r.frame(20, 1, HERE + 1, 0, Opcode.SACK, Fate.LOST)
    r.ack(9000, 0)
    assert [s.why for s in r.stalls()] == [""]

def test_a_sender_that_is_never_answered_stalls_to_the_end():
    r = Record()
    r.data(0, 0)
    s, = r.stalls(50_000)
    assert s.end == 50_000 and s.why == ""

def test_a_copy_that_arrives_first_counts():
    r = Record()
    r.data(0, 0)
    r.ack(100, 0)
    r.rows[-1]["delivered"], r.rows[-1]["delivered_copy"] = 9000, 250
    assert r.stalls() == []
