"""Jobs whose checkpoint and outputs went different ways: refused before a write, or taken over when asked."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing

import pyarrow.dataset
import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import PlanError, RunError, SinkError
from penstock.plan.needs import Need
from penstock.run.begun import Begun, begin
from penstock.run.outlets import owner_of
from penstock.run.query import start
from penstock.run.session import session
from penstock.state.checkpoint import Checkpoint


class Shop:
    """A job over a folder of files, one a batch; what it writes to SQLite and to Parquet."""

    def __init__(self, folder, spark):
        self.folder = folder
        self.spark = spark
        (folder / "in").mkdir()

    def put(self, *numbers):
        for n in numbers:
            file = self.folder / "in" / f"{n}.json"
            file.write_text(json.dumps({"n": n, "at": "2026-01-01 10:00:00"}))
            os.utime(file, (1_800_000_000 + n, 1_800_000_000 + n))

    def run(self, checkpoint="checkpoint", files="files", table=True, **more):
        job = Job("shop")
        schema = "n long, at timestamp"
        source = sources.files(str(self.folder / "in"), format="json", schema=schema, maxFilesPerTrigger=1)
        rows = job.stream("rows", source, time="at", lateness="1 minute")
        rows.to(sinks.parquet(self.folder / files), name="files")
        if table:
            rows.to(sinks.sqlite(self.folder / "out.db", "hits"))
        where = str(self.folder / checkpoint)
        running = start(job, self.spark, checkpoint=where, once=True, **more)
        running.wait()
        return running.status()

    def copy(self, name, to):
        shutil.rmtree(self.folder / to, ignore_errors=True)
        shutil.copytree(self.folder / name, self.folder / to)

    def seen(self, files="files"):
        with closing(sqlite3.connect(self.folder / "out.db")) as connection:
            hits = sorted(n for (n,) in connection.execute("select n from hits"))
        found = pyarrow.dataset.dataset(self.folder / files).to_table().to_pylist()
        return hits, sorted(row["n"] for row in found)


@pytest.fixture
def shop(tmp_path, spark):
    return Shop(tmp_path, spark)


def test_a_checkpoint_that_is_an_older_copy_does_not_lose_the_rows_of_its_next_batches(shop):
    shop.put(0)
    shop.run()
    shop.copy("checkpoint", "older")
    shop.put(1, 2)
    shop.run()
    shop.copy("checkpoint", "newer")
    shop.copy("older", "checkpoint")
    (shop.folder / "in" / "1.json").unlink()
    (shop.folder / "in" / "2.json").unlink()
    shop.put(7, 8, 9)  # batches 1, 2 and 3 would hold these
    with pytest.raises(SinkError, match=r"stands at batch 2, .*written batch 0 and begun batch 0: it is an older copy"):
        shop.run()
    assert shop.seen() == ([0, 1, 2], [0, 1, 2])
    shop.copy("newer", "checkpoint")
    shop.run()
    assert shop.seen() == ([0, 1, 2, 7, 8, 9], [0, 1, 2, 7, 8, 9])


def test_another_checkpoint_takes_the_outputs_over_when_it_is_asked_to(shop):
    shop.put(0, 1)
    shop.run()
    with pytest.raises(SinkError, match=r"belongs to output 'files' of job 'shop'.*--take-over files"):
        shop.run("second")
    with pytest.raises(SinkError, match=r"belongs to output 'hits' of job 'shop'.*--take-over hits"):
        shop.run("second", take_over=["files"])
    assert shop.seen() == ([0, 1], [0, 1])
    shop.put(2)
    status = shop.run("second", take_over=["files", "hits"])
    assert status["repeated"] == 0
    assert shop.seen() == ([0, 0, 1, 1, 2], [0, 0, 1, 1, 2])
    shop.put(3)
    shop.run("second")
    assert shop.seen() == ([0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 2, 3])
    with pytest.raises(SinkError, match="belongs to"):
        shop.run()


def test_an_output_that_goes_and_comes_back_has_no_hole_that_nobody_was_told_of(shop):
    shop.put(0)
    shop.run()
    shop.put(1)
    shop.run(files="elsewhere")
    shop.put(2)
    with pytest.raises(SinkError, match=r"output 'files': .*files was written until batch 0, .* gone on to batch 1"):
        shop.run()
    shop.run(take_over=("files",))
    assert shop.seen() == ([0, 1, 2], [0, 2])
    shop.put(3)
    shop.run(table=False)
    shop.put(4)
    with pytest.raises(SinkError, match=r"output 'hits': .* was written until batch 2, .* gone on to batch 3"):
        shop.run()


def test_the_same_place_otherwise_spelled_goes_on(shop, monkeypatch):
    shop.put(0)
    shop.run()
    monkeypatch.chdir(shop.folder)
    shop.put(1)
    shop.folder, before = shop.folder / "in" / "..", shop.folder
    shop.run(checkpoint=before / "checkpoint")
    assert shop.seen() == ([0, 1], [0, 1])


def test_an_output_that_has_gone_is_taken_over(shop):
    shop.put(0)
    shop.run()
    (shop.folder / "out.db").unlink()
    shop.put(1)
    with pytest.raises(SinkError, match=r"has gone.*--take-over hits"):
        shop.run()
    shop.run(take_over="hits")
    assert shop.seen() == ([1], [0, 1])


def test_an_output_that_the_job_does_not_have_is_not_taken_over(shop):
    with pytest.raises(PlanError, match=r"take over 'clicks': the job 'shop' has no such output; it has files, hits"):
        shop.run(take_over=("files", "clicks"))
    assert not (shop.folder / "checkpoint").exists()


def test_an_owner_says_which_batch_outputs_may_hold(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "checkpoint")
    job = Job("shop")
    owner = owner_of(job, checkpoint, 1)
    assert (owner.committed, owner.begun, owner.take_over) == (-1, -1, set())
    begin(checkpoint, Begun(0, "plan", "query"))
    owner = owner_of(job, checkpoint, 2, frozenset({"hits"}))
    assert (owner.committed, owner.begun, owner.take_over) == (-1, 0, {"hits"})


def test_all_packages_that_a_spark_lacks_are_named_in_one_message(spark):
    needs = [
        Need("One", "org.example:one:1", "org.example.One", (("spark.one", "1"),)),
        Need("Nothing", "org.example:there:1", "java.lang.String"),
        Need("Two", "org.example:two:2", "org.example.Two"),
    ]
    with pytest.raises(RunError) as refused:
        session(spark, needs=needs)
    assert str(refused.value).startswith(
        "One needs the package org.example:one:1 and Two needs the package org.example:two:2, and this Spark was "
        "started without them. Start it with: spark-submit --packages org.example:one:1,org.example:two:2 "
        "--conf spark.one=1; or"
    )
