"""Upserts into SQLite, written by hand: what a table costs without an engine."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.case import Cut
from benchmarks.outputs import DATABASE

COLUMNS = "key long, price long, seq long"
CREATE = "create table results (key integer primary key, price integer, seq integer)"
UPSERT = """
insert into results values (?, ?, ?) on conflict (key) do update set price = excluded.price, seq = excluded.seq
where excluded.seq > results.seq
"""


def upserts(keys: np.ndarray, seq: int) -> pa.Table:
    """A change of each key, in this order from ``seq`` on."""
    return pa.table({"key": keys, "price": keys % 1_000 + seq, "seq": seq + np.arange(len(keys))})


@dataclass(frozen=True)
class Upserts:
    """Changes of so many keys whose order is not that of the rows."""

    keys: int

    def __call__(self, cut: Cut) -> pa.Table:
        random = np.random.default_rng(cut.number)
        made = upserts(random.integers(0, self.keys, cut.rows), seq=0)
        return made.set_column(2, "seq", pa.array(random.permutation(cut.rows) * 10 + cut.number))


class HandWritten:
    """A database in a folder, with its log ahead of it; a batch is a file, and one transaction."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "batch.parquet"
        self._database = sqlite3.connect(folder / DATABASE, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")
        self._database.execute(CREATE)

    def push(self, rows: pa.Table) -> tuple[float, float]:
        """The seconds from the file to the commit, and the kilobytes that were written to log and database."""
        pq.write_table(rows, self._file)
        before, began = _written(), time.monotonic()
        columns = pq.read_table(self._file).to_pydict()
        self._database.execute("begin")
        self._database.executemany(UPSERT, zip(*columns.values(), strict=True))
        self._database.execute("commit")
        return time.monotonic() - began, (_written() - before) / 1000

    def __enter__(self) -> HandWritten:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._database.close()


def _written() -> int:
    """The bytes that this process has given to write calls so far."""
    (line,) = (text for text in Path("/proc/self/io").read_text().splitlines() if text.startswith("wchar"))
    return int(line.split()[1])
