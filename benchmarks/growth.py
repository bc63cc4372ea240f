"""How the seconds of a batch grow: with its rows, and with the rows of state that are there already."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.case import Case
from benchmarks.cases import FEW, windowed
from benchmarks.data import BEGIN_US, SECOND_US, distinct, events
from benchmarks.live import live
from benchmarks.sides import Ours, Side, tuned
from benchmarks.table import spread

ROWS = (1, 1_000, 10_000, 100_000, 1_000_000)
STATE = (10_000, 100_000, 1_000_000, 10_000_000)
KEYS = 2_000
SMALLEST_GOAL = 0.4
ROWS_HEADER = ("rows of a batch", "ours s", "tuned s", "tuned / ours", "goal", "")
STATE_HEADER = ("rows of state", "ours s", "tuned s", "tuned / ours")


def by_rows(spark: SparkSession, folder: Path, runs: int, most: int) -> list[list[str]]:
    """Batches of a tumbling window of 10 s, each as long in time as the others."""
    sizes = [rows for rows in ROWS if rows <= most]

    def pushed(side: Side) -> list[list[float]]:
        with live(side, folder / "rows") as query:
            number, found = 0, []
            for rows in sizes:
                took = []
                for _ in range(runs + 1):
                    table = events(rows, KEYS, "long", BEGIN_US + number * 60 * SECOND_US, 60 * SECOND_US, number)
                    took.append(query.push(table))
                    number += 1
                found.append(took[1:])
        shutil.rmtree(folder / "rows")
        return found

    lines = []
    for rows, ours, theirs in zip(sizes, *_both(spark, "10 seconds", pushed), strict=True):
        goal = ["", ""]
        if rows == 1:
            goal = [f"<= {SMALLEST_GOAL} s", "met" if median(ours) <= SMALLEST_GOAL else "MISSED"]
        lines.append([*_line(rows, ours, theirs), *goal])
    return lines


def by_state(spark: SparkSession, folder: Path, runs: int, most: int) -> list[list[str]]:
    """The same 1,000 rows against ever more state, in a window that does not close."""
    sizes = [rows for rows in STATE if rows <= most]

    def pushed(side: Side) -> list[list[float]]:
        found = []
        for rows in sizes:
            with live(side, folder / "state") as query:
                query.push(distinct(rows, BEGIN_US))
                batches = [events(1_000, rows, "long", BEGIN_US, SECOND_US, seed) for seed in range(runs + 1)]
                found.append([query.push(table) for table in batches][1:])
            shutil.rmtree(folder / "state")
        return found

    ours, theirs = _both(spark, "1 day", pushed)
    return [_line(*figures) for figures in zip(sizes, ours, theirs, strict=True)]


def _both(
    spark: SparkSession, size: str, pushed: Callable[[Side], list[list[float]]]
) -> tuple[list[list[float]], list[list[float]]]:
    """One after the other and not in turns: a query that waits looks at its folder all the time."""
    case = Case("growth", FEW, *windowed(size, None))
    return pushed(Ours(spark, case)), pushed(tuned(spark, case))


def _line(rows: int, ours: Sequence[float], theirs: Sequence[float]) -> list[str]:
    return [f"{rows:,}", spread(ours), spread(theirs), f"{median(theirs) / median(ours):.2f}"]
