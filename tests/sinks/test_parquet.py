from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from penstock import sinks
from penstock.plan.errors import FencedError, SinkError
from penstock.sinks import Changes, Rows, Target
from penstock.sinks.parquet_ledger import appear

SCHEMA = {"page": pa.string(), "n": pa.int64()}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def open_writer(out, owner):
    def make(output="hits", path=None, **who):
        sink = sinks.parquet(path or out)
        return sink.writer([Target(output, sink)], owner(**who))

    return make


@pytest.fixture
def hits(changes):
    def make(*listed):
        return {"hits": changes([{"page": page, "n": n} for page, n in listed], SCHEMA)}

    return make


def visible(out: Path) -> list[str]:
    return sorted(name for name in os.listdir(out) if not name.startswith(("_", ".")))


def read(out: Path) -> list[dict]:
    return sorted(pyarrow.dataset.dataset(out).to_table().to_pylist(), key=str)


def test_a_batch_is_one_file_named_by_output_and_batch(out, open_writer, hits):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert writer.write(7, hits(("/b", 2)))
    assert visible(out) == ["hits-000000000000.parquet", "hits-000000000007.parquet"]
    assert read(out) == [{"page": "/a", "n": 1}, {"page": "/b", "n": 2}]
    assert os.listdir(out / "_penstock" / "staging-1") == []


def test_pandas_and_duckdb_read_the_directory(out, open_writer, hits):
    open_writer().write(0, hits(("/a", 1)))
    assert pd.read_parquet(out).to_dict("records") == [{"page": "/a", "n": 1}]
    assert duckdb.sql(f"select * from '{out}/*.parquet'").fetchall() == [("/a", 1)]


def test_only_the_first_batch_without_rows_makes_a_file(out, open_writer, hits):
    writer = open_writer()
    assert writer.write(0, hits())
    assert writer.write(1, hits())
    assert visible(out) == ["hits-000000000000.parquet"]
    assert pq.read_schema(out / visible(out)[0]).names == ["page", "n"]


def test_a_batch_that_is_there_is_skipped_also_by_the_next_run(out, open_writer, hits):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert not writer.write(0, hits(("/a", 1)))
    assert not open_writer(epoch=2).write(0, hits(("/a", 1)))
    assert read(out) == [{"page": "/a", "n": 1}]


def test_a_crash_before_the_rename_shows_no_row_and_the_replay_all(out, open_writer, hits, kill):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(1, hits(("/b", 2)))
    assert read(out) == [{"page": "/a", "n": 1}]
    again = open_writer(epoch=2, committed=0)
    assert again.write(1, hits(("/b", 2)))
    assert read(out) == [{"page": "/a", "n": 1}, {"page": "/b", "n": 2}]
    assert sorted(os.listdir(out / "_penstock")) == ["epoch-2", "owner.json", "staging-2"]


def test_a_failed_write_can_be_tried_again_by_the_same_writer(out, open_writer, hits, kill):
    writer = open_writer()
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(0, hits(("/a", 1)))
    writer.during = None
    assert writer.write(0, hits(("/a", 1)))
    assert read(out) == [{"page": "/a", "n": 1}]


def test_an_older_run_cannot_write(out, open_writer, hits):
    old = open_writer(epoch=1)
    old.write(0, hits(("/a", 1)))
    new = open_writer(epoch=2, committed=0)
    with pytest.raises(FencedError, match="run 2 of job 'shop', and this is run 1"):
        old.write(1, hits(("/old", 9)))
    with pytest.raises(FencedError):
        old.write(1, hits())
    assert new.write(1, hits(("/b", 2)))
    with pytest.raises(FencedError):
        open_writer(epoch=1, committed=0)
    assert read(out) == [{"page": "/a", "n": 1}, {"page": "/b", "n": 2}]


def test_an_older_run_that_stood_still_at_the_rename_cannot_write(out, open_writer, hits):
    old = open_writer(epoch=1)
    old.during = lambda: open_writer(epoch=2)
    with pytest.raises(FencedError):
        old.write(0, hits(("/old", 9)))
    assert visible(out) == []


def test_an_older_run_past_its_check_finds_its_staged_file_gone(out, open_writer, hits, monkeypatch):
    old = open_writer(epoch=1)
    check = old.claim.recorded
    staged = []

    def check_then_stand_still(ledger):
        batch = check(ledger)
        staged.append(list(old.ledger.staging.rglob("*.parquet")))
        if staged[-1]:
            open_writer(epoch=2)
        return batch

    monkeypatch.setattr(old.claim, "recorded", check_then_stand_still)
    with pytest.raises(FencedError):
        old.write(0, hits(("/old", 9)))
    assert [len(files) for files in staged] == [0, 1]
    assert visible(out) == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"job": "blog"}, "'blog'"),
        ({"checkpoint": "c2"}, "checkpoint c2"),
        ({"output": "visits"}, "'visits'"),
    ],
    ids=["job", "checkpoint", "output"],
)
def test_what_another_wrote_is_refused_with_both_names_and_the_choices(open_writer, hits, other, named):
    open_writer().write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match="another path, or remove that directory and replay") as refused:
        open_writer(**other)
    for fact in (named, "'hits'", "'shop'", "checkpoint c1"):
        assert fact in str(refused.value)


def test_an_output_that_has_gone_while_its_checkpoint_stands_is_refused(out, open_writer, hits):
    with pytest.raises(SinkError, match="has gone"):
        open_writer(committed=3)
    assert not out.exists()
    open_writer().write(0, hits(("/a", 1)))
    (out / "hits-000000000000.parquet").unlink()
    with pytest.raises(SinkError, match="has gone"):
        open_writer(epoch=2, committed=0)
    assert (out / "_penstock" / "epoch-1").exists()


def test_a_directory_removed_under_a_running_job_is_not_made_anew(out, open_writer, hits):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    out.rename(out.with_name("moved"))
    with pytest.raises(SinkError, match="has gone"):
        writer.write(1, hits(("/b", 2)))
    assert not out.exists()


def test_a_directory_with_files_of_nobody_is_refused(out, open_writer):
    out.mkdir()
    pq.write_table(pa.table({"x": [1]}), out / "hits-000000000000.parquet")
    with pytest.raises(SinkError, match="no job owns"):
        open_writer()


def test_a_damaged_owner_is_refused_by_its_file(out, open_writer):
    open_writer()
    (out / "_penstock" / "owner.json").write_text("[]")
    with pytest.raises(SinkError, match=r"owner\.json is damaged"):
        open_writer(epoch=2)


def test_other_columns_than_before_are_refused_by_name(open_writer, changes, hits):
    open_writer().write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match="has columns page, n; the rows to write have page, m"):
        open_writer(epoch=2).write(1, {"hits": changes([], {"page": pa.string(), "m": pa.int64()})})


def test_other_types_than_before_are_refused_by_name(out, open_writer, changes, hits):
    open_writer().write(0, hits(("/a", 1)))
    writer = open_writer(epoch=2)
    texts = changes([{"page": "/a", "n": "007"}], {"page": pa.string(), "n": pa.string()})
    with pytest.raises(SinkError, match="columns page string, n int64; the rows to write have page string, n string"):
        writer.write(1, {"hits": texts})
    assert read(out) == [{"page": "/a", "n": 1}]
    assert os.listdir(out / "_penstock" / "staging-2") == []


def test_columns_in_another_order_are_written_in_the_order_of_the_folder(out, open_writer, changes, hits):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    assert writer.write(1, {"hits": changes([{"n": 2, "page": "/b"}], {"n": pa.int64(), "page": pa.string()})})
    assert [pq.read_schema(out / file).names for file in visible(out)] == [["page", "n"]] * 2
    assert read(out) == [{"page": "/a", "n": 1}, {"page": "/b", "n": 2}]


KINDS = {
    "text": (pa.string(), "cast(null AS string)"),
    "long text": (pa.large_string(), "cast(null AS string)"),
    "bytes": (pa.binary(), "cast(null AS binary)"),
    "whole": (pa.int32(), "cast(null AS int)"),
    "float": (pa.float32(), "cast(null AS float)"),
    "decimal": (pa.decimal128(20, 3), "cast(null AS decimal(20, 3))"),
    "instant": (pa.timestamp("us", "UTC"), "cast(null AS timestamp)"),
    "instant elsewhere": (pa.timestamp("ms", "Asia/Tokyo"), "cast(null AS timestamp)"),
    "local time": (pa.timestamp("us"), "cast(null AS timestamp_ntz)"),
    "day": (pa.date32(), "cast(null AS date)"),
    "span": (pa.duration("us"), "cast(null AS interval day to second)"),
    "list": (pa.list_(pa.int64()), "array(1L)"),
    "map": (pa.map_(pa.string(), pa.list_(pa.string())), "cast(null AS map<string, array<string>>)"),
    "struct": (
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.date32())}),
        "cast(null AS struct<a: bigint, b: array<date>>)",
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_column_has_the_same_type_whether_this_process_or_spark_wrote_it(spark, out, owner, changes, case):
    kind, in_spark = KINDS[case]
    sink = sinks.parquet(out)
    writer = sink.writer([Target("all", sink)], owner())
    here = changes([{"v": None}], {"v": kind})
    there = Changes(Rows(spark, frame=spark.range(1).selectExpr(f"{in_spark} AS v")))
    for batch, rows in enumerate((here, there, here, there)):
        assert writer.write(batch, {"all": rows})
    for file in visible(out):
        (out / file).unlink() if file.endswith("0.parquet") else None
    assert writer.write(4, {"all": here})


@pytest.mark.parametrize("at", ["file", "file/below", "/proc/penstock/out"])
def test_a_place_that_cannot_be_written_is_refused_by_its_path(tmp_path, open_writer, at):
    (tmp_path / "file").write_text("")
    path = tmp_path / at
    with pytest.raises(SinkError, match=r"output 'hits': cannot write to .*See that it is a directory") as refused:
        open_writer(path=path)
    assert str(path) in str(refused.value)


def test_two_outputs_of_one_path_are_refused(out, owner):
    sink = sinks.parquet(out)
    with pytest.raises(SinkError, match="'a', 'b': both write to"):
        sink.writer([Target("a", sink), Target("b", sink)], owner())


@pytest.mark.parametrize("output", ["_hits", ".hits", "../hits", "a/b", ""])
def test_an_output_whose_file_would_be_hidden_or_elsewhere_is_refused(open_writer, output):
    with pytest.raises(SinkError, match="cannot begin"):
        open_writer(output=output)


def test_a_file_address_is_a_local_path(tmp_path, open_writer, hits):
    where = tmp_path / "with space"
    open_writer(path=where.as_uri()).write(0, hits(("/a", 1)))
    assert read(where) == [{"page": "/a", "n": 1}]


@pytest.mark.parametrize("path", ["s3://bucket/out", "hdfs://host/out", "gs://bucket/out"])
def test_another_store_is_refused_where_it_is_written(path):
    with pytest.raises(SinkError, match="not supported yet"):
        sinks.parquet(path)


def test_a_file_never_replaces_another_even_where_links_are_not_known(tmp_path, monkeypatch):
    def no_link(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_link)
    for content in ("one", "two"):
        (tmp_path / "aside").write_text(content)
        appear(tmp_path / "aside", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "one"


def test_a_process_killed_before_the_rename_leaves_nothing_to_read(out, open_writer, hits):
    script = f"""
import os, pyarrow as pa
from penstock import sinks
from penstock.sinks import Changes, Owner, Rows, Target
sink = sinks.parquet({str(out)!r})
writer = sink.writer([Target("hits", sink)], Owner("shop", "c1", 1, -1))
writer.during = lambda: os._exit(9)
table = pa.table({{"page": ["/a"], "n": pa.array([1], pa.int64())}})
writer.write(0, {{"hits": Changes(Rows(None, table))}})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert visible(out) == []
    assert open_writer(epoch=2).write(0, hits(("/a", 1)))
    assert read(out) == [{"page": "/a", "n": 1}]


def test_the_owner_file_says_who(out, open_writer):
    open_writer()
    said = json.loads((out / "_penstock" / "owner.json").read_text())
    assert said == {"job": "shop", "output": "hits", "checkpoint": "c1"}


def test_files_from_this_process_and_from_spark_read_as_one_table(spark, tmp_path, owner):
    out = tmp_path / "all {types} of it"
    noon = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
    row = {
        "n": 1,
        "at": noon,
        "price": Decimal("1.10"),
        "local": noon.replace(tzinfo=None),
        "tags": ["a", None],
    }
    schema = pa.schema(
        {
            "n": pa.int64(),
            "at": pa.timestamp("us", "UTC"),
            "price": pa.decimal128(10, 2),
            "local": pa.timestamp("us"),
            "tags": pa.list_(pa.string()),
        }
    )
    table = pa.Table.from_pylist([row], schema)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    sink = sinks.parquet(out)
    writer = sink.writer([Target("all", sink)], owner())
    in_spark = Rows(spark, table=table).to_spark().repartition(2)

    assert writer.write(0, {"all": Changes(Rows(spark, frame=in_spark.where("n > 1")))})
    assert writer.write(1, {"all": Changes(Rows(spark, table=table))})
    assert writer.write(2, {"all": Changes(Rows(spark, frame=in_spark))})
    assert writer.write(3, {"all": Changes(Rows(spark, frame=in_spark.where("n > 1")))})

    assert visible(out) == [f"all-{batch:012d}.parquet" for batch in (0, 1, 2)]
    assert os.listdir(out / "_penstock" / "staging-1") == []
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before
    for file in visible(out):
        assert pq.read_schema(out / file).remove_metadata().types[:4] == schema.types[:4]
    assert read(out) == [row, row]
    # the braces would be a pattern to Spark
    back = spark.read.parquet(f"file:{out}".replace("{", "\\{").replace("}", "\\}"))
    assert back.dtypes == [
        ("n", "bigint"),
        ("at", "timestamp"),
        ("price", "decimal(10,2)"),
        ("local", "timestamp_ntz"),
        ("tags", "array<string>"),
    ]
    assert back.toArrow().to_pylist() == [row, row]


def test_spark_reads_an_output_that_is_still_empty(spark, out, owner):
    sink = sinks.parquet(out)
    writer = sink.writer([Target("hits", sink)], owner())
    writer.write(0, {"hits": Changes(Rows(spark, table=pa.table({"n": pa.array([], pa.int64())})))})
    assert spark.read.parquet(str(out)).dtypes == [("n", "bigint")]


def test_a_crash_after_spark_has_written_aside_shows_nothing(spark, out, owner, kill):
    sink = sinks.parquet(out)
    target = Target("hits", sink)
    writer = sink.writer([target], owner())
    writer.during = kill
    rows = {"hits": Changes(Rows(spark, frame=spark.range(10)))}
    with pytest.raises(kill.error):
        writer.write(0, rows)
    assert visible(out) == []
    assert sink.writer([target], owner(epoch=2)).write(0, rows)
    assert sorted(row["id"] for row in read(out)) == list(range(10))
