# SPDX-License-Identifier: BSD-2-Clause
"""Recovery port: the soft core's view of the transport, one window of 32 words.

Events are read, commands written through one Wishbone slave whose words are laid out by `Window` in
firmware/contract.py. The event words are a consistent snapshot: they belong to the oldest event and
change only when the firmware pops it.

Limits: 32-bit accesses; a narrower write is ignored. The window repeats in a larger region. Every
access is answered after one cycle, whatever the transport does.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream, wishbone
from migen import *

from firmware.contract import (
    COMMAND_WORDS,
    EVENT,
    EVENT_WORDS,
    VERSION,
    WINDOW_WORDS,
    Window,
    WindowStatus,
)
from gateware.common.layouts import command_layout
from gateware.recovery.command_mailbox import CommandMailbox
from gateware.recovery.event_queue import EventQueue
from gateware.recovery.watchdog import Watchdog

# Recovery port ------------------------------------------------------------------------------------

class RecoveryPort(LiteXModule):
    """Event queue, command mailbox and watchdog behind one Wishbone slave.

    bus              : Wishbone slave, 32 bits, word addresses, 32 words.
    command          : `command_layout()` source, to the requester.
    time             : ticks of 128 ns, input.
    events_waiting   : events that the firmware has not read.
    commands_refused : commands refused by the mailbox.
    commands_issued  : commands that left the port, modulo 2^32.
    events_taken     : events that the firmware popped, modulo 2^32.
    alive            : the firmware wrote HEARTBEAT within the last 2^16 ticks.

    `add_event_source()` gives an endpoint of `event_layout()` per source; sources that give up on a
    full queue count what they dropped themselves.
    """
    def __init__(self, config):
        self.bus              = bus = wishbone.Interface(data_width=32, adr_width=30)
        self.command          = stream.Endpoint(command_layout())
        self.time             = Signal(32)
        self.events_waiting   = Signal(max=config.events + 2)
        self.commands_refused = Signal(32)
        self.commands_issued  = Signal(32)
        self.events_taken     = Signal(32)
        self.alive            = Signal()

        # # #

        self.event_queue = event_queue = EventQueue(config)
        self.mailbox     = mailbox     = CommandMailbox(config)
        self.watchdog    = watchdog    = Watchdog()

        # Answer: one cycle after the request, never two for one request.
        access, write = Signal(), Signal()
        index = Signal(max=WINDOW_WORDS)
        self.comb += [
            access.eq(bus.cyc & bus.stb & ~bus.ack),
            write.eq(access & bus.we & (bus.sel == 0xf)),
            index.eq(bus.adr[:len(index)]),
        ]
        self.sync += bus.ack.eq(access)

        # Read: event words, then the rest.
        event  = event_queue.source
        words  = {Window.EVENT + i: Signal(32, name=f"event_word{i}") for i in range(EVENT_WORDS)}
        status = Signal(32)
        self.comb += [
            If(event.valid, [words[Window.EVENT + f.word][f.bit:f.bit + f.width].eq(getattr(event, f.name))
                for f in EVENT]),
            status.eq(event_queue.waiting | Mux(mailbox.busy, WindowStatus.BUSY, 0)),
        ]
        words.update({
            Window.STATUS:      status,
            Window.TIME:        self.time,
            Window.VERSION:     C(VERSION, 32),
            Window.QUEUE_PAIRS: C(config.queue_pairs, 32),
            Window.REFUSED:     mailbox.refused,
        })
        self.sync += If(access, Case(index, {
            **{offset: bus.dat_r.eq(word) for offset, word in words.items()},
            "default": bus.dat_r.eq(0),
        }))

        # Write: command words and strobes.
        self.comb += [
            mailbox.write.eq(write & (index[2:] == Window.COMMAND//COMMAND_WORDS)),
            mailbox.index.eq(index[:2]),
            mailbox.data.eq(bus.dat_w),
            mailbox.go.eq(write & (index == Window.GO)),
            event.ready.eq(write & (index == Window.POP)),
            watchdog.heartbeat.eq(write & (index == Window.HEARTBEAT)),
            watchdog.time.eq(self.time),
        ]

        # Commands and status.
        self.comb += [
            mailbox.source.connect(self.command),
            self.events_waiting.eq(event_queue.waiting),
            self.commands_refused.eq(mailbox.refused),
            self.alive.eq(watchdog.alive),
        ]
        self.sync += [
            If(self.command.valid & self.command.ready, self.commands_issued.eq(self.commands_issued + 1)),
            If(event.valid & event.ready, self.events_taken.eq(self.events_taken + 1)),
        ]

    def add_event_source(self, endpoint=None):
        """A new endpoint of `event_layout()` for one source of events (or the given one)."""
        return self.event_queue.add_source(endpoint)
