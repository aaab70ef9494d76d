# SPDX-License-Identifier: BSD-2-Clause
"""What the transport's block tests share: tables filled as a driver fills them, mirrors of written tables.

A `Bench` holds the tables around a block; those that the block owns it drives itself, the test
writes the others with `put`. `Mirror` is a passive observer that keeps a table's rows in Python.
"""

from litex.gen import LiteXModule

from gateware.common.table_ram import TableRAM
from gateware.config import preset
from gateware.host.table_port import Tables
from gateware.transport.queue_pair import (
    ack_state_layout,
    chunks,
    message_layout,
    scoreboard_layout,
    send_state_layout,
    status_layout,
)

PSN = 1 << 24

# Two windows: two rows of a bitmap, and sixteen.
WINDOWS = {128: preset("tiny"), 1024: preset("tiny", mpr=1024, messages=16, max_wimm=16)}

class Bench(LiteXModule):
    """The tables that requester blocks read and write."""
    def __init__(self, config):
        self.tables     = Tables(config)
        self.send_state = TableRAM(send_state_layout(config), config.queue_pairs)
        self.ack_state  = TableRAM(ack_state_layout(config),  config.queue_pairs)
        self.status     = TableRAM(status_layout(),           config.queue_pairs)
        self.scoreboard = TableRAM(scoreboard_layout(),       config.queue_pairs*chunks(config))

def message_table(config):
    return TableRAM(message_layout(config), config.queue_pairs*config.messages)

def put(ram, index, **values):
    """Writes one row; fields that are not named are 0. Takes two cycles."""
    names = [name for name, _ in ram.layout]
    assert not set(values) - set(names), f"the table has the columns {', '.join(names)}"
    yield [ram.we.eq(1), ram.index.eq(index)] + [getattr(ram.row, n).eq(values.get(n, 0)) for n in names]
    yield
    yield ram.we.eq(0)
    yield

def pulse(wake, qp):
    """Wakes a queue pair for one cycle."""
    yield [wake.valid.eq(1), wake.qp.eq(qp)]
    yield
    yield wake.valid.eq(0)

def request(endpoint, **values):
    """Offers one beat until it is taken."""
    yield [getattr(endpoint, n).eq(v) for n, v in values.items()] + [endpoint.valid.eq(1)]
    yield
    while not (yield endpoint.ready):
        yield
    yield endpoint.valid.eq(0)

class Mirror:
    """Keeps the rows that are written to a table; `seen(index, row)` is called for each write."""
    def __init__(self, ram, seen=None):
        self.ram, self.seen, self.rows = ram, seen, {}
        self.names = [name for name, _ in ram.layout]

    def run(self):
        yield "passive"
        ram     = self.ram
        signals = [ram.index] + [getattr(ram.row, n) for n in self.names]
        while True:
            if (yield ram.we):
                index, *values = yield signals
                row = dict(zip(self.names, values, strict=True))
                self.rows[index] = row
                if self.seen:
                    self.seen(index, row)
            yield

def wait(cycles):
    for _ in range(cycles):
        yield

def ahead(a, b):
    """How far PSN `a` is ahead of `b`, signed."""
    d = (a - b) % PSN
    return d - PSN if d >= PSN//2 else d
