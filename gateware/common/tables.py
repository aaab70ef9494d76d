# SPDX-License-Identifier: BSD-2-Clause
"""The tables a driver writes, and where BAR0 keeps things: one description for gateware and driver.

A row is a bit vector, its fields packed from bit 0 upwards without gaps. The driver writes the row
into the CSR `tables_row` (little-endian word order), then `tables_command` with table and index;
`tables_busy` is 0 when it is done.
"""

from dataclasses import dataclass

# BAR0 ---------------------------------------------------------------------------------------------

BAR0_BYTES      = 0x40000
BAR0_CSR        = 0x00000   # 64 KiB: LiteX CSRs.
BAR0_FIRMWARE   = 0x10000   # Memory of the soft core's image.
BAR0_DOORBELL   = 0x20000   # 4 KiB per doorbell page, 64 bytes per context, eight aliases each.
BAR0_DOORBELL_BYTES = 0x10000

ROW_BITS = 512              # Longest row, and the width of the CSR.

# Rows ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Column:
    name:   str
    width:  int
    remark: str = ""

class Table:
    """`number` selects the table, `columns` are packed from bit 0."""
    def __init__(self, number, name, *columns):
        self.number, self.name = number, name
        self.columns = [Column(*c) for c in columns]
        self.width   = sum(c.width for c in self.columns)
        assert self.width <= ROW_BITS

    def pack(self, **values):
        """Row as an integer; columns that are not named are 0."""
        row, bit = 0, 0
        unknown = set(values) - {c.name for c in self.columns}
        if unknown:
            raise ValueError(f"table {self.name} has no column {', '.join(sorted(unknown))}.")
        for c in self.columns:
            value = values.get(c.name, 0)
            if not 0 <= value < (1 << c.width):
                raise ValueError(f"{self.name}.{c.name} is {value}, but it has {c.width} bits.")
            row |= value << bit
            bit += c.width
        return row

    def unpack(self, row):
        values = {}
        for c in self.columns:
            values[c.name] = row & ((1 << c.width) - 1)
            row >>= c.width
        return values

    def layout(self):
        """[(name, width)] for a Migen Record."""
        return [(c.name, c.width) for c in self.columns]

class QpState:
    RESET, INIT, RTR, RTS, ERROR = range(5)

class Rights:
    LOCAL_READ, REMOTE_WRITE, REMOTE_READ = 1, 2, 4

PAGE_SIZES = [1 << shift for shift in range(12, 22)]      # Of memory regions, bytes.

class SignalMode:
    SET, ADD = 0, 1

QUEUE_PAIR = Table(0, "queue_pair",      # Written with the state it shall have: see the life cycle in docs/host-interface.md.
    ("state",         3, "QpState"),
    ("generation",    8, "upper 8 bits of the own QPN"),
    ("remote_qp",    24, "QPN of the peer"),
    ("peer",          8, "index into the peer table"),
    ("mtu",           3, "path MTU: 256 << mtu bytes"),
    ("p_key",        16, "partition key"),
    ("send_psn",     24, "first PSN to send"),
    ("receive_psn",  24, "first PSN to receive"),
    ("sack_trigger", 16, "a SACK is due after this many received bytes (at least 1024 per packet)"),
    ("timeout",      32, "first deadline, ticks of 128 ns"),
    ("guard_time",   16, "reorder guard before firmware sets it, ticks"),
    ("guard_packets", 8, "reorder guard before firmware sets it, packets"),
    ("mpr",           8, "own receive window, units of 128 PSNs; 0: what the card keeps track of"),
    ("page",          8, "doorbell page that hears of this queue pair's errors; one past the card's pages: none"),
    ("mpr_dest",      8, "the peer's receive window = limit of what is sent, units of 128 PSNs; 0 or above the card's: the card's"),
    ("max_wimm_dest",16, "messages with an immediate in flight that the peer can take; 0: as many as the card can send"),
    ("cwnd",         24, "congestion window before firmware sets it, units of 256 bytes; 0: no limit"))

PEER = Table(1, "peer",
    ("ip",          128, "IPv6 address, or IPv4 address in the lowest 32 bits"),
    ("ipv6",          1, "1: IPv6"),
    ("ev_count",      9, "entropy values in use, 1 to the number of table rows per peer"),
    ("mac0",         48, "MAC on plane 0"),
    ("mac1",         48, ""),
    ("mac2",         48, ""),
    ("mac3",         48, ""))

# Row n of a peer leaves on plane n modulo (planes rounded up to a power of two), so that all planes have equally many;
# a row whose plane does not exist is never used.
EV = Table(2, "ev",                      # Index: peer * evs + number.
    ("entropy",      16, "UDP source port"))

CONTEXT = Table(3, "context",
    ("valid",         1, ""),
    ("generation",    8, "changes when the row is reused"),
    ("qp",           16, "queue pair"),
    ("op",            4, "default operation: 1 WRITE, 2 WRITE and signal"),
    ("length",       24, "default length, bytes"),
    ("max_length",   24, "largest length, bytes"),
    ("slots",        24, "number of slots"),
    ("local_base",   64, "bytes, in the region of lkey"),
    ("local_stride", 32, "bytes"),
    ("remote_base",  64, "bytes, in the peer's region of rkey"),
    ("remote_stride",32, "bytes"),
    ("lkey",         32, "own region: index << 8 | variant"),
    ("rkey",         32, "peer's region"),
    ("immediate",    32, "index into the peer's signal table"))

PAGE = Table(4, "page",                  # Doorbell page.
    ("valid",         1, ""),
    ("owner",         8, "who mapped it"),
    ("first",        16, "first context"),
    ("count",         7, "contexts, 1 to 64"),
    ("quota",        16, "tokens that may wait in a ring"),
    ("credit",       64, "bus address of the credit line, 16-byte aligned"),
    ("credit_every",  8, "write the line after this many tokens"))

REGION = Table(5, "region",              # Key: index << 8 | variant.
    ("valid",         1, ""),
    ("variant",       8, "changes when the index is reused"),
    ("rights",        3, "Rights"),
    ("base",         64, "first virtual address"),
    ("length",       64, "bytes"),
    ("bus",          64, "bus address of `base`, if contiguous"),
    ("page_shift",    6, "0: contiguous; else pages of 1 << page_shift bytes, 12 to 21"),
    ("first_page",   16, "row of `translation` that holds the page of `base`"))

SIGNAL = Table(6, "signal",              # Index: low bits of the immediate. Writing a row clears its count.
    ("valid",         1, ""),
    ("any_qp",        1, "any queue pair may signal"),
    ("qp",           16, "else this one"),
    ("mode",          1, "SignalMode"),
    ("address",      64, "bus address of the 8-byte flag, 8-byte aligned"))

TRANSLATION = Table(7, "translation",    # The pages of regions, each region's in consecutive rows.
    ("bus",          64, "bus address of the page"))

TABLES = (QUEUE_PAIR, PEER, EV, CONTEXT, PAGE, REGION, SIGNAL, TRANSLATION)

class Refusal:
    """What `tables_refused` shows of the last row."""
    NONE, NO_ROW, TRANSITION, IN_USE, VALUE = range(5)

REFUSAL_TEXT = {
    Refusal.NO_ROW:     "there is no such row",
    Refusal.TRANSITION: "the queue pair's state cannot change like that",
    Refusal.IN_USE:     "messages in flight use it",
    Refusal.VALUE:      "a value is out of range",
}

# The token: one aligned 8-byte little-endian store ------------------------------------------------

TOKEN = Table(15, "token",
    ("length",       24, "bytes, literal"),
    ("slot",         24, "index into the context's local and remote arrays"),
    ("flag_default",  1, "use the context's default length"),
    ("flags",        11, "must be 0"),
    ("op",            4, "0 the context's default, 1 WRITE, 2 WRITE and signal"))

# The credit line: 16 bytes, little endian, written by the card ------------------------------------

CREDIT = Table(14, "credit",
    ("consumed",     32, "tokens taken from the page, modulo 2^32"),
    ("completed",    32, "tokens whose message is complete or failed, modulo 2^32"),
    ("error",         8, "QpError of the first failure, 0 = none"),
    ("error_qp",     16, "queue pair concerned"),
    ("error_count",   8, "failures, stays at 255"),
    ("sequence",     32, "counts the writes of this line"))
