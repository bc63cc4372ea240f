"""Rows as messages of a topic: key, value, and headers that say which row it is, the same when it is sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.plan.expressions import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# rows are numbered in so many parts at once; the numbers depend on it, and so on every reader of a batch sent twice
SLICES = 64
JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def messages(
    rows: DataFrame,
    deletes: DataFrame | None,
    key: Sequence[str],
    said: Mapping[str, str],
    partitions: int,
    *,
    net: bool,
) -> DataFrame:
    """The messages of a batch, for Spark's connector; ``said`` are the headers that all of them have.

    With ``net`` the rows are of a table: of each key the last one counts, and ``deletes`` end what was.
    A row's number must be the same when the batch is run again, and Spark promises no order: so rows are put in
    order by what they hold, in slices by its hash. Rows that hold the same may change places unseen.
    """
    named = _json(key) if key else "cast(null AS string)"
    came = "monotonically_increasing_id() AS came"
    told = rows.selectExpr(f"{named} AS key", f"{_json(rows.columns)} AS value", came)
    if deletes is not None:
        gone = deletes.selectExpr(f"{_json(key)} AS key", "cast(null AS string) AS value", "-1L AS came")
        told = told.unionByName(gone)
    hashed = "key" if net else "key, value"
    # of a key that is deleted and there again what is there counts: it came later
    within = "PARTITION BY slice ORDER BY key, came" if net else "PARTITION BY slice ORDER BY key, value"
    told = told.selectExpr("*", f"pmod(xxhash64({hashed}), {SLICES}L) AS slice")
    number = f"(row_number() OVER ({within}) - 1) * {SLICES}L + slice AS row"
    told = told.selectExpr("*", number, f"lead(key) OVER ({within}) AS following")
    if net:
        told = told.where("following IS NULL OR following != key")
    headers = [_header(name, literal(value)) for name, value in said.items()]
    headers.append(_header("row", "cast(row AS string)"))
    # without a key the producer would choose any partition, and another one when the row is sent again
    to = f"CASE WHEN key IS NULL THEN cast(pmod(xxhash64(value), {partitions}L) AS int) END"
    return told.selectExpr("key", "value", f"array({', '.join(headers)}) AS headers", f"{to} AS partition")


def _json(columns: Sequence[str]) -> str:
    options = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in JSON.items())
    return f"to_json(struct({', '.join(map(quoted, columns))}), map({options}))"


def _header(name: str, text: str) -> str:
    return f"struct({literal(name)} AS key, cast({text} AS binary) AS value)"
