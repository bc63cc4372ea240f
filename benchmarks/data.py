"""Generated events: a parquet file for each batch, in the order of time but for a few seconds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGIN_US = 1_704_067_200_000_000  # 2024-01-01: no event is ahead of the wall clock
SECOND_US = 1_000_000
JITTER_US = 5 * SECOND_US  # less than the lateness of the queries: no row is late
# small enough that Spark cuts a file of a million rows for every core
ROWS_PER_GROUP = 100_000


def schema(key: str) -> str:
    """The columns, as DDL, for keys of that type."""
    return f"key {key}, price long, at timestamp"


def events(rows: int, keys: int, key: str, begin_us: int, span_us: int, seed: int) -> pa.Table:
    """Rows with keys drawn at random, whose times go over the span."""
    random = np.random.default_rng(seed)
    times = begin_us + np.arange(rows) * span_us // max(rows, 1) + random.integers(0, JITTER_US, rows)
    return _table(random.integers(0, keys, rows), key, random.integers(1, 100_000, rows), times)


def distinct(rows: int, at_us: int) -> pa.Table:
    """Rows of as many keys, all at one time: so many rows of state."""
    numbers = np.arange(rows)
    return _table(numbers, "long", numbers % 100_000, np.full(rows, at_us))


def _table(numbers: np.ndarray, key: str, price: np.ndarray, times: np.ndarray) -> pa.Table:
    column = pa.array(numbers)
    if key == "string":
        names = pa.array([f"customer-{n:07d}" for n in range(int(numbers.max(initial=0)) + 1)])
        column = names.take(column)
    stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
    return pa.table({"key": column, "price": pa.array(price), "at": stamps})


def generate(folder: Path, rows: int, files: int, keys: int, key: str, span_us: int) -> None:
    """Write ``rows`` rows over ``files`` files; the file source reads them in this order."""
    folder.mkdir(parents=True)
    each = rows // files
    for number in range(files):
        begin_us = BEGIN_US + number * span_us // files
        table = events(each, keys, key, begin_us, span_us // files, seed=number)
        path = move_in(table, folder, f"{number}.parquet")
        os.utime(path, (BEGIN_US // SECOND_US + number,) * 2)


def move_in(table: pa.Table, folder: Path, name: str) -> Path:
    """Write a file aside, then move it in: the source must never see half of it."""
    aside = folder / f".{name}"
    pq.write_table(table, aside, row_group_size=ROWS_PER_GROUP)
    return aside.rename(folder / name)
