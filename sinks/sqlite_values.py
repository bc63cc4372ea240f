"""How a value of each type stands in SQLite, which itself knows integers, floats, text and bytes only."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import singledispatch
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.errors import SinkError


class Form(NamedTuple):
    """The type that a column is declared with, and how a column of values becomes what SQLite is given."""

    declared: str
    stored: Callable[[pa.Array], list[Any]]


def form_of(column: str, kind: pa.DataType) -> Form:
    """How values of a type are kept.

    >>> form_of("at", pa.timestamp("us", "UTC")).declared
    'TEXT'
    """
    for fits, form in FORMS:
        if fits(kind):
            return form
    raise SinkError(f"column {column!r}: {kind} cannot be kept in SQLite. Cast it in a select() before to().")


def as_is(values: pa.Array) -> list[Any]:
    """Integers, text and bytes."""
    return list(values.to_pylist())


def truths(values: pa.Array) -> list[Any]:
    """True as 1 and false as 0."""
    return as_is(values.cast(pa.int8()))


def floats(values: pa.Array) -> list[Any]:
    """Floats; what is not finite as text, because SQLite makes NULL of NaN.

    >>> floats(pa.array([1.5, float("nan"), float("-inf"), None]))
    [1.5, 'NaN', '-Infinity', None]
    """
    if pc.all(pc.is_finite(values)).as_py() is False:
        return [plain(value) for value in values.to_pylist()]
    return as_is(values)


def decimals(values: pa.Array) -> list[Any]:
    """All digits as text, never with an exponent.

    >>> decimals(pa.array([Decimal("0.0000000000")]))
    ['0.0000000000']
    """
    return [plain(value) for value in values.to_pylist()]


def times(values: pa.Array) -> list[Any]:
    """ISO 8601 with six digits of fraction, so that text sorts as time does; Z when it is an instant.

    >>> times(pa.array([0], pa.timestamp("us", "UTC")))
    ['1970-01-01T00:00:00.000000Z']
    """
    instant = values.type.tz is not None
    utc = values.cast(pa.timestamp("us", "UTC" if instant else None))
    return as_is(pc.strftime(utc, "%Y-%m-%dT%H:%M:%SZ" if instant else "%Y-%m-%dT%H:%M:%S"))


def days(values: pa.Array) -> list[Any]:
    """ISO 8601."""
    return as_is(pc.strftime(values.cast(pa.date32()), "%Y-%m-%d"))


def spans(values: pa.Array) -> list[Any]:
    """Whole microseconds."""
    return as_is(values.cast(pa.duration("us")).cast(pa.int64()))


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


FORMS: tuple[tuple[Callable[[pa.DataType], bool], Form], ...] = (
    (pa.types.is_boolean, Form("BOOLEAN", truths)),
    # not INTEGER: a single key declared INTEGER becomes the row's number, and a null key a new number
    (pa.types.is_integer, Form("BIGINT", as_is)),
    (pa.types.is_floating, Form("REAL", floats)),
    (is_text, Form("TEXT", as_is)),
    (is_bytes, Form("BLOB", as_is)),
    # not DECIMAL: SQLite would turn the text into a float
    (pa.types.is_decimal, Form("TEXT", decimals)),
    (pa.types.is_timestamp, Form("TEXT", times)),
    (pa.types.is_date, Form("TEXT", days)),
    (pa.types.is_duration, Form("BIGINT", spans)),
    (pa.types.is_null, Form("TEXT", as_is)),
    (pa.types.is_nested, Form("TEXT", nested)),
)
