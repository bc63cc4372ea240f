"""Messages of a topic as rows: their values read, what cannot be read kept as it came, and where they stood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.plan.schemas import TIMESTAMP
from penstock.sources.base import CLOCK, MALFORMED, PARTITION, PLACE, POSITION
from penstock.sources.kafka_avro import READ

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW = "__ps_row"
TEXT = "__ps_text"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: What may be asked for besides the value, and its type.
BESIDE = {
    "key": pa.string(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "id": pa.string(),
}
#: The headers by which a sink of ours says which row a message is.
SENT = ("job", "output", "checkpoint", "batch", "row")


def as_text(column: str) -> str:
    """Bytes as text, null for none; what is no UTF-8 as ``base64:...``."""
    return f"coalesce(try_validate_utf8(cast({column} AS string)), concat('base64:', base64({column})))"


def hidden() -> list[str]:
    """Where a message stood; each partition has a clock of its own."""
    return [
        f"concat('topic ', topic, ', partition ', partition, ', offset ', offset) AS {PLACE}",
        f"partition AS {CLOCK}",
        f"partition AS {PARTITION}",
        f"offset AS {POSITION}",
    ]


def changes(messages: DataFrame, two_parts: bool) -> DataFrame:
    """The messages of a changelog, as texts."""
    # bytes that are no text must not look like a value of null, which deletes
    parts = [f"{as_text('key')} AS key"] if two_parts else []
    return messages.selectExpr(f"{as_text('value')} AS value", *parts, *hidden())


def rows(
    messages: DataFrame, schema: pa.Schema, kind: str, beside: Mapping[str, str], options: Mapping[str, str]
) -> DataFrame:
    """The messages of plain rows in JSON or CSV; one without a value is malformed."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    from penstock.compile.types import spark_schema

    struct = spark_schema(schema).add(MALFORMED, StringType())
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED, **options}
    valid = F.expr("try_validate_utf8(cast(value AS string))")
    if kind == "csv":
        read = F.from_csv(valid, struct.simpleString(), permissive)
    else:
        read = F.from_json(valid, struct, permissive)
    malformed = f"CASE WHEN {ROW} IS NULL THEN coalesce({as_text('value')}, 'null') ELSE {ROW}.{MALFORMED} END"
    return _made(messages, read, schema, beside, malformed, {})


def avro_rows(
    messages: DataFrame, schema: pa.Schema, beside: Mapping[str, str], written: str, reader: str
) -> DataFrame:
    """The messages of plain rows in Avro; one that cannot be read is kept in base64."""
    from pyspark.sql.avro.functions import from_avro

    from penstock.sources.cdc.values import sql_type

    read = from_avro("value", written, {"mode": "PERMISSIVE", "avroSchema": reader})
    plain = [f for f in schema if not pa.types.is_nested(f.type)]
    casts = {f.name: f"try_cast({ROW}.{quoted(f.name)} AS {sql_type(f.type)})" for f in plain}
    unread = [f"({ROW}.{quoted(c)} IS NOT NULL AND {text} IS NULL)" for c, text in casts.items()]
    bad = " OR ".join([f"{ROW}.{READ} IS NULL", *unread])
    malformed = f"CASE WHEN {bad} THEN coalesce(concat('base64:', base64(value)), 'null') END"
    return _made(messages, read, schema, beside, malformed, casts)


def _made(
    messages: DataFrame,
    read: Column,
    schema: pa.Schema,
    beside: Mapping[str, str],
    malformed: str,
    casts: Mapping[str, str],
) -> DataFrame:
    columns = [f"{casts.get(c, f'{ROW}.{quoted(c)}')} AS {quoted(c)}" for c in schema.names]
    columns += [f"{asked(what)} AS {quoted(name)}" for what, name in beside.items()]
    return messages.withColumn(ROW, read).selectExpr(*columns, f"{malformed} AS {MALFORMED}", *hidden())


def asked(what: str) -> str:
    """What a message says besides its value, as Spark SQL."""
    if what == "key":
        return as_text("`key`")
    if what == "id":
        said = ", ".join(header(name) for name in SENT)
        # a null header makes the whole null: the message is not from a sink of ours
        ours = f"concat_ws('/', {said})"
        there = " AND ".join(f"{header(name)} IS NOT NULL" for name in SENT)
        return f"CASE WHEN {there} THEN {ours} ELSE concat_ws('/', topic, partition, offset) END"
    return quoted(what)


def header(name: str) -> str:
    """The text of the first header of a name, null when there is none."""
    named = f"filter(headers, h -> h.key = {literal(name)})"
    return f"try_validate_utf8(cast(get({named}, 0).value AS string))"


def beside_schema(beside: Mapping[str, str]) -> list[pa.Field]:
    """The columns that were asked for, by the names that they get."""
    return [pa.field(name, BESIDE[what]) for what, name in beside.items()]


def is_known(what: Any) -> bool:
    """True for something that a message says besides its value."""
    return isinstance(what, str) and what in BESIDE
