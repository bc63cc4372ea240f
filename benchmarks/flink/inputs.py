"""The same rows twice: in files that follow each other in time, and in a file for each of Flink's readers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import BEGIN_US, SECOND_US, events, move_in

FILES = 5
READERS = 2
SPAN_US = 3600 * SECOND_US
BIDDERS = 100
# An hour after the others comes one row more: at the end of its input Flink closes every window, and ours does
# only what time has passed. With this row both have the same windows to close.
CLOSING_US = BEGIN_US + 2 * SPAN_US
CLOSING = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=CLOSING_US)


@dataclass(frozen=True)
class Inputs:
    """Where the rows are."""

    ours: Path
    flink: Path


def inputs(folder: Path, rows: int, keys: int) -> Inputs:
    """Generate the rows, unless they are there."""
    places = Inputs(folder / f"{rows}_{keys}" / "ours", folder / f"{rows}_{keys}" / "flink")
    if not places.ours.parent.exists():
        places.ours.mkdir(parents=True)
        places.flink.mkdir()
        tables = [_table(number, rows // FILES, keys) for number in range(FILES)]
        tables[-1] = pa.concat_tables([tables[-1], _closing(tables[-1].schema)])
        for number, table in enumerate(tables):
            path = move_in(table, places.ours, f"{number}.parquet")
            os.utime(path, (BEGIN_US // SECOND_US + number,) * 2)
        _for_readers(pa.concat_tables(tables), places.flink)
    return places


def _table(number: int, rows: int, keys: int) -> pa.Table:
    span_us = SPAN_US // FILES
    table = events(rows, keys, "long", BEGIN_US + number * span_us, span_us, seed=number)
    # Flink's event time is in milliseconds: finer times would make other windows of it
    times_us = table["at"].cast(pa.int64()).to_numpy() // 1_000 * 1_000
    bidders = np.random.default_rng(rows + number).integers(0, BIDDERS, rows)
    table = table.set_column(2, "at", pa.array(times_us).cast(pa.timestamp("us", "UTC")))
    return table.append_column("bidder", pa.array(bidders))


def _closing(schema: pa.Schema) -> pa.Table:
    return pa.table({"key": [0], "price": [0], "at": [CLOSING], "bidder": [0]}, schema=schema)


def _for_readers(table: pa.Table, folder: Path) -> None:
    """All of time in each file.

    Flink does not take the files of a folder in the order of time, and a reader's time is the newest it has seen:
    from files that follow each other in time it drops rows as late (seen: a file in five).
    """
    for reader in range(READERS):
        rows = pa.array(np.arange(reader, table.num_rows, READERS))
        # one row group: it lies in one block, however large the file is
        pq.write_table(table.take(rows), folder / f"{reader}.parquet", row_group_size=table.num_rows)
