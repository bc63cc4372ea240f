"""How a value of each type stands in SQLite, which itself knows integers, floats, text and bytes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.errors import SinkError
from penstock.sinks.json_values import is_bytes, is_text, nested, plain


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

    >>> decimals(pa.array(["0.0000000000"]).cast(pa.decimal128(20, 10)))
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
