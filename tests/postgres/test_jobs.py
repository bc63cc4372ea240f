"""Whole jobs into a real PostgreSQL: killed, replaced, and with the server away for a while or for good."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys

import psycopg
import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import FencedError, SinkError
from penstock.run import retries
from penstock.run.query import start
from penstock.sinks import Owner, Target
from penstock.state.checkpoint import Checkpoint
from penstock.testing.servers.postgres import Postgres
from penstock.windows import tumbling

TABLES = ("hourly", "so_far", "dead")


def prepare(folder):
    """Four files of events, and a broken line."""
    (folder / "in").mkdir(parents=True)
    for i in range(4):
        rows = [{"url": f"/{k}", "n": i + k, "at": f"2026-01-01 {10 + i}:{m:02}:00"} for k in range(3) for m in (5, 40)]
        path = folder / "in" / f"{i}.json"
        path.write_text("\n".join([*map(json.dumps, rows), *(["{broken"] if i == 2 else [])]) + "\n")
        os.utime(path, (1_800_000_000 + i, 1_800_000_000 + i))
    return folder


def make_job(folder, url):
    """An appended output, an upserted one and dead letters, all in one database."""
    job = Job("shop")
    source = sources.files(
        str(folder / "in"), format="json", schema="url string, n int, at timestamp", maxFilesPerTrigger=1
    )
    views = job.stream("views", source, time="at", lateness="20 minutes")
    views.by("url").window(tumbling("1 hour")).agg(n="count(*)", total="sum(n)").to(sinks.postgres("hourly", url))
    views.by("url").agg(n="count(*)", most="max(n)").to(sinks.postgres("so_far", url))
    job.dead_letters(sinks.postgres("dead", url))
    return job


def read(url):
    """All that a reader sees, the place of a dead letter aside; and the ledger."""
    with psycopg.connect(url) as connection:
        found = {name: sorted(connection.execute(f"select * from {name}").fetchall(), key=repr) for name in TABLES}
        found["dead"] = [row[:4] for row in found["dead"]]
        found["ledger"] = connection.execute("select output, batch from _penstock_ledger order by 1").fetchall()
    return found


@pytest.fixture(scope="module")
def calm(spark, server, tmp_path_factory):
    """What a run without a fault writes."""
    folder = prepare(tmp_path_factory.mktemp("calm"))
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create database calm")
    url = server.url.rpartition("/")[0] + "/calm"
    running = start(make_job(folder, url), spark, checkpoint=str(folder / "checkpoint"), once=True)
    running.wait()
    assert running.status()["retries"] == running.status()["repeated"] == 0
    found = read(url)
    assert [len(found[name]) for name in TABLES] == [9, 3, 1]
    assert found["ledger"] == [("dead_letters", 3), ("hourly", 3), ("so_far", 3)]
    return found


JOB = """
import os, signal, sys
from pathlib import Path
from penstock.run.query import start
sys.path.insert(0, {tests!r})
from test_jobs import make_job

def fault(point, batch):
    if sys.argv[1:] == [point, str(batch)]:
        os.kill(os.getpid(), signal.SIGKILL)

running = start(make_job(Path("."), "env:SHOP_URL"), checkpoint="checkpoint", once=True, fault=fault)
running.wait()
print(running.status()["repeated"])
"""


def test_a_process_killed_after_its_commit_in_postgresql_and_again_half_way_goes_on_to_the_same_tables(
    calm, url, tmp_path
):
    folder = prepare(tmp_path / "killed")
    (folder / "job.py").write_text(JOB.format(tests=os.path.dirname(__file__)))

    def run(*fault):
        command, there = [sys.executable, "job.py", *fault], {**os.environ, "SHOP_URL": url}
        return subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, timeout=300)

    assert run("after_sink", "1").returncode == -signal.SIGKILL
    assert run("during_sink", "2").returncode == -signal.SIGKILL
    ended = run()
    assert ended.returncode == 0, ended.stderr
    assert read(url) == calm
    assert ended.stdout.split()[-1] == "3"  # batch 1 was there already, in each of the outputs


def test_a_run_that_a_newer_one_has_replaced_writes_nothing_more(spark, calm, url, tmp_path):
    folder = prepare(tmp_path / "fenced")
    job, path = make_job(folder, url), str(folder / "checkpoint")

    def replaced(point, batch):
        if (point, batch) == ("before_sink", 2):
            owner = Owner("shop", Checkpoint.open(path).id, 2, 1)
            sink = job.outputs[0].sink
            sink.writer([Target("hourly", sink)], owner).close()

    with pytest.raises(FencedError, match="taken over by run 2 of job 'shop', and this is run 1"):
        start(job, spark, checkpoint=path, once=True, fault=replaced).wait()
    assert read(url)["ledger"] == [("dead_letters", 1), ("hourly", 1), ("so_far", 1)]
    Checkpoint.open(path).take_epoch()
    start(job, spark, checkpoint=path, once=True).wait()
    assert read(url) == calm


@pytest.fixture
def fragile():
    """A server that the test stops."""
    with Postgres() as one:
        yield one


class Told(logging.Handler):
    """Does something when the engine says that it will try again."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def emit(self, record):
        self.act(record.getMessage())


@pytest.fixture
def when_told():
    added = []

    def add(act):
        added.append(Told(act))
        retries.LOG.addHandler(added[-1])

    yield add
    for handler in added:
        retries.LOG.removeHandler(handler)


def test_a_server_that_is_away_for_a_while_is_waited_for_and_the_tries_are_counted(
    spark, calm, fragile, tmp_path, when_told
):
    folder = prepare(tmp_path / "away")
    said, faults = [], {("before_sink", 1), ("during_sink", 2)}

    def stop(point, batch):
        if (point, batch) in faults:
            faults.remove((point, batch))  # a batch that is tried again comes here again
            fragile.stop(crash=batch == 2)

    def start_again(message):
        said.append(message)
        if len(said) != 1:  # the first time it stays away for one try more
            fragile.start()

    when_told(start_again)
    job = make_job(folder, fragile.url)
    running = start(job, spark, checkpoint=str(folder / "checkpoint"), once=True, fault=stop)
    running.wait()
    assert read(fragile.url) == calm
    assert running.status()["retries"] == 3 * 3  # twice in batch 1 and once in batch 2, for each output
    assert running.status()["repeated"] == 0
    assert "Trying again in 0.5 seconds" in said[0]
    assert "Trying again in 1.0 seconds" in said[1]


def test_a_server_that_is_away_for_good_stops_the_job_and_nothing_is_damaged(
    spark, calm, fragile, tmp_path, monkeypatch
):
    folder = prepare(tmp_path / "gone")
    monkeypatch.setattr(retries, "PATIENCE_S", 0.6)
    job, path = make_job(folder, fragile.url), str(folder / "checkpoint")

    def stop(point, batch):
        if (point, batch) == ("before_sink", 2):
            fragile.stop()

    with pytest.raises(
        SinkError, match=r"output 'hourly', 'so_far', 'dead_letters': cannot write .* was tried 3 times"
    ):
        start(job, spark, checkpoint=path, once=True, fault=stop).wait()
    assert Checkpoint.open(path).batches() == [0, 1]
    with pytest.raises(SinkError, match="was tried 3 times"):  # nor does it start
        start(job, spark, checkpoint=path, once=True)
    fragile.start()
    assert [batch for _, batch in read(fragile.url)["ledger"]] == [1, 1, 1]
    start(job, spark, checkpoint=path, once=True).wait()
    assert read(fragile.url) == calm


def test_a_run_that_is_stopped_while_it_waits_ends_at_once(spark, fragile, tmp_path, when_told):
    folder = prepare(tmp_path / "stopped")
    job, path = make_job(folder, fragile.url), str(folder / "checkpoint")
    waiting = []

    def stop(point, batch):
        if (point, batch) == ("before_sink", 1):
            fragile.stop()

    def leave(message):
        waiting.append(message)
        running._leaving.set()  # what a signal does; stop() would wait for this very batch

    when_told(leave)
    running = start(job, spark, checkpoint=path, fault=stop)
    assert running.wait()
    assert len(waiting) == 1
    assert Checkpoint.open(path).batches() == [0]
