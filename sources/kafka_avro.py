"""Avro schemas: of the rows that a job declares, and with a mark behind a row by which it is known to be whole."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at

#: What is put behind a message before it is read, and the field that must then hold it: Avro does not say where a row
#: ends, and Spark makes a row of nulls of one that it cannot read. It does not begin again within itself, and no byte
#: of it is a great length.
MARK = b"_end of the row."
END = "__ps_end"

_PLAIN: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
)


def derived(schema: pa.Schema, step: str) -> str:
    """The Avro schema of declared rows: what may be null is ``["null", type]``, times are microseconds.

    >>> print(derived(pa.schema([pa.field("n", pa.int64(), nullable=False)]), "kafka"))
    {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}
    """
    return json.dumps({"type": "record", "name": "row", "fields": [_field(f, f.name, step) for f in schema]})


def _field(field: pa.Field, path: str, step: str) -> dict[str, Any]:
    kind = _kind(field.type, path, step)
    return {"name": field.name, "type": ["null", kind] if field.nullable else kind}


def _kind(kind: pa.DataType, path: str, step: str) -> Any:
    for fits, avro in _PLAIN:
        if fits(kind):
            return avro
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _kind(kind.value_type, path, step)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _kind(kind.item_type, path, step)]}
    if pa.types.is_struct(kind):
        fields = [_field(kind.field(i), f"{path}_{kind.field(i).name}", step) for i in range(kind.num_fields)]
        return {"type": "record", "name": path, "fields": fields}
    raise PlanError(f"{step}: the column {path!r} is {kind}, which Avro does not have. ({written_at()})")


def given(text: Any, schema: pa.Schema, step: str) -> str:
    """The schema that the messages were written with, as the job gives it; refused when it lacks a column."""
    try:
        said = json.loads(text) if isinstance(text, str) else text
        fields = {f["name"] for f in said["fields"]}
    except (ValueError, TypeError, KeyError):
        raise PlanError(
            f"{step}: avro_schema= is the JSON of an Avro record, with its fields; this is not. ({written_at()})"
        ) from None
    missing = [name for name in schema.names if name not in fields]
    if missing:
        raise PlanError(
            f"{step}: avro_schema= has no field {missing[0]!r}; it has {', '.join(sorted(fields))}. ({written_at()})"
        )
    return json.dumps(said)


def with_end(written: str) -> str:
    """The schema with the mark behind all other fields."""
    said = json.loads(written)
    mark = {"name": END, "type": {"type": "fixed", "name": END, "size": len(MARK)}}
    return json.dumps({**said, "fields": [*said["fields"], mark]})
