# SPDX-License-Identifier: BSD-2-Clause
"""The memory of a card, counted from its configuration: state tables, stores, and bits per object.

State is counted where it stands in the gateware: every `TableRAM` of the transport with its rows, its
width and its copies (a table has a block RAM per reader). Not counted: short queues, registers, the
soft core's caches and register file.
"""

from dataclasses import dataclass

from migen import Memory

from gateware.common.table_ram import TableRAM
from gateware.config import ConfigError
from gateware.transport.transport import Transport

# Tables -------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class TableSize:
    """One table: `path` in the transport, `rows` of `width` bits, `copies` block RAMs."""
    path:   str
    rows:   int
    width:  int
    copies: int

    name   = property(lambda self: ".".join(dict.fromkeys((self.path.split(".")[0], self.path.split(".")[-1]))))
    bits   = property(lambda self: self.rows*self.width)
    stored = property(lambda self: self.rows*self.width*self.copies)

def tables(config, transport=None):
    """[TableSize] of a card's transport, in the order of its construction; one is made unless given."""
    found = []
    def walk(module, path):
        for name, child in module._submodules:
            if isinstance(child, TableRAM):
                copies = sum(isinstance(s, Memory) for s in child._fragment.specials)
                found.append(TableSize(path + name, child.depth, len(child.row), copies))
            elif name is not None:
                walk(child, f"{path}{name}.")
    walk(Transport(config) if transport is None else transport, "")
    return found

# Objects ------------------------------------------------------------------------------------------

# What a table's rows belong to. A table is named by its block and itself; sub-blocks between do not matter.
OBJECTS = {
    "queue pair": ("tables.queue_pair", "send_state", "ack_state", "status", "bell.written", "acknowledger.guards", "deadline.state",
                   "acceptor.state", "segmenter.windows", "resend.counts", "digest.state"),
    "queue pair, answers that are due": ("control.sacks", "control.acks", "control.marks"),
    "queue pair, counts of what is dropped": ("sender_drops.rows", "answer_drops.rows", "responder_drops.rows"),
    "PSN of the window, sender":   ("scoreboard", "resend.pending", "sender.sent"),
    "PSN of the window, receiver": ("acceptor.bits",),
    "message in flight, sender":   ("segmenter.messages",),
    "message in flight, receiver": ("acceptor.stashes",),
    "token in a send ring":        ("bell.ring",),
    "context":         ("tables.context", "in_flight.contexts"),
    "place of a context on a page": ("bell.halves",),
    "doorbell page":   ("tables.page", "bell.waiting", "credits.state", "token_drops.rows", "in_flight.pages"),
    "peer":            ("tables.peer", "paths.states", "control.ways"),
    "entropy value":   ("tables.ev", "paths.counts"),
    "memory region":   ("tables.region", "in_flight.regions"),
    "page of a memory region": ("tables.translation",),
    "signal":          ("tables.signal", "acceptor.counts"),
}

def objects(config):
    """{object: how many the card has}."""
    return {
        "queue pair": config.queue_pairs,
        "queue pair, answers that are due": config.queue_pairs,
        "queue pair, counts of what is dropped": config.queue_pairs,
        "PSN of the window, sender":   config.queue_pairs*config.mpr,
        "PSN of the window, receiver": config.queue_pairs*config.mpr,
        "message in flight, sender":   config.queue_pairs*config.messages,
        "message in flight, receiver": config.queue_pairs*config.max_wimm,
        "token in a send ring":        config.queue_pairs*config.ring_depth,
        "context":       config.contexts,
        "place of a context on a page": 64*config.pages,
        "doorbell page": config.pages,
        "peer":          config.peers,
        "entropy value": config.peers*config.evs,
        "memory region": config.regions,
        "page of a memory region": config.translations,
        "signal":        config.signals,
    }

def bits_per_object(config):
    """{object: bits of state for one of it}, each table counted once."""
    sizes = {t.name: t.bits for t in tables(config)}
    missing = [path for paths in OBJECTS.values() for path in paths if path not in sizes]
    if missing:
        raise ValueError(f"OBJECTS names tables that the transport does not have: {', '.join(missing)}.")
    return {name: sum(sizes[path] for path in OBJECTS[name])//count for name, count in objects(config).items()}

def stores(config):
    """{store: bytes}: payload and program."""
    return {
        "receive stores":  config.planes*config.receive_store,
        "payload store":   config.payload_store,
        "read slots":      config.read_tags*config.max_request,
        "firmware memory": config.firmware_bytes,
        "firmware data":   config.firmware_data,
    }

# Budget -------------------------------------------------------------------------------------------

def total(config, transport=None):
    """Bits of all tables, with their copies, and of all stores."""
    return sum(t.stored for t in tables(config, transport)) + 8*sum(stores(config).values())

def check(config, transport=None):
    """Refuses a card whose memory is over the budget of its configuration."""
    bits = total(config, transport)
    if bits > config.memory_bits:
        largest = max(tables(config, transport), key=lambda t: t.stored)
        raise ConfigError(f"The card '{config.name}' needs {bits} bits of memory, its budget (memory_bits) is {config.memory_bits}; "
                          f"the largest table is {largest.path} with {largest.stored}.")
