"""What the sides have written, held against each other: times of different outputs mean nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.flink.inputs import CLOSING_US
from benchmarks.throughput import DifferentOutputsError


@dataclass(frozen=True)
class Output:
    """The rows that one side has written, and a sum over all of them that does not depend on their order."""

    rows: int
    checksum: int


def output(folder: Path, repeats: bool) -> Output:
    """What is in the files; with ``repeats`` each row once: Flink's OVER gives one again for rows of one key and time.

    Windows that the closing row is in are left out: only Flink ends them.
    """
    # Flink's files have no suffix; what begins so is the sinks' own
    files = [str(path) for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    results = duckdb.read_parquet(files)
    others = ", ".join(sorted(set(results.columns) - {"window_start", "window_end"}))
    select = "select distinct" if repeats else "select"
    ((rows, checksum),) = duckdb.sql(
        f"""
        with compared as (
          {select} epoch_us(window_start) as s, epoch_us(window_end) as e, {others}
          from results where epoch_us(window_end) < {CLOSING_US}
        )
        select count(*), sum(hash(s, e, {others})) from compared
        """
    ).fetchall()
    return Output(rows, checksum)


def compare(name: str, outputs: dict[str, Output]) -> None:
    """Raise unless all sides gave the same rows, and some."""
    if len(set(outputs.values())) > 1 or not all(found.rows for found in outputs.values()):
        raise DifferentOutputsError(f"{name}: {outputs}")
