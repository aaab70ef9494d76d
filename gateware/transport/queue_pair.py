# SPDX-License-Identifier: BSD-2-Clause
"""Queue pairs: who owns which part of their state, and the life-cycle operations.

    table        owner          fields
    ---------    ------------   ------------------------------------------------------------
    QUEUE_PAIR   driver         attributes (gateware/common/tables.py)
    send         segmenter      next PSN, ring position, message in progress
    ack          acknowledger   oldest unacknowledged PSN, oldest unretired message, RTT
    receive      acceptor       expected PSN, counters, SACK trigger
    deadline     deadline       when the queue pair must have moved
    status       life           state, the reason of an error, number of the life

A new life (gateware/transport/life.py): every owner gets an `init` request, in a fixed order, and
clears what it holds of that queue pair before the next owner is asked.
"""

from litex.soc.interconnect.stream import Endpoint
from migen import *

from gateware.common.headers import BTH, ICRC_BYTES, IMMDT, METH, RETH, TSETH, UDP

# Layouts ------------------------------------------------------------------------------------------

def send_state_layout(config):
    """Owned by the segmenter."""
    return [
        ("next_psn", 24),                 # Next new PSN.
        ("msn",      16),                 # Next message number = messages started.
        ("rqmsn",    16),                 # Next number among messages with an immediate.
        ("ring",     config.ring_bits + 1), # Ring read position, with a wrap bit.
        ("active",    1),                 # A message is in progress.
        ("last_psn", 24),                 # Last PSN of the message in progress.
        ("rest",     24),                 # Its bytes that are not sent yet.
        ("signal",    1),                 # It has an immediate.
        ("sent",     32),                 # Bytes sent for the first time, on the scale of the peer's rcvd_bytes.
        ("asked",     1),                 # The last new packet asked for an acknowledgement.
    ]

def ack_state_layout(config):
    """Owned by the acknowledger."""
    return [
        ("unacked", 24),                  # Oldest PSN that is not acknowledged.
        ("msn",     16),                  # Oldest message that is not retired.
        ("rtt",     16),                  # Last round-trip time, ticks.
        ("rqmsn",   16),                  # Messages with an immediate that are retired.
        ("received", 24),                 # The peer's rcvd_bytes, units of 256.
        ("heard",     8),                 # SACKs and Transport ACKs that have come, modulo 2^8.
    ]

def receive_state_layout(config):
    """Owned by the acceptor."""
    return [
        ("expected",  24),                # Oldest PSN that has not arrived.
        ("highest",   24),                # Highest PSN that has arrived.
        ("msn",       16),                # Messages completed.
        ("rqmsn",     16),                # Messages with an immediate completed.
        ("received",  32),                # Bytes of accepted packets, nominal sizes.
        ("ooo",       16),                # Packets that were not the expected one.
        ("since",     17),                # Bytes since the last SACK.
        ("sweep",     24),                # Where the next SACK's bitmap starts.
    ]

def message_layout(config):
    """Owned by the segmenter: one message in flight. With the context it rebuilds any packet."""
    return [
        ("context",   config.context_bits),
        ("page",      config.page_bits),
        ("signal",     1),                # WRITE with immediate.
        ("slot",      24),
        ("length",    24),
        ("first_psn", 24),
        ("last_psn",  24),
        ("rqmsn",     16),
        ("region",    config.region_bits),  # Region of the local buffer, for its count of messages in flight.
    ]

def window_layout(config):
    """Owned by the segmenter: what firmware sets for the congestion control of a queue pair."""
    return [
        ("cwnd",    24),                  # Congestion window, units of 256 bytes, 0 = no limit.
        ("digest",  16),                  # Ticks between DIGEST events, 0 = none.
    ]

def status_layout():
    """Owned by the life cycle."""
    return [("state", 3), ("reason", 8), ("life", 8)]

def sent_layout(config):
    """Owned by the packet sender: the last transmission of a PSN in the window."""
    return [
        ("time",   16),                   # Ticks.
        ("ev",     config.ev_bits),       # Number of its entropy value.
        ("resent",  2),                   # Times that it has been sent again, stays at 3.
    ]

# Nominal size -------------------------------------------------------------------------------------

def nominal_size(length, immediate, timestamp=True):
    """Bytes that a WRITE packet of `length` bytes of payload counts in windows: UDP length + 40 (MRC 1.0, NSCC)."""
    headers = (UDP.length, BTH.length, METH.length, TSETH.length*timestamp, RETH.length, IMMDT.length*immediate)
    return 40 + sum(headers) + -(-length//4)*4 + ICRC_BYTES

# Requests -----------------------------------------------------------------------------------------

def init_endpoint():
    """Request to clear a queue pair's state; ready for one cycle when it is done."""
    return Endpoint([("qp", 16)])

def credit_layout(config):
    """What happened to a token of a page."""
    return [
        ("page",     config.page_bits),
        ("consumed",  1),                 # It left the ring (or was refused).
        ("completed", 1),                 # Its message is complete, or failed.
        ("error",     8),                 # QpError, 0 = none.
        ("qp",       16),
        ("context",  config.context_bits),  # Completed: what the message had in use besides its page.
        ("region",   config.region_bits),
    ]

# Bitmaps ------------------------------------------------------------------------------------------

CHUNK = 64   # PSNs per row of a bitmap.

def chunks(config):
    """Rows of a bitmap per queue pair."""
    return config.mpr//CHUNK

def chunk_row(config, psn, qp):
    """Index of the bitmap row that holds `psn` (24 bits) of queue pair `qp`."""
    return Cat(psn[6:config.psn_bits], qp) if config.psn_bits > 6 else qp

def scoreboard_layout():
    """Owned by the acknowledger, per PSN: acknowledged, and reported to firmware as a hole."""
    return [("acked", CHUNK), ("reported", CHUNK)]

def arrivals_layout():
    """Owned by the acceptor, per PSN: arrived, last packet of its message, with an immediate."""
    return [("arrived", CHUNK), ("last", CHUNK), ("imm", CHUNK)]
