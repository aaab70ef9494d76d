# SPDX-License-Identifier: BSD-2-Clause
"""Mailbox through which the recovery firmware commands the transport.

The firmware fills the command words and submits them. A command that cannot mean anything (unknown
kind, queue pair that does not exist, nothing to resend, an error without a reason) is refused and
counted: firmware is trusted to decide, not to be free of faults. Commands that name PSNs are
checked against the window where they are carried out.

Source: command table of firmware/contract.py.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import COMMAND, COMMAND_WORDS, CommandKind, Path, PathState
from gateware.common.layouts import command_layout

QUEUE_DEPTH = 4     # Commands that wait for the transport.
LAST_QP_REASON = 15 # Reasons above this concern a token, not a queue pair.

# Command mailbox ----------------------------------------------------------------------------------

class CommandMailbox(LiteXModule):
    """Command words, check and a short queue.

    write, index, data : write strobe of command word `index`.
    go                 : submit the words and clear them, so that unused ones need not be written.
    busy               : the queue is full; a `go` is now lost, and counted as refused.
    refused            : commands refused, stays at its largest value.
    source             : `command_layout()`, one command a beat.

    Latency: 2 cycles from `go` to `source`.
    """
    def __init__(self, config):
        self.write   = Signal()
        self.index   = Signal(max=COMMAND_WORDS)
        self.data    = Signal(32)
        self.go      = Signal()
        self.source  = stream.Endpoint(command_layout())
        self.busy    = Signal()
        self.refused = Signal(32)

        # # #

        # Words.
        words = Array(Signal(32, name=f"word{i}") for i in range(COMMAND_WORDS))
        self.sync += [
            If(self.write, words[self.index].eq(self.data)),
            If(self.go, [word.eq(0) for word in words]),
        ]

        # Fields and check.
        self.queue = queue = stream.SyncFIFO(command_layout(), QUEUE_DEPTH)
        sink  = queue.sink
        known = [v for k, v in vars(CommandKind).items() if not k.startswith("_")]
        good  = Signal()
        named = Signal()                                # `base` is a path of this card.
        self.comb += [
            named.eq(sink.base[Path.NAMED] & (sink.base[Path.EV:Path.PEER] < config.evs) &
                (sink.base[Path.PEER:Path.PEER + 8] < config.peers)),
            [getattr(sink, f.name).eq(words[f.word][f.bit:f.bit + f.width]) for f in COMMAND],
            Case(sink.kind, {
                **{kind: good.eq(1) for kind in known},
                CommandKind.RESEND: good.eq((sink.mask_low != 0) | (sink.mask_high != 0)),
                CommandKind.ERROR:  good.eq((sink.reason != 0) & (sink.reason <= LAST_QP_REASON)),
                CommandKind.PROBE:  good.eq((sink.base == 0) | named),
                CommandKind.PATH:   good.eq((sink.reason <= PathState.DENIED) & named),
                "default":          good.eq(0),
            }),
            sink.valid.eq(self.go & good & (sink.qp < config.queue_pairs)),
            self.busy.eq(~sink.ready),
            queue.source.connect(self.source),
        ]

        # Count of refused commands.
        taken = Signal()
        self.comb += taken.eq(sink.valid & sink.ready)
        self.sync += If(self.go & ~taken & (self.refused != 2**32 - 1), self.refused.eq(self.refused + 1))
