"""Messages of a topic as rows: their values read, what cannot be read kept as it came, and where they stood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.plan.schemas import TIMESTAMP
from penstock.sources.base import CLOCK, MALFORMED, PARTITION, PLACE, POSITION
from penstock.sources.cdc.values import PERMISSIVE, exact_decimal, framed, framed_schema, sql_type, unframed
from penstock.sources.kafka_avro import END, MARK, with_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ = "__ps_read"  # the value in its frame
ROW = "__ps_row"
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
    """The messages of plain rows in JSON or CSV; one without a value is malformed, as is one with more than a row."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    from penstock.compile.types import spark_schema

    valid, struct = "try_validate_utf8(cast(value AS string))", spark_schema(schema)
    if kind == "csv":
        struct = struct.add(MALFORMED, StringType())
        read = messages.withColumn(ROW, F.from_csv(F.expr(valid), struct.simpleString(), {**PERMISSIVE, **options}))
        wrong = f"{ROW}.{MALFORMED} IS NOT NULL"
    else:
        opened = F.from_json(F.expr(framed(valid)), framed_schema(struct), {**PERMISSIVE, **options})
        read = messages.withColumn(READ, opened).withColumn(ROW, F.expr(unframed(READ)))
        wrong = f"{READ}.{MALFORMED} IS NOT NULL"
    malformed = f"CASE WHEN {ROW} IS NULL OR {wrong} THEN coalesce({as_text('value')}, 'null') END"
    return _made(read, schema, beside, malformed, {})


def avro_rows(messages: DataFrame, schema: pa.Schema, beside: Mapping[str, str], written: str) -> DataFrame:
    """The messages of plain rows in Avro; one that cannot be read is kept in base64.

    So is one with bytes before or behind its row, as those of a schema registry have them, and one with a value that
    its column's type cannot hold: a number is never rounded. Inside of lists, maps and structs types are as written.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    ended = F.expr(f"concat(value, X'{MARK.hex()}')")
    read = messages.withColumn(ROW, from_avro(ended, with_end(written), {"mode": "PERMISSIVE"}))
    there = read.select(f"{ROW}.*").schema
    plain = [f for f in schema if not pa.types.is_nested(f.type)]
    told = {f.name: _held(f"{ROW}.{quoted(f.name)}", there[f.name].dataType.simpleString(), f.type) for f in plain}
    bad = [f"NOT ({ROW}.{END} <=> X'{MARK.hex()}')", *(f"NOT ({same})" for _, same in told.values())]
    malformed = f"CASE WHEN {' OR '.join(bad)} THEN coalesce(concat('base64:', base64(value)), 'null') END"
    return _made(read, schema, beside, malformed, {name: text for name, (text, _) in told.items()})


def _held(value: str, written: str, kind: pa.DataType) -> tuple[str, str]:
    """A value as its column's type has it, and whether it is the same still."""
    declared = sql_type(kind)
    if written == declared:
        return value, "true"
    if written == "string":
        # text has many ways to say a thing: read back it may look otherwise
        held = exact_decimal(value, kind) if pa.types.is_decimal(kind) else f"try_cast({value} AS {declared})"
        return held, f"{value} IS NULL OR {held} IS NOT NULL"
    held = f"try_cast({value} AS {declared})"
    return held, f"try_cast({held} AS {written}) <=> {value}"


def _made(
    read: DataFrame,
    schema: pa.Schema,
    beside: Mapping[str, str],
    malformed: str,
    casts: Mapping[str, str],
) -> DataFrame:
    columns = [f"{casts.get(c, f'{ROW}.{quoted(c)}')} AS {quoted(c)}" for c in schema.names]
    columns += [f"{asked(what)} AS {quoted(name)}" for what, name in beside.items()]
    return read.selectExpr(*columns, f"{malformed} AS {MALFORMED}", *hidden())


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
