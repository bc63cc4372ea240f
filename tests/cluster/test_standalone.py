"""A job on a real cluster: ``spark-submit`` to a master with two workers, one of which is lost in the middle."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import duckdb
import pytest

from penstock.testing.servers.spark import Cluster

FILES, ROWS = 3, 30_000  # a file a batch, each too large to be done in the driver

JOB = """
from penstock import Job, sinks, sources
from penstock.windows import tumbling

job = Job("views")
schema = "url string, user int, n int, pad string, at timestamp"
views = job.stream("views", sources.files("in", format="json", schema=schema, maxFilesPerTrigger=1),
                   time="at", lateness="5 minutes")
hourly = views.by("url").window(tumbling("10 minutes")).agg(n="count(*)", total="sum(n)", users="count(distinct user)")
hourly.to(sinks.sqlite("out.db", "hourly"))

if __name__ == "__main__":
    job.run(checkpoint="checkpoint", once=True)
"""


def prepare(folder: Path) -> Path:
    """The job, and files of an hour each, in order."""
    (folder / "in").mkdir()
    (folder / "job.py").write_text(JOB)
    for file in range(FILES):
        made = (
            f"select '/' || (i * 7919) % 97 as url, (i * 31) % 1009 as user, i % 13 as n, repeat('x', 80) as pad, "
            f"strftime(timestamp '2026-01-01 {10 + file}:00:00' + to_seconds(i * 3600 // {ROWS}), "
            f"'%Y-%m-%d %H:%M:%S') as \"at\" from range({ROWS}) t(i)"
        )
        path = folder / "in" / f"{file}.json"
        duckdb.sql(f"copy ({made}) to '{path}' (format json)")
        os.utime(path, (1_800_000_000 + file, 1_800_000_000 + file))  # the file source reads the oldest first
    return folder


def expected(folder: Path) -> list[tuple[object, ...]]:
    """Plain SQL over all that came: the windows that the last event closes."""
    came = f"(select *, \"at\"::timestamp as t from '{folder}/in/*.json')"
    return duckdb.sql(
        "select strftime(time_bucket(interval '10 minutes', t), '%Y-%m-%dT%H:%M:%S.000000Z') as s, url, count(*), "
        f"sum(n)::bigint, count(distinct user) from {came} group by all having "
        "max(time_bucket(interval '10 minutes', t)) + interval '15 minutes' <= "
        f"(select max(t) from {came}) order by all"
    ).fetchall()


def written(folder: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "out.db") as database:
        return database.execute(
            "select window_start, url, n, total, users from hourly order by window_start, url"
        ).fetchall()


@pytest.fixture(scope="module")
def cluster():
    with Cluster(workers=2) as cluster:
        yield cluster


def test_a_job_that_loses_a_worker_in_the_middle_gives_the_same(cluster, tmp_path):
    folder = prepare(tmp_path)
    job = cluster.submit("job.py", cwd=folder)
    try:
        assert job.stdout is not None
        first = json.loads(job.stdout.readline())
        assert (first["batch"], first["rows"]) == (0, ROWS)
        assert len(cluster.workers) == 2
        cluster.kill_worker(0)  # batch 1 is at work
        assert len(cluster.workers) == 1
        said, complained = job.communicate(timeout=300)
        assert job.returncode == 0, complained
    finally:
        job.kill()
    assert [json.loads(line)["batch"] for line in said.splitlines()] == [1, 2]
    assert "Lost executor" in complained  # it was at work for this job
    assert written(folder) == expected(folder)
    assert len(written(folder)) > 1_000
