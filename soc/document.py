# SPDX-License-Identifier: BSD-2-Clause
"""The generated parts of the documents: headers, tables, registers, memory, the dissector's tables.

    python -m soc.document          # names the parts that are out of date
    python -m soc.document --write  # brings them up to date

Each part stands between two marks in its document. What it says comes from the tables that gateware
and driver use (gateware/common/headers.py, tables.py), from the registers of an elaborated card and
from soc/budget.py, so a figure or a bit position is written in one place.
"""

import argparse
import logging
import sys
from pathlib import Path

from firmware.contract import QP_ERROR_TEXT, QpError
from gateware.common import headers as H
from gateware.common import tables as T
from gateware.config import PRESETS, preset
from soc import budget, dissector
from soc.sim.report import wire_bytes

DOCS = Path(__file__).parents[1]/"docs"

def table(head, rows):
    escaped = lambda cell: str(cell).replace("|", "\\|")
    return "\n".join(["| " + " | ".join(map(escaped, row)) + " |" for row in (head, ["---"]*len(head), *rows)])

def names(cls):
    return [(name, value) for name, value in vars(cls).items() if not name.startswith("_")]

# docs/wire-format.md ------------------------------------------------------------------------------

def position(f):
    """`byte` or `first-last`, and the bits of a byte (7 is the most significant) if it is not whole."""
    first, last = f.bit//8, (f.bit + f.width - 1)//8
    text = str(first) if first == last else f"{first}-{last}"
    if f.bit % 8 or f.width % 8:
        high, low = 7 - f.bit % 8, 7 - (f.bit + f.width - 1) % 8
        text += f", bit {high}" if f.width == 1 else f", bits {high}:{low}" if first == last else f", from bit {high}"
    return text

def header_tables():
    return "\n\n".join(f"### {h.name}: {h.length} bytes\n\n" + table(("byte", "field", "bits", "what we send or mean"),
        [(position(f), f"`{f.name}`", f.width, f.remark) for f in h.fields.values()]) for h in H.HEADERS)

def packet_types():
    def frame(t):
        return H.PREFIX_BYTES + t.body + (H.TSETH.length if t.data else 0) + H.ICRC_BYTES + H.FCS_BYTES
    def what(t):
        names = ["[TSETH]" if h is H.TSETH else h.name for h in dissector.body(t)]
        return ", ".join(names + ["payload"]*t.data)
    return table(("opcode", "packet", "after the BTH", "frame without payload, with TSETH and FCS"),
        [(f"`0x{t.opcode:02x}`", t.name, what(t), f"{max(64, frame(t))} bytes") for t in H.PACKET_TYPES.values()])

def codes():
    return "\n\n".join(f"{title}\n\n" + table(("name", "value"), [(f"`{n}`", f"`0x{v:02x}`") for n, v in names(cls)])
        for title, cls in (("NACK reasons (NETH `reason`):", H.NackReason), ("Syndromes (AETH `syndrome`):", H.Syndrome)))

def wire_share():
    """Share of the line rate that is payload, large messages."""
    return table(("path MTU", "bytes of line time per packet", "payload at 10 Gb/s"),
        [(mtu, wire_bytes(mtu, False), f"{10*mtu/wire_bytes(mtu, False):.3f} Gb/s") for mtu in (256 << i for i in range(5))])

# docs/host-interface.md ---------------------------------------------------------------------------

def bar0():
    kib = lambda n: f"{n//1024} KiB"
    return table(("offset", "size", "what"), [
        (f"`0x{T.BAR0_CSR:05x}`",      kib(T.BAR0_FIRMWARE - T.BAR0_CSR), "registers (LiteX CSRs), 32-bit words, little-endian word order"),
        (f"`0x{T.BAR0_FIRMWARE:05x}`", kib(T.BAR0_DOORBELL - T.BAR0_FIRMWARE), "memory of the soft core's image (the first "
            f"{kib(preset('sim').firmware_bytes)} of it in the preset `sim`)"),
        (f"`0x{T.BAR0_DOORBELL:05x}`", kib(T.BAR0_DOORBELL_BYTES), "doorbell pages of 4 KiB"),
        (f"`0x{T.BAR0_DOORBELL + T.BAR0_DOORBELL_BYTES:05x}`", kib(T.BAR0_BYTES - T.BAR0_DOORBELL - T.BAR0_DOORBELL_BYTES),
            "nothing: stores are dropped, loads give zeros")])

def columns(t):
    rows, bit = [], 0
    for c in t.columns:
        rows.append((f"{bit + c.width - 1}:{bit}" if c.width > 1 else bit, f"`{c.name}`", c.width, c.remark))
        bit += c.width
    return table(("bits of the row", "column", "bits", "meaning"), rows)

def row_tables():
    config = preset("sim")
    depth  = dict(queue_pair=config.queue_pairs, peer=config.peers, ev=config.peers*config.evs, context=config.contexts, page=config.pages,
        region=config.regions, signal=config.signals, translation=config.translations)
    return "\n\n".join(f"### Table {t.number}: `{t.name}`, {depth[t.name]} rows of {t.width} bits\n\n{columns(t)}" for t in T.TABLES)

def registers():
    """Registers of the NIC; those per plane are shown for plane 0."""
    from soc.nic_soc import NicSoC
    rows = []
    for r in NicSoC(preset("sim")).nic.get_csrs():
        fields = getattr(getattr(r, "fields", None), "fields", [])
        text   = (r.description or "") + " ".join(
            [""]*bool(r.description) + [f"`{f.name}` ({f.offset + f.size - 1}:{f.offset}): {f.description}" for f in fields])
        rows.append((f"`nic_{r.name}`", r.size, "read" if type(r).__name__ == "CSRStatus" else "read, write", text))
    return table(("register", "bits", "access", "meaning"), rows)

def constants():
    rows = [(f"`{cls.__name__}`", f"`{name}`", value) for cls in (T.QpState, T.Rights, T.SignalMode) for name, value in names(cls)]
    return table(("kind", "name", "value"), rows)

def error_words():
    return table(("code", "name", "meaning"), [(value, f"`{name}`", QP_ERROR_TEXT[value]) for name, value in names(QpError)])

# docs/architecture.md -----------------------------------------------------------------------------

def objects():
    configs = {name: preset(name) for name in PRESETS}
    bits    = {name: budget.bits_per_object(c) for name, c in configs.items()}
    counts  = {name: budget.objects(c) for name, c in configs.items()}
    rows    = [(what, *[cell for name in configs for cell in (counts[name][what], bits[name][what])], ", ".join(f"`{p}`" for p in paths))
        for what, paths in budget.OBJECTS.items()]
    return table(("state of one", *[cell for name in configs for cell in (f"`{name}`: number", "bits each")], "tables"), rows)

def memory():
    config = preset("sim")
    sizes  = budget.tables(config)
    kib    = lambda bits: f"{bits/8192:.1f}"
    rows   = [(f"`{t.path}`", t.rows, t.width, kib(t.bits), t.copies, kib(t.stored)) for t in sizes]
    rows.append(("all tables", "", "", kib(sum(t.bits for t in sizes)), "", kib(sum(t.stored for t in sizes))))
    rows += [(name, "", "", kib(8*size), 1, kib(8*size)) for name, size in budget.stores(config).items()]
    return table(("table or store", "rows", "bits", "KiB", "copies", "KiB stored"), rows)

# Documents ----------------------------------------------------------------------------------------

PARTS = {
    "wire-format.md":    {"headers": header_tables, "packet types": packet_types, "codes": codes, "wire share": wire_share},
    "host-interface.md": {"BAR0": bar0, "tables": row_tables, "token": lambda: columns(T.TOKEN), "credit line": lambda: columns(T.CREDIT),
                          "constants": constants, "registers": registers, "error words": error_words},
    "architecture.md":   {"state": objects, "memory": memory},
    "wireshark/openrdma.lua": {"tables": dissector.tables},
}

def marks(name, part):
    """First and last line of a generated part, and what stands between them and the part."""
    begin, end = f"{part}: begin (generated by soc/document.py)", f"{part}: end"
    return (f"-- {begin}", f"-- {end}", "\n") if name.endswith(".lua") else (f"<!-- {begin} -->", f"<!-- {end} -->", "\n\n")

def up_to_date(name, text):
    """The document's text with the generated parts of today."""
    for part, make in PARTS[name].items():
        begin, end, gap = marks(name, part)
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"docs/{name} lacks the marks of the part '{part}'.")
        head, rest = text.split(begin)
        text = f"{head}{begin}{gap}{make()}{gap}{end}{rest.split(end)[1]}"
    return text

def main():
    parser = argparse.ArgumentParser(prog="python -m soc.document", description="Checks the generated parts of the documents.")
    parser.add_argument("--write", action="store_true", help="bring them up to date")
    write, stale = parser.parse_args().write, 0
    logging.disable(logging.INFO)   # LiteX tells what it adds to the SoC.
    for name in PARTS:
        old = (DOCS/name).read_text(encoding="utf-8")
        new = up_to_date(name, old)
        if old != new:
            stale += 1
            print(f"docs/{name} {'was' if write else 'is'} out of date.")
            if write:
                (DOCS/name).write_text(new, encoding="utf-8")
    sys.exit(bool(stale) and not write)

if __name__ == "__main__":
    main()
