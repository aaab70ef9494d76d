# SPDX-License-Identifier: BSD-2-Clause
"""Faults between the planes and the transport: FCS, ICRC, lengths, stores; and of what many blocks share."""

from tests.mutants.mutant import Mutant

SOURCE = "gateware/network/"
TESTS  = "tests/gateware/network/test_"

def mutant(name, block, old, new, *tests):
    return Mutant(name, f"{SOURCE}{block}.py", old, new, tuple(f"{TESTS}{t}.py" if "::" not in t else TESTS + t for t in tests or (block,)))

LENGTHS = "packet_parser.py::test_no_combination_of_ip_and_udp_length_underflows"
OPCODES = "packet_parser.py::test_every_opcode_pad_and_length_with_a_right_icrc"
DAMAGE  = "packet_parser.py::test_damaged_frames_leave_nothing"
TRIMMED = "packet_parser.py::test_trimmed_packets_announce_their_headers_only"

NETWORK = (
    mutant("fcs-not-checked", "packet_parser", "c_error.eq(b_error)", "c_error.eq(0)", DAMAGE),
    mutant("icrc-not-checked", "packet_parser", "c_bad_length | ~c_icrc)", "c_bad_length)", DAMAGE),
    mutant("icrc-covers-the-reserved-byte", "icrc", '(UDP, ip, "checksum"), (BTH, ip + UDP.length, "resv8a")',
        '((UDP, ip, "checksum"),)', "fcs", "packet_parser"),
    mutant("icrc-covers-the-time-to-live", "icrc", '(IPV4, 0, "ttl"), ', "", "fcs", "packet_parser"),
    mutant("icrc-covers-the-flow-label", "icrc", '(IPV6, 0, "flow_label"), ', "", "fcs", "packet_parser"),
    mutant("ip-checksum-not-checked", "packet_parser", "b_bad_header | (checksum != 0xffff)", "b_bad_header", DAMAGE),
    mutant("udp-length-not-compared", "header_check", "(udp_total != total) | ~self.fits", "~self.fits", LENGTHS),
    mutant("length-underflows", "header_check", "self.length <= config.max_mtu", "(self.length <= config.max_mtu) | self.length[17]",
        LENGTHS),
    mutant("payload-over-the-largest-mtu", "header_check", "self.length <= config.max_mtu", "~self.length[17]", OPCODES),
    mutant("fragment-taken-as-a-whole", "header_check", '(Cat(ip4("fragment"), ip4("flags")[0]) != 0) |', "", DAMAGE),
    mutant("extension-header-taken-for-udp", "header_check", '| (ip6("next_header") != PROTOCOL_UDP)', "", "packet_parser"),
    mutant("foreign-ipv6-address-taken", "header_check", "((self.own_ip6 != 0) & (destination6 != self.own_ip6))", "0", "packet_parser"),
    mutant("write-to-the-endpoint-taken", "header_check", " | (dest_qp == ENDPOINT_QP)", "", "packet_parser"),
    mutant("small-packets-fill-the-header-fifo", "packet_parser", "c_full | (crowded & c_head.stored)", "c_full"),
    mutant("frame-that-ends-early-accepted", "packet_parser", "b_bad_length | ~reached", "b_bad_length", DAMAGE),
    mutant("trimmed-packet-placed", "packet_parser", "good.eq(whole & ~(c_trimmed |", "good.eq(whole & ~(0 |", TRIMMED),
    mutant("bad-packet-not-rolled-back", "receive_store", "written.eq(committed)", "written.eq(written)"),
    mutant("full-store-overwritten", "receive_store", "self.full.eq(level == words)", "self.full.eq(0)"),
    mutant("pad-left-out", "packet_builder", "pad.eq(negative + 1)", "pad.eq(0)"),
    mutant("bytes-behind-the-payload-leak", "packet_builder", "(cut == 0) | (cut > lane) | (words_left != 1)", "1"),
    mutant("header-enters-before-its-payload", "packet_builder", "(payload.valid & ~uses_payload)", "payload.valid"),
    mutant("failed-read-with-a-right-icrc", "crc", "Mux(spoilt, 0, ONES)", "ONES", "packet_builder"),
    mutant("short-frame-not-padded", "fcs", "(padding | sink.last) & (index >= final)", "padding | sink.last"),
    mutant("fcs-checker-sees-no-error", "fcs", "wrong.eq(b_error | reduce(", "wrong.eq(0 & reduce("),
    # What many blocks share.
    Mutant("arbiter-takes-before-the-grant", "gateware/common/arbiter.py", "sink.ready.eq(locked & self.source.ready)",
        "sink.ready.eq(self.source.ready)", ("tests/gateware/common/test_arbiter.py",)),
    Mutant("table-read-sees-the-write", "gateware/common/table_ram.py", "read   = memory.get_port(mode=READ_FIRST)",
        "read   = memory.get_port(mode=WRITE_FIRST)", ("tests/gateware/common/test_table_ram.py",)),
    Mutant("mask-forgets-a-bit-of-its-count", "gateware/common/arithmetic.py", "width) << count", "width) << (count & 7)",
        ("tests/gateware/common/test_arithmetic.py",)),
)
