# SPDX-License-Identifier: BSD-2-Clause
"""Read controller: splits reads into PCIe requests and collects their completions by tag.

Each tag owns a slot of `max_request` bytes in one block RAM, so the room of a request is reserved
together with its tag and completions never wait. LitePCIe's own tag controller never frees the tag
of an error completion; here the completer is not trusted:

- a completion whose tag has no read in flight is dropped and counted;
- its place is checked against the controller's own count (length, byte count, lower address): one
  that does not fit fails the read and nothing is written outside of the slot;
- status other than successful, or poisoned data, fails the read;
- a read that is not complete after `timeout` cycles fails.

A failed read is handed on as such, in order, and its tag returns. After a timeout or a misfit the
tag stays in quarantine for `QUARANTINE` more timeouts, so that what comes late cannot reach the
read that uses the tag next.

Limits: a completer must split at multiples of 64 bytes, as PCIe demands.
Source: PCI Express Base, chapters 2.2.9 and 2.3.1.1.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.config import bits_for_index
from gateware.host.request_splitter import part_layout
from gateware.host.tlp_layouts import LENGTH_BITS, CompletionStatus, read_completion_layout, read_tlp_layout

TICKS      = 16   # A timeout is this many ticks.
QUARANTINE = 3    # Further timeouts during which the tag of a lost read is not used.

def slot_layout(config):
    """One finished part of a read, in request order: where its host words lie."""
    words = config.max_request//(config.host_width//8)
    return [
        ("tag",        bits_for_index(config.read_tags)),
        ("first_word", bits_for_index(words)),   # In the slot.
        ("last_word",  bits_for_index(words)),
    ]

# Read controller ----------------------------------------------------------------------------------

class ReadController(LiteXModule):
    """Tags, slots and completions.

    `sink`: parts of `RequestSplitter`; `read`: `read_tlp_layout` for the packetizer; `completion`:
    `read_completion_layout`, always taken; `slots`: `slot_layout`, one per part in order, valid when
    the part is done, `slots_error` tells that it failed. The reader fetches words with `port` (block
    RAM, one cycle, `re`) at address {tag, word} and takes the slot with the last word, which frees
    the tag. Counters: `read_errors` (failed parts), `unknown_completions`, `timeouts`.
    A completion takes one cycle more than its data words.
    """
    def __init__(self, config, timeout=2**20):
        if timeout < 16*TICKS:
            raise ValueError(f"timeout is {timeout} cycles, but a read timeout is at least {16*TICKS} cycles.")
        tags, host_bytes = config.read_tags, config.host_width//8
        words       = config.max_request//host_bytes
        word_bits   = bits_for_index(words)
        tag_bits    = bits_for_index(tags)
        self.sink       = sink       = stream.Endpoint(part_layout(config))
        self.read       = read       = stream.Endpoint(read_tlp_layout())
        self.completion = completion = stream.Endpoint(read_completion_layout(config.host_width))
        self.slots      = slots      = stream.Endpoint(slot_layout(config))
        self.slots_error         = Signal()
        self.read_errors         = Signal(32)
        self.unknown_completions = Signal(32)
        self.timeouts            = Signal(32)
        self.idle                = Signal(reset=1)   # No tag in use (those in quarantine apart).

        # # #

        # Slots ------------------------------------------------------------------------------------
        store = Memory(config.host_width, tags*words)
        wp    = store.get_port(write_capable=True)
        self.port = rp = store.get_port(has_re=True, mode=READ_FIRST)
        self.specials += store, wp, rp   # A word is read only after its read is done.

        # State per tag ----------------------------------------------------------------------------
        busy       = Signal(tags)    # Allocated until its data has been read out.
        pending    = Signal(tags)    # Request sent, not finished.
        done       = Signal(tags)    # Finished, well or not.
        failed     = Signal(tags)
        quarantine = Signal(tags)
        place      = Memory(2*word_bits, tags)     # Next word in the slot, last word in the slot.
        place_rp   = place.get_port(async_read=True)
        place_wp   = place.get_port(write_capable=True)
        sent       = Memory(8, tags)               # Tick at which the request left.
        sent_rp    = sent.get_port(async_read=True)
        sent_wp    = sent.get_port(write_capable=True)
        self.specials += place, place_rp, place_wp, sent, sent_rp, sent_wp

        def bit(vector, index):
            """vector[index], 0 for an index past the vector."""
            r = Signal()
            self.comb += Case(index, {**{i: r.eq(vector[i]) for i in range(tags)}, "default": r.eq(0)})
            return r

        def one_hot(enable, index):
            r = Signal(tags)
            self.comb += If(enable, Case(index, {i: r.eq(1 << i) for i in range(tags)}))
            return r

        # Ticks ------------------------------------------------------------------------------------
        prescaler = Signal(max=timeout//TICKS + 1)
        tick      = Signal(8)
        self.sync += [
            prescaler.eq(prescaler + 1),
            If(prescaler == timeout//TICKS - 1, prescaler.eq(0), tick.eq(tick + 1))
        ]

        # Request: allocate tag and slot, send -----------------------------------------------------
        tag      = Signal(tag_bits)
        tag_free = Signal()
        allocate = Signal()
        leaves   = Signal()
        update   = Signal()              # The completion side writes `place`.
        length   = Signal(LENGTH_BITS)   # Host words.
        self.order = order = stream.SyncFIFO(slot_layout(config), tags)   # As many as tags: never full.
        self.comb += [
            tag_free.eq(~bit(busy, tag) & ~bit(quarantine, tag)),
            length.eq(sink.last_word - sink.first_word + 1),
            read.address.eq(sink.address),
            read.length.eq(length << log2_int(host_bytes//4)),
            read.tag.eq(tag),
            read.first_be.eq(0xf),
            read.last_be.eq(0xf),
            order.sink.tag.eq(tag),
            order.sink.first_word.eq(sink.first_word),
            order.sink.last_word.eq(sink.last_word),
            sent_wp.adr.eq(tag),
            sent_wp.dat_w.eq(tick),
            sent_wp.we.eq(leaves),
        ]
        self.request_fsm = fsm = FSM(reset_state="ALLOCATE")
        fsm.act("ALLOCATE",
            If(sink.valid,
                If(~tag_free,
                    NextValue(tag, tag + 1)
                ).Elif(~update,
                    allocate.eq(1),
                    order.sink.valid.eq(1),
                    NextState("SEND")
                )
            )
        )
        fsm.act("SEND",
            If(read.ready,
                NextValue(tag, tag + 1),
                NextState("ALLOCATE")
            )
        )
        self.comb += [
            read.valid.eq(fsm.ongoing("SEND")),
            leaves.eq(read.valid & read.ready),
            sink.ready.eq(leaves),
        ]

        # Completion: look up ----------------------------------------------------------------------
        next_word = Signal(word_bits)
        last_word = Signal(word_bits)
        remaining = Signal(LENGTH_BITS)      # Host words still to come.
        remaining_bytes = Signal(13)
        count     = Signal(LENGTH_BITS)      # Host words of this completion.
        lower     = Signal(7)
        fits      = Signal()
        self.comb += [
            place_rp.adr.eq(completion.tag[:tag_bits]),
            Cat(next_word, last_word).eq(place_rp.dat_r),
            remaining.eq(last_word - next_word + 1),
            remaining_bytes.eq(remaining << log2_int(host_bytes)),
            count.eq(completion.length >> log2_int(host_bytes//4)),
            lower.eq(Cat(C(0, log2_int(host_bytes)), next_word)),
            fits.eq(completion.has_data
                & (count != 0) & (count <= remaining)
                & (completion.length[:log2_int(host_bytes//4)] == 0)
                & (completion.byte_count == remaining_bytes)
                & (completion.lower_address == lower)),
        ]

        # Completion: store and finish -------------------------------------------------------------
        active_tag = Signal(tag_bits)
        known      = Signal()      # The tag has a read in flight.
        good       = Signal()      # Store the data.
        refused    = Signal()      # Error status or poisoned: the read is over.
        whole      = Signal()      # The read is complete with this completion.
        position   = Signal(word_bits)
        limit      = Signal(word_bits)
        position_  = Signal(word_bits)
        left       = Signal(LENGTH_BITS)
        complete   = Signal()      # All words of this completion came.
        finish, finish_failed, finish_quarantine = Signal(), Signal(), Signal()
        finish_tag = Signal(tag_bits)
        scan       = Signal(tag_bits)
        age        = Signal(8)
        release    = Signal()
        looking    = Signal()
        self.comb += [
            wp.adr.eq(Cat(position, active_tag)),
            wp.dat_w.eq(completion.dat),
            complete.eq(left <= 1),
            position_.eq(Mux(left != 0, position + 1, position)),
            place_wp.we.eq(allocate | update),
            place_wp.adr.eq(Mux(update, active_tag, tag)),
            place_wp.dat_w.eq(Mux(update, Cat(position_, limit), Cat(sink.first_word, sink.last_word))),
            sent_rp.adr.eq(scan),
            age.eq(tick - sent_rp.dat_r),
        ]
        pending_scan, quarantine_scan = bit(pending, scan), bit(quarantine, scan)
        pending_completion            = bit(pending, completion.tag)
        self.completion_fsm = fsm = FSM(reset_state="LOOK")
        fsm.act("LOOK",
            looking.eq(1),
            NextValue(known,      pending_completion),
            NextValue(active_tag, completion.tag[:tag_bits]),
            NextValue(good,       fits & (completion.status == CompletionStatus.SC) & ~completion.poisoned),
            NextValue(refused,    (completion.status != CompletionStatus.SC) | completion.poisoned),
            NextValue(whole,      count == remaining),
            NextValue(position,   next_word),
            NextValue(limit,      last_word),
            NextValue(left,       count),
            If(completion.valid, NextState("TAKE")),
            # Time: one tag per cycle, but never the one that is being looked up.
            If(~(completion.valid & (completion.tag == scan)),
                If(pending_scan & (age > TICKS),
                    finish.eq(1),
                    finish_failed.eq(1),
                    finish_quarantine.eq(1),
                    NextValue(self.timeouts, self.timeouts + 1)
                ),
                release.eq(~pending_scan & quarantine_scan & (age > TICKS*(1 + QUARANTINE)))
            )
        )
        self.comb += completion.ready.eq(fsm.ongoing("TAKE"))
        fsm.act("TAKE",
            If(completion.valid,
                wp.we.eq(known & good & (left != 0)),
                NextValue(position, position_),
                If(left != 0, NextValue(left, left - 1)),
                If(completion.last,
                    If(~known,
                        NextValue(self.unknown_completions, self.unknown_completions + 1)
                    ).Elif(good & complete,
                        finish.eq(whole),
                        update.eq(~whole)
                    ).Else(
                        finish.eq(1),
                        finish_failed.eq(1),
                        finish_quarantine.eq(~refused)
                    ),
                    NextState("LOOK")
                )
            )
        )
        self.comb += finish_tag.eq(Mux(looking, scan, active_tag))
        self.sync += [
            If(looking, scan.eq(scan + 1)),
            If(finish & finish_failed, self.read_errors.eq(self.read_errors + 1)),
        ]

        # Hand over in order -----------------------------------------------------------------------
        self.comb += [
            order.source.connect(slots, omit={"valid", "ready"}),
            order.source.ready.eq(slots.ready & slots.valid),
            slots.valid.eq(order.source.valid & bit(done, order.source.tag)),
            self.slots_error.eq(bit(failed, order.source.tag)),
            self.idle.eq(busy == 0),
        ]

        # Flags ------------------------------------------------------------------------------------
        allocated = one_hot(allocate, tag)
        sent_now  = one_hot(leaves, tag)
        finished  = one_hot(finish, finish_tag)
        failing   = one_hot(finish & finish_failed, finish_tag)
        enclosed  = one_hot(finish & finish_quarantine, finish_tag)
        released  = one_hot(release, scan)
        retired   = one_hot(slots.valid & slots.ready, order.source.tag)
        self.sync += [
            busy.eq((busy & ~retired) | allocated),
            pending.eq((pending & ~finished) | sent_now),
            done.eq((done & ~allocated) | finished),
            failed.eq((failed & ~allocated) | failing),
            quarantine.eq((quarantine & ~released) | enclosed),
        ]
