# SPDX-License-Identifier: BSD-2-Clause
"""Payload gatherer: fetches the stored packets that write jobs speak of, and packs their words.

It works ahead: while the splitter still sends a packet, the words of the next one are gathered.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.layouts import WriteKind, write_job_layout

# Payload gatherer ---------------------------------------------------------------------------------

class PayloadGatherer(LiteXModule):
    """Fetches the packets that jobs speak of, in the order of the jobs.

    `jobs`, `source`: `write_job_layout`, without DISCARD jobs and those of length 0 behind it;
    `words`: host words, the packet's first network word in lane 0, `last` ends the packet. One
    network word per cycle, one cycle between packets.
    """
    def __init__(self, config, stored, jobs=4, words=16):
        self.jobs   = sink  = stream.Endpoint(write_job_layout(config))
        self.source = stream.Endpoint(write_job_layout(config))
        self.words  = stream.Endpoint([("data", config.host_width)])
        self.idle   = Signal()

        # # #

        ratio = config.host_width//config.network_width
        self.job_fifo  = job_fifo  = stream.SyncFIFO(write_job_layout(config), jobs)
        self.word_fifo = word_fifo = stream.SyncFIFO([("data", config.host_width)], words)
        plane    = Signal(config.plane_bits)
        valid    = Signal()
        last     = Signal()
        data     = Signal(config.network_width)
        ready    = Signal()
        lane     = Signal(max=max(2, ratio))
        full     = Signal()
        gathered = Signal(config.host_width)
        to_write = Signal()          # The job has words that are written.
        to_drop  = Signal()
        self.comb += [
            # The plane's words.
            Case(plane, {**{i: [valid.eq(s.valid), last.eq(s.last), data.eq(s.data), s.ready.eq(ready)]
                for i, s in enumerate(stored)}, "default": [valid.eq(1), last.eq(1)]}),
            full.eq((lane == ratio - 1) | last),
            # Jobs.
            to_write.eq((sink.kind == WriteKind.PAYLOAD) & (sink.length != 0)),
            to_drop.eq((sink.kind == WriteKind.DISCARD) | ((sink.kind == WriteKind.PAYLOAD) & (sink.length == 0))),
            sink.connect(job_fifo.sink, omit={"valid", "ready"}),
            job_fifo.source.connect(self.source),
            word_fifo.source.connect(self.words),
        ]
        # Lanes above the current one are void.
        held  = Signal(config.host_width)
        lanes = [slice(i*config.network_width, (i + 1)*config.network_width) for i in range(ratio)]
        self.comb += [
            gathered.eq(held),
            Case(lane, {i: gathered[lanes[i]].eq(data) for i in range(ratio)}),
            word_fifo.sink.data.eq(gathered),
            word_fifo.sink.last.eq(last),
        ]
        step = Signal()
        self.sync += If(step,
            held.eq(gathered),
            If(full, lane.eq(0)).Else(lane.eq(lane + 1))
        )
        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            NextValue(plane, sink.plane),
            If(sink.valid & sink.ready,
                If(to_drop, NextState("DROP")),
                If(to_write, NextState("COPY"))
            )
        )
        fsm.act("COPY",
            If(step & last, NextState("IDLE"))
        )
        fsm.act("DROP",
            If(valid & last, NextState("IDLE"))
        )
        # Handshakes stand apart from the states: Verilator sees a block as a whole.
        waiting, copying, dropping = fsm.ongoing("IDLE"), fsm.ongoing("COPY"), fsm.ongoing("DROP")
        self.comb += [
            sink.ready.eq(waiting & (to_drop | job_fifo.sink.ready)),
            job_fifo.sink.valid.eq(waiting & sink.valid & ~to_drop),
            word_fifo.sink.valid.eq(copying & valid & full),
            ready.eq(dropping | (copying & (~full | word_fifo.sink.ready))),
            step.eq(copying & valid & ready),
            self.idle.eq(waiting & ~job_fifo.source.valid),
        ]
