"""Whole runs over files that are there already: ours against the same query written by hand."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.cases import Case
from benchmarks.data import SECOND_US, generate
from benchmarks.sides import Ours, Side, defaults, tuned
from benchmarks.table import spread

FILES = 5
SPAN_US = 3600 * SECOND_US
HEADER = ("query", "ours rows/s", "tuned rows/s", "tuned / ours", "goal", "", "defaults rows/s", "defaults / ours")


class DifferentOutputsError(Exception):
    """Two sides of a comparison gave different rows: their times mean nothing."""


def measure(case: Case, spark: SparkSession, folder: Path, rows: int, runs: int, by_default: bool) -> list[str]:
    """A line of the table: the sides agree on their output first, then take turns."""
    source = folder / f"{case.keys}_{case.key}"
    if not source.exists():
        generate(source, rows, FILES, case.keys, case.key, SPAN_US)
    sides = [Ours(spark, case.ours), tuned(spark, case.theirs)]
    if by_default:
        sides.append(defaults(spark, case.theirs))
    compare(case, spark, folder, source, sides)
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(runs):
        # whoever goes first finds the machine as the one before left it: take turns in that too
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            seconds[side.name].append(timed(side, case, source, folder / "checkpoint"))
        told = ", ".join(f"{name} {took[-1]:.2f} s" for name, took in seconds.items())
        # a whole table takes an hour: one that is broken off shall leave what it has seen
        print(f"{case.name} {turn + 1}/{runs}: {told}", file=sys.stderr, flush=True)
    ours = seconds["ours"]
    speed = {name: f"{rows / median(took):,.0f}" for name, took in seconds.items()}
    ratios = {name: [theirs / own for theirs, own in zip(took, ours, strict=True)] for name, took in seconds.items()}
    reached = "met" if median(ratios["tuned"]) >= case.goal else "MISSED"
    plain = [speed["defaults"], spread(ratios["defaults"])] if by_default else ["", ""]
    return [
        case.name, speed["ours"], speed["tuned"], spread(ratios["tuned"]), f">= {case.goal}", reached, *plain
    ]  # fmt: skip


def timed(side: Side, case: Case, source: Path, checkpoint: Path) -> float:
    """The seconds of one whole run."""
    began = time.monotonic()
    side.run(source, case.key, checkpoint, output=None)
    took = time.monotonic() - began
    shutil.rmtree(checkpoint)
    return took


def compare(case: Case, spark: SparkSession, folder: Path, source: Path, sides: list[Side]) -> None:
    """Run every side once into files, which warms it too, and hold the rows against each other."""
    outputs = []
    for side in sides:
        output = folder / "output" / side.name
        side.run(source, case.key, folder / "checkpoint", output)
        shutil.rmtree(folder / "checkpoint")
        outputs.append(spark.read.parquet(str(output)))
    ours, others = outputs[0], outputs[1:]
    for side, other in zip(sides[1:], others, strict=True):
        mine = ours.select(*other.columns)
        lacking, extra = other.exceptAll(mine).count(), mine.exceptAll(other).count()
        if lacking or extra or ours.isEmpty():
            raise DifferentOutputsError(f"{case.name}: ours lacks {lacking} rows of {side.name} and has {extra} more")
    shutil.rmtree(folder / "output")
