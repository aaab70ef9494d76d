# SPDX-License-Identifier: BSD-2-Clause
"""Control packets: due bits per queue pair, not queued objects.

What the acceptor found due arrives here behind the payload and the flags it speaks of. A newer
snapshot replaces an older one of the same kind, so a slow transmitter costs nothing but coalescing,
and receive never waits for transmit. Control packets answer on the plane and with the entropy value
of the packet that caused them. Probes leave from here too, on the next entropy value of the peer.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import *

from gateware.common.arithmetic import below, lowest_one, one_hot, sized
from gateware.common.counters import Counters
from gateware.common.headers import AETH, CC_STATE, NETH, PETH, SETH, Dscp, Opcode
from gateware.common.layouts import due_fields, send_layout
from gateware.common.table_ram import TableRAM

class Kind:
    SACK, ACK, NACK, PROBE = range(4)

class ControlSender(LiteXModule):
    """Keeps what is due and sends it.

    due:     due_fields(); always taken, at most one per 4 cycles.
    probe:   {qp}: command of the firmware.
    source:  send_layout, length 0.
    """
    def __init__(self, config, tables):
        self.due      = stream.Endpoint(due_fields())
        self.probe    = stream.Endpoint([("qp", config.qp_bits)])
        self.source   = stream.Endpoint(send_layout(config))
        self.time     = Signal(32)
        self.own_ip   = Signal(32)
        self.own_macs = [Signal(48) for _ in range(4)]
        self.udp_port = Signal(16)
        self.counters = Counters(self)

        # # #

        sent = {kind: self.counters.add(name, text) for kind, name, text in (
            (Kind.SACK,  "sent_sack",  "SACKs sent."), (Kind.ACK,   "sent_ack",   "Transport ACKs and NAKs sent."),
            (Kind.NACK,  "sent_nack",  "NACKs sent."), (Kind.PROBE, "sent_probe", "Probes sent."))}

        slots   = 4*config.queue_pairs                     # Kind + 4 * queue pair.
        pending = Signal(slots)
        set_slot, set_now     = Signal(config.qp_bits + 2), Signal()
        clear_slot, clear_now = Signal(config.qp_bits + 2), Signal()
        clears = sized(self, Mux(clear_now, one_hot(self, clear_slot, slots, "clear_bit"), 0), slots, "clears")
        sets   = sized(self, Mux(set_now,   one_hot(self, set_slot,   slots, "set_bit"),   0), slots, "sets")
        self.sync += pending.eq((pending & ~clears) | sets)
        self.table = table = TableRAM(due_fields(), slots)
        row = table.reader()

        # Store ------------------------------------------------------------------------------------
        d = Record(due_fields())
        self.comb += [table.row.raw_bits().eq(d.raw_bits()), table.index.eq(set_slot), table.we.eq(set_now)]
        take, probe = Signal(), Signal()
        self.sync += If(take, *[getattr(d, f).eq(getattr(self.due, f)) for f, _ in due_fields()]).Elif(probe, d.qp.eq(self.probe.qp))
        store = FSM(reset_state="IDLE")
        self.store = store
        store.act("IDLE",
            If(self.due.valid,
                self.due.ready.eq(1),
                take.eq(1),
                NextState("SACK")
            ).Elif(self.probe.valid,
                self.probe.ready.eq(1),
                probe.eq(1),
                NextState("PROBE")
            )
        )
        for name, kind, flag, following in (("SACK", Kind.SACK, d.sack, "ACK"), ("ACK", Kind.ACK, d.ack, "NACK"),
                                            ("NACK", Kind.NACK, d.nack, "IDLE"), ("PROBE", Kind.PROBE, C(1), "IDLE")):
            store.act(name,
                set_slot.eq(Cat(C(kind, 2), d.qp[:config.qp_bits])),
                set_now.eq(flag),
                NextState(following)
            )

        # Send -------------------------------------------------------------------------------------
        attributes = tables.queue_pair.reader()
        peer       = tables.peer.reader()
        ev         = tables.ev.reader()
        slot       = Signal(config.qp_bits + 2)
        qp         = slot[2:]
        self.cursors = cursors = TableRAM([("cursor", config.ev_bits)], config.peers)
        place      = cursors.reader()
        cursor     = Signal(config.ev_bits)               # Next entropy value of the peer to be probed.
        number     = attributes.row.peer[:config.peer_bits]
        self.comb += [
            row.index.eq(slot), attributes.index.eq(qp), *[t.index.eq(number) for t in (peer, place, cursors)],
            cursor.eq(Mux(place.row.cursor >= peer.row.ev_count, 0, place.row.cursor)),
            ev.index.eq(Cat(cursor, number)), clear_slot.eq(slot),
        ]
        following = sized(self, cursor + 1, config.ev_bits + 1, "cursor_after")
        self.comb += cursors.row.cursor.eq(Mux(following >= peer.row.ev_count, 0, following))

        # Round robin: first behind the last one served, else from 0.
        served = sized(self, slot + 1, config.qp_bits + 3, "served")
        behind = sized(self, pending & ~below(self, served, slots, "up_to_slot"), slots, "behind")
        high, high_found, low, low_found = Signal(config.qp_bits + 2), Signal(), Signal(config.qp_bits + 2), Signal()
        self.comb += lowest_one(behind, high, high_found), lowest_one(pending, low, low_found)

        kind      = slot[:2]
        offset    = sized(self, row.row.psn - row.row.cack, 16, "ack_psn_offset")
        sack_base = sized(self, row.row.base - row.row.cack, 16, "sack_offset")
        entropy   = Signal(32)
        dpdcid    = attributes.row.remote_qp[:16]
        spdcid    = Cat(qp, C(0, 16 - config.qp_bits))
        seth, cc, aeth, neth, peth = (Signal(8*h.length) for h in (SETH, CC_STATE, AETH, NETH, PETH))
        self.comb += [
            entropy.eq(row.row.entropy),
            SETH.encode(seth, m=Cat(row.row.ce, C(0, 1)), pr=row.row.probe,
                ack_psn_offset=Mux(row.row.probe, row.row.psn[:16], offset), entropy=entropy, spdcid=spdcid, dpdcid=dpdcid,
                cack_psn=row.row.cack, sack_offset=sack_base, bitmap=row.row.bitmap),
            CC_STATE.encode(cc, tx_timestamp=row.row.timestamp, ooo_count=row.row.ooo, rcvd_bytes=row.row.rcvd),
            AETH.encode(aeth, syndrome=row.row.syndrome, msn=Cat(row.row.msn, C(0, 8))),
            NETH.encode(neth, reason=row.row.reason, entropy=entropy, spdcid=spdcid, dpdcid=dpdcid,
                nack_psn=row.row.psn, cc_type=2, tx_timestamp=row.row.timestamp),
            PETH.encode(peth, probe_id=self.time[:16], spdcid=spdcid, dpdcid=dpdcid, tx_timestamp=self.time[:16], ftype=1),
        ]
        s = self.source
        plane = Signal(2)
        mac, own_mac = Signal(48), Signal(48)
        self.comb += [
            plane.eq(Mux(kind == Kind.PROBE, ev.row.plane, row.row.plane)),
            Case(plane, {i: [mac.eq(getattr(peer.row, f"mac{i}")), own_mac.eq(self.own_macs[i])] for i in range(4)}),
        ]
        build = Signal()
        self.sync += If(build,
            s.plane.eq(plane),
            s.destination_mac.eq(mac), s.source_mac.eq(own_mac),
            s.source_ip.eq(self.own_ip), s.destination_ip.eq(peer.row.ip),
            s.entropy.eq(Mux(kind == Kind.PROBE, ev.row.entropy, row.row.entropy)),
            s.udp_port.eq(self.udp_port),
            s.p_key.eq(attributes.row.p_key), s.dest_qp.eq(attributes.row.remote_qp),
            s.dscp.eq(Mux(kind == Kind.PROBE, Dscp.DATA, Dscp.CONTROL)),
            Case(kind, {
                Kind.SACK:  [s.opcode.eq(Opcode.SACK), s.body.eq(Cat(seth, cc)), s.psn.eq(row.row.cack),
                             s.rtx.eq(row.row.rtx), s.body_length.eq(SETH.length + CC_STATE.length)],
                Kind.ACK:   [s.opcode.eq(Opcode.ACKNOWLEDGE), s.body.eq(aeth), s.psn.eq(row.row.cack),
                             s.rtx.eq(0), s.body_length.eq(AETH.length)],
                Kind.NACK:  [s.opcode.eq(Opcode.NACK), s.body.eq(neth), s.psn.eq(row.row.psn),
                             s.rtx.eq(0), s.body_length.eq(NETH.length)],
                Kind.PROBE: [s.opcode.eq(Opcode.PROBE), s.body.eq(peth), s.psn.eq(0),
                             s.rtx.eq(0), s.body_length.eq(PETH.length)],
            })
        )

        self.fsm = fsm = FSM(reset_state="IDLE")
        fsm.act("IDLE",
            If(low_found,
                NextValue(slot, Mux(high_found, high, low)),
                NextState("READ")
            )
        )
        # The bit is cleared with the reading of the row: a newer snapshot sets it again.
        fsm.act("READ",
            clear_now.eq(1),
            NextState("PEER")
        )
        fsm.act("PEER", NextState("PATH"))
        fsm.act("PATH",
            NextState("BUILD")
        )
        fsm.act("BUILD",
            build.eq(1),
            NextState("SEND")
        )
        fsm.act("SEND",
            s.valid.eq(1),
            If(s.ready,
                *[If(kind == k, pulse.eq(1)) for k, pulse in sent.items()],
                cursors.we.eq(kind == Kind.PROBE),
                NextState("IDLE")
            )
        )
