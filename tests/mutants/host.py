# SPDX-License-Identifier: BSD-2-Clause
"""Faults towards PCI Express: tokens, reads and their completions, writes and their order."""

from tests.mutants.mutant import Mutant

SOURCE = "gateware/host/"
TESTS  = "tests/gateware/host/test_"

def mutant(name, block, old, new, *tests):
    return Mutant(name, f"{SOURCE}{block}.py", old, new, tuple(f"{TESTS}{t}.py" for t in tests or (block,)))

HOST = (
    # Tokens.
    mutant("quota-one-too-many", "doorbell", "waits.row.count >= page.row.quota", "waits.row.count > page.row.quota"),
    mutant("full-ring-overwritten", "doorbell", "| used[config.ring_bits]", "| 0"),
    mutant("slot-one-too-many", "doorbell", "token.slot >= context.row.slots", "token.slot > context.row.slots"),
    mutant("length-limit-off-by-one", "doorbell", "length > context.row.max_length", "length >= context.row.max_length"),
    mutant("half-token-not-held", "doorbell", "halves.row.held.eq(low & ~high)", "halves.row.held.eq(0)"),
    mutant("lkey-variant-not-compared", "doorbell", "(region.row.variant == context.row.lkey[:8])", "1"),
    mutant("token-reads-past-its-region", "doorbell", "~rest[64] & (rest[:64] >= length)", "~rest[64]"),
    mutant("doorbell-waits-for-its-queue-pair", "doorbell", "NextValue(reason, QpError.TOKEN_STATE)", 'NextState("CONTEXT")'),
    mutant("quota-never-given-back", "doorbell", "waiting.row.count.eq(less)", "waiting.row.count.eq(waits.row.count)"),
    mutant("row-behind-the-table", "table_port", "self.index < getattr(tables, table.name).depth",
        "self.index <= getattr(tables, table.name).depth"),
    mutant("row-in-use-is-changed", "table_port", "If(used,", "If(0,"),
    mutant("row-is-valid-while-it-is-replaced", "table_port", "self.row[0] & ~closed", "self.row[0]"),
    mutant("doorbell-is-not-held", "doorbell", "self.sink.valid & ~self.hold", "self.sink.valid"),
    # Credit lines.
    mutant("first-error-overwritten", "credit_writer", "(request.error != 0) & (now.row.error == 0)", "(request.error != 0)"),
    mutant("last-credits-never-written", "credit_writer", "If((now.row.lag != 0) & page.row.valid,", "If(0,"),
    # Reads.
    mutant("byte-count-not-compared", "read_controller", "& (completion.byte_count == remaining_bytes)", "", "payload_reader"),
    mutant("tag-freed-before-its-data-left", "read_controller", "busy.eq((busy & ~retired) | allocated)",
        "busy.eq((busy & ~finished) | allocated)", "payload_reader"),
    mutant("tag-never-given-back", "read_controller", "(busy & ~retired) | allocated", "busy | allocated", "payload_reader"),
    mutant("late-completion-meets-the-next-read", "read_controller", "~bit(busy, tag) & ~bit(quarantine, tag)", "~bit(busy, tag)",
        "payload_reader"),
    mutant("error-status-ignored", "read_controller", "fits & (completion.status == CompletionStatus.SC) & ~completion.poisoned", "fits",
        "payload_reader"),
    mutant("read-crosses-its-boundary", "request_splitter", "end.eq(sink.address[:12] + sink.length - 1)",
        "end.eq(sink.address[:12] + sink.length)", "payload_reader"),
    # Writes.
    mutant("answer-before-its-payload", "host_writer", 'fsm.ongoing("NOTIFY") & ~out.source.valid', 'fsm.ongoing("NOTIFY")'),
    mutant("payload-starves-credit-lines", "host_writer", "boundary & small.valid & small_turn", "0"),
    mutant("bytes-of-the-last-dword", "payload_splitter", "2: tail_be.eq(0b0011)", "2: tail_be.eq(0b0111)", "host_writer"),
    mutant("write-crosses-its-boundary", "payload_splitter", "If(left < to_edge, bytes_.eq(left))", "If(left < limit, bytes_.eq(left))",
        "host_writer"),
    mutant("packet-of-a-dropped-job-stays", "payload_gatherer", "(sink.kind == WriteKind.DISCARD) |", "", "host_writer"),
    mutant("writes-before-bus-master-enable", "tlp_packetizer", "self.bus_master_enable & write.valid & fresh", "write.valid & fresh"),
    mutant("all-lanes-enabled", "tlp_packetizer", "Replicate(left > i, 4)", "Replicate(1, 4)"),
    mutant("tail-stage-cuts", "tlp_tail", "cut.eq(in_data & sink.last", "cut.eq(0 & sink.last"),
    mutant("bus-without-time-limit", "bar_bridge", "(timer == BUS_TIMEOUT)", "0"),
)
