"""Flink's tables: the inputs of a case as it reads them, and where its results go."""

from __future__ import annotations

from pathlib import Path

from benchmarks.case import LATENESS_SECONDS, Case, Input

TYPES = {"long": "bigint", "timestamp": "timestamp_ltz(3)", "string": "string", "boolean": "boolean"}
NOWHERE = "'connector' = 'blackhole'"
FILES = "'connector' = 'filesystem', 'path' = 'file://{}', 'format' = {}"
PARQUET = "'parquet', 'parquet.utc-timezone' = 'true'"


def created(given: Input, place: Path) -> str:
    """The statement that makes an input known; one with a key and a time is a versioned table.

    A changelog without a time is read as the rows that it has: the query takes the newest of each key.

    >>> from benchmarks.data import Events, one_stream
    >>> print(created(*one_stream(Events(10)), Path("/in")).splitlines()[1])
    `key` bigint, `price` bigint, `at` timestamp_ltz(3), watermark for `at` as `at` - interval '10' second
    """
    columns = (column.split(" ") for column in given.columns.split(", "))
    parts = [f"`{name}` {TYPES[kind]}" for name, kind in columns]
    if given.time is not None:
        parts.append(f"watermark for `{given.time}` as `{given.time}` - interval '{LATENESS_SECONDS}' second")
        if given.key is not None:
            parts.append(f"primary key (`{given.key}`) not enforced")
    return f"create table {given.name} (\n{', '.join(parts)}\n) with ({FILES.format(place, PARQUET)})"


def into(case: Case, output: Path | None) -> str:
    """Files, or nothing. Changes are written as such: Flink's files of parquet take no deletes."""
    if output is None:
        return NOWHERE
    return FILES.format(output, "'debezium-json'" if case.changes else PARQUET)
