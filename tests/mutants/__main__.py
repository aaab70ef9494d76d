# SPDX-License-Identifier: BSD-2-Clause
"""The program behind scripts/mutants: plants faults into the card, one at a time, and runs the tests.

Exit status 0: every fault was noticed. 1: one was not, or its tests could not judge it. 2: nothing was
run, with a sentence that says why.
"""

import argparse
import concurrent.futures
import contextlib
import os
import queue
import sys

from tests.mutants import MUTANTS
from tests.mutants import run as runs
from tests.mutants.mutant import Mutant, Sources
from tests.repo import style

RESULTS = os.path.join(style.ROOT, "build", "mutants.json")
CONTROL = "no fault: "       # Before the name of a test that runs on the tree as it is: it must pass.

class Refused(Exception):
    """What cannot be run; the text is for the user."""

class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"{message[0].upper()}{message[1:]}.")

def parser():
    p = _Parser(prog="scripts/mutants", allow_abbrev=False,
        description="Plants faults into copies of the tree, one at a time, and runs the tests that must notice them.",
        epilog=f"Results are kept in {os.path.relpath(RESULTS, style.ROOT)}: only what changed since is run again.")
    p.add_argument("--list", action="store_true", help="show the mutants and their tests, run nothing")
    p.add_argument("--only", metavar="NAME", action="append", help="only this mutant; may be given more than once")
    p.add_argument("--again", action="store_true", help="run those with a kept result, too")
    p.add_argument("-j", metavar="N", dest="jobs", type=int, default=1, help="mutants at a time (default: 1)")
    return p

def chosen(only):
    """The mutants of these names, all without any."""
    known   = {m.name: m for m in MUTANTS}
    unknown = [n for n in only or () if n not in known]
    if unknown:
        raise Refused(f"There is no mutant {unknown[0]}; --list shows all.")
    return [known[n] for n in dict.fromkeys(only)] if only else list(MUTANTS)

def check(mutants):
    """Each mutant fits its file, before anything is run."""
    for m in mutants:
        try:
            m.apply(style.read(m.file))
        except (ValueError, OSError) as error:
            raise Refused(str(error)) from None

def show_list(mutants):
    from rich.console import Console
    from rich.table import Table
    table = Table("mutant", "file", "tests", box=None, padding=(0, 2, 0, 0))
    for m in mutants:
        table.add_row(m.name, m.file, "\n".join(m.tests))
    Console(width=None if sys.stdout.isatty() else 200).print(table)

def execute(mutants, jobs, again):
    """{name: Result}, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    store, texts = runs.Store(RESULTS), Sources.of_the_tree()
    controls = [Mutant(CONTROL + t, "", "", "", (t,)) for t in dict.fromkeys(t for m in mutants for t in m.tests)]
    work     = [(m, m if m.file else None, m.key(texts)) for m in (*mutants, *controls)]
    results = {}
    console = Console(stderr=True)
    progress = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), refresh_per_second=2,
        console=console, disable=not console.is_terminal)
    with contextlib.ExitStack() as stack, progress:
        task   = progress.add_task("mutants", total=len(work))
        copies = queue.SimpleQueue()
        for _ in range(jobs):
            copies.put(stack.enter_context(runs.tree_copy()))
        def one(mutant, planted, key):
            kept = None if again else store.get(key)
            if kept:
                return key, kept
            folder = copies.get()
            try:
                return key, runs.run(folder, planted, name=mutant.name, tests=mutant.tests)
            finally:
                copies.put(folder)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            pending = [pool.submit(one, *item) for item in work]
            try:
                for future in concurrent.futures.as_completed(pending):
                    key, result = future.result()
                    if result.verdict != runs.BROKEN:      # Perhaps the machine's fault: not kept.
                        store.put(key, result)
                    results[result.name] = result
                    progress.update(task, advance=1, description=result.name)
                    if not console.is_terminal:
                        console.print(f"{result.verdict:9}{result.seconds:7.1f} s  {result.name}", highlight=False)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise Refused("Stopped; the next call goes on from here.") from None
    return results

def report(results, mutants):
    """Prints the table; returns how many mutants were not caught, and how many tests fail without a fault."""
    from rich.console import Console
    from rich.table import Table
    table = Table("mutant", "verdict", "seconds", "by", box=None, padding=(0, 2, 0, 0))
    bad   = 0
    for name, result in results.items():
        if name.startswith(CONTROL) and result.verdict != runs.SURVIVED:
            bad += 1
            table.add_row(name, "[red]fails", f"{result.seconds:.1f}", result.text)
    for name in [m.name for m in mutants]:
        result = results[name]
        good   = result.verdict == runs.CAUGHT
        bad   += not good
        table.add_row(name, f"[{'green' if good else 'red'}]{result.verdict}", f"{result.seconds:.1f}", result.text)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    caught = sum(results[m.name].verdict == runs.CAUGHT for m in mutants)
    count = sum(name.startswith(CONTROL) for name in results)
    print(f"{caught} of {len(mutants)} mutants caught; {count} tests ran without a fault. {bad or 'Nothing'} is not as it should be.")
    return bad

def main(arguments=None):
    try:
        options = parser().parse_args(arguments)
        if options.jobs < 1:
            raise Refused(f"-j is {options.jobs}, but at least one mutant runs at a time.")
        mutants = chosen(options.only)
        if options.list:
            show_list(mutants)
            return 0
        check(mutants)
        return 1 if report(execute(mutants, options.jobs, options.again), mutants) else 0
    except Refused as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2

if __name__ == "__main__":
    sys.exit(main())
