"""Every value comes back from PostgreSQL as it was, in a type of PostgreSQL's own."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import sinks
from penstock.plan.errors import SinkError
from penstock.sinks import Changes, Owner, Rows, Target

UTC = timezone.utc
MOMENT = datetime(2026, 1, 1, 10, 0, 0, 5, tzinfo=UTC)
# how it is declared, the value, and the value as PostgreSQL gives it where that is another
TYPES = {
    "true": (pa.bool_(), "boolean", True),
    "byte": (pa.int8(), "smallint", -128),
    "short": (pa.int16(), "smallint", 32767),
    "int": (pa.int32(), "integer", -(2**31)),
    "long": (pa.int64(), "bigint", 2**63 - 1),
    "unsigned": (pa.uint64(), "numeric(20,0)", 2**64 - 1, Decimal(2**64 - 1)),
    "float": (pa.float32(), "real", 1.5),
    "double": (pa.float64(), "double precision", 0.1),
    "nan": (pa.float64(), "double precision", math.nan),
    "inf": (pa.float64(), "double precision", math.inf),
    "minus inf": (pa.float32(), "real", -math.inf),
    "text": (pa.string(), "text", "1e5 é 'x'"),
    "text that looks like null": (pa.large_string(), "text", "\\N"),
    "text that looks like an end": (pa.string(), "text", 'a\n\\.\n"b",\r\n'),
    "empty text": (pa.string(), "text", ""),
    "bytes": (pa.binary(), "bytea", b"\x00\xff\\"),
    "no bytes": (pa.binary(), "bytea", b""),
    "decimal": (pa.decimal128(38, 18), "numeric(38,18)", Decimal("12345678901234567890.100000000000000001")),
    "small decimal": (pa.decimal128(38, 18), "numeric(38,18)", Decimal("-0.000000000000000001")),
    "instant": (pa.timestamp("us", "UTC"), "timestamp with time zone", MOMENT),
    "elsewhere": (pa.timestamp("us", "Asia/Tokyo"), "timestamp with time zone", MOMENT),
    "old instant": (pa.timestamp("us", "UTC"), "timestamp with time zone", datetime(1, 1, 1, tzinfo=UTC)),
    "local": (pa.timestamp("us"), "timestamp without time zone", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "date": (pa.date32(), "date", date(1, 1, 1)),
    "span": (pa.duration("us"), "interval", timedelta(days=-1, microseconds=1)),
    "long span": (pa.duration("us"), "interval", timedelta(days=100_000_000, microseconds=1)),
    "nothing": (pa.null(), "text", None),
    "list": (pa.list_(pa.string()), "jsonb", ["é", None, "\\u0000"]),
    "struct": (
        pa.struct({"at": pa.timestamp("us", "UTC"), "price": pa.decimal128(9, 2), "n": pa.int64()}),
        "jsonb",
        {"at": MOMENT, "price": Decimal("1.10"), "n": 2**63 - 1},
        {"at": "2026-01-01T10:00:00.000005Z", "price": "1.10", "n": 2**63 - 1},
    ),
    "map": (pa.map_(pa.int64(), pa.float64()), "jsonb", [(1, math.nan), (2, None)], {"1": "NaN", "2": None}),
}


@pytest.fixture(scope="module")
def table_of_types(server):
    """All cases in one table, with a row of nulls."""
    url = server.url
    sink = sinks.postgres("types", url)
    schema = pa.schema({name: case[0] for name, case in TYPES.items()})
    rows = [{name: case[2] for name, case in TYPES.items()}, dict.fromkeys(TYPES)]
    writer = sink.writer([Target("types", sink)], Owner("shop", "c1", 1, -1))
    writer.write(0, {"types": Changes(Rows(None, pa.Table.from_pylist(rows, schema)))})
    writer.close()
    with psycopg.connect(url) as connection:
        connection.execute("set timezone = 'Asia/Tokyo'")
        yield connection


@pytest.mark.parametrize("case", TYPES)
def test_every_type_is_kept_exactly(table_of_types, case):
    _, declared, value, *rest = TYPES[case]
    kept = rest[0] if rest else value
    name = psycopg.sql.Identifier(case)
    query = psycopg.sql.SQL("select {0}, pg_typeof({0})::text from types").format(name)
    (found, kind), (nothing, _) = table_of_types.execute(query).fetchall()
    assert kind == declared.partition("(")[0]
    assert nothing is None
    assert found == kept or (found != found and kept != kept)
    assert type(found) is type(kept)


def test_a_decimal_keeps_its_precision_in_the_table(table_of_types):
    query = (
        "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'types'::regclass and attname = %s"
    )
    assert table_of_types.execute(query, ("decimal",)).fetchall() == [("numeric(38,18)",)]


VALUES = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        "double": st.none() | st.floats(),
        "float": st.none() | st.floats(width=32),
        "price": st.none() | st.decimals(-(10**18), 10**18, places=9),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
        "day": st.none() | st.dates(),
        "span": st.none() | st.timedeltas(-timedelta(days=10**8), timedelta(days=10**8)),
        "raw": st.none() | st.binary(),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)
KINDS = {
    "text": pa.string(), "double": pa.float64(), "float": pa.float32(), "price": pa.decimal128(38, 9),
    "at": pa.timestamp("us", "UTC"), "day": pa.date32(), "span": pa.duration("us"), "raw": pa.binary(), "n": pa.int64(),
}  # fmt: skip


@pytest.fixture
def write_and_read(url, open_writer):
    """Write rows and read them back; the table is empty again afterwards."""
    writer, batches = open_writer(), count()
    with psycopg.connect(url, autocommit=True) as connection:

        def run(rows):
            table = pa.Table.from_pylist(rows, pa.schema(KINDS))
            writer.write(next(batches), {"hits": Changes(Rows(None, table))})
            # a real is read by its shortest text, of which Python makes another double
            exact = ", ".join('"float"::float8' if name == "float" else f'"{name}"' for name in KINDS)
            found = connection.execute(f"select {exact} from hits").fetchall()
            connection.execute("truncate hits")
            return [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in found]

        yield run


@settings(max_examples=60)
@given(st.lists(VALUES, max_size=4))
def test_what_is_read_is_what_was_written(write_and_read, rows):
    found = write_and_read(rows)
    assert sorted(map(repr, found)) == sorted(repr(tuple(row[name] for name in KINDS)) for row in rows)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.string(), "a\0b"), (pa.list_(pa.string()), ["a\0b"]), (pa.map_(pa.string(), pa.int64()), [("\\\0", 1)])],
    ids=["text", "in a list", "in a map's key"],
)
def test_a_nul_in_text_is_refused_by_output_and_column_and_nothing_is_written(open_writer, changes, query, kind, value):
    writer = open_writer()
    writer.write(0, {"hits": changes([{"n": 1, "v": None}], {"n": pa.int64(), "v": kind})})
    bad = changes([{"n": 2, "v": None}, {"n": 3, "v": value}], {"n": pa.int64(), "v": kind})
    with pytest.raises(SinkError, match=r"output 'hits', column 'v': a text holds a NUL.*translate\(v") as refused:
        writer.write(1, {"hits": bad})
    assert type(refused.value) is SinkError
    assert query("select n from hits") == [(1,)]
    assert query("select batch from _penstock_ledger") == [(0,)]


def test_a_time_before_the_year_1_is_refused_by_its_column(open_writer, changes):
    rows = Rows(None, pa.table({"at": pa.array([-(2**56)], pa.timestamp("us", "UTC"))}))
    with pytest.raises(SinkError, match="column 'at': a time is outside of the years 1 to 9999"):
        open_writer().write(0, {"hits": Changes(rows)})


def test_a_type_that_cannot_be_kept_is_refused_by_its_column(open_writer, changes):
    with pytest.raises(SinkError, match="output 'hits', column 'v': time64"):
        open_writer().write(0, {"hits": changes([], {"v": pa.time64("us")})})
