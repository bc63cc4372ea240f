"""Whole runs of a query, ours and Flink's in turns."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.case import Case
from benchmarks.flink.inputs import Inputs, inputs
from benchmarks.flink.side import Flink
from benchmarks.outputs import compare, output
from benchmarks.sides import Ours
from benchmarks.table import spread

FEW = 1_000
HEADER = ("query", "side", "rows/s", "s of a run", "its s / ours", "s of 1,000 rows", "rows/s without", "rows out")
Run = Callable[[Inputs, Path, Path | None], float]


@dataclass
class Figures:
    """What was seen of one side: the seconds of whole runs, of runs over few rows, and the rows that came out."""

    whole: list[float] = field(default_factory=list)
    few: list[float] = field(default_factory=list)
    out: int = 0


def sides(query: Case, flink: Flink, backends: list[str], spark: SparkSession | None) -> Iterator[tuple[str, Run]]:
    """The ways to run the query, each with its name."""
    if spark is not None:
        ours = Ours(spark, query)

        def run_ours(places: Inputs, checkpoint: Path, written: Path | None) -> float:
            began = time.monotonic()
            ours.run(places.ours, checkpoint, written)
            return time.monotonic() - began

        yield "ours", run_ours
    for backend in backends:

        def run_flink(places: Inputs, checkpoint: Path, written: Path | None, backend: str = backend) -> float:
            return flink.run(query, backend, places.flink, checkpoint, written)

        yield f"flink {backend}", run_flink


def measure(query: Case, ways: dict[str, Run], folder: Path, rows: int, runs: int) -> list[list[str]]:
    """The lines of the table: the sides agree on their output first, which warms them too, then take turns."""
    figures = {name: Figures() for name in ways}
    many, few = inputs(query, folder, rows), inputs(query, folder, FEW)
    outputs = {}
    for name, run in ways.items():
        with _own(folder) as place:
            run(many, place / "checkpoint", place / "output")
            outputs[name] = output(place / "output", repeats=query.repeats and name != "ours")
        figures[name].out = outputs[name].rows
        print(f"{query.name}, {name}: {outputs[name]}", file=sys.stderr, flush=True)
    compare(query.name, outputs)
    names = list(ways)
    for turn in range(runs):
        # whoever goes first finds the machine as the one before left it: take turns in that too
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for places, took in ((few, figures[name].few), (many, figures[name].whole)):
                with _own(folder) as place:
                    took.append(ways[name](places, place / "checkpoint", None))
        told = ", ".join(f"{name} {seen.whole[-1]:.2f} s" for name, seen in figures.items())
        print(f"{query.name} {turn + 1}/{runs}: {told}", file=sys.stderr, flush=True)
    return [_line(query.name, name, query.rows(rows), seen, figures.get("ours")) for name, seen in figures.items()]


@contextmanager
def _own(folder: Path) -> Iterator[Path]:
    """A folder for one run; Flink is still taking its checkpoints away when the run has ended."""
    place = Path(tempfile.mkdtemp(dir=folder))
    yield place
    shutil.rmtree(place, ignore_errors=True)


def _line(query: str, name: str, rows: int, seen: Figures, ours: Figures | None) -> list[str]:
    whole, few = median(seen.whole), median(seen.few)
    ratio = ""
    if ours is not None and ours is not seen:
        ratio = spread([theirs / own for theirs, own in zip(seen.whole, ours.whole, strict=True)])
    without = f"{rows / (whole - few):,.0f}" if whole > few else "?"
    return [
        query, name, f"{rows / whole:,.0f}", spread(seen.whole), ratio, spread(seen.few), without, f"{seen.out:,}"
    ]  # fmt: skip
