# SPDX-License-Identifier: BSD-2-Clause
"""A card without a card: the pads of the real one, so that the harness is tested by itself.

PCIe: 64 registers of 32 bits in BAR0. Writing n to register 63 sends registers 0 to n-1 as one raw TLP;
a store to the doorbell window is kept in registers 40 and 41 and counted in 42; completions are
counted in 48 (TLPs) and 49 (dwords of data), the last header is in 44 to 46. XGMII: what comes in on a
plane leaves on the same plane one cycle later. Console: an echo.
"""

import os

from litex.gen import LiteXModule
from migen import *
from migen.fhdl import verilog

DOORBELL, COMPLETIONS, COMPLETION_DWORDS, HEADER, GO = 40, 48, 49, 44, 63

def swap(x):
    return Cat(x[24:32], x[16:24], x[8:16], x[0:8])

class StandIn(LiteXModule):
    def __init__(self, config):
        self.width, self.planes = config.host_width, config.planes
        assert self.width == 128
        self.pads = {}
        def pad(name, width=1):
            s = Signal(width, name_override=name)
            self.pads[name] = s
            return s
        self.cd_sys = ClockDomain()
        self.pads.update(sys_clk=self.cd_sys.clk, sys_rst=self.cd_sys.rst)
        rx, tx = ({n: pad(f"pcie_{d}_{n}", w) for n, w in (("valid", 1), ("ready", 1), ("first", 1), ("last", 1), ("dat", 128), ("be", 16))}
            for d in ("rx", "tx"))
        source = {n: pad(f"serial_source_{n}", w) for n, w in (("valid", 1), ("ready", 1), ("data", 8))}
        sink   = {n: pad(f"serial_sink_{n}", w) for n, w in (("valid", 1), ("ready", 1), ("data", 8))}
        planes = [{n: pad(f"xgmii{i}_{n}", w) for n, w in (("rx_data", 64), ("rx_ctl", 8), ("tx_data", 64), ("tx_ctl", 8))}
            for i in range(self.planes)]

        # # #

        # Console and planes -----------------------------------------------------------------------
        self.comb += [source["valid"].eq(sink["valid"]), source["data"].eq(sink["data"]), sink["ready"].eq(source["ready"])]
        for p in planes:
            data, control = Signal(64, reset=0x0707070707070707), Signal(8, reset=0xff)
            self.sync += [data.eq(p["rx_data"]), control.eq(p["rx_ctl"])]
            self.comb += [p["tx_data"].eq(data), p["tx_ctl"].eq(control)]

        # Registers --------------------------------------------------------------------------------
        registers = Array([Signal(32, name_override=f"register{i}") for i in range(64)])
        lanes     = [rx["dat"][32*i:32*i + 32] for i in range(4)]
        kind      = Signal(8)
        in_packet = Signal()
        now_kind  = Signal(8)
        index     = Signal(6)   # Register of the next data dword.
        token     = Signal()
        is_token  = Signal()
        header    = Signal(128)
        send      = Signal(6)
        sent      = Signal(6)
        answer    = Signal()
        first     = Signal()
        self.comb += [
            first.eq(~in_packet),
            now_kind.eq(Mux(first, lanes[0][24:32], kind)),
            is_token.eq(Mux(first, lanes[2][17], token)),
            rx["ready"].eq(~answer & (send == 0)),
        ]
        taken = Signal()
        self.comb += taken.eq(rx["valid"] & rx["ready"])
        def put(at, value):
            return If(at == GO, send.eq(value), sent.eq(0)).Else(registers[at].eq(value))
        where = Signal(6)
        self.comb += where.eq(lanes[2][2:8])
        after = [Signal(6) for _ in range(4)]
        self.comb += [a.eq(index + i) for i, a in enumerate(after)]
        self.sync += If(taken,
            in_packet.eq(~rx["last"]),
            If(first,
                kind.eq(now_kind), token.eq(is_token), header.eq(rx["dat"]), index.eq(where + 1),
                If(now_kind == 0x00, answer.eq(1)),
                If(now_kind == 0x40,
                    If(is_token, registers[DOORBELL].eq(swap(lanes[3])), registers[DOORBELL + 2].eq(registers[DOORBELL + 2] + 1))
                    .Else(put(where, swap(lanes[3])))),
                If(now_kind[0:4] == 0xa,
                    *[registers[HEADER + i].eq(lanes[i]) for i in range(3)],
                    registers[COMPLETIONS].eq(registers[COMPLETIONS] + 1),
                    If(now_kind == 0x4a, registers[COMPLETION_DWORDS].eq(registers[COMPLETION_DWORDS] + lanes[0][:10]))),
            ).Elif(kind == 0x40,
                If(token, registers[DOORBELL + 1].eq(swap(lanes[0])))
                .Else(*[If(rx["be"][4*i], put(after[i], swap(lanes[i]))) for i in range(4)], index.eq(index + 4)),
            ))

        # Towards the host -------------------------------------------------------------------------
        left = Signal(6)
        at   = [Signal(6) for _ in range(4)]
        self.comb += [left.eq(send - sent), *[a.eq(sent + i) for i, a in enumerate(at)],
            If(send != 0,
                tx["valid"].eq(1), tx["first"].eq(sent == 0), tx["last"].eq(left <= 4),
                tx["dat"].eq(Cat(*[registers[a] for a in at])),
                tx["be"].eq(Cat(*[Replicate(left > i, 4) for i in range(4)])),
            ).Elif(answer,
                tx["valid"].eq(1), tx["first"].eq(1), tx["last"].eq(1), tx["be"].eq(0xffff),
                tx["dat"].eq(Cat(C(0x4a000001, 32), C(0x01000004, 32), C(0, 8), header[40:48], C(0, 16), swap(registers[header[66:72]]))))]
        self.sync += If(tx["valid"] & tx["ready"],
            If(send != 0, sent.eq(sent + 4), If(left <= 4, send.eq(0))).Else(answer.eq(0)))

    def write_verilog(self, folder):
        os.makedirs(os.path.join(folder, "gateware"))
        verilog.convert(self, set(self.pads.values()), name="card").write(os.path.join(folder, "gateware", "card.v"))
        return []
