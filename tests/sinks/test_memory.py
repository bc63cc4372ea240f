from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from penstock import sinks
from penstock.plan.errors import FencedError, PlanError, SinkError
from penstock.sinks import Target
from penstock.sinks.memory_rows import CONTENTS

SCHEMA = {"page": pa.string(), "n": pa.int64()}


@pytest.fixture(autouse=True)
def empty_memory():
    CONTENTS.clear()


@pytest.fixture
def open_writer(owner):
    def make(output="hits", key=(), **who):
        sink = sinks.memory("hits")
        return sink.writer([Target(output, sink, key)], owner(**who))

    return make


@pytest.fixture
def hits(changes):
    def make(*listed, deletes=None):
        gone = None if deletes is None else [{"page": page} for page in deletes]
        rows = [{"page": page, "n": n} for page, n in listed]
        return {"hits": changes(rows, SCHEMA, gone, {"page": pa.string()})}

    return make


def pairs():
    return sorted(((row["page"], row["n"]) for row in sinks.memory("hits").rows()), key=str)


def test_a_stream_adds_up_and_a_replay_is_skipped(open_writer, hits):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert writer.write(1, hits(("/a", 1)))
    assert not writer.write(1, hits(("/a", 1)))
    assert pairs() == [("/a", 1), ("/a", 1)]


def test_a_table_keeps_its_current_rows_and_null_is_a_key(open_writer, hits):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1), (None, 1), ("/b", 1)))
    writer.write(1, hits(("/a", 2), (None, 2), deletes=["/b"]))
    assert pairs() == [("/a", 2), (None, 2)]


def test_the_rows_are_a_copy_and_also_an_arrow_table(open_writer, hits):
    assert sinks.memory("hits").rows() == []
    assert sinks.memory("hits").table() is None
    open_writer().write(0, hits(("/a", 1)))
    sinks.memory("hits").rows()[0]["n"] = 99
    assert sinks.memory("hits").table() == pa.Table.from_pylist([{"page": "/a", "n": 1}], pa.schema(SCHEMA))


def test_instants_are_read_back_in_utc(open_writer, changes):
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    open_writer().write(0, {"hits": changes([{"at": noon}], {"at": pa.timestamp("us", "Asia/Tokyo")})})
    (row,) = sinks.memory("hits").rows()
    assert row == {"at": noon}
    assert row["at"].utcoffset() == timedelta(0)
    assert row["at"].hour == 12


def test_a_crash_shows_nothing_of_the_batch(open_writer, hits, kill):
    writer = open_writer(key=("page",))
    writer.write(0, hits(("/a", 1)))
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(1, hits(("/b", 2), deletes=["/a"]))
    assert pairs() == [("/a", 1)]
    assert open_writer(key=("page",), epoch=2, committed=0).write(1, hits(("/b", 2), deletes=["/a"]))
    assert pairs() == [("/b", 2)]


def test_a_new_checkpoint_starts_empty_and_the_old_run_cannot_write(open_writer, hits):
    old = open_writer()
    old.write(0, hits(("/a", 1)))
    open_writer(checkpoint="c2")
    assert pairs() == []
    with pytest.raises(SinkError, match="belongs to output 'hits' of job 'shop' \\(checkpoint c2\\)"):
        old.write(1, hits(("/b", 2)))
    with pytest.raises(SinkError, match="belongs to output 'hits' of job 'shop' \\(checkpoint c2\\)"):
        open_writer(epoch=2, committed=0)


def test_an_older_run_cannot_write(open_writer, hits):
    old = open_writer()
    old.write(0, hits(("/a", 1)))
    open_writer(epoch=2, committed=0)
    with pytest.raises(FencedError):
        old.write(1, hits(("/b", 2)))
    with pytest.raises(FencedError):
        open_writer(epoch=1, committed=0)


def test_rows_that_ended_with_their_process_are_missed(open_writer):
    with pytest.raises(SinkError, match="has gone"):
        open_writer(committed=4)


def test_two_outputs_of_one_name_are_refused(owner):
    sink = sinks.memory("hits")
    with pytest.raises(SinkError, match="both write to memory:hits"):
        sink.writer([Target("a", sink), Target("b", sink)], owner())


def test_sinks_are_values():
    assert sinks.memory("a") == sinks.memory("a") != sinks.memory("b")
    assert len({sinks.parquet("x"), sinks.parquet("x")}) == 1
    with pytest.raises(PlanError):
        sinks.memory("")
