# SPDX-License-Identifier: BSD-2-Clause
"""A cluster: N cards in one process, in lock step, on a fabric of planes and paths.

    cluster = Cluster(nodes=2, planes=1, loss=0.01, seed=7)
    a, b    = cluster.nodes
    qp      = cluster.connect(a, b)

Everything is deterministic for a seed. Time is cycles of the card's clock (`cluster.cycle`) or ns.
See docs/simulation.md for a complete example.
"""

import random
import time

from gateware.common import tables as T
from gateware.config import preset
from soc.sim.driver import NO_PAGE, DriverError, QueuePair
from soc.sim.fabric import Fabric
from soc.sim.library import HostOptions, Library, SimOptions
from soc.sim.model import CARD, card_model
from soc.sim.node import Node

BANNER = "openrdma recovery firmware"

class SimulationError(RuntimeError):
    """The simulation ended without a result: a limit, or a card that broke a rule. A sentence."""

class Cluster:
    """N cards, their hosts and the fabric.

    Times are in ns, `loss`, `duplicate`, `corrupt`, `trim` and `mark` are probabilities per frame. Hosts answer reads
    after `read_latency` plus up to `read_jitter`, in completions that end at multiples of
    `completion_bytes` (64, 128, 256), in order of the tags unless `reorder`; `stall` is the probability
    per cycle that the link stands still. `policy` is a file for the recovery firmware. `say` is called
    with lines of progress, `console` with (node, text) of what firmware prints.
    `ipv6`: cards talk IPv6 to each other, unless `connect` says otherwise.
    """
    def __init__(self, nodes=2, config=None, planes=1, paths=1, loss=0.0, duplicate=0.0, corrupt=0.0, trim=0.0, mark=0.0, delay=500,
            jitter=0, seed=1, ipv6=False, policy=None, memory=64 << 20, memory_base=0xa0_0000_0000, bar0=0xd000_0000, read_latency=500,
            read_jitter=0, completion_bytes=256, reorder=False, stall=0.0, capture=None, trace=None, console=None, firmware=True,
            card=CARD, say=lambda text: None):
        self.config = config = preset("sim", planes=planes) if config is None else config
        self.seed, self.memory_base, self.memory_size, self.ipv6 = seed, memory_base, memory, ipv6
        self.random  = random.Random(f"{seed} cluster")
        self.on_console, self.capture = console, capture
        self.model   = card_model(config, trace=trace is not None, card=card, say=say)
        image        = self._image(policy, say) if firmware else None
        host = HostOptions(memory_base, memory, bar0, self.cycles(read_latency), self.cycles(read_jitter), completion_bytes,
            config.max_payload, config.max_request, int(reorder), stall)
        self.sim = Library(self.model.library, SimOptions(nodes, paths, seed, self.cycles(delay), self.cycles(jitter), loss, duplicate,
            corrupt, trim, mark, T.BAR0_DOORBELL, int(capture is not None), host), self.model.gateware)
        self.planes, self.paths, self.delay, self.jitter = self.model.planes, paths, delay, jitter
        self.fabric  = Fabric(self)
        self.nodes   = [Node(self, i) for i in range(nodes)]
        self._peers  = {}
        if capture is not None:
            capture.open(self)
        if trace is not None:
            self._open_traces(trace)
        for level in (1, 0):
            self.sim.reset(level)
            self.step(20)
        if firmware:
            self._start(image)

    # Start ----------------------------------------------------------------------------------------

    def _image(self, policy, say):
        from firmware.build import build_image
        say("building the firmware ...")
        return build_image(policy, self.model.folder, self.model.folder + "-firmware")

    def _open_traces(self, path):
        stem, dot, suffix = str(path).rpartition(".")
        for n in self.nodes:
            name = f"{stem}.card{n.index}.{suffix}" if dot else f"{path}.card{n.index}.fst"
            if not self.sim.trace(n.index, name.encode()):
                raise SimulationError(f"The waveform {name} cannot be written.")

    def _start(self, image):
        """Loads the firmware of all cards at once, names the cards and waits for the firmware's greeting."""
        for n in self.nodes:
            n.load_firmware(image)
        self.nodes[0].settle(limit=2_000_000)
        for n in self.nodes:
            n.release_core()
        for n in self.nodes:
            macs = [0x02_00_00_00_00_00 | (n.index + 1) << 8 | plane for plane in range(4)]
            for plane in range(self.planes):
                self.sim.mac(plane, macs[plane], n.index)
            n.start(ip=0x0a00_0001 + n.index, ip6=0xfd00 << 112 | 1 + n.index, macs=macs)
        for _ in range(200):
            if all(BANNER in n.console for n in self.nodes):
                return
            self.step(2000)
        silent = next(n for n in self.nodes if BANNER not in n.console)
        raise SimulationError(f"The firmware of card {silent.index} did not greet within {self.cycle} cycles; "
                              f"it printed {silent.console[-80:]!r}.")

    # Time -----------------------------------------------------------------------------------------

    cycle = property(lambda self: self.sim.now())
    def cycles(self, ns):   return round(ns*self.config.clk_freq*1e-9)
    def seconds(self, cycles): return cycles/self.config.clk_freq

    def step(self, cycles, stop=0):
        """Runs `cycles`; less if a card breaks a rule (`stop` 1) or if everything posted has arrived (2)."""
        self.sim.step(cycles, stop)
        for n in self.nodes:
            text = self.sim.console_text(n.index)
            if text:
                n.console += text
                if self.on_console:
                    self.on_console(n.index, text)
        if self.capture is not None:
            self.capture.drain()
        return self.cycle

    def run(self, limit=20_000_000, wall=900.0, stall=1_000_000, quantum=5000, each=None):
        """Runs until every token is posted and every flag has its target, or `each()` returns True.

        `limit`: cycles in all; `stall`: cycles without any new flag or frame; `wall`: seconds.
        """
        return self.run_until(lambda: not (self.sim.count(2) or self.sim.count(3)), limit, wall, stall, quantum, each, stop=2)

    def poll(self, signal, value, **limits):
        """Runs until the signal's flag has reached `value`."""
        signal.target(value)
        return self.run(**limits)

    def run_until(self, condition, limit=20_000_000, wall=900.0, stall=1_000_000, quantum=1000, each=None, stop=1):
        """Runs until `condition()`, looked at every `quantum` cycles."""
        start, begin = self.cycle, time.monotonic()
        progress, moved = None, start
        while not condition():
            self.step(quantum, stop)
            if self.sim.count(0):
                raise SimulationError("A card broke a rule: " + self.sim.sentences(0)[0])
            if each is not None and each():
                break
            now = (self.sim.count(6), self.sim.count(8), self.sim.count(3))
            if now != progress:
                progress, moved = now, self.cycle
            for reached, what in ((self.cycle - start > limit, f"{limit} cycles"),
                                  (time.monotonic() - begin > wall, f"{wall:.0f} s of wall time"),
                                  (self.cycle - moved > stall, f"{stall} cycles without progress")):
                if reached:
                    raise SimulationError(f"The simulation stopped after {what}: {self.waiting()}.")
        return self.cycle

    def waiting(self):
        """What waits for what, in words."""
        credits = []
        for n in self.nodes:
            for p in n.pages:
                posted, credit = self.sim.posted(n.index, p.handle), n.credit(p)
                if credit["completed"] != posted:
                    credits.append(f"page {p.number} of card {n.index} has {posted} tokens posted, "
                                   "{consumed} consumed, {completed} completed".format(**credit))
        return (f"{self.sim.count(2)} flags are below their target, {self.sim.count(3)} tokens are not posted, "
                f"{self.sim.count(4)} frames are in the fabric, {self.sim.count(9)} reads at the hosts"
                + ("; " + "; ".join(credits[:4]) if credits else ""))

    # Connections ----------------------------------------------------------------------------------

    def entropy_values(self, count):
        """UDP source ports: distinct, from a random one on."""
        first = self.random.randrange(0xc000, 0x10000 - count)
        return list(range(first, first + count))

    def _meet(self, a, b, evs, ipv6):
        """Row of `b` in the peer table of `a`; a second one, from the end, if they talk both IPv4 and IPv6."""
        known = self._peers.setdefault((a.index, b.index), {})
        if ipv6 not in known:
            number = b.index if not known else self.config.peers - 1 - b.index
            if known and number < len(self.nodes):
                raise DriverError(f"Card {a.index} has {self.config.peers} peers, they are in use.")
            known[ipv6] = number
            a.peer(number, b.ip6 if ipv6 else b.ip, b.macs, self.entropy_values(evs), ipv6)
        return known[ipv6]

    def connect(self, a, b, mtu=4096, evs=None, sack_trigger=None, timeout=None, guard_time=None, guard_packets=3, p_key=0xffff,
            psns=None, ipv6=None, pages=(None, None), cwnd=0, mpr=None):
        """A queue pair between two nodes, ready to send both ways. Times in ticks of 128 ns; `psns`: first PSNs of a and b;
        `ipv6`: else as the cluster; `pages`: the page of each whose error word hears of the queue pair's errors;
        `cwnd`: first congestion window in bytes, 0 = no limit; `mpr`: both windows in packets, a multiple of 128, else the card's."""
        sizes = [256 << i for i in range(5)]
        if mtu not in sizes or mtu > self.config.max_mtu:
            known = ", ".join(str(s) for s in sizes if s <= self.config.max_mtu)
            raise DriverError(f"The path MTU is {mtu}, but this card has {known}.")
        evs = min(self.config.evs, 64) if evs is None else evs
        ipv6 = self.ipv6 if ipv6 is None else bool(ipv6)
        peers = {a.index: self._meet(a, b, evs, ipv6), b.index: self._meet(b, a, evs, ipv6)}
        if timeout is None:
            timeout = round((32_000 + 4*(2*self.delay + self.jitter))/128)
        if guard_time is None:
            guard_time = min(0xffff, round((10_000 + 2*self.delay)/128))
        qp, psn, writers = QueuePair(mtu=mtu), {}, {}
        for n, page in zip((a, b), pages, strict=True):
            qp.index[n.index], generation, writers[n.index] = n.queue_pair(state=T.QpState.RTS, mtu=sizes.index(mtu),
                p_key=p_key, sack_trigger=sack_trigger or max(4*mtu, 4096), timeout=timeout, guard_time=guard_time,
                guard_packets=guard_packets, mpr=(mpr or self.config.mpr)//128, mpr_dest=(mpr or self.config.mpr)//128,
                max_wimm_dest=self.config.max_wimm, cwnd=-(-cwnd//256), page=NO_PAGE if page is None else page.number)
            qp.qpn[n.index] = generation << 16 | qp.index[n.index]
            psn[n.index]    = n.random.randrange(1 << 24)
        if psns is not None:
            psn = {a.index: psns[0], b.index: psns[1]}
        for n, far in ((a, b), (b, a)):
            qp.rows[n.index] = writers[n.index](remote_qp=qp.qpn[far.index], peer=peers[n.index], send_psn=psn[n.index],
                receive_psn=psn[far.index])
        return qp

    def disconnect(self, qp):
        """Resets both ends: every token of theirs gets its credit, and `reconnect` gives them another life."""
        for n, index in qp.index.items():
            self.nodes[n].modify(index, T.QpState.RESET)

    def reconnect(self, qp, psns=None):
        """The next life of both ends: the same attributes, another generation, other first PSNs."""
        a, b = qp.index
        psn  = [self.nodes[n].random.randrange(1 << 24) for n in (a, b)] if psns is None else psns
        for n in (a, b):
            qp.rows[n]["generation"] = qp.rows[n]["generation"] % 255 + 1
            qp.qpn[n] = qp.rows[n]["generation"] << 16 | qp.index[n]
        for n, far, send, receive in ((a, b, *psn), (b, a, *reversed(psn))):
            qp.rows[n].update(remote_qp=qp.qpn[far], send_psn=send, receive_psn=receive)
            self.nodes[n].modify(qp.index[n], **qp.rows[n])

    def release(self, qp):
        """Resets both ends for good: their indices are free."""
        for n, index in qp.index.items():
            self.nodes[n].release_queue_pair(index)

    def queue_pair_errors(self):
        """[(node, queue pair, reason)] of the queue pairs in ERROR, as the cards' registers say."""
        found = []
        for n in self.nodes:
            for index in range(n._used.get("queue pairs", 0)):
                state = n.queue_pair_state(index)
                if state["state"] == T.QpState.ERROR:
                    found.append((n.index, index, state["error"]))
        return found

    def close(self):
        """Ends the simulation; memory views are void after it."""
        if self.capture is not None:
            self.capture.drain()
            self.capture.close()
        for n in self.nodes:
            n.memory = None
        self.sim.close()
