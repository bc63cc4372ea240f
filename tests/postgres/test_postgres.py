"""Tables of a real PostgreSQL: rows, deletes and ledger in one transaction, and who may write."""

from __future__ import annotations

import subprocess
import sys
import threading

import psycopg
import pyarrow as pa
import pytest

from penstock import sinks
from penstock.cli import kept_letters
from penstock.plan.errors import FencedError, PlanError, RunError, SinkError, TransientSinkError
from penstock.sinks import Changes, Rows, Target
from penstock.sinks.ledger import Entry
from penstock.sinks.postgres_ledger import PostgresLedger

SCHEMA = {"page": pa.string(), "n": pa.int64()}
KEY = {"page": pa.string()}


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
    assert query("select page, n from hits order by 1, 2") == [("/a", 1), ("/a", 1), ("/b", 2)]
    ledger = query("select table_name, job, output, checkpoint, batch, epoch from _penstock_ledger")
    assert ledger == [("hits", "shop", "hits", "c1", 1, 1)]


def test_a_table_is_upserted_and_deleted_by_key(open_writer, hits, query):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1), ("/b", 2), ("/c", 3)))
    writer.write(1, hits(("/a", 10), ("/d", 4), deletes=["/b", "/never"]))
    assert query("select page, n from hits order by page") == [("/a", 10), ("/c", 3), ("/d", 4)]


def test_a_key_deleted_and_upserted_in_one_batch_stays_and_the_later_row_wins(open_writer, hits, query):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1)))
    writer.write(1, hits(("/a", 9), ("/a", 3), deletes=["/a"]))
    assert query("select page, n from hits") == [("/a", 3)]


def test_a_table_of_its_key_alone_keeps_each_once(open_writer, changes, query):
    writer = open_writer(key=("page",))
    for batch in range(2):
        writer.write(batch, {"hits": changes([{"page": "/a"}, {"page": None}], KEY)})
    assert sorted(query("select page from hits"), key=str) == [("/a",), (None,)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.int64(), 0), (pa.string(), ""), (pa.float64(), float("nan")), (pa.list_(pa.int64()), [1])],
    ids=str,
)
def test_null_is_a_key_like_any_other(open_writer, changes, query, kind, value):
    schema = {"k": kind, "n": pa.int64()}
    writer = open_writer(key=("k",))
    for batch in range(2):
        rows = [{"k": None, "n": batch}, {"k": value, "n": batch}]
        writer.write(batch, {"hits": changes(rows, schema)})
    assert query("select k is null, n from hits order by 1") == [(False, 1), (True, 1)]
    writer.write(2, {"hits": changes([], schema, [{"k": None}], {"k": kind})})
    assert query("select k is null, n from hits") == [(False, 1)]
    writer.write(3, {"hits": changes([], schema, [{"k": value}], {"k": kind})})
    assert query("select k from hits") == []


def test_names_may_hold_quotes_spaces_percents_and_words_of_sql(open_writer, changes, query):
    names = ('a "b" c', "select", "x'); drop table y; --", "100 % {0} %s")
    schema = dict.fromkeys(names, pa.int64())
    table = 'group "by" {table}; %s'
    query('create schema "a ""%s"" b"')
    writer = open_writer(table=table, schema='a "%s" b', key=names[:2])
    for batch in range(2):
        writer.write(batch, {"hits": changes([dict.fromkeys(names, 1)], schema, [dict.fromkeys(names, 1)])})
    assert query('select * from "a ""%s"" b"."group ""by"" {table}; %s"') == [(1, 1, 1, 1)]


def test_a_batch_that_is_there_is_skipped_also_by_the_next_run(open_writer, hits, query):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert not writer.write(0, hits(("/a", 1)))
    assert not open_writer(epoch=2).write(0, hits(("/a", 1)))
    assert query("select page, n from hits") == [("/a", 1)]


def test_a_reader_sees_the_batch_before_while_one_is_written(open_writer, hits, query):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    seen = []
    writer.during = lambda: seen.extend(query("select page from hits"))
    writer.write(1, hits(("/b", 2)))
    assert seen == [("/a",)]


def test_two_outputs_in_one_database_commit_together(url, owner, changes, hits, query, kill):
    query("create schema other")
    hits_sink, sums_sink = sinks.postgres("hits", url), sinks.postgres("hits", url, schema="other")
    assert hits_sink.place == sums_sink.place
    targets = [Target("hits", hits_sink), Target("sums", sums_sink, ("page",))]
    batch = {**hits(("/a", 1)), "sums": changes([{"page": "/a", "n": 1}], SCHEMA)}
    writer = hits_sink.writer(targets, owner())
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(0, batch)
    assert query("select count(*) from pg_class where relname = 'hits'") == [(0,)]
    writer = hits_sink.writer(targets, owner(epoch=2))
    assert writer.write(0, batch)
    assert not writer.write(0, batch)
    writer.close()
    assert query("select * from hits union all select * from other.hits") == [("/a", 1), ("/a", 1)]
    assert query("select output, batch from _penstock_ledger") == [("hits", 0)]
    assert query("select output, batch from other._penstock_ledger") == [("sums", 0)]


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


def test_a_run_that_is_replaced_while_its_rows_are_copied_cannot_write(open_writer, changes, query):
    old = open_writer(epoch=1)

    class Slow(Rows):
        def batches(self):
            open_writer(epoch=2)
            return super().batches()

    rows = Slow(None, pa.table({"page": ["/old"], "n": [9]}))
    with pytest.raises(FencedError, match="run 2"):
        old.write(0, {"hits": Changes(rows)})
    assert query("select epoch, batch from _penstock_ledger") == [(2, -1)]
    assert query("select 1 from pg_tables where tablename = 'hits'") == []


def test_a_run_that_takes_over_waits_for_a_commit_and_then_knows_of_it(open_writer, hits, query):
    old = open_writer(epoch=1)
    waiting = threading.Thread(target=open_writer, kwargs={"epoch": 2})

    def taken_over_meanwhile():
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()

    old.during = taken_over_meanwhile
    assert old.write(0, hits(("/a", 1)))
    waiting.join()
    assert query("select epoch, batch from _penstock_ledger") == [(2, 0)]


@pytest.mark.parametrize(
    ("other", "named"),
    [({"job": "blog"}, "'blog'"), ({"checkpoint": "c2"}, "checkpoint c2"), ({"output": "visits"}, "'visits'")],
    ids=["job", "checkpoint", "output"],
)
def test_what_another_wrote_is_refused_with_both_names_and_the_choices(open_writer, hits, query, other, named):
    open_writer().write(0, hits(("/a", 1)))
    before = query("select * from _penstock_ledger")
    with pytest.raises(SinkError, match="another table, or drop that one") as refused:
        open_writer(**other)
    for fact in (named, "'hits'", "'shop'", "checkpoint c1"):
        assert fact in str(refused.value)
    assert query("select * from _penstock_ledger") == before


def test_an_output_that_has_gone_while_its_checkpoint_stands_is_refused(open_writer, hits, query):
    with pytest.raises(SinkError, match="has gone"):
        open_writer(committed=3)
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    query("drop table hits")
    with pytest.raises(SinkError, match=r"table 'public.hits' in .* has gone"):
        open_writer(epoch=2, committed=0)
    with pytest.raises(SinkError, match="has gone"):
        writer.write(1, hits(("/b", 1)))
    assert query("select batch from _penstock_ledger") == [(0,)]


def test_an_older_copy_of_the_database_is_refused(open_writer, hits):
    open_writer().write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 4: it is an older copy"):
        open_writer(epoch=2, committed=4)


def test_a_table_of_nobody_is_refused(open_writer, query):
    query("create table hits (page text, n bigint)")
    with pytest.raises(SinkError, match=r"no job owns it; it has columns page, n\. Give this output another place"):
        open_writer()


def test_other_columns_and_other_types_than_before_are_refused_by_name(open_writer, changes, hits, query):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match="has columns page, n; the rows to write have page, m"):
        writer.write(1, {"hits": changes([], {"page": pa.string(), "m": pa.int64()})})
    with pytest.raises(SinkError, match="n bigint; the rows to write have page text, n double precision"):
        writer.write(1, {"hits": changes([], {"page": pa.string(), "n": pa.float64()})})
    writer.write(1, {"hits": changes([{"n": 2, "page": "/b"}], {"n": pa.int64(), "page": pa.string()})})
    assert query("select page, n from hits order by page") == [("/a", 1), ("/b", 2)]


def test_two_outputs_of_one_table_are_refused(url, owner):
    one, two = sinks.postgres("hits", url), sinks.postgres("hits", url, schema="public")
    with pytest.raises(SinkError, match=r"'a', 'b': both write to table 'public\.hits'"):
        one.writer([Target("a", one), Target("b", two)], owner())


def test_runs_that_begin_together_in_an_empty_database_both_begin(url, open_writer, query):
    failed = []

    def begin(n):
        try:
            open_writer(output=f"o{n}", table=f"t{n}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert query("select count(*) from _penstock_ledger") == [(6,)]


def test_a_schema_that_is_not_there_is_refused(open_writer):
    with pytest.raises(SinkError, match=r"there is no schema 'reports'\. Make it"):
        open_writer(schema="reports")


@pytest.mark.parametrize("table", ["", "_penstock_ledger", "a\0b", "a" * 64, "reports.ctr"])
def test_a_table_that_cannot_have_its_name_is_refused_where_it_is_written(table):
    with pytest.raises(PlanError, match=r"test_postgres\.py"):
        sinks.postgres(table)


def test_a_column_whose_name_postgresql_would_cut_is_refused(open_writer, changes):
    with pytest.raises(SinkError, match="no name longer than 63 bytes"):
        open_writer().write(0, {"hits": changes([], {"é" * 32: pa.int64()})})


SECRETS = {
    "of an address": "postgresql://ann:hush@127.0.0.1:1/shop",
    "in its options": "postgresql://127.0.0.1:1/shop?user=ann&password=hush",
    "in settings": "host=127.0.0.1 port=1 user=ann password='hush' dbname=shop",
    "with a space": "host=127.0.0.1 port=1 password='hush hush'",
    "and no address": "host=127.0.0.1 hush",
}


@pytest.mark.parametrize("case", SECRETS)
@pytest.mark.parametrize("how", ["literal", "reference"])
def test_a_password_is_in_no_error_and_no_description(owner, monkeypatch, case, how):
    monkeypatch.setenv("SHOP_URL", SECRETS[case])
    sink = sinks.postgres("hits", SECRETS[case] if how == "literal" else "env:SHOP_URL")
    told = [repr(sink), str(sink), sink.describe()]
    if case != "and no address":
        told.append(sink.place)
    with pytest.raises((SinkError, RunError)) as refused:
        sink.writer([Target("hits", sink)], owner())
    told += [str(refused.value), repr(refused.value), str(refused.value.__cause__)]
    assert "hush" not in " ".join(told)


@pytest.mark.parametrize("url", ["postgresql://ann:hu/sh@db/shop", "mysql://ann:hush@db/shop", "postgresql://a:h u@db"])
def test_an_address_that_cannot_be_one_is_refused_without_being_shown(url):
    with pytest.raises(PlanError, match="is no address of PostgreSQL's") as refused:
        sinks.postgres("hits", url)
    assert "sh" not in str(refused.value).replace("sinks.postgres('hits')", "")


def test_an_environment_without_the_address_says_which_variable_is_missing(monkeypatch, owner):
    monkeypatch.delenv("PENSTOCK_POSTGRES_URL", raising=False)
    sink = sinks.postgres("hits")
    with pytest.raises(RunError, match=r"sinks.postgres\('hits'\): .* no variable 'PENSTOCK_POSTGRES_URL'"):
        sink.writer([Target("hits", sink)], owner())


def test_what_may_pass_is_told_from_what_does_not(url, open_writer, hits, query):
    nobody = "postgresql://postgres@127.0.0.1:1/postgres"
    with pytest.raises(TransientSinkError, match=r"output 'hits': cannot write to .*refused.* See that the server"):
        open_writer(at=nobody)
    with pytest.raises(SinkError, match="does not exist") as refused:
        open_writer(at=url + "_no_such")
    assert not isinstance(refused.value, TransientSinkError)
    query("create role ann login")
    with pytest.raises(SinkError, match="permission denied") as refused:
        open_writer(at=url.replace("postgres@", "ann@"))
    assert not isinstance(refused.value, TransientSinkError)


def test_a_connection_that_is_cut_is_made_anew_and_the_batch_is_written_once(open_writer, hits, query):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'penstock shop'"
    writer.during = lambda: query(cut)
    with pytest.raises(TransientSinkError):
        writer.write(1, hits(("/b", 2)))
    writer.during = None
    assert writer.write(1, hits(("/b", 2)))
    assert not writer.write(1, hits(("/b", 2)))
    assert query("select page from hits order by 1") == [("/a",), ("/b",)]


def test_a_commit_whose_answer_is_lost_is_found_in_the_ledger(open_writer, hits, query, monkeypatch):
    writer = open_writer()
    real = psycopg.Transaction.__exit__

    def lost(self, *how):
        real(self, *how)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Transaction, "__exit__", lost)
        with pytest.raises(TransientSinkError):
            writer.write(0, hits(("/a", 1)))
    assert not writer.write(0, hits(("/a", 1)))
    assert query("select page from hits") == [("/a",)]


def test_without_psycopg_the_error_says_what_to_install(tmp_path):
    (tmp_path / "psycopg.py").write_text("raise ImportError('no pq wrapper available')")
    script = """
from penstock import sinks
from penstock.cli import kept_letters
sink = sinks.postgres("hits", "postgresql://localhost/shop")
try:
    sink.place
except Exception as error:
    print(type(error).__name__, error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ended.stdout.startswith("RunError sinks.postgres('hits') needs psycopg 3"), ended.stderr
    assert "pip install penstock[postgres]" in ended.stdout


LEDGER = "select job, checkpoint, batch, epoch from _penstock_ledger"


@pytest.fixture
def written(open_writer, hits):
    """Three batches of the first run."""
    writer = open_writer()
    for batch in range(3):
        writer.write(batch, hits(("/a", batch)))
    return writer


def test_a_checkpoint_that_is_older_than_its_output_is_refused(open_writer, written, query):
    with pytest.raises(SinkError, match=r"stands at batch 2, .*begun batch 1: it is an older copy than the output"):
        open_writer(epoch=2, committed=0)
    assert query(LEDGER) == [("shop", "c1", 2, 1)]
    open_writer(epoch=2, committed=1)


def test_an_older_copy_that_comes_back_while_a_run_lives_is_refused(written, hits, query):
    # as after a failover to a standby that lags behind
    query("delete from hits where n > 0")
    query("update _penstock_ledger set batch = 0")
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 2: it is an older copy"):
        written.write(3, hits(("/a", 3)))
    assert query("select n from hits") == [(0,)]


def test_a_commit_whose_answer_is_lost_is_no_reason_to_expect_the_batch(open_writer, hits, query, monkeypatch):
    writer = open_writer()
    real = psycopg.Transaction.__exit__

    def undone(self, *_):
        real(self, psycopg.errors.DiskFull, psycopg.errors.DiskFull(), None)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Transaction, "__exit__", undone)
        with pytest.raises(TransientSinkError):
            writer.write(0, hits(("/a", 1)))
    assert writer.write(0, hits(("/a", 1)))
    assert query("select page from hits") == [("/a",)]


def test_an_output_that_was_left_out_for_a_while_is_refused(open_writer, written):
    with pytest.raises(SinkError, match=r"written until batch 2, .* gone on to batch 5 without it"):
        open_writer(epoch=2, committed=5, new={"hits"})


def test_a_run_of_the_same_number_is_another_one(open_writer, written):
    with pytest.raises(FencedError, match=r"another run 1 of job 'shop'.* two copies of checkpoint c1"):
        open_writer(committed=2)


TAKEN = {
    "another job's": {"job": "blog", "checkpoint": "c9"},
    "left out": {"epoch": 2, "committed": 7, "new": {"hits"}},
    "of a newer checkpoint": {"epoch": 2, "committed": 0},
    "older than its checkpoint": {"epoch": 2, "committed": 7},
}


@pytest.mark.parametrize("case", TAKEN)
def test_an_output_that_is_taken_over_goes_on_from_what_stands_there(open_writer, written, hits, query, case):
    who = {"committed": -1, **TAKEN[case]}
    with pytest.raises(SinkError, match="--take-over hits"):
        open_writer(**who)
    writer = open_writer(**who, take_over={"hits"})
    assert writer.write(who["committed"] + 1, hits(("/b", 9)))
    with pytest.raises((SinkError, FencedError)):
        written.write(3, hits(("/old", 9)))
    again = {**who, "epoch": 7, "begun": who["committed"] + 1}
    assert not open_writer(**again, take_over={"hits"}).write(who["committed"] + 1, hits(("/b", 9)))
    assert query("select page from hits order by n") == [("/a",)] * 3 + [("/b",)]


def test_a_run_that_waits_while_its_table_is_taken_over_is_told_by_whom(url, open_writer, written, hits, query):
    told = []

    def write():
        try:
            written.write(3, hits(("/old", 9)))
        except Exception as error:
            told.append(error)

    with psycopg.connect(url) as connection:  # a taker that has not committed yet
        book = PostgresLedger(connection, "public", "hits")
        book.take(Entry("blog", "hits", "c9", -1, 1))
        waiting = threading.Thread(target=write)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join()
    assert "belongs to output 'hits' of job 'blog'" in str(told[0])


def test_a_table_that_has_gone_is_taken_over_and_begins_anew(open_writer, written, hits, query):
    query("drop table hits")
    writer = open_writer(epoch=2, committed=2, take_over={"hits"})
    assert writer.write(3, hits(("/b", 9)))
    assert query("select page from hits") == [("/b",)]


def test_a_table_of_nobody_is_taken_over_once_its_key_can_stand_in_it_once_only(open_writer, hits, query):
    query("create table hits (page text, n bigint, unique (page))")
    query("insert into hits values ('/a', 1), ('/c', 1)")
    with pytest.raises(SinkError, match=r'twice\. ALTER TABLE it to ADD UNIQUE NULLS NOT DISTINCT \("page"\)'):
        open_writer(key=("page",), take_over={"hits"})
    assert query("select count(*) from pg_class where relname = '_penstock_ledger'") == [(0,)]
    query('alter table hits add unique nulls not distinct ("page")')
    writer = open_writer(key=("page",), take_over={"hits"})
    writer.write(0, hits(("/a", 2), (None, 2)))
    writer.write(1, hits((None, 3)))
    assert sorted(query("select page, n from hits"), key=str) == [("/a", 2), ("/c", 1), (None, 3)]


@pytest.mark.parametrize("schema", [None, "a % b"])
def test_the_dead_letters_in_a_table_are_read_from_outside_of_the_run(url, owner, changes, query, schema, monkeypatch):
    if schema is not None:
        query(f'create schema "{schema}"')
    monkeypatch.setenv("SHOP_URL", url)
    sink = sinks.postgres('dead "letters"', "env:SHOP_URL", schema=schema)
    assert kept_letters(sink) == []
    letters = [{"batch": n, "reason": "malformed", "place": None, "row": "{"} for n in range(2)]
    kinds = {"batch": pa.int64(), "reason": pa.string(), "place": pa.string(), "row": pa.string()}
    writer = sink.writer([Target("dead_letters", sink)], owner())
    writer.write(0, {"dead_letters": changes(letters, kinds)})
    writer.close()
    assert kept_letters(sink) == letters
