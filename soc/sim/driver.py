# SPDX-License-Identifier: BSD-2-Clause
"""The driver of one card: registers, tables and the objects a program works with, all through BAR0.

It knows what gateware/common/tables.py and csr.json say, and nothing else of the card. Addresses are
bus addresses of the node's memory. Everything here runs simulated time: each call ends when its last
store has arrived. Refused arguments raise `DriverError` with a sentence.
"""

from dataclasses import dataclass, field

from gateware.common import tables as T

class DriverError(RuntimeError):
    """The driver cannot do what was asked, or the card does not answer; the text is for the user."""

class Refused(DriverError):
    """The card did not write a row; `code` is a Refusal."""
    def __init__(self, card, table, index, code):
        super().__init__(f"Card {card} did not write row {index} of the table '{table.name}': {T.REFUSAL_TEXT[code]}.")
        self.code = code

BURST   = 16  # Dwords of one store to registers or firmware memory.
NO_PAGE = 255 # As the page of a queue pair: no page hears of its errors.

@dataclass
class Page:
    """A doorbell page and its credit line. `handle` is the harness's number of it."""
    number:   int
    first:    int
    count:    int
    credit:   int
    handle:   int
    contexts: int = 0
    free:     list = field(default_factory=list)    # Contexts that were taken back.

@dataclass
class Context:
    """A slot of 64 bytes on a page: one peer, one pair of buffers."""
    page:   Page
    index:  int
    offset: int             # In the doorbell window.
    generation: int
    alias:  int = 0

@dataclass
class Signal:
    """A row of the signal table, its flag in memory and the harness's watch of it."""
    node:    object
    index:   int
    address: int
    watch:   int

    @property
    def value(self):
        return self.node.read_word(self.address)

    def expect(self, value, source_node, source, destination, length, message=0, at=0):
        """When the flag reaches `value`, `length` bytes at `destination` must equal those at `source`; the message's from byte `at` on."""
        if self.node.sim.expect(self.watch, value, message, source_node.index, source, destination, length, at):
            raise DriverError(f"Message {message} of {length} bytes is outside of the memory of card {source_node.index} "
                              f"or {self.node.index}.")

    def target(self, value):
        """`Cluster.run` waits until the flag has reached `value`."""
        self.node.sim.target(self.watch, value)

@dataclass
class QueuePair:
    """One connected queue pair as its two ends see it: {node index: value}."""
    index: dict = field(default_factory=dict)
    qpn:   dict = field(default_factory=dict)
    rows:  dict = field(default_factory=dict)   # What was written last.
    mtu:   int  = 4096

class Driver:
    """Registers and tables of one card; `Node` gives it `sim`, `csr`, `config` and memory."""

    # Registers ------------------------------------------------------------------------------------

    def _register(self, name):
        try:
            r = self.csr["csr_registers"][name]
        except KeyError:
            raise DriverError(f"The card has no register '{name}'.") from None
        return T.BAR0_CSR + (r["addr"] - self.csr["memories"]["csr"]["base"]), r["size"]

    def has(self, name):
        """Does the card have a register of this name?"""
        return name in self.csr.get("csr_registers", {})

    def store(self, offset, words):
        """Dwords to BAR0, in bursts; they are on their way when it returns."""
        for i in range(0, len(words), BURST):
            part = words[i:i + BURST]
            self.sim.write(self.index, offset + 4*i, self._u32(part), len(part))

    def load(self, offset, limit=20_000):
        """One dword of BAR0."""
        value  = self._u32([0])
        result = self.sim.read(self.index, offset, limit, value)
        if result:
            why = f"was refused with status {result - 2}" if result > 1 else f"was not answered within {limit} cycles"
            raise DriverError(f"Card {self.index}: a read of BAR0 at 0x{offset:05x} {why}.")
        return value[0]

    def write(self, name, value):
        """A register, lowest word first."""
        offset, size = self._register(name)
        if value >> (32*size):
            raise DriverError(f"{name} has {32*size} bits, 0x{value:x} does not fit.")
        self.store(offset, [(value >> (32*i)) & 0xffffffff for i in range(size)])

    def read(self, name):
        offset, size = self._register(name)
        return sum(self.load(offset + 4*i) << (32*i) for i in range(size))

    def settle(self, limit=200_000):
        """Runs until every store has been taken by the card."""
        if self.sim.drain(limit):
            raise DriverError(f"The cards did not take the driver's stores within {limit} cycles.")

    # Tables ---------------------------------------------------------------------------------------

    def write_row(self, table, index, **values):
        """One row of a table of gateware/common/tables.py."""
        row = table.pack(**values)
        offset, _ = self._register("nic_tables_row")
        self.store(offset, [(row >> (32*i)) & 0xffffffff for i in range((table.width + 31)//32)])
        self.write("nic_tables_command", index << 16 | table.number)
        for _ in range(1000):
            if not self.read("nic_tables_busy"):
                break
        else:
            raise DriverError(f"Card {self.index}: the table '{table.name}' stays busy.")
        refused = self.read("nic_tables_refused")
        if refused:
            raise Refused(self.index, table, index, refused)

    def _next(self, what, limit):
        """An index that is free, one that was in use before if there is any."""
        if self._free.get(what):
            return self._free[what].pop(0)
        n = self._used.get(what, 0)
        if n >= limit:
            raise DriverError(f"Card {self.index} has {limit} {what}, all are in use.")
        self._used[what] = n + 1
        return n

    def start(self, ip, ip6, macs, udp_port=4791):
        """Identity of the card; then it takes part."""
        self.ip, self.ip6, self.macs = ip, ip6, macs
        self.write("nic_own_ip", ip)
        self.write("nic_own_ip6", ip6)
        for plane in range(4):
            if self.has(f"nic_own_mac{plane}"):
                self.write(f"nic_own_mac{plane}", macs[plane])
        self.write("nic_udp_port", udp_port)
        self.write("nic_enable", 1)
        self.settle()

    def peer(self, number, ip, macs, evs, ipv6=False):
        """A peer and its entropy values (UDP source ports); value n is of plane n modulo the planes. `ip` is an IPv6
        address if `ipv6` says so."""
        if len(evs) > self.config.evs:
            raise DriverError(f"{len(evs)} entropy values do not fit, a peer has {self.config.evs}.")
        for i, entropy in enumerate(evs):
            self.write_row(T.EV, number*self.config.evs + i, entropy=entropy)
        self.write_row(T.PEER, number, ip=ip, ipv6=int(ipv6), ev_count=len(evs), **{f"mac{i}": macs[i] for i in range(4)})
        self.peers[number] = list(evs)

    def queue_pair_drops(self, index):
        """{reason: count} of what this card has dropped or been refused of one queue pair in its present life."""
        self.write("nic_qp_select", index)
        return self._counts("nic_qp_count_")

    def page_drops(self, number):
        """{reason: count} of the tokens of a doorbell page that were refused."""
        self.write("nic_page_select", number)
        return self._counts("nic_page_count_")

    def drops(self):
        """{"queue pair 3": {reason: count}, "page 0": ...} of what is in use."""
        pairs = {f"queue pair {i}": self.queue_pair_drops(i) for i in range(self._used.get("queue pairs", 0))}
        return pairs | {f"page {p.number}": self.page_drops(p.number) for p in self.pages}

    def _counts(self, prefix):
        return {n[len(prefix):]: self.read(n) for n in self.csr.get("csr_registers", {}) if n.startswith(prefix)}

    def paths(self):
        """[{peer, ev, plane, entropy, state, sent, lost, marked}] of all paths of all peers."""
        found = []
        for number, evs in self.peers.items():
            for ev, entropy in enumerate(evs):
                self.write("nic_path_select", number*self.config.evs + ev)
                value = self.read("nic_path")
                found.append(dict(peer=number, ev=ev, plane=ev % self.config.plane_shares, entropy=entropy, state=value >> 48,
                    sent=value & 0xffff, lost=value >> 16 & 0xffff, marked=value >> 32 & 0xffff))
        return found

    def register_region(self, address, length, rights=T.Rights.LOCAL_READ | T.Rights.REMOTE_WRITE, base=None, pages=None, page_size=4096):
        """Key of a memory region of `length` bytes; `base` is its first virtual address (else `address`).

        Contiguous, from the bus address `address` on; or in `pages`, bus addresses of pages of `page_size` bytes:
        the first holds `address`, which is a virtual address then.
        """
        base, row = address if base is None else base, {"bus": address}
        if pages is not None:
            row = self._pages(address, length, pages, page_size)
        index   = self._next("regions", self.config.regions)
        variant = self._variants.get(index, self.random.randrange(255)) % 255 + 1       # Never the one before.
        self._variants[index] = variant
        self.write_row(T.REGION, index, valid=1, variant=variant, rights=rights, base=base, length=length, **row)
        return index << 8 | variant

    def _pages(self, address, length, pages, page_size):
        """Writes the pages of a region into the translation table; the columns of its row that speak of them."""
        if page_size not in T.PAGE_SIZES:
            raise DriverError(f"A page has {page_size} bytes, but a card knows pages of {T.PAGE_SIZES[0]} to {T.PAGE_SIZES[-1]} bytes, "
                              "a power of two.")
        wanted = (address + max(length, 1) - 1)//page_size - address//page_size + 1
        if len(pages) != wanted or any(bus % page_size for bus in pages):
            raise DriverError(f"The region lies in {wanted} pages of {page_size} bytes, each of which begins at a multiple of its size; "
                              f"{len(pages)} are given.")
        first, table = self._used.get("pages of regions", 0), self.config.translations
        if first + wanted > table:
            raise DriverError(f"Card {self.index} has {table} pages for regions, {first} are in use, {wanted} more do not fit.")
        self._used["pages of regions"] = first + wanted
        for n, bus in enumerate(pages):
            self.write_row(T.TRANSLATION, first + n, bus=bus)
        return {"page_shift": page_size.bit_length() - 1, "first_page": first}

    def deregister_region(self, key):
        """After it nothing is read from or written to the region. Refused while tokens use it as local memory."""
        self.write_row(T.REGION, key >> 8)
        self._free.setdefault("regions", []).append(key >> 8)

    def queue_pair(self, **values):
        """Index and generation of the next queue pair, and a function that writes its row.

        `page` hears of its errors, even if no message is in flight.
        """
        index = self._next("queue pairs", self.config.queue_pairs)
        # Never the one before. Queue pair numbers below 65536 are left out: 0 to 2 have a meaning.
        generation = self._generations.get(index, self.random.randrange(255)) % 255 + 1
        values = {"page": NO_PAGE, "generation": generation} | values
        def write(**more):
            self.modify(index, **values, **more)
            return values | more
        return index, generation, write

    def modify(self, index, state, **values):
        """Another state of a queue pair; `values` is the whole row where the life begins or goes on."""
        self.write_row(T.QUEUE_PAIR, index, state=state, **values)
        self._generations[index] = values.get("generation", self._generations.get(index, 0))

    def release_queue_pair(self, index):
        """Ends the queue pair; its index is free."""
        self.modify(index, T.QpState.RESET)
        self._free.setdefault("queue pairs", []).append(index)

    def signal(self, qp=None, mode=T.SignalMode.SET, address=None):
        """A row of the signal table with a flag in memory (of its own unless `address` is given)."""
        index = self._next("signals", self.config.signals)
        if address is None:
            address = self.alloc(8, align=8)
        self.write_row(T.SIGNAL, index, valid=1, any_qp=int(qp is None), qp=qp or 0, mode=mode, address=address)
        return Signal(self, index, address, self.sim.watch(self.index, address))

    def page(self, contexts=None, quota=None, credit_every=1, owner=1):
        """A doorbell page with room for `contexts` contexts and its credit line."""
        number = self._next("doorbell pages", self.config.pages)
        room   = min(64, self.config.contexts//self.config.pages)
        count  = room if contexts is None else contexts
        if not 1 <= count <= room:
            raise DriverError(f"A page has 1 to {room} contexts here, not {count}.")
        quota  = self.config.ring_depth if quota is None else quota
        credit = self.alloc(16, align=16)
        self.write_row(T.PAGE, number, valid=1, owner=owner, first=number*room, count=count, quota=quota, credit=credit,
            credit_every=credit_every)
        page = Page(number, number*room, count, credit, self.sim.page(self.index, credit, quota))
        self.pages.append(page)
        return page

    def context(self, page, qp, local, remote, slots=1, length=0, max_length=None, local_stride=0, remote_stride=0, lkey=0, rkey=0,
            immediate=0, op=2):
        """The page's next context: buffers here (`local`) and at the peer (`remote`)."""
        if page.free:
            number, generation = page.free.pop(0)
        elif page.contexts < page.count:
            number, generation = page.contexts, self.random.randrange(256)
            page.contexts += 1
        else:
            raise DriverError(f"Page {page.number} has {page.count} contexts, all are in use.")
        self.write_row(T.CONTEXT, page.first + number, valid=1, generation=generation, qp=qp, op=op, length=length,
            max_length=length if max_length is None else max_length, slots=slots, local_base=local, local_stride=local_stride,
            remote_base=remote, remote_stride=remote_stride, lkey=lkey, rkey=rkey, immediate=immediate)
        return Context(page, page.first + number, page.number*4096 + number*64, generation)

    def release_context(self, context):
        """Takes a context back; refused while its tokens are not completed."""
        self.write_row(T.CONTEXT, context.index)
        context.page.free.append((context.index - context.page.first, (context.generation + 1) % 256))

    # Posting --------------------------------------------------------------------------------------

    def post(self, context, slot=0, length=None, op=0):
        """Hands one token to the node's GPU, which stores it as soon as the page's credit allows."""
        self.post_many(context, [T.TOKEN.pack(op=op, slot=slot, length=length or 0, flag_default=int(length is None))])

    def post_many(self, context, tokens):
        """Tokens as integers, in order; the eight aliases of the context take turns."""
        offsets = []
        for _ in tokens:
            offsets.append(context.offset + 8*context.alias)
            context.alias = (context.alias + 1) & 7
        self.sim.post(self.index, context.page.handle, self._u32(offsets), self._u64(tokens), len(tokens))

    def post_times(self, page, count):
        """Cycles at which the card had taken the page's first `count` tokens, 0 = not yet."""
        times = self._u64([0]*count)
        self.sim.post_cycles(self.index, page.handle, times, count)
        return list(times)

    def credit(self, page):
        """The page's credit line as the card last wrote it: {consumed, completed, error, error_qp, ...}."""
        return T.CREDIT.unpack(int.from_bytes(self.bytes_at(page.credit, 16), "little"))

    def queue_pair_state(self, index):
        """{state, error, unacked, next} of one queue pair."""
        self.write("nic_qp_select", index)
        return {name: self.read(f"nic_qp_{name}") for name in ("state", "error", "unacked", "next")}

    def counters(self):
        """All read-only counters by name."""
        names = [n for n in self.csr.get("csr_registers", {}) if n.startswith("nic_count_")]
        return {n[len("nic_count_"):]: self.read(n) for n in names}
