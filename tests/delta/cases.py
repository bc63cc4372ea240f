"""What ``sinks.delta`` promises, on a real table; ``test_delta.py`` runs these in a process of their own."""

from __future__ import annotations

import json
import os
import random
import shutil

import pyarrow as pa
import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import FencedError, SinkError
from penstock.run.query import start
from penstock.run.session import session
from penstock.sinks import Changes, Owner, Rows, Target
from penstock.sinks.delta_ledger import DeltaLedger
from penstock.sinks.delta_table import DELTA
from penstock.sinks.ledger import Entry

COLUMNS = pa.schema({"page": pa.string(), "n": pa.int64()})


@pytest.fixture(scope="module")
def spark():
    return session(cores="2", ui=False, needs=(DELTA,))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a `quoted` folder" / "hits")


@pytest.fixture
def open_writer(spark, path):
    def make(output="hits", key=(), job="shop", checkpoint="c1", epoch=1, committed=-1, begun=None, **more):
        sink = sinks.delta(path)
        begun = committed + 1 if begun is None else begun
        more = {name: frozenset(outputs) for name, outputs in more.items()}
        return sink.writer([Target(output, sink, key)], Owner(job, checkpoint, epoch, committed, begun, **more))

    return make


@pytest.fixture
def hits(spark):
    def make(*rows, deletes=None):
        came = pa.Table.from_pylist([{"page": page, "n": n} for page, n in rows], COLUMNS)
        gone = None
        if deletes is not None:
            gone = Rows(
                spark,
                table=pa.Table.from_pylist(
                    [{"page": page} for page in deletes], COLUMNS.empty_table().select(["page"]).schema
                ),
            )
        return {"hits": Changes(Rows(spark, table=came), gone)}

    return make


@pytest.fixture
def read(spark, path):
    def rows():
        return sorted((tuple(row) for row in spark.read.format("delta").load(path).collect()), key=repr)

    return rows


def test_a_stream_is_appended_and_a_batch_that_comes_twice_is_there_once(open_writer, hits, read):
    writer = open_writer()
    assert writer.write(0, hits(("/a", 1)))
    assert writer.write(1, hits())
    assert writer.write(2, hits(("/a", 1), ("/b", None)))
    assert not writer.write(2, hits(("/a", 1)))
    assert not open_writer(epoch=2, committed=1).write(2, hits(("/a", 1)))
    assert read() == [("/a", 1), ("/a", 1), ("/b", None)]


def test_an_older_run_that_writes_after_its_last_look_changes_nothing(open_writer, hits, read):
    for key, epoch in (((), 1), (("page",), 3)):
        old = open_writer(key=key, epoch=epoch, committed=0 if key else -1)
        old.write(0, hits(("/a", 1)))

        def successor(key=key, epoch=epoch):
            assert open_writer(key=key, epoch=epoch + 1, committed=0).write(1, hits(("/b", 2)))

        old.during = successor
        old.write(1, hits(("/b", 2)))
        assert read() == [("/a", 1), ("/b", 2)]
        with pytest.raises(FencedError, match=f"run {epoch + 1} of job 'shop', and this is run {epoch}"):
            old.write(2, hits(("/old", 3)))
        with pytest.raises(FencedError):
            open_writer(key=key, epoch=epoch, committed=1)
        shutil.rmtree(old.book.path)
        open_writer(key=key, epoch=2).write(0, hits(("/a", 1)))


def test_random_batches_with_nulls_replays_and_crashes_equal_a_dictionary(open_writer, hits, read):
    seed = random.randrange(2**32)
    dice, wanted, epoch = random.Random(seed), {}, 1
    writer = open_writer(key=("page",))
    for batch in range(5):
        keys = ["/a", "/b", "/c", "", None]
        rows = [(dice.choice(keys), dice.randrange(100)) for _ in range(dice.randrange(5))]
        deletes = dice.choice([None, dice.sample(keys, 2)])
        if dice.random() < 0.5:
            writer.during = lambda: (_ for _ in ()).throw(InterruptedError)
            with pytest.raises(InterruptedError):
                writer.write(batch, hits(*rows, deletes=deletes))
            epoch += 1
            writer = open_writer(key=("page",), epoch=epoch, committed=batch - 1)
        assert writer.write(batch, hits(*rows, deletes=deletes))
        assert not writer.write(batch, hits(("/never", 1), deletes=keys))
        for key in deletes or ():
            wanted.pop(key, None)
        wanted.update(rows)
        assert read() == sorted(wanted.items(), key=repr), f"seed {seed}, batch {batch}"


def test_what_another_wrote_is_refused_with_both_names_and_what_has_gone_too(open_writer, hits, path, spark):
    writer = open_writer()
    writer.write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match=r"'hits' of job 'shop'.*this is output 'hits' of job 'blog'.*another path"):
        open_writer(job="blog")
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 4: it is an older copy"):
        open_writer(epoch=2, committed=4)
    with pytest.raises(SinkError, match="has columns page, n; the rows to write have page"):
        writer.write(1, {"hits": Changes(Rows(spark, table=pa.table({"page": ["/a"]})))})
    shutil.rmtree(path)
    with pytest.raises(SinkError, match="has gone"):
        writer.write(1, hits(("/a", 1)))
    with pytest.raises(SinkError, match="has gone"):
        open_writer(epoch=2, committed=0)
    spark.range(3).write.format("delta").save(path)
    with pytest.raises(SinkError, match="no job owns it; it has columns id"):
        open_writer(epoch=3)


def test_two_jobs_that_begin_together_are_told_apart_at_their_first_batch(open_writer, hits, read):
    one, two = open_writer(), open_writer(job="blog")
    one.write(0, hits(("/a", 1)))
    with pytest.raises(SinkError, match=r"'shop'.*'blog'"):
        two.write(0, hits(("/b", 1)))
    assert read() == [("/a", 1)]


def test_a_whole_job_goes_on_after_a_crash_to_the_same_table(spark, tmp_path):
    def run(name, fault=None):
        folder = tmp_path / name
        (folder / "in").mkdir(parents=True, exist_ok=True)
        for i in range(3):
            rows = [{"url": f"/{k % 2}", "n": i + k, "at": f"2026-01-01 1{i}:00:00"} for k in range(3)]
            file = folder / "in" / f"{i}.json"
            file.write_text("\n".join(map(json.dumps, rows)))
            os.utime(file, (1_800_000_000 + i, 1_800_000_000 + i))
        job = Job("shop")
        schema = "url string, n int, at timestamp"
        source = sources.files(str(folder / "in"), format="json", schema=schema, maxFilesPerTrigger=1)
        views = job.stream("views", source, time="at", lateness="1 minute")
        views.by("url").agg(n="count(*)", most="max(n)").to(sinks.delta(folder / "so_far"))
        views.to(sinks.delta(folder / "all"))
        running = start(job, spark, checkpoint=str(folder / "checkpoint"), once=True, fault=fault)
        running.wait()
        tables = [spark.read.format("delta").load(str(folder / table)).collect() for table in ("so_far", "all")]
        return [sorted(map(tuple, rows)) for rows in tables], running.status()["repeated"]

    def crash(point, batch):
        if (point, batch) == ("after_sink", 1):
            raise InterruptedError

    calm, _ = run("calm")
    with pytest.raises(Exception, match="InterruptedError"):
        run("crashed", crash)
    assert run("crashed") == (calm, 2)
    assert len(calm[1]) == 9


def test_an_entry_is_read_from_the_table_itself(open_writer, hits):
    writer = open_writer(epoch=3)
    writer.write(0, hits())
    assert writer.book.read() == Entry("shop", "hits", "c1", 0, 3)
    assert writer.book.columns() == [("page", "string"), ("n", "bigint")]


@pytest.fixture
def written(open_writer, hits):
    """Three batches of the first run."""
    writer = open_writer()
    for batch in range(3):
        writer.write(batch, hits(("/a", batch)))
    return writer


ROWS = [("/a", 0), ("/a", 1), ("/a", 2)]


def test_a_place_that_is_not_where_its_checkpoint_is_is_refused(open_writer, written, hits, read):
    with pytest.raises(SinkError, match=r"stands at batch 2, .*begun batch 1: it is an older copy than the output"):
        open_writer(epoch=2, committed=0)
    with pytest.raises(SinkError, match=r"written until batch 2, .* gone on to batch 5 without it.*--take-over hits"):
        open_writer(epoch=2, committed=5, new={"hits"})
    with pytest.raises(FencedError, match=r"another run 1 of job 'shop'.* two copies of checkpoint c1"):
        open_writer(committed=2)
    assert not open_writer(epoch=2, committed=1).write(2, hits(("/again", 1)))
    assert read() == ROWS


def test_a_table_that_was_taken_back_by_restore_is_refused_while_a_run_lives_and_later(
    open_writer, written, hits, read, spark, path
):
    history = f"delta.`{path.replace('`', '``')}`"
    versions = {r.userMetadata: r.version for r in spark.sql(f"DESCRIBE HISTORY {history}").collect()}
    spark.sql(f"RESTORE TABLE {history} TO VERSION AS OF {versions['penstock batch 0']}")
    assert read() == ROWS[:1]
    for _ in range(2):
        with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 2: it is an older copy"):
            written.write(3, hits(("/a", 3)))
    with pytest.raises(SinkError, match=r"stands at batch 0, .* has written batch 2: it is an older copy"):
        open_writer(epoch=2, committed=2)
    assert read() == ROWS[:1]
    # the checkpoint of that time fits, though Delta's own number of the batch is past it
    both = open_writer(epoch=2, committed=0)
    assert both.write(1, hits(("/b", 1)))
    assert both.write(2, hits(("/b", 2)))
    assert not open_writer(epoch=3, committed=1).write(2, hits(("/b", 2)))
    assert read() == [("/a", 0), ("/b", 1), ("/b", 2)]


def test_what_others_do_to_the_table_between_batches_is_no_fault(open_writer, written, hits, read, spark, path):
    history = f"delta.`{path.replace('`', '``')}`"
    spark.sql(f"OPTIMIZE {history}")
    spark.sql(f"ALTER TABLE {history} SET TBLPROPERTIES ('colour' = 'red')")
    assert written.write(3, hits(("/a", 3)))
    spark.sql(f"OPTIMIZE {history}")
    assert open_writer(epoch=2, committed=3).write(4, hits(("/a", 4)))
    assert len(read()) == 5


@pytest.mark.parametrize(("epochs", "winner"), [((6, 5), 6), ((5, 5), 5)], ids=["a newer run first", "the same twice"])
def test_of_runs_that_take_a_table_in_the_same_moment_one_goes_on(
    open_writer, written, hits, read, monkeypatch, epochs, winner
):
    first, second = epochs
    real, writers = DeltaLedger.take, []

    def late(book, entry):
        monkeypatch.setattr(DeltaLedger, "take", real)
        writers.append(open_writer(epoch=first, committed=2))  # after this one has read who was there before
        return real(book, entry)

    monkeypatch.setattr(DeltaLedger, "take", late)
    with pytest.raises(FencedError, match=f"run {winner} of job 'shop', and this is run {second}"):
        open_writer(epoch=second, committed=2)
    assert writers[0].write(3, hits(("/a", 3)))
    assert read() == [*ROWS, ("/a", 3)]


TAKEN = {
    "another job's": {"job": "blog", "checkpoint": "c9"},
    "of a newer checkpoint": {"epoch": 2, "committed": 0},
}


def test_an_output_that_is_taken_over_goes_on_from_what_stands_there(open_writer, hits, read, path):
    for name, told in TAKEN.items():
        writer = open_writer()
        for batch in range(3):
            writer.write(batch, hits(("/a", batch)))
        who = {"committed": -1, **told}
        batch = who["committed"] + 1
        with pytest.raises(SinkError, match="--take-over hits"):
            open_writer(**who)
        taker = open_writer(**who, take_over={"hits"})
        assert taker.write(batch, hits(("/b", 9))), name
        with pytest.raises((SinkError, FencedError)):
            writer.write(3, hits(("/old", 9)))
        again = open_writer(**{**who, "epoch": 7, "begun": batch}, take_over={"hits"})
        assert not again.write(batch, hits(("/b", 9))), name
        assert again.write(batch + 1, hits(("/c", 9)))
        assert read() == [*ROWS, ("/b", 9), ("/c", 9)], name
        shutil.rmtree(path)


def test_a_table_of_nobody_and_one_that_has_gone_are_taken_over(open_writer, hits, read, spark, path):
    spark.createDataFrame([("/nobody", 1)], "page string, n long").write.format("delta").save(path)
    writer = open_writer(key=("page",), take_over={"hits"})
    writer.write(0, hits(("/a", 1)))
    assert read() == [("/a", 1), ("/nobody", 1)]
    shutil.rmtree(path)
    with pytest.raises(SinkError, match=r"has gone.*--take-over hits"):
        open_writer(epoch=2, committed=0)
    writer = open_writer(epoch=3, committed=0, take_over={"hits"})
    writer.write(1, hits(("/b", 1)))
    assert not open_writer(epoch=4, committed=0).write(1, hits(("/b", 1)))
    assert read() == [("/b", 1)]


def test_other_types_than_before_are_refused_by_name(open_writer, hits, spark):
    for key in ((), ("page",)):
        writer = open_writer(key=key, epoch=2 if key else 1, committed=0 if key else -1)
        writer.write(0, hits(("/a", 1)))
        other = pa.table({"n": ["007"], "page": ["/a"]})
        with pytest.raises(SinkError, match="has columns page string, n bigint; the rows to write have n string, page"):
            writer.write(1, {"hits": Changes(Rows(spark, table=other))})
