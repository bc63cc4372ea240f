"""How a value of each type stands in PostgreSQL, and a batch as the CSV that COPY reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.plan.errors import SinkError
from penstock.sinks.json_values import is_bytes, is_text, nested

# text is quoted and null is empty: so COPY tells '' from null
OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=10_000)
NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
NUL = "a text holds a NUL, which PostgreSQL cannot keep. Take it out in a select(), such as translate({0}, '\\0', '')"
FAR = "a time is outside of the years 1 to 9999. Leave such rows out, or make it null"
FIRST = datetime(1, 1, 1)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)


class UnfitError(ValueError):
    """A value that PostgreSQL has no place for; ``{0}`` in the text is the column."""


class Form(NamedTuple):
    """The type that a column is declared with, and how a column of values becomes what stands in the CSV."""

    declared: Callable[[pa.DataType], str]
    cells: Callable[[pa.Array], pa.Array]


def declared(output: str, column: str, kind: pa.DataType) -> str:
    """The type that a column has in the table, in PostgreSQL's own words.

    >>> declared("hits", "price", pa.decimal128(9, 2))
    'numeric(9,2)'
    """
    return form_of(output, column, kind).declared(kind)


def as_csv(output: str, batch: pa.RecordBatch, names: list[str]) -> pa.Buffer:
    """The named columns of a batch as COPY reads them.

    >>> rows = pa.RecordBatch.from_pydict({"page": ["", None], "n": [1, 2]})
    >>> as_csv("hits", rows, ["n", "page"]).to_pybytes()
    b'1,""\\n2,\\n'
    """
    cells = []
    for name in names:
        values = batch.column(name)
        try:
            cells.append(form_of(output, name, values.type).cells(values))
        except UnfitError as error:
            raise SinkError(f"output {output!r}, column {name!r}: {str(error).format(name)}.") from None
    stream = pa.BufferOutputStream()
    csv.write_csv(pa.RecordBatch.from_arrays(cells, [str(i) for i in range(len(cells))]), stream, OPTIONS)
    return stream.getvalue()


def form_of(output: str, column: str, kind: pa.DataType) -> Form:
    """How values of a type are kept."""
    for fits, form in FORMS:
        if fits(kind):
            return form
    raise SinkError(
        f"output {output!r}, column {column!r}: {kind} cannot be kept in PostgreSQL. Cast it in a select() before to()."
    )


def as_is(values: pa.Array) -> pa.Array:
    """What Arrow writes as PostgreSQL reads it: numbers, dates, truth values; floats with all their digits."""
    return values


def texts(values: pa.Array) -> pa.Array:
    """Text without a NUL."""
    if pc.any(pc.match_substring(values, "\0")).as_py():
        raise UnfitError(NUL)
    return values


def hexadecimal(values: pa.Array) -> pa.Array:
    """Bytes as PostgreSQL's own text for them.

    >>> hexadecimal(pa.array([b"a\\xff", None])).to_pylist()
    ['\\\\x61ff', None]
    """
    return pa.array([None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()], pa.string())


def times(values: pa.Array) -> pa.Array:
    """Times in UTC; Arrow has no text for those that are far away."""
    instant = values.type.tz is not None
    utc = values.cast(pa.timestamp("us", "UTC" if instant else None))
    ends = pc.min_max(utc.cast(pa.timestamp("us")))
    first, last = (ends[side].cast(pa.int64()).as_py() for side in ("min", "max"))
    if first is not None and (first < micros(FIRST) or last > micros(LAST)):
        raise UnfitError(FAR)
    return utc


def days(values: pa.Array) -> pa.Array:
    """Dates, with the same ends as times."""
    times(values.cast(pa.timestamp("us")))
    return values.cast(pa.date32())


def spans(values: pa.Array) -> pa.Array:
    """Whole microseconds.

    >>> spans(pa.array([-1], pa.duration("us"))).to_pylist()
    ['-1 microseconds']
    """
    whole = values.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(whole, "microseconds", " ")


def objects(values: pa.Array) -> pa.Array:
    """JSON text."""
    found = nested(values)
    if any(text is not None and "\\u0000" in text and NUL_IN_JSON.search(text) for text in found):
        raise UnfitError(NUL)
    return pa.array(found, pa.large_string())


def whole_number(kind: pa.DataType) -> str:
    """The smallest type that holds all values."""
    if pa.types.is_unsigned_integer(kind):
        return {8: "smallint", 16: "integer", 32: "bigint", 64: "numeric(20,0)"}[kind.bit_width]
    return {8: "smallint", 16: "smallint", 32: "integer", 64: "bigint"}[kind.bit_width]


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return int(pa.scalar(moment, pa.timestamp("us")).cast(pa.int64()).as_py())


def _always(name: str) -> Callable[[Any], str]:
    return lambda kind: name


FORMS: tuple[tuple[Callable[[pa.DataType], bool], Form], ...] = (
    (pa.types.is_boolean, Form(_always("boolean"), as_is)),
    (pa.types.is_integer, Form(whole_number, as_is)),
    (pa.types.is_float64, Form(_always("double precision"), as_is)),
    (pa.types.is_floating, Form(_always("real"), as_is)),
    (is_text, Form(_always("text"), texts)),
    (is_bytes, Form(_always("bytea"), hexadecimal)),
    (pa.types.is_decimal, Form(lambda kind: f"numeric({kind.precision},{kind.scale})", as_is)),
    (pa.types.is_timestamp, Form(lambda kind: f"timestamp {'with' if kind.tz else 'without'} time zone", times)),
    (pa.types.is_date, Form(_always("date"), days)),
    (pa.types.is_duration, Form(_always("interval"), spans)),
    (pa.types.is_null, Form(_always("text"), as_is)),
    (pa.types.is_nested, Form(_always("jsonb"), objects)),
)
