"""Whole runs over files that are there already: ours against the same query written by hand."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.case import Case
from benchmarks.data import generate
from benchmarks.outputs import Output, compare, output
from benchmarks.sides import BY_HAND, Ours, Side
from benchmarks.table import spread

HEADER = ("query", "side", "rows/s", "s of a run", "its s / ours", "goal", "", "rows out")


def measure(case: Case, spark: SparkSession, folder: Path, rows: int, runs: int, by_default: bool) -> list[list[str]]:
    """The lines of the table: the sides agree on their output first, then take turns."""
    source = generate(case, folder, rows)
    names = [name for name in case.sides if by_default or name != "defaults"]
    sides: list[Side] = [Ours(spark, case), *(BY_HAND[name](spark, case) for name in names)]
    outputs = {side.name: written(side, source, folder) for side in sides}
    compare(case.name, outputs)
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(runs):
        # whoever goes first finds the machine as the one before left it: take turns in that too
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            seconds[side.name].append(timed(side, source, folder / "checkpoint"))
        told = ", ".join(f"{name} {took[-1]:.2f} s" for name, took in seconds.items())
        # a whole table takes an hour: one that is broken off shall leave what it has seen
        print(f"{case.name} {turn + 1}/{runs}: {told}", file=sys.stderr, flush=True)
    lines = []
    for name, took in seconds.items():
        ratios = [theirs / own for theirs, own in zip(took, seconds["ours"], strict=True)]
        ratio, goal, reached = "" if name == "ours" else spread(ratios), "", ""
        if name == case.sides[0] and case.goal is not None:
            goal, reached = f">= {case.goal}", "met" if median(ratios) >= case.goal else "MISSED"
        speed = f"{case.rows(rows) / median(took):,.0f}"
        lines.append([case.name, name, speed, spread(took), ratio, goal, reached, f"{outputs[name].rows:,}"])
    return lines


def timed(side: Side, source: Path, checkpoint: Path) -> float:
    """The seconds of one whole run."""
    began = time.monotonic()
    side.run(source, checkpoint, output=None)
    took = time.monotonic() - began
    shutil.rmtree(checkpoint)
    return took


def written(side: Side, source: Path, folder: Path) -> Output:
    """Run a side once into files, which warms it too, and read what it wrote."""
    place = folder / "output"
    side.run(source, folder / "checkpoint", place)
    found = output(place)
    shutil.rmtree(folder / "checkpoint")
    shutil.rmtree(place)
    return found
