"""The same rows twice: in files that follow each other in time, and in a file for each of Flink's readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.case import Case, Input
from benchmarks.data import tables, write_in_order
from benchmarks.outputs import CLOSING_US

READERS = 2
CLOSING = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=CLOSING_US)


@dataclass(frozen=True)
class Inputs:
    """Where the rows are: in each a folder for each input."""

    ours: Path
    flink: Path


def inputs(case: Case, folder: Path, total: int) -> Inputs:
    """Generate the rows, unless they are there."""
    place = case.place(folder, total)
    places = Inputs(place / "ours", place / "flink")
    if not place.exists():
        for given in case.inputs:
            made = list(_tables(given, total))
            write_in_order(iter(made), places.ours / given.name)
            _for_readers(pa.concat_tables(made), places.flink / given.name)
    return places


def _tables(given: Input, total: int) -> Iterator[pa.Table]:
    """An input whose times are whole milliseconds, with its closing row at the end."""
    for number, table in enumerate(tables(given, total)):
        if given.time is None:
            yield table
            continue
        column = table.column_names.index(given.time)
        # Flink's event time is in milliseconds: finer times would make other windows of it
        times_us = table.column(column).cast(pa.int64()).to_numpy() // 1_000 * 1_000
        table = table.set_column(column, given.time, pa.array(times_us).cast(pa.timestamp("us", "UTC")))
        if number == given.files - 1:
            closing = table.slice(table.num_rows - 1)
            at = pa.array([CLOSING], table.schema.field(column).type)
            table = pa.concat_tables([table, closing.set_column(column, given.time, at)])
        yield table


def _for_readers(table: pa.Table, folder: Path) -> None:
    """All of time in each file.

    Flink does not take the files of a folder in the order of time, and a reader's time is the newest it has seen:
    from files that follow each other in time it drops rows as late (seen: a file in five).
    """
    folder.mkdir(parents=True)
    for reader in range(READERS):
        rows = pa.array(np.arange(reader, table.num_rows, READERS))
        # one row group: it lies in one block, however large the file is
        pq.write_table(table.take(rows), folder / f"{reader}.parquet", row_group_size=table.num_rows)
