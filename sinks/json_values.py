"""Values as JSON has them, for sinks that keep nested values as JSON text; and the kinds of text and bytes."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import singledispatch
from typing import Any

import pyarrow as pa


def nested(values: pa.Array) -> list[Any]:
    """JSON text; what JSON has no number or word for stands in it as text.

    >>> nested(pa.array([{"price": Decimal("1.10"), "tags": ["a", None]}]))
    ['{"price": "1.10", "tags": ["a", null]}']
    """
    kind = values.type
    return [
        None if value is None else json.dumps(in_json(value, kind), ensure_ascii=False) for value in values.to_pylist()
    ]


def in_json(value: Any, kind: pa.DataType) -> Any:
    """A nested value as JSON knows it; a map is an object."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: in_json(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {name_in_json(k, kind.key_type): in_json(v, kind.item_type) for k, v in value}
    if pa.types.is_nested(kind):
        return [in_json(item, kind.value_type) for item in value]
    return plain(value)


def name_in_json(key: Any, kind: pa.DataType) -> str:
    """A map's key as the name of a JSON field."""
    named = in_json(key, kind)
    return named if isinstance(named, str) else json.dumps(named, ensure_ascii=False)


@singledispatch
def plain(value: Any) -> Any:
    """One value as JSON takes it; most are so already."""
    return value


@plain.register
def plain_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


@plain.register
def plain_decimal(value: Decimal) -> str:
    return format(value, "f")


@plain.register
def plain_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


@plain.register
def plain_date(value: date) -> str:
    return value.isoformat()


@plain.register
def plain_datetime(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


@plain.register
def plain_span(value: timedelta) -> int:
    return value // timedelta(microseconds=1)


def is_text(kind: pa.DataType) -> bool:
    """Text, in whichever of Arrow's layouts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Bytes, in whichever of Arrow's layouts."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
