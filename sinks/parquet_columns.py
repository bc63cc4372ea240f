"""The columns of Parquet files in one spelling, whichever writer made them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.sinks.json_values import is_bytes, is_text
from penstock.sinks.ledger import Column


def columns_of(schema: pa.Schema) -> list[Column]:
    """The columns of a file that was read."""
    return [(field.name, kind_of(field.type)) for field in schema]


def columns_as_written(schema: pa.Schema) -> list[Column]:
    """What columns become in a file.

    >>> columns_as_written(pa.schema({"at": pa.timestamp("s", "Asia/Tokyo"), "n": pa.large_string()}))
    [('at', 'timestamp[us, tz=UTC]'), ('n', 'string')]
    """
    file = pa.BufferOutputStream()
    write_parquet(schema.empty_table(), file)
    return columns_of(pq.read_schema(pa.BufferReader(file.getvalue())))


def write_parquet(table: pa.Table, file: object) -> None:
    """Write a table as Spark would: timestamps in microseconds, and no Arrow schema beside the columns."""
    pq.write_table(table, file, coerce_timestamps="us", store_schema=False)


def kind_of(kind: pa.DataType) -> str:
    """A type by name; what writers call the parts of a list or a map, and how they lay text out, is left aside.

    >>> kind_of(pa.list_(pa.struct({"page": pa.large_string(), "hits": pa.map_(pa.string(), pa.int64())})))
    'list<struct<page: string, hits: map<string, int64>>>'
    """
    if pa.types.is_map(kind):
        return f"map<{kind_of(kind.key_type)}, {kind_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {kind_of(field.type)}' for field in kind)}>"
    if pa.types.is_nested(kind):
        return f"list<{kind_of(kind.value_type)}>"
    return "string" if is_text(kind) else "binary" if is_bytes(kind) else str(kind)
