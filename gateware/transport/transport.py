# SPDX-License-Identifier: BSD-2-Clause
"""The transport: requester, responder and their shared state, wired together.

    doorbell -> send rings -> scheduler -> segmenter -> WQE -> payload reads
                                               ^                    |
    commands -> resend, guard, deadline, error |             packet sender -> builder -> planes
    events  <-  acknowledger <- ACK SACK NACK  |              ^     ^   ^
                      |                        +-- scoreboard |     |   +-- prober
                      +-> path feedback -> paths -------------+     |
    planes -> dispatcher -> acceptor -> write queue -> due -> control sender

This file holds connections only; each block says what it does.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import CommandKind, Path
from gateware.common.arbiter import PriorityArbiter, RoundRobinArbiter
from gateware.common.counter_bank import CounterBank
from gateware.common.counters import Counters
from gateware.common.headers import Dscp, Opcode
from gateware.common.layouts import command_layout, due_fields, received_layout, send_layout
from gateware.common.table_ram import TableRAM
from gateware.host.credit_writer import CreditWriter
from gateware.host.doorbell import Doorbell
from gateware.host.in_flight import InFlight
from gateware.host.table_port import TablePort, Tables
from gateware.transport.barriers import Drain, Fence
from gateware.transport.life import Life
from gateware.transport.queue_pair import ack_state_layout, chunks, scoreboard_layout, send_state_layout, status_layout
from gateware.transport.requester.acknowledger import Acknowledger
from gateware.transport.requester.deadline import Deadline
from gateware.transport.requester.digest import Digest
from gateware.transport.requester.packet_sender import PacketSender
from gateware.transport.requester.path_feedback import PathFeedback
from gateware.transport.requester.paths import Change, Paths
from gateware.transport.requester.prober import Prober
from gateware.transport.requester.resend import Resend
from gateware.transport.requester.scheduler import Scheduler
from gateware.transport.requester.segmenter import Segmenter
from gateware.transport.requester.wqe import WqeBuilder, packet_descriptor_layout
from gateware.transport.responder.acceptor import Acceptor
from gateware.transport.responder.control_sender import ControlSender

# Why a token or a packet is dropped, counted per page and per queue pair as well.
REFUSALS = ("context", "format", "slot", "length", "quota", "region", "state")
DROPS    = ("duplicate", "window", "no_bitmap", "not_ready", "ended", "no_buffer", "trimmed", "length", "access")

# Receive dispatcher -------------------------------------------------------------------------------

class ReceiveDispatcher(LiteXModule):
    """Takes the planes' packets in turn and sorts them: acknowledgements to the requester, data and
    probes to the responder."""
    def __init__(self, config):
        self.sinks     = [stream.Endpoint(received_layout(config)) for _ in range(config.planes)]
        self.requester = stream.Endpoint(received_layout(config))
        self.responder = stream.Endpoint(received_layout(config))
        self.plane     = Signal(config.plane_bits)

        # # #

        self.arbiter = arbiter = RoundRobinArbiter(received_layout(config), config.planes)
        answer = Signal()
        self.comb += [
            *[sink.connect(port) for sink, port in zip(self.sinks, arbiter.sinks, strict=True)],
            self.plane.eq(arbiter.grant),
            answer.eq((arbiter.source.opcode == Opcode.ACKNOWLEDGE) | (arbiter.source.opcode == Opcode.SACK) |
                      (arbiter.source.opcode == Opcode.NACK)),
            arbiter.source.connect(self.requester, omit={"valid", "ready"}),
            arbiter.source.connect(self.responder, omit={"valid", "ready"}),
            self.requester.valid.eq(arbiter.source.valid & answer),
            self.responder.valid.eq(arbiter.source.valid & ~answer),
            arbiter.source.ready.eq(Mux(answer, self.requester.ready, self.responder.ready)),
        ]

# Command dispatcher -------------------------------------------------------------------------------

class CommandDispatcher(LiteXModule):
    """Gives each command of the firmware to the block that executes it, unless it is meant for a former life.

    error: {qp, reason, life}, to `Life`.    idle: no command has been let pass that is not yet carried out.
    A command takes 3 cycles until it reaches its block.
    """
    def __init__(self, config, status, resend, prober, deadline, acknowledger, segmenter, path, error):
        self.sink     = sink = stream.Endpoint(command_layout())
        self.idle     = Signal()
        self.counters = Counters(self)

        # # #

        stale  = self.counters.add("commands_stale", "Commands dropped because they were meant for a former life of their queue pair.")
        counts = {kind: self.counters.add(f"command_{name.lower()}", f"{name} commands executed.")
                  for name, kind in vars(CommandKind).items() if not name.startswith("_")}
        qp = sink.qp[:config.qp_bits]
        targets = {CommandKind.RESEND: resend.sink, CommandKind.PROBE: prober.sink, CommandKind.TIMER: deadline.sink,
                   CommandKind.GUARD: acknowledger.guard, CommandKind.ERROR: error, CommandKind.PATH: path,
                   CommandKind.WINDOW: segmenter.window}
        now = status.reader()
        self.fsm = fsm = FSM(reset_state="IDLE")
        self.comb += [
            now.index.eq(qp),
            self.idle.eq(fsm.ongoing("IDLE")),
            *[target.qp.eq(qp) for target in targets.values()],
        ]
        fsm.act("IDLE", If(sink.valid, NextState("READ")))
        fsm.act("READ", NextState("LOOK"))
        fsm.act("LOOK",
            If(sink.life == now.row.life,
                NextState("PASS")
            ).Else(
                stale.eq(1),
                sink.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("PASS",
            Case(sink.kind, {
                **{kind: [
                    target.valid.eq(1),
                    If(target.ready, sink.ready.eq(1), counts[kind].eq(1), NextState("IDLE"))
                ] for kind, target in targets.items()},
                "default": [sink.ready.eq(1), NextState("IDLE")]})
        )
        self.comb += [
            resend.sink.base.eq(sink.base),
            resend.sink.mask.eq(Cat(sink.mask_low, sink.mask_high)),
            resend.sink.lost.eq(sink.reason[0]),
            prober.sink.given.eq(sink.base[Path.NAMED]),
            prober.sink.ev.eq(sink.base[Path.EV:]),
            path.peer.eq(sink.base[Path.PEER:]),
            path.ev.eq(sink.base[Path.EV:]),
            path.kind.eq(Change.SET),
            path.state.eq(sink.reason),
            deadline.sink.interval.eq(sink.mask_low),
            acknowledger.guard.time.eq(sink.mask_low[:16]),
            acknowledger.guard.packets.eq(sink.mask_high[:8]),
            error.reason.eq(sink.reason),
            error.life.eq(sink.life),
            segmenter.window.cwnd.eq(sink.mask_low[:24]),
            segmenter.window.digest.eq(sink.mask_high[:16]),
        ]

# Transport ----------------------------------------------------------------------------------------

class Transport(LiteXModule):
    """Everything between the host side and the planes.

    doorbell:  doorbell_layout.               read:    read_request_layout.
    packets, payload: from the payload store. to_builder, send: to the packet builder.
    received:  one received_layout per plane. jobs, due: to and from the host writer.
    small:     credit lines.                  command, events: to and from the recovery port.
    port:      TablePort, the driver's writes.
    """
    def __init__(self, config):
        self.config  = config
        self.time    = Signal(32)          # Ticks of 128 ns.
        self.own_ip  = Signal(32)
        self.own_ip6 = Signal(128)
        self.dscp_control, self.dscp_data, self.dscp_trimmable = (Signal(6, reset=d) for d in (Dscp.CONTROL, Dscp.DATA, Dscp.TRIMMABLE))
        self.own_macs = [Signal(48) for _ in range(4)]
        self.udp_port = Signal(16)
        self.planes_up = Signal(config.planes, reset=2**config.planes - 1) # Planes that may be sent on.

        # # #

        # Time.
        cycles, tick = Signal(max=max(2, config.tick_cycles)), Signal()
        self.comb += tick.eq(cycles == config.tick_cycles - 1)
        self.sync += [cycles.eq(cycles + 1), If(tick, cycles.eq(0), self.time.eq(self.time + 1))]

        # State.
        self.tables     = tables     = Tables(config)
        self.send_state = send_state = TableRAM(send_state_layout(config), config.queue_pairs)
        self.ack_state  = ack_state  = TableRAM(ack_state_layout(config),  config.queue_pairs)
        self.status     = status     = TableRAM(status_layout(),           config.queue_pairs)
        self.scoreboard = scoreboard = TableRAM(scoreboard_layout(),       config.queue_pairs*chunks(config))

        # Requester.
        self.bell      = bell      = Doorbell(config, tables, send_state, status)
        self.scheduler = scheduler = Scheduler(config, wakers=5)
        self.segmenter = segmenter = Segmenter(config, tables, send_state, ack_state, status, bell)
        self.resend    = resend    = Resend(config, send_state, ack_state, scoreboard, segmenter.messages, segmenter.pick)
        self.wqe       = wqe       = WqeBuilder(config, tables, segmenter.messages)
        self.paths     = paths     = Paths(config, tables)
        self.sender    = sender    = PacketSender(config, tables, ack_state, status, scoreboard, paths.chosen)
        self.prober    = prober    = Prober(config, tables, paths.chosen)
        self.path_feedback = path_feedback = PathFeedback(config, tables, send_state, sender.sent.reader())
        self.acknowledger = acknowledger = Acknowledger(config, tables, send_state, ack_state, status, scoreboard, segmenter.messages)
        self.digest    = digest    = Digest(config, send_state, ack_state, status, segmenter.windows)
        self.deadline  = deadline  = Deadline(config, tables, send_state, ack_state, status)

        # Responder.
        self.acceptor  = acceptor  = Acceptor(config, tables, status)
        self.control   = control   = ControlSender(config, tables)

        # What is dropped, per queue pair and per page.
        def bank(block, index, *names, depth=config.queue_pairs):
            return CounterBank(depth, block.counters, names, index)
        self.sender_drops     = bank(sender, sender.at_hand, "data_dropped")
        self.answer_drops     = bank(acknowledger, acknowledger.at_hand, "ack_bad", "naks", "nacks")
        self.responder_drops  = bank(acceptor, acceptor.at_hand, *(f"receive_{reason}" for reason in DROPS))
        self.token_drops      = bank(bell, bell.page_at_hand, *(f"token_{reason}" for reason in REFUSALS), depth=config.pages)
        self.queue_pair_drops = [self.sender_drops, self.answer_drops, self.responder_drops]
        page_drops            = stream.Endpoint([("page", 16)])
        self.comb += [
            self.token_drops.init.valid.eq(page_drops.valid),
            self.token_drops.init.qp.eq(page_drops.page),
            page_drops.ready.eq(self.token_drops.init.ready),
        ]

        # Driver.
        self.credits   = credits   = CreditWriter(config, tables, clients=4)
        self.in_flight = in_flight = InFlight(config, clients=2)
        self.fence     = fence     = Fence(clients=2)
        self.drains    = drains    = [Drain(), Drain()]
        self.submodules += drains
        self.life      = life      = Life(config, tables, send_state, bell.written, status,
            sender_inits   = [bell.init, segmenter.init, resend.init, digest.init, acknowledger.init, deadline.init,
                              self.sender_drops.init, self.answer_drops.init],
            receiver_inits = [acceptor.init, self.responder_drops.init],
            drain = drains[0], fence = fence.clients[0])
        self.port      = port      = TablePort(config, tables, drain=drains[1],
            page_inits  = [bell.init_page, credits.init_page, page_drops],
            signal_init = acceptor.init_signal,
            peer_init   = paths.init)

        # Recovery.
        self.commands  = commands  = CommandDispatcher(config, status, resend, prober, deadline, acknowledger, segmenter, paths.changes[0],
                                                          life.error)
        self.command   = commands.sink
        self.events    = [acknowledger.event, digest.event, deadline.event, sender.event, acceptor.event, life.event, paths.event]

        # Doorbell to packets.
        self.doorbell = bell.sink
        self.consumed = consumed = stream.SyncFIFO([("page", config.page_bits)], 8)
        self.pending  = pending  = stream.SyncFIFO(packet_descriptor_layout(config), 16)
        self.read     = wqe.read
        self.packets, self.payload, self.to_builder = sender.packets, sender.payload, sender.to_builder
        waiting = resend.counts.reader()
        for waker, wake in zip((bell.wake, segmenter.wake, resend.wake, acknowledger.wake, life.wake), scheduler.wakes, strict=True):
            self.comb += [wake.valid.eq(waker.valid), wake.qp.eq(waker.qp)]
        self.comb += [
            scheduler.source.connect(segmenter.sink),
            waiting.index.eq(segmenter.busy_qp),
            segmenter.waiting.eq(waiting.row.count),
            segmenter.source.connect(wqe.sink),
            segmenter.consumed.connect(consumed.sink),
            consumed.source.connect(bell.consumed),
            wqe.source.connect(pending.sink),
            pending.source.connect(sender.sink),
        ]
        # Paths: the firmware's commands change them first, then what was lost, then what was heard.
        self.comb += [
            paths.planes_up.eq(self.planes_up),
            sender.choose.connect(paths.chooses[0]),
            prober.choose.connect(paths.chooses[1]),
            sender.change.connect(paths.changes[1]),
            path_feedback.change.connect(paths.changes[2]),
            acknowledger.heard.connect(path_feedback.heard),
        ]
        # What left, what was acknowledged.
        sent = sender.sent.reader()
        self.comb += [
            sent.index.eq(acknowledger.sent_index),
            acknowledger.sent_time.eq(sent.row.time),
            acknowledger.sent_resent.eq(sent.row.resent),
            sender.resent.connect(acknowledger.resent),
            acknowledger.note.connect(digest.sink),
        ]
        # Life cycle and changes of rows: who may still act on what was.
        self.comb += [
            port.change.connect(life.change),
            port.change_refused.eq(life.refused),
            port.change_write.eq(life.write),
            port.bell_idle.eq(bell.idle),
            bell.hold.eq(port.hold),
            life.bell_idle.eq(bell.idle),
            life.commands_idle.eq(commands.idle),
            life.segmenter_busy.eq(segmenter.busy),
            life.segmenter_qp.eq(segmenter.busy_qp),
            life.flush.connect(acknowledger.flush),
            life.forget.connect(control.init),
            *[drain.entered.eq(segmenter.source.valid & segmenter.source.ready) for drain in drains],
            *[drain.sender_busy.eq(~sender.idle) for drain in drains],
            port.fence.connect(fence.clients[1]),
            fence.request.connect(acceptor.fence),
        ]
        # Credit; what accepted tokens had in use is counted on the way.
        self.small = credits.source
        self.comb += [
            credits.tick.eq(tick),
            bell.in_flight.connect(in_flight.up),
            in_flight.index.eq(port.index),
            port.quiet.eq(in_flight.quiet),
            *[getattr(port, name).eq(getattr(in_flight, name)) for name in ("contexts_used", "regions_used", "pages_used")],
            *[client.connect(sink) for client, sink in zip((segmenter.credit, acknowledger.credit), in_flight.sinks, strict=True)],
            *[client.connect(sink) for client, sink in
                zip((bell.credit, in_flight.source, life.credit, acceptor.credit), credits.sinks, strict=True)],
        ]
        # Packets in.
        self.dispatcher = dispatcher = ReceiveDispatcher(config)
        self.received   = dispatcher.sinks
        self.jobs, self.due = acceptor.jobs, stream.Endpoint(due_fields())
        self.comb += [
            self.due.connect(control.due, omit={"valid", "ready"}),
            control.due.valid.eq(self.due.valid & ~self.due.fence),
            self.due.ready.eq(control.due.ready | self.due.fence),
            fence.passed.eq(self.due.valid & self.due.fence),
            dispatcher.requester.connect(acknowledger.sink),
            dispatcher.responder.connect(acceptor.sink),
            acceptor.plane.eq(dispatcher.plane),
        ]
        answer_plane = Signal(2)                       # Of the answer at hand.
        self.sync += If(dispatcher.requester.valid & dispatcher.requester.ready, answer_plane.eq(dispatcher.plane))
        # Packets out: answers, then probes, then data.
        self.out  = out = PriorityArbiter(send_layout(config), 3)
        self.send = out.source
        self.comb += [
            *[block.source.connect(sink) for block, sink in zip((control, prober, sender), out.sinks, strict=True)],
            control.planes_up.eq(self.planes_up),
            control.proved.valid.eq(acknowledger.proved.valid), control.proved.qp.eq(acknowledger.proved.qp),
            control.proved.entropy.eq(acknowledger.proved.entropy), control.proved.plane.eq(answer_plane),
        ]

        # Constants of the card, time.
        for block in (sender, control, prober):
            self.comb += [block.own_ip.eq(self.own_ip), block.own_ip6.eq(self.own_ip6), block.udp_port.eq(self.udp_port),
                          *[mine.eq(given) for mine, given in zip(block.own_macs, self.own_macs, strict=True)]]
        self.comb += [
            control.dscp.eq(self.dscp_control),
            prober.dscp.eq(self.dscp_data),
            sender.dscp.eq(self.dscp_trimmable),
        ]
        for block in (sender, prober, paths, acknowledger, digest, deadline, acceptor, life):
            self.comb += block.time.eq(self.time)

    def counters(self):
        """name -> (count, description) of all blocks."""
        items = {}
        for block in (self.bell, self.segmenter, self.resend, self.sender, self.paths, self.path_feedback, self.prober,
                      self.acknowledger, self.digest, self.deadline, self.acceptor, self.control, self.credits, self.commands, self.life):
            for name, item in block.counters.items.items():
                assert name not in items, f"two counters are called {name}"
                items[name] = item
        return items
