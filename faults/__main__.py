"""Do the thirty faults to real processes, print what was seen, and write it as a page."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from faults import every_case
from faults.case import Result, tried
from faults.page import page
from faults.room import Lab


def main() -> int:
    """Run the cases that were asked for; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat the choices of an earlier run")
    parser.add_argument("--only", help="numbers of cases, such as 3,12 or 1-9")
    parser.add_argument("--fast", action="store_true", help="the cases of `make test`, and fewer kills in the soak")
    parser.add_argument("--report", type=Path, help="write a page, such as faults.html")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this folder and leave it as it is")
    asked = parser.parse_args()
    cases = every_case()
    numbers = chosen(asked.only) if asked.only else [n for n in sorted(cases) if cases[n].fast or not asked.fast]
    seed = asked.seed if asked.seed is not None else secrets.randbelow(10**6)
    console = Console()
    console.print(f"seed {seed}", highlight=False)
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="penstock-faults-"))
    lab = Lab(seed, folder.resolve(), fast=asked.fast)
    results: list[Result] = []
    try:
        for number in numbers:
            one = cases[number]
            console.print(Text(f"{number:>2} {one.fault} ..."), soft_wrap=True)
            room = lab.room(number, lambda told: console.print(Text(f"     {told}", "dim"), soft_wrap=True))
            results.append(tried(one, room))
            console.print(Text(f"   {outcome(results[-1])}", "green" if results[-1].passed else "red"), soft_wrap=True)
            if results[-1].passed and not asked.keep:
                shutil.rmtree(room.folder, ignore_errors=True)
    finally:
        if asked.report and results:
            asked.report.write_text(page(results, seed))
    console.print(drawn(results))
    failed = [r.case.number for r in results if not r.passed]
    if failed:
        told = f"{len(failed)} of {len(results)} failed: {', '.join(map(str, failed))}; seed {seed}, files in {folder}"
        console.print(Text(told, "red"), soft_wrap=True)
        return 1
    console.print(f"all {len(results)} passed; seed {seed}", highlight=False)
    if not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def chosen(text: str) -> list[int]:
    """The numbers that a text names.

    >>> chosen("3,12,20-22")
    [3, 12, 20, 21, 22]
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def outcome(result: Result) -> str:
    """How a case ended, in a line."""
    if result.passed:
        return f"passed in {result.seconds:.0f} s"
    return f"FAILED in {result.seconds:.0f} s: {result.failure}\n{result.trace}"


def drawn(results: list[Result]) -> Table:
    """All cases as a table for a terminal."""
    table = Table("#", "fault", "result", "seconds", "restart to first commit", title="faults")
    for result in results:
        first = ", ".join(v for n, v in result.evidence if n.startswith("restart to first commit"))
        passed = Text("passed", "green") if result.passed else Text("failed", "red")
        table.add_row(str(result.case.number), result.case.fault, passed, f"{result.seconds:.0f}", first)
    return table


if __name__ == "__main__":
    sys.exit(main())
