# SPDX-License-Identifier: BSD-2-Clause
"""Host writer: the one in-order write queue towards host memory.

Payload, flags and due answers pass through one queue and leave by one write port, so that a flag is
never seen before its payload and no answer leaves before its payload was handed to the link (posted
writes are not acknowledged: "written" means accepted by the port, in order). Credit lines have a
queue of their own and slip in between two TLPs.

The broken build "flag_second_port" sends flags by a second path past the queue; tests must catch it.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import DUE_BITS, WriteKind, due_fields, small_write_layout, stored_layout, write_job_layout
from gateware.host.payload_gatherer import PayloadGatherer
from gateware.host.payload_splitter import PayloadSplitter
from gateware.host.tlp_layouts import write_tlp_layout

# Host writer --------------------------------------------------------------------------------------

class HostWriter(LiteXModule):
    """Executes write jobs in order.

    `jobs`: `write_job_layout`; `stored`: one `stored_layout(network_width)` endpoint per plane;
    `small`: `small_write_layout`; `write`: `write_tlp_layout(host_width)` to the packetizer; `due`:
    `due_fields()`, valid when everything before it has been accepted by `write`.

    A payload job takes its packet's words at one per cycle; a TLP of n host words takes n + 2 cycles
    and WORD jobs two. Words beyond `length` are dropped up to `last`. A packet that ends early is
    filled with zeros and one of length 0 is dropped: nothing waits for what cannot come. A small
    write waits for one TLP of the queue at most, and the queue for one small write.
    """
    def __init__(self, config):
        self.jobs   = jobs  = stream.Endpoint(write_job_layout(config))
        self.stored = [stream.Endpoint(stored_layout(config.network_width)) for _ in range(config.planes)]
        self.small  = small = stream.Endpoint(small_write_layout(config))
        self.write  = stream.Endpoint(write_tlp_layout(config.host_width))
        self.due    = due   = stream.Endpoint(due_fields())
        self.max_payload_size = Signal(16, reset=config.max_payload)
        self.idle   = Signal()     # Nothing queued inside.

        # # #

        # Queue ------------------------------------------------------------------------------------
        self.gatherer = gatherer = PayloadGatherer(config, self.stored)
        flags = None
        if config.broken == "flag_second_port":
            self.ahead = ahead = stream.SyncFIFO(write_job_layout(config), 16)
            self.flags = flags = stream.SyncFIFO(write_job_layout(config), 16)
            self.comb += [
                If(jobs.kind == WriteKind.WORD,
                    jobs.connect(flags.sink)
                ).Else(
                    jobs.connect(ahead.sink)
                ),
                ahead.source.connect(gatherer.jobs),
            ]
        else:
            self.comb += jobs.connect(gatherer.jobs)
        job = gatherer.source

        # Payload ----------------------------------------------------------------------------------
        self.splitter = splitter = PayloadSplitter(config)
        self.comb += [
            gatherer.words.connect(splitter.words),
            splitter.max_payload_size.eq(self.max_payload_size),
            splitter.sink.offset.eq(job.offset),
            splitter.sink.address.eq(job.address),
            splitter.sink.beyond.eq(job.beyond),
            splitter.sink.length.eq(job.length),
        ]

        # Write port -------------------------------------------------------------------------------
        # One register stage; `port` is its input.
        self.out = out = stream.Buffer(write_tlp_layout(config.host_width))
        port = out.sink
        self.comb += out.source.connect(self.write)

        # Order ------------------------------------------------------------------------------------
        small_turn = Signal()      # A TLP of the queue left since the last small write.
        beats      = max(1, 128//config.host_width)
        beat       = Signal(max=max(2, beats))
        boundary   = Signal()      # Between two TLPs of the splitter.
        self.comb += boundary.eq(splitter.tlp.valid & splitter.tlp.first)

        def word_tlp(source, ready):
            return [
                port.valid.eq(1),
                port.first.eq(1),
                port.last.eq(1),
                port.address.eq(Cat(C(0, 3), source.address[3:])),
                port.length.eq(2),
                port.first_be.eq(0xf),
                port.last_be.eq(0xf),
                port.dat.eq(source.word),
                ready.eq(port.ready),
            ]

        self.fsm = fsm = FSM(reset_state="IDLE")
        start_small = [If(small.valid & (small_turn | ~job.valid), NextState("SMALL"))]
        start_job   = [
            If(job.valid & ~(small.valid & small_turn),
                Case(job.kind, {
                    WriteKind.PAYLOAD: [splitter.sink.valid.eq(1), NextState("PAYLOAD")],
                    WriteKind.WORD:    [NextState("WORD")],
                    WriteKind.NOTIFY:  [NextState("NOTIFY")],
                    "default":         [job.ready.eq(1)]}))
        ]
        fsm.act("IDLE", *start_small, *start_job,
            *([If(flags.source.valid, NextState("FLAG"))] if flags is not None else []))
        # While the splitter shows the first beat of a TLP, a small write may go before it.
        insert_small = Signal()
        self.comb += insert_small.eq(boundary & small.valid & small_turn)
        step = If(insert_small, NextState("SMALL"))
        if flags is not None:
            step = If(boundary & flags.source.valid, NextState("FLAG")).Elif(insert_small, NextState("SMALL"))
        fsm.act("PAYLOAD",
            step.Else(
                splitter.tlp.connect(port),
                If(port.valid & port.ready & port.last, NextValue(small_turn, 1)),
            ),
            If(splitter.done,
                job.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("WORD",
            *word_tlp(job, job.ready),
            If(port.ready,
                NextValue(small_turn, 1),
                NextState("IDLE")
            )
        )
        fsm.act("NOTIFY",
            If(due.valid & due.ready,
                NextValue(small_turn, 1),
                job.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("SMALL",
            port.valid.eq(1),
            port.first.eq(beat == 0),
            port.last.eq(beat == beats - 1),
            port.address.eq(Cat(C(0, 4), small.address[4:])),
            port.length.eq(4),
            port.first_be.eq(0xf),
            port.last_be.eq(0xf),
            Case(beat, {i: port.dat.eq(small.data[i*config.host_width:(i + 1)*config.host_width])
                for i in range(beats)}),
            If(port.ready,
                NextValue(beat, beat + 1),
                If(port.last,
                    NextValue(beat, 0),
                    NextValue(small_turn, 0),
                    If(splitter.busy, NextState("PAYLOAD")).Else(NextState("IDLE"))
                )
            )
        )
        if flags is not None:   # Broken build.
            fsm.act("FLAG",
                *word_tlp(flags.source, flags.source.ready),
                If(port.ready,
                    If(splitter.busy, NextState("PAYLOAD")).Else(NextState("IDLE"))
                )
            )

        # Handshakes ---------------------------------------------------------------------------------
        self.comb += [
            small.ready.eq(fsm.ongoing("SMALL") & port.ready & (beat == beats - 1)),
            due.valid.eq(fsm.ongoing("NOTIFY") & ~out.source.valid),
            due.payload.raw_bits().eq(job.due),
            self.idle.eq(fsm.ongoing("IDLE") & gatherer.idle & ~out.source.valid & ~jobs.valid & ~small.valid
                & ~(ahead.source.valid | flags.source.valid if flags is not None else 0)),
        ]
        assert len(due.payload.raw_bits()) == DUE_BITS
