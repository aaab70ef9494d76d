# SPDX-License-Identifier: BSD-2-Clause
"""The paths of all peers: the state of every entropy value, shared by the queue pairs of a peer.

              choose            change: lost, marked, probe answered, command
                 |                 |
    rotation -> row of the peer <- state of one value -> PATH event
                 |
            counts of the value: sent, lost, marked

    from                event                                   to
    -----------------   -------------------------------------   --------------------
    GOOD                MARKED: SACK m=SKIP_ONCE, NACK TRIMMED   SKIP
    GOOD, SKIP          LOST, or AVOID: SACK m=ALWAYS_SKIP       ASSUMED_BAD, event LOST
    SKIP                met by the rotation (path_choice.py)     GOOD
    SKIP, ASSUMED_BAD   CLEAN: probe answered with m=NONE        GOOD, event RETURNED if it was ASSUMED_BAD
    ASSUMED_BAD         BACK: probe answered with m=SKIP_ONCE    SKIP, event RETURNED
    any                 SET: the firmware's command              as it says

DENIED is entered and left by SET only. A value beyond the peer's `ev_count`, or of a plane that the card
does not have, stays DENIED. One answered probe readmits (the specification does not say how many). While a
peer has ASSUMED_BAD values, one in turn is reported again every REMINDER ticks, so that the firmware can
probe it again; an event that finds its queue full is made up for by that.

A choice takes 4 cycles, a change 2 or 3; both wait for at most one operation of each other client.
Clearing a peer takes a cycle per value. Source: MRC 1.0, figure 5.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from firmware.contract import EventKind, Path, PathChange, PathState
from gateware.common.arithmetic import below, bit_of, one_hot, sized
from gateware.common.counters import Counters
from gateware.common.layouts import event_layout
from gateware.common.table_ram import TableRAM
from gateware.transport.requester.path_choice import PathChoice, paths_layout
from gateware.transport.requester.path_reminder import PathReminder

REMINDER = 256      # Ticks of 128 ns between two reminders: 33 us.

class Change:
    """What may happen to a path."""
    LOST, MARKED, AVOID, CLEAN, BACK, SET = range(6)

# Layouts ------------------------------------------------------------------------------------------

def choose_layout(config):
    """A path for a packet of queue pair `qp` to `peer`: the next one, or value `ev` if `given`."""
    return [("qp", config.qp_bits), ("peer", config.peer_bits), ("given", 1), ("ev", config.ev_bits)]

def change_layout(config):
    """Something happened to value `ev` of `peer`; `state` belongs to SET."""
    return [("qp", config.qp_bits), ("peer", config.peer_bits), ("ev", config.ev_bits), ("kind", 3), ("state", 2)]

def counts_layout():
    """Owned by `Paths`, per entropy value; each stays at its highest value."""
    return [("sent", 16), ("lost", 16), ("marked", 16)]

# Paths --------------------------------------------------------------------------------------------

class Paths(LiteXModule):
    """Owner of the paths' states.

    chooses:   choose_layout, one per client; `ready` for one cycle when the answer stands in `chosen`.
    chosen:    {ev, plane, entropy}.
    changes:   change_layout, one per client, the first before the others.
    event:     PATH events.
    init:      {peer}: the driver has written the peer's row.
    planes_up: bit per plane whose link is up.
    states, counts: tables, by peer and by peer * evs + value.
    time:      32-bit tick counter.
    """
    def __init__(self, config, tables, choosers=2, changers=3, period=REMINDER):
        self.chooses   = [stream.Endpoint(choose_layout(config)) for _ in range(choosers)]
        self.chosen    = Record([("ev", config.ev_bits), ("plane", 2), ("entropy", 16)])
        self.changes   = [stream.Endpoint(change_layout(config)) for _ in range(changers)]
        self.events    = events = stream.SyncFIFO(event_layout(), 8)
        self.event     = events.source
        self.init      = stream.Endpoint([("peer", 16)])
        self.planes_up = Signal(config.planes)
        self.states    = states = TableRAM(paths_layout(config), config.peers)
        self.counts    = counts = TableRAM(counts_layout(), config.peers*config.evs)
        self.time      = Signal(32)
        self.counters  = Counters(self)

        # # #

        demoted  = self.counters.add("paths_lost",     "Paths that became ASSUMED_BAD.")
        returned = self.counters.add("paths_returned", "Paths that an answered probe brought back.")
        marked   = self.counters.add("paths_marked",   "Paths that were to be skipped once: marked or trimmed packets.")
        unwell   = self.counters.add("paths_poor",     "Packets sent on a path of a peer that has no usable one.")
        dropped  = self.counters.add("events_lost_path", "PATH events that found their queue full.")

        # The peer and the value at hand.
        row, tally   = states.reader(), counts.reader()
        attributes   = tables.peer.reader()
        entropies    = tables.ev.reader()
        peer, ev     = Signal(config.peer_bits), Signal(config.ev_bits)
        qp, given    = Signal(config.qp_bits), Signal()
        kind, state  = Signal(3), Signal(2)
        client       = Signal(max=max(2, choosers))
        at, place    = Signal(config.peer_bits), Signal(config.ev_bits) # What is read: one cycle before `peer` and `ev` hold it.
        self.comb += [
            at.eq(peer), place.eq(ev),
            *[t.index.eq(at) for t in (row, states, attributes)],
            *[t.index.eq(Cat(place, at)) for t in (tally, counts, entropies)],
        ]
        now = row.row
        keep = [getattr(states.row, name).eq(getattr(now, name)) for name, *_ in states.layout]
        more = {name: sized(self, getattr(tally.row, name) + (getattr(tally.row, name) != 0xffff), 16, f"{name}_after")
                for name, _ in counts_layout()}
        keep_counts = [getattr(counts.row, name).eq(getattr(tally.row, name)) for name, *_ in counts.layout]

        # Choice.
        self.choice = choice = PathChoice(config, now)
        self.comb += [
            choice.planes_up.eq(self.planes_up),
            self.chosen.ev.eq(ev),
            self.chosen.plane.eq(ev[:log2_int(config.plane_shares)] if config.plane_shares > 1 else 0),
            self.chosen.entropy.eq(entropies.row.entropy),
        ]

        # Change.
        exists  = sum(1 << n for n in range(config.evs) if n % config.plane_shares < config.planes)
        in_use  = sized(self, below(self, attributes.row.ev_count, config.evs, "counted") & exists, config.evs, "in_use")
        one     = one_hot(self, ev, config.evs, "one_ev")
        others  = sized(self, ~one, config.evs, "other_evs")
        before  = Signal(2)
        after   = Signal(2)
        self.comb += [
            before.eq(Cat(bit_of(self, now.low, ev, "low_now"), bit_of(self, now.high, ev, "high_now"))),
            after.eq(before),
            Case(kind, {
                Change.MARKED: If(before == PathState.GOOD, after.eq(PathState.SKIP)),
                Change.CLEAN:  If(before != PathState.DENIED, after.eq(PathState.GOOD)),
                Change.BACK:   If(before != PathState.DENIED, after.eq(PathState.SKIP)),
                Change.SET:    If(bit_of(self, in_use, ev, "is_in_use"), after.eq(state)),
                "default":     If(before != PathState.DENIED, after.eq(PathState.ASSUMED_BAD)),   # LOST, AVOID.
            }),
        ]
        falls = sized(self, (before != PathState.ASSUMED_BAD) & (after == PathState.ASSUMED_BAD), 1, "falls")
        rises = sized(self, (before == PathState.ASSUMED_BAD) & (after != PathState.ASSUMED_BAD), 1, "rises")
        told  = sized(self, kind != Change.SET, 1, "told")

        self.reminder = reminder = PathReminder(config, period)
        self.comb += [
            reminder.time.eq(self.time),
            reminder.at.eq(peer),
            reminder.assumed.eq(now.high & ~now.low),
            reminder.named.eq(now.named),
        ]

        # Event.
        reason, event_qp = Signal(8), Signal(config.qp_bits)
        self.comb += [
            events.sink.kind.eq(EventKind.PATH),
            events.sink.reason.eq(reason),
            events.sink.qp.eq(event_qp),
            events.sink.base[Path.EV:Path.EV + config.ev_bits].eq(ev),
            events.sink.base[Path.PEER:Path.PEER + config.peer_bits].eq(peer),
            events.sink.base[Path.NAMED].eq(1),
            events.sink.entropy.eq(entropies.row.entropy),
            events.sink.time.eq(self.time),
        ]

        # Operations ---------------------------------------------------------------------------------
        self.fsm = fsm = FSM(reset_state="IDLE")
        def start(operation, following):
            """Statements: read for an operation of a client, and keep what it says."""
            fields = [(name, getattr(operation, name)) for name, *_ in operation.description.payload_layout]
            keeps  = dict(qp=qp, peer=peer, ev=ev, given=given, kind=kind, state=state)
            return [at.eq(operation.peer), place.eq(operation.ev), *[NextValue(keeps[name], value) for name, value in fields],
                NextState(following)]
        rest = If(reminder.due,
            reminder.visit.eq(1),
            at.eq(reminder.peer),
            NextValue(peer, reminder.peer),
            NextState("REMIND"))
        for i, choose in reversed(list(enumerate(self.chooses))):
            rest = If(choose.valid, NextValue(client, i), *start(choose, "PLANE")).Else(rest)
        for change in reversed(self.changes):
            rest = If(change.valid, change.ready.eq(1), *start(change, "CHANGE")).Else(rest)
        fsm.act("IDLE",
            If(self.init.valid,
                at.eq(self.init.peer),
                NextValue(peer, self.init.peer),
                NextValue(ev, 0),
                NextState("INIT")
            ).Else(rest)
        )
        # A new peer: what its row has is GOOD, the rest DENIED.
        fsm.act("INIT",
            states.row.low.eq(~in_use),
            states.row.high.eq(~in_use),
            states.we.eq(1),
            reminder.cured.eq(1),
            NextState("INIT-COUNTS")
        )
        fsm.act("INIT-COUNTS",
            counts.we.eq(1),
            NextValue(ev, ev + 1),
            If(ev == config.evs - 1,
                self.init.ready.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("PLANE",
            choice.step.eq(1),
            NextState("VALUE")
        )
        fsm.act("VALUE",
            *keep,
            states.row.low.eq(choice.low_after),
            *[If(choice.plane == p, getattr(states.row, f"cursor{p}").eq(choice.cursor_after)) for p in range(config.planes)],
            states.row.turn.eq(choice.turn_after),
            states.row.qp.eq(qp),
            states.we.eq(~given),
            unwell.eq(~given & choice.poor),
            If(~given,
                place.eq(choice.ev),
                NextValue(ev, choice.ev)
            ),
            NextState("ANSWER")
        )
        fsm.act("ANSWER",
            Case(client, {i: choose.ready.eq(1) for i, choose in enumerate(self.chooses)}),
            *keep_counts,
            counts.row.sent.eq(more["sent"]),
            counts.we.eq(~given),
            NextState("IDLE")
        )
        fsm.act("CHANGE",
            *keep,
            states.row.low.eq(Mux(after[0], now.low | one, now.low & others)),
            states.row.high.eq(Mux(after[1], now.high | one, now.high & others)),
            states.we.eq(1),
            *keep_counts,
            If(kind == Change.LOST, counts.row.lost.eq(more["lost"])),
            If((kind == Change.MARKED) | (kind == Change.BACK), counts.row.marked.eq(more["marked"]), marked.eq(1)),
            counts.we.eq(told),
            reminder.suspect.eq(falls),
            demoted.eq(falls & told),
            returned.eq(rises & told),
            NextValue(reason, Mux(falls, PathChange.LOST, PathChange.RETURNED)),
            NextValue(event_qp, Mux(falls, qp, now.qp)),
            If((falls | rises) & told, NextState("EVENT")).Else(NextState("IDLE"))
        )
        fsm.act("REMIND",
            NextValue(ev, reminder.value),
            NextValue(reason, PathChange.REMINDER),
            NextValue(event_qp, now.qp),
            place.eq(reminder.value),
            *keep,
            states.row.named.eq(reminder.value),
            states.we.eq(1),
            If(reminder.found,
                NextState("EVENT")
            ).Else(
                reminder.cured.eq(1),
                NextState("IDLE")
            )
        )
        fsm.act("EVENT",
            events.sink.valid.eq(1),
            dropped.eq(~events.sink.ready),
            NextState("IDLE")
        )
