"""Rows that a test pushes: made text as a JSON file would hold them, and read the way such a file is read."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.compile.types import frame_of, spark_schema
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.input import Input
from penstock.sources.base import MALFORMED, PARTITION, PLACE, POSITION

READING = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED, "allowNonNumericNumbers": "true"}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def encoded(row: Mapping[str, Any] | str | None, node: Input) -> str:
    """A row as a line of JSON; text stays as it is, so that a test can push a broken line."""
    step = f"push({node.name!r})"
    if isinstance(row, str):
        return row
    if row is None and node.source.changelog is not None:
        return "null"
    if not isinstance(row, Mapping):
        raise PlanError(f"{step}: a row is a dict, or the text of a line, not {row!r}.")
    return json.dumps({name: _plain(value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        return aware.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return _plain(value.item())  # a NumPy number
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    return value


def as_micros(time: str | datetime, step: str) -> int:
    """A time as microseconds since 1970; UTC unless it says otherwise."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.strip().replace("Z", "+00:00"))
        except ValueError:
            raise PlanError(f"{step}: {time!r} is no time; write it as '2026-01-01 10:00:00'.") from None
    if not isinstance(time, datetime):
        raise PlanError(f"{step}: {time!r} is no time; write it as '2026-01-01 10:00:00', or give a datetime.")
    aware = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1)


def pushed_frame(spark: SparkSession, node: Input, lines: list[tuple[int, str]], partitions: int) -> DataFrame:
    """The pushed lines as the input's rows, or its messages, spread over Spark partitions, each with its place."""
    schema = node.source.schema
    if schema is None:
        raise PlanError(f"input {node.name!r}: the tester needs its schema; give it as sources.spark(..., schema=...).")
    positions, texts = [p for p, _ in lines], [t for _, t in lines]
    table = pa.table({POSITION: pa.array(positions, pa.int64()), "line": pa.array(texts, pa.string())})
    frame = frame_of(spark, table)
    if partitions > 1 and lines:
        frame = frame.repartition(partitions, POSITION)
    place = [f"concat('partition 0 offset ', {POSITION}) AS {PLACE}", f"0 AS {PARTITION}", POSITION]
    if node.source.changelog is not None:
        return frame.selectExpr("line AS value", *place)
    read = frame.select(POSITION, "line", F.from_json("line", _struct(schema), READING).alias("row"))
    columns = [f"row.{quoted(name)} AS {quoted(name)}" for name in schema.names]
    columns += [
        f"CASE WHEN row IS NULL THEN line ELSE row.{MALFORMED} END AS {MALFORMED}",
        *place,
    ]
    return read.selectExpr(*columns)


def _struct(schema: pa.Schema) -> StructType:
    return spark_schema(schema).add(MALFORMED, StringType())
