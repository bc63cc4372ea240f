"""What every ledger without a server holds to: whose a place is, which run writes it, and from which batch on."""

from __future__ import annotations

import copy
import shutil
import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from penstock import sinks
from penstock.plan.errors import FencedError, SinkError
from penstock.sinks import Target
from penstock.sinks.memory_rows import CONTENTS

SCHEMA = {"page": pa.string(), "n": pa.int64()}


class InSqlite:
    """A table."""

    def __init__(self, folder):
        self.home = folder / "out"
        self.sink = sinks.sqlite(self.home / "shop.db", "hits")

    def rows(self):
        with closing(sqlite3.connect(self.home / "shop.db")) as connection:
            return sorted(connection.execute("select page, n from hits").fetchall())

    def of_nobody(self):
        self.home.mkdir()
        with closing(sqlite3.connect(self.home / "shop.db")) as connection:
            connection.execute("create table hits (page TEXT, n BIGINT)")
            connection.execute("insert into hits values ('/nobody', 1)")
            connection.commit()

    def keep(self, name):
        shutil.copytree(self.home, self.home.with_name(name))

    def bring_back(self, name):
        self.remove()
        shutil.copytree(self.home.with_name(name), self.home)

    def remove(self):
        shutil.rmtree(self.home)


class InParquet(InSqlite):
    """A folder of files."""

    def __init__(self, folder):
        self.home = folder / "out"
        self.sink = sinks.parquet(self.home)

    def rows(self):
        return sorted((r["page"], r["n"]) for r in pyarrow.dataset.dataset(self.home).to_table().to_pylist())

    def of_nobody(self):
        self.home.mkdir()
        rows = pa.Table.from_pylist([{"page": "/nobody", "n": 1}], pa.schema(SCHEMA))
        pq.write_table(rows, self.home / "hits-000000000000.parquet")


class InMemory:
    """A name in this process."""

    def __init__(self, folder):
        CONTENTS.clear()
        self.sink = sinks.memory("hits")
        self.kept = {}

    def rows(self):
        return sorted((r["page"], r["n"]) for r in self.sink.rows())

    def keep(self, name):
        there = CONTENTS["hits"]
        self.kept[name] = {**vars(there), "rows": copy.copy(there.rows)}

    def bring_back(self, name):
        vars(CONTENTS["hits"]).update(self.kept[name])

    def remove(self):
        CONTENTS.clear()


@pytest.fixture(params=[InSqlite, InParquet, InMemory], ids=["sqlite", "parquet", "memory"])
def place(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def open_writer(place, owner):
    def make(output="hits", key=(), **who):
        return place.sink.writer([Target(output, place.sink, key)], owner(**who))

    return make


@pytest.fixture
def write(changes):
    """Write a batch of one row, or of none, which says the batch."""

    def run(writer, batch, page="/a", *, schema=SCHEMA):
        rows = [] if page is None else [{"page": page, "n": batch}]
        return writer.write(batch, dict.fromkeys(("hits", "visits"), changes(rows, schema)))

    return run


@pytest.fixture
def written(open_writer, write):
    """Three batches of the first run."""
    writer = open_writer()
    for batch in range(3):
        write(writer, batch)
    return writer


ROWS = [("/a", 0), ("/a", 1), ("/a", 2)]


@pytest.mark.parametrize(("committed", "begun"), [(0, 1), (1, 1), (-1, -1), (-1, 0)])
def test_a_checkpoint_that_is_older_than_its_output_is_refused(place, open_writer, written, committed, begun):
    with pytest.raises(SinkError, match=r"stands at batch 2, .*older copy") as refused:
        open_writer(epoch=2, committed=committed, begun=begun)
    assert f"has written batch {committed} and begun batch {begun}" in str(refused.value)
    assert "Bring back the newer checkpoint, or replay" in str(refused.value)
    assert "--take-over hits" in str(refused.value)
    assert place.rows() == ROWS


def test_an_older_checkpoint_is_told_so_whatever_number_its_run_has(open_writer, written):
    open_writer(epoch=5, committed=2)
    for epoch in (4, 5, 6):
        with pytest.raises(SinkError, match="older copy than the output"):
            open_writer(epoch=epoch, committed=0, begun=1)


def test_the_batch_that_was_begun_may_be_in_the_output_already(place, open_writer, write, written):
    writer = open_writer(epoch=2, committed=1, begun=2)
    assert not write(writer, 2, "/again")
    assert write(writer, 3)
    assert place.rows() == [*ROWS, ("/a", 3)]


def test_a_batch_that_was_begun_and_is_not_in_the_output_is_written(place, open_writer, write, written):
    writer = open_writer(epoch=2, committed=2, begun=3)
    assert write(writer, 3)
    assert place.rows() == [*ROWS, ("/a", 3)]


@pytest.mark.parametrize("newest", ["/a", None], ids=["rows", "no rows"])
def test_an_older_copy_that_comes_back_while_a_run_lives_is_refused(place, open_writer, write, newest):
    writer = open_writer()
    write(writer, 0)
    place.keep("batch 0")
    write(writer, 1)
    write(writer, 2, newest)
    place.bring_back("batch 0")
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 2: it is an older copy"):
        write(writer, 3)
    assert place.rows() == [("/a", 0)]


def test_an_older_copy_that_comes_back_between_two_runs_is_refused(place, open_writer, write):
    writer = open_writer()
    write(writer, 0)
    place.keep("batch 0")
    write(writer, 1)
    write(writer, 2, None)
    place.bring_back("batch 0")
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 2: it is an older copy") as refused:
        open_writer(epoch=2, committed=2)
    assert "--take-over hits" in str(refused.value)


def test_a_copy_from_before_the_first_batch_that_comes_back_is_refused(place, open_writer, write):
    writer = open_writer()
    place.keep("empty")
    write(writer, 0)
    place.bring_back("empty")
    with pytest.raises(SinkError, match=r"stands at batch -1, .* has written batch 0|has gone"):
        write(writer, 1)


@pytest.mark.parametrize("begun", [3, 4])
def test_an_output_that_was_left_out_for_a_while_is_refused(place, open_writer, written, begun):
    with pytest.raises(SinkError, match=r"written until batch 2, .* gone on to batch 3 without it") as refused:
        open_writer(epoch=2, committed=3, begun=begun, new={"hits"})
    assert "--take-over hits" in str(refused.value)
    assert place.rows() == ROWS


@pytest.mark.parametrize(("committed", "begun"), [(2, 2), (2, 3), (1, 2)])
def test_an_output_that_has_every_batch_is_not_held_to_be_left_out(open_writer, write, written, committed, begun):
    writer = open_writer(epoch=2, committed=committed, begun=begun, new={"hits"})
    assert not write(writer, 2)
    assert write(writer, 3)


def test_an_output_that_begins_later_begins_with_the_next_batch(place, open_writer, write):
    for epoch in (5, 6):  # the second time it is there, and has no batch
        writer = open_writer(epoch=epoch, committed=8, begun=9, new={"hits"})
    assert write(writer, 9)
    assert not write(open_writer(epoch=7, committed=8, begun=9, new={"hits"}), 9)
    assert place.rows() == [("/a", 9)]


def test_a_run_of_the_same_number_is_another_one(place, open_writer, write):
    first = open_writer(epoch=4)
    write(first, 0)
    with pytest.raises(FencedError, match=r"another run 4 of job 'shop'.* two copies of checkpoint c1") as refused:
        open_writer(epoch=4, committed=0, begun=1)
    assert "nothing was written" in str(refused.value)
    assert write(first, 1)
    assert place.rows() == [("/a", 0), ("/a", 1)]


WHO = {"job": "blog", "checkpoint": "c9"}
TAKEN = {
    "another job's": (WHO, [*ROWS, ("/b", 0)]),
    "another checkpoint's": ({"checkpoint": "c9"}, [*ROWS, ("/b", 0)]),
    "another output's": ({"output": "visits"}, [*ROWS, ("/b", 0)]),
    "left out": ({"epoch": 2, "committed": 7, "begun": 8, "new": {"hits"}}, [*ROWS, ("/b", 8)]),
    "of a newer checkpoint": ({"epoch": 2, "committed": 0, "begun": 1}, [*ROWS, ("/b", 1)]),
    "older than its checkpoint": ({"epoch": 2, "committed": 7, "begun": 8}, [*ROWS, ("/b", 8)]),
    "as it was": ({"epoch": 2, "committed": 2, "begun": 3}, [*ROWS, ("/b", 3)]),
    "begun": ({"epoch": 2, "committed": 1, "begun": 2}, ROWS),
}


@pytest.mark.parametrize("case", TAKEN)
def test_an_output_that_is_taken_over_goes_on_from_what_stands_there(place, open_writer, write, written, case):
    who, rows = TAKEN[case]
    next_batch = who.get("committed", -1) + 1
    writer = open_writer(**who, take_over={who.get("output", "hits")})
    assert place.rows() == ROWS
    assert write(writer, next_batch, "/b") is (case != "begun")
    assert place.rows() == rows
    with pytest.raises((FencedError, SinkError)):  # the one before writes no more
        write(written, 3)
    assert place.rows() == rows
    # a run that crashed before its manifest is started as it was, or without the word
    for epoch, more in ((11, {"take_over": {who.get("output", "hits")}}), (12, {})):
        again = open_writer(**{**who, "epoch": epoch, "begun": next_batch}, **more)
        assert not write(again, next_batch, "/b")
    assert place.rows() == rows
    assert write(again, next_batch + 1, "/c")
    assert place.rows() == sorted([*rows, ("/c", next_batch + 1)])


def test_an_output_that_has_gone_is_taken_over_and_begins_anew(place, open_writer, write, written):
    place.remove()
    with pytest.raises(SinkError, match=r"has gone.*--take-over hits"):
        open_writer(epoch=2, committed=2, begun=3)
    writer = open_writer(epoch=2, committed=2, begun=3, take_over={"hits"})
    assert write(writer, 3)
    assert place.rows() == [("/a", 3)]
    assert not write(open_writer(epoch=3, committed=2, begun=3), 3)


def test_a_place_of_nobody_is_taken_over_with_what_it_holds(place, open_writer, write):
    if isinstance(place, InMemory):
        pytest.skip("a name in this process is always somebody's")
    place.of_nobody()
    with pytest.raises(SinkError, match=r"no job owns it; it has columns page, n.*--take-over hits"):
        open_writer()
    writer = open_writer(take_over={"hits"})
    assert write(writer, 0)
    assert not write(open_writer(epoch=2, begun=0), 0)
    assert place.rows() == [("/a", 0), ("/nobody", 1)]


def test_a_place_that_is_taken_over_must_have_the_columns(place, open_writer, write, written):
    if isinstance(place, InMemory):
        pytest.skip("rows in this process have no columns in common")
    writer = open_writer(**WHO, take_over={"hits"})
    with pytest.raises(SinkError, match="has columns page, n; the rows to write have n"):
        write(writer, 0, None, schema={"n": pa.int64()})
    with pytest.raises(SinkError, match="the rows to write have"):
        write(writer, 0, None, schema={"page": pa.string(), "n": pa.string()})
    assert place.rows() == ROWS


def test_the_one_who_was_taken_over_may_take_it_back(place, open_writer, write, written):
    other = open_writer(**WHO, take_over={"hits"})
    write(other, 0, "/b")
    with pytest.raises(SinkError, match=r"belongs to output 'hits' of job 'blog'.*--take-over hits"):
        open_writer(epoch=2, committed=2, begun=3)
    back = open_writer(epoch=2, committed=2, begun=3, take_over={"hits"})
    assert write(back, 3, "/c")
    with pytest.raises(SinkError, match="belongs to output 'hits' of job 'shop'"):
        write(other, 1, "/b")
    assert place.rows() == [*ROWS, ("/b", 0), ("/c", 3)]


def test_a_checkpoint_that_was_copied_before_the_newest_runs_takes_over_when_it_is_asked_to(
    place, open_writer, write, written
):
    newer = open_writer(epoch=7, committed=2)
    with pytest.raises(FencedError, match=r"taken over by run 7.*--take-over hits"):
        open_writer(epoch=3, committed=1, begun=2)
    with pytest.raises(FencedError, match="another run 7"):
        open_writer(epoch=7, committed=1, begun=2, take_over={"hits"})
    copied = open_writer(epoch=3, committed=1, begun=2, take_over={"hits"})
    assert not write(copied, 2)
    with pytest.raises(FencedError, match="taken over by run 3 of job 'shop', and this is run 7"):
        write(newer, 3, "/b")
    assert write(copied, 3)
    assert place.rows() == [*ROWS, ("/a", 3)]


def test_rows_of_a_table_stay_until_their_key_changes(place, open_writer, changes):
    if isinstance(place, InParquet):
        pytest.skip("it appends only")
    key = {"page": pa.string()}
    one = open_writer(key=("page",))
    rows = [{"page": page, "n": 1} for page in ("/a", "/b", "/c")]
    one.write(0, {"hits": changes(rows, SCHEMA)})
    two = open_writer(key=("page",), **WHO, take_over={"hits"})
    two.write(0, {"hits": changes([{"page": "/b", "n": 2}], SCHEMA, [{"page": "/c"}], key)})
    assert place.rows() == [("/a", 1), ("/b", 2)]
