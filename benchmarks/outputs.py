"""What the sides have written, held against each other: times of different outputs mean nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.data import BEGIN_US, SPAN_US

# An hour after the others comes one row more where Flink is a side: at the end of its input Flink closes every
# window, and ours does only what time has passed. With this row both have the same windows to close.
CLOSING_US = BEGIN_US + 2 * SPAN_US
DATABASE = "results.db"
TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_NS")


class DifferentOutputsError(Exception):
    """Two sides of a comparison gave different rows: their times mean nothing."""


@dataclass(frozen=True)
class Output:
    """The rows that one side has written, and a sum over all of them that does not depend on their order."""

    rows: int
    checksum: int


def output(folder: Path, repeats: bool = False) -> Output:
    """What is in the files; with ``repeats`` each row once.

    Rows with a time of the closing row are left out: only Flink ends them.
    """
    with duckdb.connect() as database:
        _open(database, folder)
        columns = database.table("results")
        values: list[str] = []
        kept: list[str] = []
        for name, kind in sorted(zip(columns.columns, columns.types, strict=True)):
            value = f'"{name}"'
            if str(kind) in TIMES:
                value = f"epoch_us({value})"
                kept.append(f"coalesce({value} < {CLOSING_US}, true)")
            values.append(f"{value} as v{len(values)}")
        select = "select distinct" if repeats else "select"
        hashed = ", ".join(f"v{i}" for i in range(len(values)))
        (found,) = database.sql(
            f"""
            with compared as (
              {select} {", ".join(values)} from results where {" and ".join(kept) or "true"}
            )
            select count(*), sum(hash({hashed})) from compared
            """
        ).fetchall()
        return Output(*found)


def _open(database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """The rows as the view ``results``: of parquet, of a database of ours, or what Flink's changes add up to."""
    if (folder / DATABASE).exists():
        database.register("results", _rows_of(folder / DATABASE))
        return
    # Flink's files have no suffix; what begins so is the sinks' own
    files = [str(path) for path in folder.iterdir() if not path.name.startswith(("_", "."))]
    with Path(files[0]).open("rb") as file:
        columnar = file.read(4) == b"PAR1"
    if columnar:
        database.sql(f"create view results as from read_parquet({files})")
    else:
        database.sql(
            f"""
            create view results as with changes as (
              select unnest(coalesce("after", "before")), if(op = 'd', -1, 1) as weight
              from read_json({files}, format = 'newline_delimited', sample_size = 1000000)
            )
            select * exclude (weight) from changes group by all having sum(weight) > 0
            """
        )


def _rows_of(path: Path) -> pa.Table:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("select * from results")
        names = [column[0] for column in found.description]
        columns = zip(*found.fetchall(), strict=True)
        return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))


def compare(name: str, outputs: dict[str, Output]) -> None:
    """Raise unless all sides gave the same rows, and some."""
    if len(set(outputs.values())) > 1 or not all(found.rows for found in outputs.values()):
        raise DifferentOutputsError(f"{name}: {outputs}")
