"""Awkward rows in an interval join of ours: the seconds of a run, and the memory that it takes at most.

``python -m benchmarks.shapes NAME FOLDER`` is one run, in a process of its own: what an earlier one has taken
is not counted again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.case import Case, Cut, Input
from benchmarks.data import Events, generate, schema
from benchmarks.joins import PROFILE, ours_interval
from benchmarks.memory import Peaks, watched
from benchmarks.table import spread
from penstock.stream import Stream

ROWS = 1_000_000
WARM = 1_000
WIDE = 46  # with the key, the price, the time and the nested column there are 50
DONE = "seconds of a run: "
HEADER = ("shape", "rows", "s of a run", "driver MB", "workers MB, together", "largest worker MB", "Java MB")
KEYS = 100_000


@dataclass(frozen=True)
class Wide:
    """Events with 46 columns more, half of them text, and a nested one."""

    rows: Events

    def __call__(self, cut: Cut) -> pa.Table:
        made = self.rows(cut)
        numbers = np.random.default_rng(cut.number).integers(0, 1_000_000, cut.rows)
        names = pa.array(numbers).cast(pa.string())
        for i in range(WIDE):
            made = made.append_column(f"c{i}", names if i % 2 else pa.array(numbers + i))
        lists = pa.ListArray.from_arrays(np.arange(cut.rows + 1, dtype=np.int32), names)
        return made.append_column("nested", pa.StructArray.from_arrays([names, lists], ["name", "tags"]))


@dataclass(frozen=True)
class Skewed:
    """Events of which nine in ten have the key 0."""

    rows: Events

    def __call__(self, cut: Cut) -> pa.Table:
        made = self.rows(cut)
        keys = np.where(np.arange(cut.rows) % 10 < 9, 0, made["key"].to_numpy())
        return made.set_column(0, "key", pa.array(keys))


@dataclass(frozen=True)
class Strangers:
    """Events with keys that nobody else has."""

    rows: Events

    def __call__(self, cut: Cut) -> pa.Table:
        made = self.rows(cut)
        return made.set_column(0, "key", pa.array(-1 - made["key"].to_numpy()))


def with_all(bids: Stream, profiles: Stream) -> Stream:
    """Every bid, also without a profile."""
    return bids.join(profiles, on="key", within="5 minutes", how="left")


MORE = ", ".join(f"c{i} {'string' if i % 2 else 'long'}" for i in range(WIDE))
NESTED = "nested struct<name: string, tags: array<string>>"
BIDS = Events(KEYS, of=ROWS)
PLAIN = Input("bids", schema("long"), BIDS)
PROFILES = Input("profiles", schema("long", PROFILE), Events(KEYS, of=ROWS, names=PROFILE, seed=100), 0.2, time="since")
MANY_COLUMNS = replace(PLAIN, columns=f"{PLAIN.columns}, {MORE}, {NESTED}", make=Wide(BIDS))
SHAPES = (
    Case("plain", (PLAIN, PROFILES), ours_interval),
    Case("50 columns", (MANY_COLUMNS, PROFILES), ours_interval),
    Case("one key of 90 %", (replace(PLAIN, make=Skewed(BIDS)), PROFILES), ours_interval),
    Case("left, no partner", (replace(PLAIN, make=Strangers(BIDS)), PROFILES), with_all),
    Case("one batch", (replace(PLAIN, files=1), replace(PROFILES, files=1)), ours_interval),
)


def measure(folder: Path, runs: int, rows: int) -> list[list[str]]:
    """A line for each shape: the seconds of its runs, and the most memory that was seen in any."""
    lines = []
    for case in SHAPES:
        total = min(rows, ROWS)
        place = folder / "shape"
        generate(case, folder, total).rename(place)
        generate(case, folder, WARM).rename(folder / "warm")
        found = [_one(case, folder) for _ in range(runs)]
        most = Peaks.over([peaks for _, peaks in found])
        took = spread([seconds for seconds, _ in found])
        lines.append([case.name, f"{case.rows(total):,}", took, *(f"{kb / 1000:,.0f}" for kb in most.kilobytes)])
        print("  ".join(lines[-1]), flush=True)
        shutil.rmtree(place)
        shutil.rmtree(folder / "warm")
    return lines


def _one(case: Case, folder: Path) -> tuple[float, Peaks]:
    command = [sys.executable, "-m", "benchmarks.shapes", case.name, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        peaks = watched(process.pid, lambda: process.poll() is None)
        said, error = process.communicate()
    for line in said.splitlines():
        if line.startswith(DONE):
            return float(line.removeprefix(DONE)), peaks
    raise RuntimeError(f"{case.name}: the process ended without a result\n{error[-4000:]}")


def run(name: str, folder: Path) -> None:
    """One run, after one over few rows that starts what Spark starts once."""
    from benchmarks.machine import open_spark
    from benchmarks.sides import Ours

    (case,) = (shape for shape in SHAPES if shape.name == name)
    side = Ours(open_spark(), case)
    for place in ("warm", "shape"):
        began = time.monotonic()
        side.run(folder / place, folder / "checkpoint", None)
        took = time.monotonic() - began
        shutil.rmtree(folder / "checkpoint")
    print(f"{DONE}{took}", flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
