# SPDX-License-Identifier: BSD-2-Clause
"""The NIC: host side, transport, planes and recovery port, with their registers.

    PCIe PHY <-> PCIeHost <-> Transport <-> ReceivePath, PacketBuilder <-> PlanePort per plane
                                  ^
                            RecoveryPort <-> soft core

This is where cores and gateware meet; every register of the card's own is described here.
"""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from litex.soc.interconnect.csr import CSRField, CSRStatus, CSRStorage
from migen import *

from gateware.common.arithmetic import bit_of
from gateware.common.counters import Counters
from gateware.common.headers import Dscp
from gateware.common.tables import REFUSAL_TEXT, ROW_BITS
from gateware.host.pcie_host import PCIeHost
from gateware.network.packet_builder import PacketBuilder
from gateware.network.packet_parser import ReceivePath
from gateware.recovery.recovery_port import RecoveryPort
from gateware.transport.transport import Transport

DOORBELL_QUEUE = 64   # Tokens between the link and the doorbell.

# NIC ----------------------------------------------------------------------------------------------

class NIC(LiteXModule):
    """One card on `phy` (LitePCIe) and `planes` (PlanePort-like modules with sink, source and link_up).

    bus:       Wishbone master for the SoC's registers and firmware memory, word addresses in BAR0.
    recovery:  the recovery port; its `bus` belongs on the soft core's bus.
    """
    def __init__(self, config, phy, planes):
        # Registers ----------------------------------------------------------------------------------
        self._enable   = CSRStorage(1, name="enable", description="1: take part in the network.")
        self._own_ip   = CSRStorage(32, name="own_ip", description="Own IPv4 address; 0 accepts any.")
        self._own_ip6  = CSRStorage(128, name="own_ip6", description="Own IPv6 address; 0 accepts any.")
        self._own_macs = [CSRStorage(48, name=f"own_mac{i}", description=f"Own MAC address on plane {i}.") for i in range(config.planes)]
        for i, register in enumerate(self._own_macs):
            setattr(self, f"_own_mac{i}", register)
        self._udp_port = CSRStorage(16, name="udp_port", reset=4791, description="UDP destination port of RoCEv2 packets.")
        self._planes_enable = CSRStorage(config.planes, name="planes_enable", reset=2**config.planes - 1,
            description="Planes that the card may send on; the driver takes one away here.")
        self._planes_up     = CSRStatus(config.planes, name="planes_up", description="Planes enabled whose link has no fault.")
        classes = {}
        for name, value, text in (
                ("control",         Dscp.CONTROL,         "sent in SACK, NACK and Transport ACK"),
                ("data",            Dscp.DATA,            "sent in probes"),
                ("trimmable",       Dscp.TRIMMABLE,       "sent in WRITEs"),
                ("trimmed",         Dscp.TRIMMED,         "of a received WRITE that a switch has trimmed"),
                ("trimmed_lasthop", Dscp.TRIMMED_LASTHOP, "of a received WRITE that the last switch has trimmed")):
            classes[name] = CSRStorage(6, name=f"dscp_{name}", reset=value, description=f"DSCP {text}.")
            setattr(self, f"_dscp_{name}", classes[name])
        self._tables_row = CSRStorage(ROW_BITS, name="tables_row", description="A table's row, columns packed from bit 0.")
        self._tables_command = CSRStorage(name="tables_command", description="Writing it stores the row.", fields=[
            CSRField("table",  size=4,             description="Number of the table."),
            CSRField("index",  size=16, offset=16, description="Row of the table.")])
        self._tables_busy = CSRStatus(name="tables_busy", fields=[
            CSRField("busy",    size=1, description="The last row is not in effect yet."),])
        self._tables_refused = CSRStatus(name="tables_refused", fields=[
            CSRField("code", size=3, description="Why the last row was not written.", values=[
                ("0", "it was"), *[(str(code), text) for code, text in REFUSAL_TEXT.items()]])])
        self._qp_select  = CSRStorage(16, name="qp_select", description="Queue pair shown by the qp registers.")
        self._qp_state   = CSRStatus(3,  name="qp_state",   description="State: 0 RESET, 1 INIT, 2 RTR, 3 RTS, 4 ERROR.")
        self._qp_error   = CSRStatus(8,  name="qp_error",   description="Reason of the ERROR state.")
        self._qp_unacked = CSRStatus(24, name="qp_unacked", description="Oldest PSN that is not acknowledged.")
        self._qp_next    = CSRStatus(24, name="qp_next",    description="Next new PSN.")
        self._page_select = CSRStorage(16, name="page_select", description="Doorbell page shown by the page registers.")
        self._path_select = CSRStorage(16, name="path_select", description="Path shown by nic_path: peer * entropy values per peer + row.")
        self._path       = CSRStatus(name="path", description="State and counts of the path selected.", fields=[
            CSRField("sent",   size=16,            description="Packets sent on it, stays at 65535."),
            CSRField("lost",   size=16, offset=16, description="Packets lost on it, as resends tell."),
            CSRField("marked", size=16, offset=32, description="Packets on it that were marked or trimmed."),
            CSRField("state",  size=2,  offset=48, description="PathState: 0 GOOD, 1 SKIP, 2 ASSUMED_BAD, 3 DENIED.")])
        self._alive      = CSRStatus(1,  name="firmware_alive", description="The soft core's firmware went through its main loop lately.")
        self._time       = CSRStatus(32, name="time", description="Ticks of 128 ns.")

        # # #

        # Blocks -------------------------------------------------------------------------------------
        self.host      = host      = PCIeHost(phy, config)
        self.transport = transport = Transport(config)
        self.builder   = builder   = PacketBuilder(config)
        self.recovery  = recovery  = RecoveryPort(config)
        self.bus       = host.bus
        self.counters  = counters  = Counters(self)
        self.receivers = []
        for i, plane in enumerate(planes):
            receiver = ReceivePath(config)
            self.add_module(name=f"receiver{i}", module=receiver)
            self.receivers.append(receiver)
            self.comb += [
                plane.source.connect(receiver.sink, omit={"valid"}),
                receiver.sink.valid.eq(plane.source.valid & self._enable.storage),
                receiver.own_ip.eq(self._own_ip.storage),
                receiver.own_ip6.eq(self._own_ip6.storage),
                receiver.dscp_trimmed.eq(classes["trimmed"].storage),
                receiver.dscp_trimmed_lasthop.eq(classes["trimmed_lasthop"].storage),
                receiver.own_mac.eq(self._own_macs[i].storage),
                receiver.udp_port.eq(self._udp_port.storage),
                receiver.source.connect(transport.received[i]),
                receiver.stored.connect(host.stored[i]),
            ]

        # Host side ----------------------------------------------------------------------------------
        self.tokens = tokens = stream.SyncFIFO(host.doorbell.description, DOORBELL_QUEUE)
        self.comb += [
            host.doorbell.connect(tokens.sink),
            tokens.source.connect(transport.doorbell),
            transport.read.connect(host.read_request),
            host.store.packets.connect(transport.packets),
            host.payload.connect(transport.payload),
            transport.jobs.connect(host.jobs),
            transport.small.connect(host.small),
            host.due.connect(transport.due),
        ]

        # Network side -------------------------------------------------------------------------------
        self.comb += [
            transport.send.connect(builder.sink),
            transport.to_builder.connect(builder.payload),
            Case(builder.plane, {
                **{i: builder.source.connect(plane.sink) for i, plane in enumerate(planes)},
                "default": builder.source.ready.eq(1)}),   # An entropy value of a plane that is not there.
            transport.own_ip.eq(self._own_ip.storage),
            transport.own_ip6.eq(self._own_ip6.storage),
            *[getattr(transport, f"dscp_{name}").eq(classes[name].storage) for name in ("control", "data", "trimmable")],
            transport.udp_port.eq(self._udp_port.storage),
            transport.planes_up.eq(self._planes_enable.storage & Cat(*[plane.link_up for plane in planes])),
            self._planes_up.status.eq(transport.planes_up),
            *[transport.own_macs[i].eq(register.storage) for i, register in enumerate(self._own_macs)],
        ]

        # Recovery -----------------------------------------------------------------------------------
        self.comb += [recovery.time.eq(transport.time), recovery.command.connect(transport.command)]
        for event in transport.events:
            self.comb += event.connect(recovery.add_event_source())

        # Driver -------------------------------------------------------------------------------------
        port   = transport.port
        state, send, acks = transport.status.reader(), transport.send_state.reader(), transport.ack_state.reader()
        started = Signal()      # The storage holds the command one cycle after the write.
        self.sync += started.eq(self._tables_command.re)
        self.comb += [
            port.row.eq(self._tables_row.storage),
            port.table.eq(self._tables_command.fields.table),
            port.index.eq(self._tables_command.fields.index),
            port.start.eq(started),
            self._tables_busy.fields.busy.eq(port.busy | started | self._tables_command.re),
            self._tables_refused.fields.code.eq(port.refused),
            *[reader.index.eq(self._qp_select.storage) for reader in (state, send, acks)],
            self._qp_state.status.eq(state.row.state),
            self._qp_error.status.eq(state.row.reason),
            self._qp_unacked.status.eq(acks.row.unacked),
            self._qp_next.status.eq(send.row.next_psn),
            self._alive.status.eq(recovery.alive),
            self._time.status.eq(transport.time),
        ]

        # Paths --------------------------------------------------------------------------------------
        row, counts = transport.paths.states.reader(), transport.paths.counts.reader()
        select, path = self._path_select.storage, self._path.fields
        low  = bit_of(self, row.row.low,  select[:config.ev_bits], "path_low")
        high = bit_of(self, row.row.high, select[:config.ev_bits], "path_high")
        self.comb += [
            row.index.eq(select[config.ev_bits:]),
            counts.index.eq(select),
            path.state.eq(Cat(low, high)),
            *[getattr(path, name).eq(getattr(counts.row, name)) for name in ("sent", "lost", "marked")],
        ]

        # Drops per queue pair and per page ----------------------------------------------------------
        for kind, banks, select in (("qp",   transport.queue_pair_drops, self._qp_select),
                                    ("page", [transport.token_drops],    self._page_select)):
            for bank in banks:
                reader = bank.reader()
                self.comb += reader.index.eq(select.storage)
                for name, description in bank.items.items():
                    register = CSRStatus(16, name=f"{kind}_count_{name}",
                        description=f"Of the {kind} selected: {description} Stays at 65535.")
                    setattr(self, f"_{kind}_count_{name}", register)
                    self.comb += register.status.eq(getattr(reader.row, name))

        # Counters -----------------------------------------------------------------------------------
        shown = dict(transport.counters())
        for name, text in (("read_errors", "PCIe reads that failed."), ("read_timeouts", "PCIe reads without an answer."),
                           ("unknown_completions", "Completions that no read waits for."),
                           ("bad_doorbells", "Stores to the doorbell window of another size or alignment than a token's."),
                           ("bus_timeouts", "BAR0 accesses that nothing answered.")):
            shown[name] = (getattr(host, name), text)
        shown["commands_refused"] = (recovery.commands_refused, "Commands of the firmware that were refused.")
        shown["events_taken"]     = (recovery.events_taken, "Events that the firmware took.")
        for i, receiver in enumerate(self.receivers):
            for name, text in (("good", "good packets"), ("bad_fcs", "frames with a bad FCS"), ("bad_icrc", "packets with a bad ICRC"),
                               ("bad_length", "packets with a bad length"), ("bad_header", "frames that are not RoCEv2 for this card"),
                               ("bad_opcode", "packets with an unknown opcode"),
                               ("endpoint", "endpoint requests and responses, refused"),
                               ("store_full", "packets without room for their headers"),
                               ("no_buffer", "good packets without room for their payload"),
                               ("trimmed", "packets that a switch has trimmed")):
                shown[f"plane{i}_{name}"] = (getattr(receiver, name), f"Received on plane {i}: {text}.")
        shown.update(counters.items)
        for name, (count, description) in shown.items():
            register = CSRStatus(32, name=f"count_{name}", description=description)
            setattr(self, f"_count_{name}", register)
            self.comb += register.status.eq(count)
