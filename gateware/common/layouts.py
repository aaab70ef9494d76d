# SPDX-License-Identifier: BSD-2-Clause
"""Stream descriptions between the blocks, as functions of the configuration.

Payload fields change per beat, param fields are constant over a packet. Words carry byte 0 in bits
0 to 7. The handshake law: a valid beat stays, unchanged, until it is taken; valid never waits for
ready; ready may look at valid.
"""

from litex.soc.interconnect.stream import EndpointDescription

from gateware.common.headers import BODY_BYTES

# Host side ----------------------------------------------------------------------------------------

def doorbell_layout(config):
    """A store into the doorbell window: one beat per 4 or 8 bytes."""
    return EndpointDescription([
        ("address", 16),   # Byte offset in the doorbell window.
        ("data",    64),   # Lower dword first; for a 4-byte store the dword is in both halves.
        ("dwords",   2),   # Bit 0: lower half written, bit 1: upper half written.
    ])

def read_request_layout(config):
    """Bytes to fetch from host memory for one packet."""
    return EndpointDescription([
        ("address", 64),                    # Byte address on the bus, any alignment.
        ("beyond",  52),                    # Bits 63:12 of the bus address after its first 4 KiB boundary.
        ("length",  config.length_bits),    # Bytes, 0 to max_mtu; 0 gives one empty packet.
    ])

def payload_layout(data_width):
    """Payload of one packet, first byte in lane 0 of the first word.

    `length` 0 is one beat with `last` set and no byte valid. `error`: a read failed, the bytes are void.
    """
    return EndpointDescription(
        payload_layout = [("data", data_width)],
        param_layout   = [("error", 1)])

def write_job_layout(config):
    """One step of the in-order write queue (see `WriteKind`)."""
    return EndpointDescription([
        ("kind",     2),                    # WriteKind.
        ("plane",    config.plane_bits),    # PAYLOAD, DISCARD: whose receive store holds the packet.
        ("offset",   6),                    # PAYLOAD: byte lane of the first payload byte in its first word.
        ("address", 64),                    # PAYLOAD, WORD: byte address on the bus.
        ("beyond",  52),                    # PAYLOAD: bits 63:12 of the bus address after its first 4 KiB boundary.
        ("length",   config.length_bits),   # PAYLOAD: bytes, 1 to max_mtu.
        ("word",    64),                    # WORD: value, little endian, 8-byte aligned address.
        ("due",      DUE_BITS),             # NOTIFY: what becomes due once all before it is written.
    ])

class WriteKind:
    PAYLOAD = 0  # Write `length` bytes of the plane's next stored packet.
    DISCARD = 1  # Drop the plane's next stored packet.
    WORD    = 2  # Write one 8-byte word: a flag.
    NOTIFY  = 3  # Write nothing, hand `due` on.

def small_write_layout(config):
    """A 16-byte line to host memory, 16-byte aligned: credit lines."""
    return EndpointDescription([("address", 64), ("data", 128)])

# Due control packets ------------------------------------------------------------------------------

def due_fields():
    """What the responder remembers of an answer: a snapshot, taken when its packet was accepted."""
    return [
        ("qp",      16),  # Index of the queue pair,
        ("generation",8), # and its life.
        ("sack",     1),  # A SACK is due.
        ("ack",      1),  # A Transport ACK or NAK is due.
        ("nack",     1),  # A NACK is due.
        ("cack",    24),  # Last PSN before the oldest hole; of a Transport NAK the PSN that it refuses.
        ("base",    24),  # First PSN of the bitmap.
        ("bitmap",  64),
        ("psn",     24),  # PSN of the packet that caused it; the probe's id if `probe`.
        ("probe",    1),
        ("rtx",      1),  # Reflected.
        ("ce",       1),  # The trigger was marked.
        ("entropy", 16),  # Entropy value of the trigger (UDP source port).
        ("plane",    2),  # Plane on which it came.
        ("timestamp",16), # Reflected from TSETH.
        ("msn",     16),  # Messages completed.
        ("syndrome", 8),  # AETH syndrome.
        ("reason",   8),  # NACK reason.
        ("rcvd",    24),  # Received bytes, units of 256.
        ("ooo",     16),  # Packets out of order.
        ("fence",    1),  # Nothing is due: all write jobs before it have been handed to the link.
    ]

DUE_BITS = sum(width for _, width in due_fields())

# Network side -------------------------------------------------------------------------------------

def received_layout(config):
    """Headers of one packet that passed FCS, lengths and ICRC; its payload waits in the plane's store.

    For data packets `body` is normalised: METH at byte 0, TSETH at 4 (0 if absent), RETH at 8,
    ImmDt at 24 (0 if absent). For the others it is what followed the BTH.

    Data packets whose `verdict` is not GOOD have lost their payload and must not be placed. One that a
    switch has trimmed passed FCS only, and has METH and TSETH only.
    """
    return EndpointDescription([
        ("opcode",   8),
        ("p_key",   16),
        ("dest_qp", 24),
        ("a",        1),                    # Acknowledge request.
        ("rtx",      1),
        ("ts",       1),                    # TSETH was present.
        ("psn",     24),
        ("entropy", 16),                    # UDP source port.
        ("ce",       1),                    # IP ECN = congestion experienced.
        ("length",   config.length_bits),   # Bytes of payload, pad not counted.
        ("offset",   6),                    # Byte lane of the first payload byte in its first stored word.
        ("stored",   1),                    # Words of this packet wait in the store (GOOD, length > 0).
        ("verdict",  2),                    # Verdict.
        ("body",     8*BODY_BYTES),
    ])

class Verdict:
    GOOD            = 0
    NO_BUFFER       = 1  # Right in every respect, but the receive store had no room.
    TRIMMED         = 2  # A switch has cut off the payload,
    TRIMMED_LASTHOP = 3  # the one before this card.

def stored_layout(data_width):
    """Words of one stored packet; the first holds the first payload byte in lane `offset`. Bytes after
    the payload (pad, ICRC) are void; `last` ends the packet."""
    return EndpointDescription([("data", data_width)])

def send_layout(config):
    """One packet to build: header values; its payload follows in a `payload_layout` stream if `length` > 0."""
    return EndpointDescription([
        ("plane",           2),
        ("destination_mac",48),
        ("source_mac",     48),
        ("ipv6",            1),                   # Else IPv4, its addresses are the lowest 32 bits.
        ("source_ip",     128),
        ("destination_ip",128),
        ("dscp",            6),
        ("entropy",        16),                   # UDP source port; also the low half of the IPv6 flow label.
        ("udp_port",       16),                   # UDP destination port.
        ("opcode",          8),
        ("p_key",          16),
        ("dest_qp",        24),
        ("a",               1),
        ("rtx",             1),
        ("ts",              1),                   # Data packets: send TSETH.
        ("psn",            24),
        ("length",          config.length_bits),  # Bytes of payload.
        ("body",            8*BODY_BYTES),        # Normalised, as in received_layout.
        ("body_length",     6),                   # Bytes of it on the wire, TSETH and ImmDt as `ts` and opcode say.
    ])

# Recovery -----------------------------------------------------------------------------------------

def event_layout():
    """One event for the firmware; the words are those of firmware/contract.py."""
    from firmware.contract import EVENT
    return EndpointDescription([(f.name, f.width) for f in EVENT])

def command_layout():
    """One command of the firmware."""
    from firmware.contract import COMMAND
    return EndpointDescription([(f.name, f.width) for f in COMMAND])
