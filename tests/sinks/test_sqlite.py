from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock import sinks
from penstock.plan.errors import FencedError, PlanError, SinkError
from penstock.sinks import Changes, Rows, Target, sqlite_table

SCHEMA = {"page": pa.string(), "n": pa.int64()}
KEY = {"page": pa.string()}


@pytest.fixture
def database(tmp_path):
    return tmp_path / "out" / "shop.db"


@pytest.fixture
def query(database):
    def run(text, *values):
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(text, values).fetchall()

    return run


@pytest.fixture
def open_writer(database, owner):
    def make(output="hits", table="hits", key=(), path=None, **who):
        sink = sinks.sqlite(path or database, table)
        return sink.writer([Target(output, sink, key)], owner(**who))

    return make


@pytest.fixture
def hits(changes):
    def make(*listed, deletes=None):
        gone = None if deletes is None else [{"page": page} for page in deletes]
        return {"hits": changes([{"page": page, "n": n} for page, n in listed], SCHEMA, gone, KEY)}

    return make


def test_a_stream_is_appended_and_the_ledger_follows(open_writer, hits, query):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert writer.write(1, hits(("/a", 1), ("/b", 2)))
    assert query("select page, n from hits order by rowid") == [("/a", 1), ("/a", 1), ("/b", 2)]
    ledger = query("select job, output, checkpoint, batch, epoch from _penstock_ledger")
    assert ledger == [("shop", "hits", "c1", 1, 1)]


def test_a_table_is_upserted_and_deleted_by_key(open_writer, hits, query):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1), ("/b", 2), ("/c", 3)))
    writer.write(1, hits(("/a", 10), ("/d", 4), deletes=["/b", "/never"]))
    assert query("select page, n from hits order by page") == [("/a", 10), ("/c", 3), ("/d", 4)]


def test_a_key_deleted_and_upserted_in_one_batch_stays_and_the_later_row_wins(open_writer, hits, query):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1)))
    writer.write(1, hits(("/a", 2), ("/a", 3), deletes=["/a"]))
    assert query("select page, n from hits") == [("/a", 3)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 0),
        (pa.string(), ""),
        (pa.float64(), float("nan")),
        (pa.binary(), b""),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=timezone.utc)),
        (pa.list_(pa.int64()), [1]),
    ],
    ids=str,
)
def test_null_is_a_key_like_any_other(open_writer, changes, query, kind, value):
    schema = {"k": kind, "n": pa.int64()}
    writer = open_writer(key=("k",))
    for batch in range(2):
        rows = [{"k": None, "n": batch}, {"k": value, "n": batch}]
        writer.write(batch, {"hits": changes(rows, schema)})
    assert query("select k is null, n from hits order by 1") == [(0, 1), (1, 1)]
    writer.write(2, {"hits": changes([], schema, [{"k": None}], {"k": kind})})
    assert query("select k is null, n from hits") == [(0, 1)]


def test_part_of_a_key_may_be_null(open_writer, changes, query):
    schema = {"a": pa.string(), "b": pa.int64(), "n": pa.int64()}
    writer = open_writer(key=("a", "b"))
    for batch in range(2):
        rows = [
            {"a": "x", "b": None, "n": batch},
            {"a": None, "b": 1, "n": batch},
            {"a": "x", "b": 1, "n": batch},
        ]
        writer.write(batch, {"hits": changes(rows, schema)})
    assert query("select a, b, n from hits order by a, b") == [(None, 1, 1), ("x", None, 1), ("x", 1, 1)]


MOMENT = datetime(2026, 1, 1, 10, 0, 0, 5, tzinfo=timezone.utc)
TYPES = {
    "true": (pa.bool_(), True, 1),
    "false": (pa.bool_(), False, 0),
    "byte": (pa.int8(), -128, -128),
    "short": (pa.int16(), 32767, 32767),
    "int": (pa.int32(), -(2**31), -(2**31)),
    "long": (pa.int64(), 2**63 - 1, 2**63 - 1),
    "float": (pa.float32(), 1.5, 1.5),
    "double": (pa.float64(), 0.1, 0.1),
    "nan": (pa.float64(), float("nan"), "NaN"),
    "inf": (pa.float64(), float("inf"), "Infinity"),
    "minus inf": (pa.float32(), float("-inf"), "-Infinity"),
    "text": (pa.string(), "1e5 é \0 'x'", "1e5 é \0 'x'"),
    "large text": (pa.large_string(), "007", "007"),
    "bytes": (pa.binary(), b"\x00\xff", b"\x00\xff"),
    "decimal": (
        pa.decimal128(38, 18),
        Decimal("12345678901234567890.10"),
        "12345678901234567890.100000000000000000",
    ),
    "small decimal": (pa.decimal128(38, 18), Decimal(0), "0.000000000000000000"),
    "instant": (pa.timestamp("us", "UTC"), MOMENT, "2026-01-01T10:00:00.000005Z"),
    "old instant": (
        pa.timestamp("us", "UTC"),
        datetime(1, 1, 1, tzinfo=timezone.utc),
        "0001-01-01T00:00:00.000000Z",
    ),
    "elsewhere": (pa.timestamp("us", "Asia/Tokyo"), MOMENT, "2026-01-01T10:00:00.000005Z"),
    "whole second": (pa.timestamp("s", "UTC"), MOMENT.replace(microsecond=0), "2026-01-01T10:00:00.000000Z"),
    "local": (pa.timestamp("us"), datetime(1969, 12, 31, 23, 59, 59, 999999), "1969-12-31T23:59:59.999999"),
    "date": (pa.date32(), date(2026, 2, 28), "2026-02-28"),
    "span": (pa.duration("us"), timedelta(days=-1, microseconds=1), -86_399_999_999),
    "nothing": (pa.null(), None, None),
    "list": (pa.list_(pa.string()), ["é", None], '["é", null]'),
    "struct": (
        pa.struct({"at": pa.timestamp("us", "UTC"), "price": pa.decimal128(9, 2), "raw": pa.binary()}),
        {"at": MOMENT, "price": Decimal("1.10"), "raw": b"\xff"},
        '{"at": "2026-01-01T10:00:00.000005Z", "price": "1.10", "raw": "/w=="}',
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        [("a", float("nan")), ("b", None)],
        '{"a": "NaN", "b": null}',
    ),
    "map of numbers": (
        pa.map_(pa.int64(), pa.list_(pa.date32())),
        [(1, [date(2026, 1, 1)])],
        '{"1": ["2026-01-01"]}',
    ),
    "empty map": (pa.map_(pa.string(), pa.string()), [], "{}"),
    "deep": (
        pa.list_(pa.struct({"ok": pa.bool_(), "x": pa.map_(pa.bool_(), pa.duration("us"))})),
        [{"ok": True, "x": [(False, timedelta(seconds=1))]}, None],
        '[{"ok": true, "x": {"false": 1000000}}, null]',
    ),
}


@pytest.mark.parametrize("case", TYPES)
def test_every_type_is_kept_exactly(open_writer, changes, query, case):
    kind, value, kept = TYPES[case]
    open_writer().write(0, {"hits": changes([{"v": value}, {"v": None}], {"v": kind})})
    found = [row[0] for row in query("select v from hits order by rowid")]
    assert found == [kept, None]
    assert type(found[0]) is type(kept)
    if pa.types.is_nested(kind):
        json.loads(found[0])


def test_a_float_that_is_whole_is_still_a_float(open_writer, changes, query):
    open_writer().write(0, {"hits": changes([{"v": 3.0}], {"v": pa.float64()})})
    assert query("select typeof(v) from hits") == [("real",)]


def test_instants_sort_as_text_and_sqlite_itself_reads_them(open_writer, changes, query):
    times = [MOMENT.replace(microsecond=us) for us in (100000, 0, 5)] + [datetime(1900, 1, 1, tzinfo=timezone.utc)]
    open_writer().write(0, {"hits": changes([{"at": at} for at in times], {"at": pa.timestamp("us", "UTC")})})
    found = [datetime.fromisoformat(at.replace("Z", "+00:00")) for (at,) in query("select at from hits order by at")]
    assert found == sorted(times)
    assert query("select datetime(max(at)) from hits") == [("2026-01-01 10:00:00",)]


def test_a_type_that_cannot_be_kept_is_refused_by_its_column(open_writer, changes):
    with pytest.raises(SinkError, match="column 'v': time64"):
        open_writer().write(0, {"hits": changes([], {"v": pa.time64("us")})})


def test_names_may_hold_quotes_spaces_and_words_of_sql(open_writer, changes, query):
    schema = {'a "b" c': pa.string(), "select": pa.int64(), "x'); drop table y; --": pa.int64()}
    name = 'group "by"; order'
    row = {'a "b" c': "v", "select": 1, "x'); drop table y; --": 2}
    writer = open_writer(table=name, key=('a "b" c', "select"))
    writer.write(0, {"hits": changes([row], schema)})
    writer.write(1, {"hits": changes([row], schema)})
    assert query('select * from "group ""by""; order"') == [("v", 1, 2)]


def test_a_batch_that_is_there_is_skipped_also_by_the_next_run(open_writer, hits, query):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert not writer.write(0, hits(("/a", 1)))
    assert not open_writer(epoch=2).write(0, hits(("/a", 1)))
    assert query("select page, n from hits") == [("/a", 1)]


def test_a_crash_before_the_commit_leaves_the_batch_before(open_writer, hits, query, kill):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1), ("/b", 2)))
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(1, hits(("/a", 10), deletes=["/b"]))
    assert query("select page, n from hits order by page") == [("/a", 1), ("/b", 2)]
    assert open_writer(key=("page",), epoch=2, committed=0).write(1, hits(("/a", 10), deletes=["/b"]))
    assert query("select page, n from hits") == [("/a", 10)]
    assert query("select batch, epoch from _penstock_ledger") == [(1, 2)]


def test_a_reader_sees_the_batch_before_while_one_is_written(open_writer, hits, query):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    seen = []
    writer.during = lambda: seen.extend(query("select page from hits"))
    writer.write(1, hits(("/b", 2)))
    assert seen == [("/a",)]


def test_two_outputs_in_one_database_commit_together(database, owner, changes, hits, query, kill):
    hits_sink, sums_sink = sinks.sqlite(database, "hits"), sinks.sqlite(str(database), "sums")
    assert hits_sink.place == sums_sink.place
    targets = [Target("hits", hits_sink), Target("sums", sums_sink, ("page",))]
    batch = {**hits(("/a", 1)), "sums": changes([{"page": "/a", "n": 1}], SCHEMA)}
    writer = hits_sink.writer(targets, owner())
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(0, batch)
    assert query("select count(*) from sqlite_master where name in ('hits', 'sums')") == [(0,)]
    writer = hits_sink.writer(targets, owner(epoch=2))
    assert writer.write(0, batch)
    assert not writer.write(0, batch)
    assert query("select * from hits union all select * from sums") == [("/a", 1), ("/a", 1)]
    assert query("select output, batch from _penstock_ledger order by 1") == [("hits", 0), ("sums", 0)]


def test_an_older_run_cannot_write(open_writer, hits, query):
    old = open_writer(epoch=1)
    old.write(0, hits(("/a", 1)))
    new = open_writer(epoch=2, committed=0)
    with pytest.raises(FencedError, match="run 2 of job 'shop', and this is run 1"):
        old.write(1, hits(("/old", 9)))
    assert new.write(1, hits(("/b", 2)))
    with pytest.raises(FencedError):
        open_writer(epoch=1, committed=0)
    assert query("select page from hits order by 1") == [("/a",), ("/b",)]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"job": "blog"}, "'blog'"),
        ({"checkpoint": "c2"}, "checkpoint c2"),
        ({"output": "visits"}, "'visits'"),
        ({"job": "blog", "table": "HITS"}, "'blog'"),
    ],
    ids=["job", "checkpoint", "output", "case of the table"],
)
def test_what_another_wrote_is_refused_with_both_names_and_the_choices(open_writer, hits, query, other, named):
    open_writer().write(0, hits(("/a", 1)))
    before = query("select * from _penstock_ledger")
    with pytest.raises(SinkError, match="another table, or drop that one") as refused:
        open_writer(**other)
    for fact in (named, "'hits'", "'shop'", "checkpoint c1"):
        assert fact in str(refused.value)
    assert query("select * from _penstock_ledger") == before


def test_two_jobs_may_share_a_database(open_writer, hits, changes, query):
    open_writer().write(0, hits(("/a", 1)))
    other = open_writer(job="blog", output="posts", table="posts")
    other.write(0, {"posts": changes([{"id": 1}], {"id": pa.int64()})})
    assert query("select job, output from _penstock_ledger order by 1") == [
        ("blog", "posts"),
        ("shop", "hits"),
    ]


def test_an_output_that_has_gone_while_its_checkpoint_stands_is_refused(database, open_writer, hits, query):
    with pytest.raises(SinkError, match="has gone"):
        open_writer(committed=3)
    assert not database.exists()
    open_writer().write(0, hits(("/a", 1)))
    query("drop table hits")
    with pytest.raises(SinkError, match=r"table 'hits' in .* has gone"):
        open_writer(epoch=2, committed=0)
    with pytest.raises(SinkError, match="has gone"):
        open_writer(epoch=2, committed=-1)


def test_an_older_copy_of_the_database_is_refused(open_writer, hits):
    open_writer().write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 4: it is an older copy"):
        open_writer(epoch=2, committed=4)


def test_a_database_removed_under_a_running_job_is_not_made_anew(database, open_writer, hits):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    database.unlink()
    with pytest.raises(SinkError, match="unable to open database file"):
        writer.write(1, hits(("/b", 2)))
    assert not database.exists()


def test_a_table_of_nobody_is_refused(database, open_writer, query):
    database.parent.mkdir()
    query("create table hits (x, y)")
    with pytest.raises(SinkError, match="no job owns it; it has columns x, y"):
        open_writer()


def test_other_columns_than_before_are_refused_by_name(open_writer, changes, hits):
    open_writer().write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match="has columns page, n; the rows to write have page, m"):
        open_writer(epoch=2).write(1, {"hits": changes([], {"page": pa.string(), "m": pa.int64()})})


def test_other_types_than_before_are_refused_by_name(open_writer, changes, hits, query):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    texts = changes([{"page": "/a", "n": "007"}], {"page": pa.string(), "n": pa.string()})
    with pytest.raises(SinkError, match="columns page TEXT, n BIGINT; the rows to write have page TEXT, n TEXT"):
        writer.write(1, {"hits": texts})
    assert query("select n from hits") == [(1,)]


def test_columns_in_another_order_go_where_they_belong(open_writer, changes, hits, query):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1)))
    writer.write(1, {"hits": changes([{"n": 2, "page": "/b"}], {"n": pa.int64(), "page": pa.string()})})
    assert query("select page, n from hits order by page") == [("/a", 1), ("/b", 2)]


@pytest.mark.parametrize("at", ["file/below.db", "directory", "text.db", "/proc/penstock/shop.db"])
def test_a_place_that_cannot_be_written_is_refused_by_its_path(tmp_path, open_writer, at):
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (tmp_path / "text.db").write_text("this is a text and no database" * 100)
    path = tmp_path / at
    with pytest.raises(SinkError, match=r"output 'hits': cannot write to .*See that it is") as refused:
        open_writer(path=path)
    assert str(path) in str(refused.value)


def test_a_database_that_stays_locked_is_refused(database, open_writer, hits, monkeypatch):
    writer = open_writer()
    monkeypatch.setattr(sqlite_table, "WAIT_S", 0.01)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="database is locked"):
            writer.write(0, hits(("/a", 1)))
    assert writer.write(0, hits(("/a", 1)))


class InSpark(Rows):
    """Rows that take their time; ``meanwhile`` is done while they are made."""

    in_process = False

    def __init__(self, table, meanwhile):
        super().__init__(None, table)
        object.__setattr__(self, "meanwhile", meanwhile)

    def batches(self):
        self.meanwhile()
        return super().batches()


HITS = pa.table({"page": ["/a", "/b"], "n": [1, 2]})


def test_others_may_write_to_the_database_while_spark_makes_the_rows(open_writer, query, database, monkeypatch):
    writer = open_writer(key=("page",))
    monkeypatch.setattr(sqlite_table, "WAIT_S", 0.01)

    def another():
        with closing(sqlite3.connect(database, isolation_level=None, timeout=0.01)) as other:
            other.execute("create table if not exists beside (x)")
            other.execute("insert into beside values (1)")

    rows, deletes = InSpark(HITS, another), InSpark(HITS.select(["page"]).slice(0, 1), another)
    writer.write(0, {"hits": Changes(rows, deletes)})
    assert query("select count(*) from beside") == [(2,)]
    assert query("select page, n from hits order by n") == [("/a", 1), ("/b", 2)]


def test_a_batch_that_is_there_costs_no_work(open_writer, query):
    rows = {"hits": Changes(InSpark(HITS, lambda: pytest.fail("the rows were made again")))}
    writer = open_writer()
    writer.write(0, {"hits": Changes(Rows(None, HITS))})
    assert not writer.write(0, rows)
    assert not open_writer(epoch=2).write(0, rows)


def test_a_run_that_is_replaced_while_its_rows_are_made_cannot_write(open_writer, query):
    old = open_writer(epoch=1)
    rows = InSpark(HITS, lambda: open_writer(epoch=2))
    with pytest.raises(FencedError, match="run 2"):
        old.write(0, {"hits": Changes(rows)})
    assert query("select epoch, batch from _penstock_ledger") == [(2, -1)]
    assert query("select 1 from sqlite_master where name = 'hits'") == []


def test_a_full_disk_where_rows_wait_is_refused_by_that_place(open_writer, query):
    def full():
        raise OSError(28, "No space left on device")

    with pytest.raises(SinkError, match=r"cannot write to /.*No space left.*let TMPDIR name another folder"):
        open_writer().write(0, {"hits": Changes(InSpark(HITS, full))})
    assert query("select batch from _penstock_ledger") == [(-1,)]


def test_two_outputs_of_one_table_are_refused(database, owner):
    one, two = sinks.sqlite(database, "hits"), sinks.sqlite(database, "Hits")
    with pytest.raises(SinkError, match="'a', 'b': both write to table"):
        one.writer([Target("a", one), Target("b", two)], owner())


@pytest.mark.parametrize("table", ["", "sqlite_x", "_penstock_ledger", "a\0b"])
def test_a_table_that_cannot_have_its_name_is_refused_where_it_is_written(table):
    with pytest.raises(PlanError):
        sinks.sqlite("shop.db", table)


def test_a_database_in_memory_is_refused_where_it_is_written():
    with pytest.raises(PlanError, match=r"Use sinks\.memory"):
        sinks.sqlite(":memory:", "hits")


def test_a_process_killed_before_the_commit_leaves_nothing_to_read(database, open_writer, changes, query):
    # more rows than SQLite's page cache holds, so that some are in the file when the process dies
    script = f"""
import os, pyarrow as pa
from penstock import sinks
from penstock.sinks import Changes, Owner, Rows, Target
sink = sinks.sqlite({str(database)!r}, "hits")
writer = sink.writer([Target("hits", sink)], Owner("shop", "c1", 1, -1))
table = pa.table({{"page": ["/a" * 100] * 20_000, "n": pa.array(range(20_000), pa.int64())}})
writer.write(0, {{"hits": Changes(Rows(None, table.slice(0, 1)))}})
writer.during = lambda: os._exit(9)
writer.write(1, {{"hits": Changes(Rows(None, table))}})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert database.stat().st_size > 1_000_000
    assert query("select n from hits") == [(0,)]
    assert open_writer(epoch=2, committed=0).write(1, {"hits": changes([{"page": "/b", "n": 1}], SCHEMA)})
    assert query("select n from hits order by n") == [(0,), (1,)]


def test_rows_in_spark_are_streamed_in_and_keep_their_types(spark, database, owner, query):
    sink = sinks.sqlite(database, "hits")
    target = Target("hits", sink, ("id",))
    frame = spark.range(0, 25_000, numPartitions=3).selectExpr(
        "id",
        "timestamp_micros(id) at",
        "cast(id as decimal(20,3)) price",
        "map('k', id) m",
        "id % 2 = 0 even",
    )
    deletes = Rows(spark, frame=spark.range(100, 200).select("id"))
    writer = sink.writer([target], owner())
    assert writer.write(0, {"hits": Changes(Rows(spark, frame=frame))})
    assert writer.write(1, {"hits": Changes(Rows(spark, frame=frame.where("id < 10")), deletes)})
    assert query("select count(*), count(distinct id) from hits") == [(24_900, 24_900)]
    row = ("1970-01-01T00:00:00.024999Z", "24999.000", '{"k": 24999}', 0)
    assert query("select at, price, m, even from hits where id = 24999") == [row]
