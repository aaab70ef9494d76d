# SPDX-License-Identifier: BSD-2-Clause
"""Stream descriptions of the PCIe side, as functions of the data width.

Addresses are byte addresses with the two lowest bits 0, lengths are dwords, data words carry the
first dword of the TLP in lane 0 and byte 0 in bits 0 to 7. Byte enables follow the PCIe rule: a TLP
of one dword has `last_be` 0.
"""

from litex.soc.interconnect.stream import EndpointDescription

LENGTH_BITS = 10

class CompletionStatus:
    SC, UR, CRS, CA = 0b000, 0b001, 0b010, 0b100

def write_tlp_layout(data_width):
    """One memory write TLP; `last` ends its data."""
    return EndpointDescription(
        payload_layout = [("dat", data_width)],
        param_layout   = [
            ("address",  64),
            ("length",   LENGTH_BITS),  # Dwords, 1 to 128.
            ("first_be",  4),
            ("last_be",   4),
        ])

def read_tlp_layout():
    """One memory read request TLP, one beat."""
    return EndpointDescription([
        ("address",  64),
        ("length",   LENGTH_BITS),      # Dwords, 1 to 128.
        ("tag",       8),
        ("first_be",  4),
        ("last_be",   4),
    ])

def completion_tlp_layout(data_width):
    """One completion TLP; length 0 is a completion without data, in one beat."""
    return EndpointDescription(
        payload_layout = [("dat", data_width)],
        param_layout   = [
            ("req_id",        16),
            ("tag",            8),
            ("status",         3),      # CompletionStatus.
            ("lower_address",  7),
            ("byte_count",    12),
            ("length",         LENGTH_BITS),
        ])

def bar_request_layout(data_width):
    """One request of the host to BAR0, as the depacketizer delivers it."""
    return EndpointDescription(
        payload_layout = [("dat", data_width)],
        param_layout   = [
            ("we",        1),
            ("address",  32),           # Byte offset in BAR0, dword aligned.
            ("length",   LENGTH_BITS),  # Dwords, 0 means 1024.
            ("first_be",  4),
            ("last_be",   4),
            ("poisoned",  1),
            ("req_id",   16),
            ("tag",       8),
        ])

def read_completion_layout(data_width):
    """One completion of a read of ours, as the depacketizer delivers it."""
    return EndpointDescription(
        payload_layout = [("dat", data_width)],
        param_layout   = [
            ("tag",            8),
            ("status",         3),
            ("has_data",       1),
            ("poisoned",       1),
            ("length",         LENGTH_BITS),  # Dwords, 0 means 1024.
            ("byte_count",    12),            # 0 means 4096.
            ("lower_address",  7),
        ])
