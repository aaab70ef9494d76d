# SPDX-License-Identifier: BSD-2-Clause
"""The program behind scripts/simulate: moves bytes between simulated cards and reports.

Exit status 0: every byte matches and every flag came after its data; 1: the transfer went wrong; 2: it
could not be started. Whatever is wrong is one sentence on the error output.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import time

from gateware.config import ConfigError, preset

MEMORY = 64 << 20
MTUS   = (256, 512, 1024, 2048, 4096)
SOAK_OPTIONS = ("soak", "packets", "seed", "policy")
PAGES  = {"none": None, "4096": 4096, "65536": 65536, "2097152": 2 << 20}

class Refused(Exception):
    """Option values that cannot be; the text is for the user."""

class _Help(argparse.HelpFormatter):
    """Adds the default to each option that has one."""
    def _get_help_string(self, action):
        return action.help if action.default in (None, False, argparse.SUPPRESS) else f"{action.help} (default: %(default)s)"

class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"{message[0].upper()}{message[1:]}.")

def parser():
    """The options; README.md shows the same table."""
    p = _Parser(prog="scripts/simulate", formatter_class=_Help, allow_abbrev=False,
        description="Moves a file (or made-up bytes) between simulated RDMA cards over a fabric of many paths, compares and reports.")
    g = p.add_argument_group("what is moved")
    g.add_argument("--file", metavar="PATH", help="file to move from card 0 to card 1")
    g.add_argument("--out", metavar="PATH", help="where to write what arrived at card 1")
    g.add_argument("--size", metavar="N", type=int, default=1 << 20, help="bytes made from the seed when there is no file")
    g.add_argument("--message", metavar="BYTES", type=int, default=65536, help="bytes of one message")
    g.add_argument("--mtu", metavar="BYTES", type=int, default=4096, help="path MTU: 256, 512, 1024, 2048 or 4096")
    g.add_argument("--page-size", metavar="BYTES", default="none",
        help="the buffers lie in scattered pages of this size: 4096, 65536, 2097152; none: in one piece")
    g.add_argument("--queue-pairs", metavar="N", type=int, default=1, help="queue pairs of each flow")
    g = p.add_argument_group("who and over what")
    g.add_argument("--nodes", metavar="N", type=int, default=2, help="cards")
    g.add_argument("--pattern", choices=("pair", "ring"), default="pair", help="0 to 1, 2 to 3, ...; or each to the next")
    g.add_argument("--planes", metavar="N", type=int, default=1, help="Ethernet planes of 10 Gb/s, 1 to 4")
    g.add_argument("--paths", metavar="K", type=int, default=1, help="paths per plane")
    g.add_argument("--delay", metavar="NS", type=float, default=500, help="delay of a path")
    g.add_argument("--jitter", metavar="NS", type=float, default=0, help="up to this much more, drawn for each frame; it reorders")
    g.add_argument("--ipv6", action="store_true", help="the cards talk IPv6 (default: IPv4)")
    g = p.add_argument_group("what goes wrong, as probabilities per frame")
    g.add_argument("--loss", metavar="P", type=float, default=0.0, help="frame is lost")
    g.add_argument("--duplicate", metavar="P", type=float, default=0.0, help="frame arrives twice")
    g.add_argument("--corrupt", metavar="P", type=float, default=0.0, help="bits flip; half of the time with a repaired FCS")
    g.add_argument("--trim", metavar="P", type=float, default=0.0, help="a switch cuts off a data frame's payload")
    g.add_argument("--mark", metavar="P", type=float, default=0.0, help="a switch marks a data frame as having met congestion")
    g = p.add_argument_group("how")
    g.add_argument("--seed", metavar="S", type=int, default=1, help="everything random follows from it")
    g.add_argument("--policy", metavar="FILE", help="recovery policy to load at start-up (default: mrc)")
    g.add_argument("--soak", action="store_true", help="instead: many packets of all kinds through a bad network, checked in rounds")
    g.add_argument("--packets", metavar="N", type=int, default=1_000_000, help="data packets of the soak; a second call goes on")
    g = p.add_argument_group("what is written")
    g.add_argument("--counters", action="store_true",
        help="show the counters of every card that are not zero, its paths, and what it dropped per queue pair and page")
    g.add_argument("--json", metavar="PATH", help="the report as JSON")
    g.add_argument("--pcap", metavar="PATH", help="frames at every MAC as pcapng")
    g.add_argument("--trace", metavar="PATH", help="waveform (FST), one file per card: PATH with .card0, .card1, ... in its name")
    g.add_argument("--console", action="store_true", help="show what the firmware prints")
    return p

def check(o):
    """Refuses impossible values, before anything is built or written."""
    def refuse(condition, sentence):
        if condition:
            raise Refused(sentence)
    if o.soak:
        given = [name for name in vars(o) if name not in SOAK_OPTIONS and getattr(o, name) != parser().get_default(name)]
        refuse(given, "--soak has a mix of its own: it takes --packets, --seed and --policy, not "
                      f"--{''.join(given[:1]).replace('_', '-')}.")
    for name in ("loss", "duplicate", "corrupt", "trim", "mark"):
        refuse(not 0 <= getattr(o, name) <= 1, f"--{name} is {getattr(o, name)}, but a probability is between 0 and 1.")
    for name, high in (("delay", 1e6), ("jitter", 1e6)):
        refuse(not 0 <= getattr(o, name) <= high, f"--{name} is {getattr(o, name)} ns, but it must be between 0 and {high:.0f}.")
    config = preset("sim")
    for name, low, high in (("planes", 1, 4), ("paths", 1, 64), ("queue_pairs", 1, config.pages), ("nodes", 2, config.peers),
                            ("message", 1, (1 << 24) - 1), ("size", 0, MEMORY), ("packets", 1, 10**9),
                            ("seed", 0, (1 << 64) - 1)):
        value = getattr(o, name)
        refuse(not low <= value <= high, f"--{name.replace('_', '-')} is {value}, but it must be between {low} and {high}.")
    refuse(o.mtu not in MTUS, f"--mtu is {o.mtu}, but a path MTU is {', '.join(str(m) for m in MTUS[:-1])} or {MTUS[-1]} bytes.")
    refuse(o.pattern == "pair" and o.nodes % 2, f"--pattern pair needs an even number of cards, not {o.nodes}.")
    size = o.size
    if o.file is not None:
        refuse(not os.path.exists(o.file), f"The file {o.file} does not exist.")
        refuse(os.path.isdir(o.file), f"{o.file} is a folder; --file takes a file.")
        refuse(not os.access(o.file, os.R_OK), f"The file {o.file} cannot be read.")
        size = os.path.getsize(o.file)
    buffers = 2 if o.pattern == "ring" else 1
    room    = (MEMORY - (1 << 20))//buffers
    refuse(o.page_size not in PAGES, f"--page-size is {o.page_size}, but it is {', '.join(list(PAGES)[1:])} or none.")
    page = PAGES[o.page_size]
    if page:              # With a page more than the bytes fill, and an eighth of the pages left empty between them.
        room = min((config.translations//buffers - 1)*page, (room//page - 2)*8//9*page)
    refuse(size > room, f"{size} bytes do not fit: a card's memory takes {room} bytes here.")
    refuse(o.policy is not None and not os.path.isfile(o.policy), f"The policy {o.policy} does not exist.")
    for name in ("out", "json", "pcap", "trace"):
        path = getattr(o, name)
        if path is not None:
            folder = os.path.dirname(os.path.abspath(path))
            refuse(not os.path.isdir(folder), f"--{name}: the folder {folder} does not exist.")
            refuse(os.path.isdir(path), f"--{name}: {path} is a folder.")
            refuse(not os.access(path if os.path.exists(path) else folder, os.W_OK), f"--{name}: {path} cannot be written.")

# Running ------------------------------------------------------------------------------------------

@contextlib.contextmanager
def progress(total):
    """A function to call with the number of bytes that have arrived; a bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, cycle: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[cycle]:,} cycles"),
            TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("moving", total=max(total, 1), cycle=0)
        def update(done, cycle):
            bar.update(task, completed=done if total else min(done, 1), cycle=cycle)
        yield update

def say(line):
    print(line, file=sys.stderr, flush=True)

class Printer:
    """Prints what the firmware of each card says, whole lines."""
    def __init__(self):
        self.open = {}

    def __call__(self, node, part):
        *lines, self.open[node] = (self.open.get(node, "") + part.replace("\r", "")).split("\n")
        for line in lines:
            print(f"[card {node}] {line}", flush=True)

def payloads(o):
    """Function flow number -> bytes."""
    if o.file is not None:
        with open(o.file, "rb") as f:
            data = f.read()
        return lambda flow: data
    return lambda flow: random.Random(f"{o.seed} bytes {flow}").randbytes(o.size)

def run(o):
    """Builds, moves, reports; returns the exit status."""
    from soc.sim.capture import Capture
    from soc.sim.cluster import Cluster, SimulationError
    from soc.sim.report import counters_text, drops_text, figures, paths_text, text
    from soc.sim.transfer import Transfer
    payload = payloads(o)
    capture = Capture(o.pcap) if o.pcap else None
    printer = Printer() if o.console else None
    begin   = time.monotonic()
    cluster = Cluster(nodes=o.nodes, config=preset("sim", planes=o.planes), paths=o.paths, loss=o.loss, duplicate=o.duplicate,
        corrupt=o.corrupt, trim=o.trim, mark=o.mark, delay=o.delay, jitter=o.jitter, seed=o.seed, ipv6=o.ipv6, policy=o.policy,
        memory=MEMORY, capture=capture, trace=o.trace, console=printer, say=say)
    begin_cycles, begin_run = cluster.cycle, time.monotonic()
    stopped = None
    try:
        transfer = Transfer(cluster, payload, which=o.pattern, message=o.message, mtu=o.mtu, queue_pairs=o.queue_pairs,
            page_size=PAGES[o.page_size])
        with progress(sum(len(f.data) for f in transfer.flows)) as update:
            try:
                transfer.run(each=lambda t: update(t.bytes_signalled, cluster.cycle))
            except SimulationError as e:
                stopped = str(e)
        spent  = time.monotonic() - begin_run
        result = figures(transfer, os.path.basename(o.policy) if o.policy else "mrc", stopped)
        result["wall"] = {"seconds": round(time.monotonic() - begin, 3),
            "cycles_per_second": round((transfer.end - begin_cycles)/spent) if spent else 0}
        if o.counters:
            result["paths"] = [] if stopped else [n.paths() for n in cluster.nodes]
            result["drops"] = [] if stopped else [n.drops() for n in cluster.nodes]
        if o.out:
            with open(o.out, "wb") as f:
                f.write(transfer.arrived(transfer.flows[0]).tobytes())
    finally:
        cluster.close()
    if o.json:
        with open(o.json, "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")
    print("\n".join(text(result)))
    if o.counters:
        print("\n".join(counters_text(result["counters"], cluster.model.descriptions) + paths_text(result["paths"])
            + drops_text(result["drops"])))
    for problem in result["problems"]:
        say(problem)
    return 0 if result["ok"] else 1

def run_soak(o):
    """Runs the soak; returns the exit status."""
    from soc.sim.soak import Mix, soak, text
    rounds, problems = soak(o.packets, o.seed, Mix(policy=o.policy or "mrc"), say=say)
    print("\n".join(text(rounds)))
    for problem in problems:
        say(problem)
    return 1 if problems else 0

def main(arguments=None):
    try:
        options = parser().parse_args(arguments)
        check(options)
        return run_soak(options) if options.soak else run(options)
    except (Refused, ConfigError) as e:
        say(f"simulate: {e}")
        return 2
    except KeyboardInterrupt:
        say("simulate: interrupted.")
        return 130
    except (RuntimeError, OSError, ValueError, MemoryError) as e:
        say(f"simulate: {e}")
        return 2

if __name__ == "__main__":
    sys.exit(main())
