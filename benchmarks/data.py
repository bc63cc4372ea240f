"""Generated events: a parquet file for each batch, in the order of time but for a few seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.case import Case, Cut, Input

BEGIN_US = 1_704_067_200_000_000  # 2024-01-01: no event is ahead of the wall clock
SECOND_US = 1_000_000
SPAN_US = 3600 * SECOND_US
JITTER_US = 5 * SECOND_US  # less than the lateness of the queries: no row is late
# small enough that Spark cuts a file of a million rows for every core
ROWS_PER_GROUP = 100_000
NAMES = ("key", "price", "at")


@dataclass(frozen=True)
class Events:
    """Rows with keys drawn at random; with ``of`` a case of fewer rows than that has fewer keys in proportion."""

    keys: int
    key: str = "long"
    of: int | None = None
    names: tuple[str, str, str] = NAMES
    seed: int = 0

    def __call__(self, cut: Cut) -> pa.Table:
        keys = scaled(self.keys, self.of, cut)
        made = events(cut.rows, keys, self.key, cut.begin_us, cut.span_us, self.seed + cut.number)
        return made.rename_columns(list(self.names))


def scaled(keys: int, of: int | None, cut: Cut) -> int:
    """As many keys as there are, in proportion, in a case of ``cut.total`` rows instead of ``of``.

    >>> scaled(500_000, 5_000_000, Cut(20_000, 4_000, 0, 0, 0))
    2000
    """
    return keys if of is None else max(keys * min(cut.total, of) // of, 1)


def one_stream(make: Events) -> tuple[Input]:
    """The one input of a query over events."""
    return (Input("events", schema(make.key), make),)


def schema(key: str, names: Sequence[str] = NAMES) -> str:
    """The columns, as DDL, for keys of that type.

    >>> schema("string")
    'key string, price long, at timestamp'
    """
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, (key, "long", "timestamp"), strict=True))


def events(rows: int, keys: int, key: str, begin_us: int, span_us: int, seed: int) -> pa.Table:
    """Rows with keys drawn at random, whose times go over the span."""
    random = np.random.default_rng(seed)
    times = begin_us + np.arange(rows) * span_us // max(rows, 1) + random.integers(0, JITTER_US, rows)
    return _table(random.integers(0, keys, rows), key, random.integers(1, 100_000, rows), times)


def distinct(rows: int, at_us: int, first: int = 0) -> pa.Table:
    """Rows of as many keys, from ``first`` on, all at one time: so many rows of state."""
    numbers = np.arange(first, first + rows)
    return _table(numbers, "long", numbers % 100_000, np.full(rows, at_us))


def _table(numbers: np.ndarray, key: str, price: np.ndarray, times: np.ndarray) -> pa.Table:
    column = pa.array(numbers)
    if key == "string":
        names = pa.array([f"customer-{n:07d}" for n in range(int(numbers.max(initial=0)) + 1)])
        column = names.take(column)
    stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
    return pa.table({"key": column, "price": pa.array(price), "at": stamps})


def tables(given: Input, total: int) -> Iterator[pa.Table]:
    """The rows of an input, file by file; each file has its part of the hour."""
    assert given.make is not None, f"the rows of {given.name} are pushed"
    span_us = SPAN_US // given.files
    for number in range(given.files):
        rows = given.rows(total) // given.files
        yield given.make(Cut(total, rows, BEGIN_US + number * span_us, span_us, number))


def generate(case: Case, folder: Path, total: int) -> Path:
    """Write the rows of every input, unless they are there; the file source reads them in this order."""
    place = case.place(folder, total)
    if not place.exists():
        for given in case.inputs:
            write_in_order(tables(given, total), place / given.name)
    return place


def write_in_order(made: Iterator[pa.Table], folder: Path) -> None:
    """A file for each table, each older than the next."""
    folder.mkdir(parents=True)
    for number, table in enumerate(made):
        path = move_in(table, folder, f"{number}.parquet")
        os.utime(path, (BEGIN_US // SECOND_US + number,) * 2)


def move_in(table: pa.Table, folder: Path, name: str) -> Path:
    """Write a file aside, then move it in: the source must never see half of it."""
    aside = folder / f".{name}"
    pq.write_table(table, aside, row_group_size=ROWS_PER_GROUP)
    return aside.rename(folder / name)
