"""A cold start: a new process, until the first window of a one-file input is committed.

``python -m benchmarks.first SIDE FOLDER`` is that process; it runs the query and prints a word when it is done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.case import Case
from benchmarks.cases import TUMBLING
from benchmarks.data import BEGIN_US, SECOND_US, Events, events, one_stream, write_in_order
from benchmarks.table import spread

DONE = "first window committed"
HEADER = ("process", "s to the first window")
CASE = Case("first", one_stream(Events(100)), *TUMBLING)


def measure(folder: Path, runs: int) -> list[list[str]]:
    """Seconds from the start of Python, the sides in turns."""
    rows = events(1_000, 100, "long", BEGIN_US, 60 * SECOND_US, seed=0)
    write_in_order(iter([rows]), folder / "first" / "events")
    seconds: dict[str, list[float]] = {"ours": [], "tuned": []}
    for _ in range(runs):
        for side, took in seconds.items():
            took.append(_cold(side, folder))
    return [[side, spread(took)] for side, took in seconds.items()]


def _cold(side: str, folder: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.first", side, str(folder)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        said = any(DONE in line for line in process.stdout)
        took = time.monotonic() - began
    shutil.rmtree(folder / "cold")
    if not said:
        raise RuntimeError(f"{side}: the cold process ended without a window")
    return took


def run(side: str, folder: Path) -> None:
    """The query of the cold process; what it imports is part of the time."""
    from benchmarks.machine import open_spark
    from benchmarks.sides import Ours, tuned

    spark = open_spark()
    query = Ours(spark, CASE) if side == "ours" else tuned(spark, CASE)
    # Spark's own windows come out with the batch after the rows, ours with the rows
    batch = 0 if side == "ours" else 1
    running = query.start(folder / "first", folder / "cold", None, once=True)
    while not query.committed(folder / "cold", batch).exists() and query.is_active(running):
        time.sleep(0.001)
    if query.committed(folder / "cold", batch).exists():
        print(DONE, flush=True)
    query.finish(running)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
