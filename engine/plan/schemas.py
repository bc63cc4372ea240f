"""Schemas without a JVM: Spark's DDL text or a ``StructType``, as an Arrow schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at

TIMESTAMP = pa.timestamp("us", tz="UTC")

_BY_NAME = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "varbinary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "timestampltz": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "timestampntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
}


def schema(value: Any, what: str) -> pa.Schema:
    """The Arrow schema that ``value`` describes; ``what`` names it in the refusal.

    >>> schema("id long not null, tags array<string>", "schema").names
    ['id', 'tags']
    """
    if isinstance(value, pa.Schema):
        return value
    if isinstance(value, str):
        fields = _from_ddl(value, what)
    elif hasattr(value, "jsonValue") and hasattr(value, "fields"):
        fields = [_from_json_field(f, what) for f in value.jsonValue()["fields"]]
    else:
        raise PlanError(
            f"{what}: a schema is DDL text such as 'id long, at timestamp', or a StructType. ({written_at()})"
        )
    names = [f.name for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise PlanError(f"{what}: the column {twice[0]!r} stands twice. ({written_at()})")
    if not names:
        raise PlanError(f"{what}: a schema needs at least one column. ({written_at()})")
    return pa.schema(fields)


def _from_ddl(text: str, what: str) -> list[pa.Field]:
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
    except SqlglotError as error:
        raise PlanError(f"{what}={text!r}: cannot be read as DDL: {first_line(error)} ({written_at()})") from None
    body = table.this
    definitions = body.expressions if isinstance(body, exp.Schema) else []
    if not all(isinstance(d, exp.ColumnDef) and d.kind is not None for d in definitions):
        raise PlanError(
            f"{what}={text!r}: every column is a name and a type, as in 'id long, at timestamp'. ({written_at()})"
        )
    return [pa.field(d.name, _from_sql(d.kind, what), nullable=not _is_not_null(d)) for d in definitions]


def _is_not_null(definition: exp.ColumnDef) -> bool:
    return any(
        isinstance(c.kind, exp.NotNullColumnConstraint) and not c.kind.args.get("allow_null")
        for c in definition.constraints
    )


def _from_sql(kind: exp.DataType, what: str) -> pa.DataType:
    name = kind.this.value.lower() if isinstance(kind.this, exp.DataType.Type) else str(kind.this).lower()
    inner = kind.expressions
    if name == "array" and len(inner) == 1:
        return pa.list_(_from_sql(inner[0], what))
    if name == "map" and len(inner) == 2:
        return pa.map_(_from_sql(inner[0], what), _from_sql(inner[1], what))
    if name == "struct" and inner:
        # inside a struct `not null` is not kept: nobody checks it there, and Arrow refuses a null struct of such
        return pa.struct([pa.field(f.name, _from_sql(f.kind, what)) for f in inner])
    if name in ("decimal", "dec", "numeric"):
        size = [int(p.name) for p in inner] or [10]
        return pa.decimal128(size[0], size[1] if len(size) > 1 else 0)
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise PlanError(f"{what}: the type {kind.sql(dialect='spark')} cannot be carried by a stream. ({written_at()})")


def _from_json_field(field: Mapping[str, Any], what: str) -> pa.Field:
    return pa.field(field["name"], _from_json(field["type"], what), nullable=field.get("nullable", True))


def _from_json(kind: str | Mapping[str, Any], what: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            numbers = [int(n) for n in kind.removeprefix("decimal").strip("()").split(",") if n]
            return pa.decimal128(*(numbers or [10, 0]))
        name = kind.split("(")[0].lower()
        if name in _BY_NAME:
            return _BY_NAME[name]
        if name.startswith("interval"):
            return pa.duration("us")
    elif kind["type"] == "array":
        return pa.list_(_from_json(kind["elementType"], what))
    elif kind["type"] == "map":
        return pa.map_(_from_json(kind["keyType"], what), _from_json(kind["valueType"], what))
    elif kind["type"] == "struct":
        return pa.struct([pa.field(f["name"], _from_json(f["type"], what)) for f in kind["fields"]])
    raise PlanError(f"{what}: the type {kind} cannot be carried by a stream. ({written_at()})")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without colours."""
    return str(error).split("\n")[0].replace("\x1b[4m", "").replace("\x1b[0m", "").strip().rstrip(".")
