# SPDX-License-Identifier: BSD-2-Clause
"""The soak: round after round (soc/sim/soak_round.py) until enough packets have gone, with a record on disk.

The record is a JSON file, written after each round: the mix, a line per round, the sums. A second call with
the same name goes on behind the last round; one with another mix is refused, since the sums would mean nothing.
Over all rounds, resends of packets that had arrived may be 1 % of the packets that were lost.
"""

import contextlib
import json
import os
import sys
from dataclasses import asdict

from soc.sim.soak_round import Mix, run_round

VERSION = 1
FOLDER  = os.path.join("build", "soak")
THRIFT  = 0.01          # Spurious resends per packet lost.
FEW     = 3             # That many are allowed in a short run.

class SoakError(RuntimeError):
    """The record cannot be used; a sentence."""

# Record -------------------------------------------------------------------------------------------

class Record:
    """The JSON file of a soak."""
    def __init__(self, path, seed, mix):
        self.path   = path
        self.values = {"version": VERSION, "seed": seed, "mix": asdict(mix), "rounds": []}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                found = json.load(f)
            for key in ("version", "seed", "mix"):
                if found.get(key) != self.values[key]:
                    raise SoakError(f"{path} is the record of another soak ({key} is {found.get(key)}, not {self.values[key]}); "
                                     "remove it or choose another seed.")
            self.values = found

    rounds = property(lambda self: self.values["rounds"])

    def add(self, line):
        self.rounds.append(line)
        self.values["total"] = total(self.rounds)
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.values, f, indent=1)
            f.write("\n")
        os.replace(self.path + ".new", self.path)

def total(rounds):
    """Sums over the rounds."""
    out = {key: sum(r[key] for r in rounds) for key in ("packets", "bytes", "messages", "cycles", "timeouts", "unexplained",
        "flags_early", "wrong_bytes", "wall")}
    out["data"]    = {key: sum(r["data"][key] for r in rounds) for key in (rounds[0]["data"] if rounds else ())}
    out["control"] = {key: sum(r["control"][key] for r in rounds) for key in (rounds[0]["control"] if rounds else ())}
    out["stalls"]  = {}
    for r in rounds:
        for why, count in r["stalls"].items():
            out["stalls"][why] = out["stalls"].get(why, 0) + count
    out["rounds"]  = len(rounds)
    return out

def lost(data):
    """Data packets that did not arrive whole."""
    return data["lost"] + data["corrupted"] + data["trimmed"]

def verdict(rounds):
    """Sentences: what is wrong with the rounds so far."""
    problems = [f"Round {i} (seed {r['seed']}): {p}" for i, r in enumerate(rounds) for p in r["problems"]]
    if rounds:
        d = total(rounds)["data"]
        if d["spurious"] > max(FEW, THRIFT*lost(d)):
            problems.append(f"{d['spurious']} packets were resent that had arrived, more than {THRIFT:.0%} of the {lost(d)} lost ones.")
    return problems

def text(rounds):
    """Lines of the report."""
    t = total(rounds)
    d, c = t["data"], t["control"]
    share = 100*d["spurious"]/max(1, lost(d))
    rows = [
        ("rounds", f"{t['rounds']}, {t['cycles']:,} cycles, {t['wall']:,.0f} s"),
        ("bytes", f"{t['bytes']:,} in {t['messages']:,} messages; {t['wrong_bytes']} wrong, {t['flags_early']} flags before their data"),
        ("data packets", "{sent:,} sent, {lost:,} lost, {corrupted:,} corrupted, {trimmed:,} trimmed, {marked:,} marked, "
            "{duplicated:,} duplicated, {reordered:,} reordered".format(**d)),
        ("resends", f"{d['resent']:,}, of which {d['spurious']:,} spurious ({share:.2f} % of the packets lost)"),
        ("control packets", "{sent:,} sent, {lost:,} lost, {corrupted:,} corrupted".format(**c)),
        ("timeouts", f"{t['timeouts']:,}, {t['unexplained']:,} unexplained; stalls: "
            + (", ".join(f"{why} {n:,}" for why, n in sorted(t["stalls"].items())) or "none")),
    ]
    return [f"{name:<16} {value}" for name, value in rows]

# Run ----------------------------------------------------------------------------------------------

@contextlib.contextmanager
def progress(goal):
    """A function to call with (packets done, rounds done); a bar on a terminal, else a line per round."""
    if not sys.stderr.isatty():
        seen = [-1]
        def line(done, rounds):
            if rounds != seen[0]:
                seen[0] = rounds
                print(f"soak: {done:,} of {goal:,} data packets, {rounds} rounds", file=sys.stderr, flush=True)
        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rounds]} rounds"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("packets", total=goal, rounds=0)
        yield lambda done, rounds: bar.update(task, completed=min(done, goal), rounds=rounds)

def soak(packets, seed, mix=None, folder=FOLDER, say=lambda line: None):
    """Runs rounds until `packets` data packets have been sent; returns (rounds, sentences about what is wrong)."""
    mix    = mix or Mix()
    record = Record(os.path.join(folder, f"seed-{seed}.json"), seed, mix)
    with progress(packets) as update:
        done = sum(r["packets"] for r in record.rounds)
        update(done, len(record.rounds))
        while done < packets:
            number = len(record.rounds)
            # Frames delivered stand for packets within a round: about a third of them are answers.
            record.add(run_round(mix, seed*1_000_003 + number, say, lambda frames, done=done, n=number: update(done + 2*frames//3, n)))
            done += record.rounds[-1]["packets"]
            update(done, len(record.rounds))
            if record.rounds[-1]["packets"] == 0:
                break                             # Nothing moves: more rounds would not, either.
    return record.rounds, verdict(record.rounds)
