"""The whole chain on this machine: topics, a cluster that loses a worker, tables of a database."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

import duckdb
import psycopg
import pytest

from penstock import jobs
from penstock.run.jars import jars
from penstock.sources.kafka_connection import kafka_need
from penstock.testing.servers.kafka import Kafka, Message
from penstock.testing.servers.postgres import Postgres
from penstock.testing.servers.spark import Cluster

JOB = Path(jobs.__file__).resolve().parent / "search_ctr.py"
BEGIN = datetime(2026, 3, 13, 10, tzinfo=timezone.utc)
SLICES, SESSIONS = 4, 15_000  # each too large to be done in the driver
PATIENCE_S = 240.0
Event = dict[str, str]


def events(number: int) -> tuple[list[Event], list[Event]]:
    """The searches of eight minutes, shuffled, and the clicks on a third of them."""
    random = Random(number)
    searches, clicks = [], []
    for i in range(SESSIONS):
        at = BEGIN + timedelta(minutes=8 * number, milliseconds=random.randrange(8 * 60_000))
        session = f"s{number}-{i}"
        searches.append({"session_id": session, "url": f"/{i % 23}", "at": at.isoformat()})
        if i % 3 == 0:
            clicked = at + timedelta(milliseconds=random.randrange(60_000))
            clicks.append({"session_id": session, "click_id": f"c{i}", "clicked_at": clicked.isoformat()})
    random.shuffle(searches)
    return searches, clicks


def last() -> tuple[list[Event], list[Event]]:
    """Time goes on by half a day, in every partition, and all windows close."""
    at = (BEGIN + timedelta(hours=12)).isoformat()
    return (
        [{"session_id": f"end{i}", "url": "/end", "at": at} for i in range(3)],
        [{"session_id": "nobody", "click_id": "end", "clicked_at": at}] * 2,
    )


def send(broker: Kafka, searches: list[Event], clicks: list[Event]) -> None:
    broker.send("searches", [Message(json.dumps(row), partition=i % 3) for i, row in enumerate(searches)])
    broker.send("clicks", [Message(json.dumps(row), partition=i % 2) for i, row in enumerate(clicks)])


def expected(searches: list[Event], clicks: list[Event], folder: Path) -> list[tuple[object, ...]]:
    """Plain SQL over all that was sent."""
    for name, rows in (("searches", searches), ("clicks", clicks)):
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
    return duckdb.sql(
        f"""select epoch(time_bucket(interval 5 minutes, coalesce(clicked_at, "at")::timestamp))::bigint as w, url,
        count(*), count(click_id) from '{folder}/searches.json' left join '{folder}/clicks.json' using (session_id)
        group by all order by all"""
    ).fetchall()


def written(url: str) -> list[tuple[object, ...]]:
    """What a reader of the database sees; nothing before the job has made its table."""
    asked = "select extract(epoch from window_start)::bigint, url, shown, clicked from ctr order by 1, 2"
    with psycopg.connect(url) as connection, contextlib.suppress(psycopg.errors.UndefinedTable):
        return connection.execute(asked).fetchall()
    return []


def batch_with_rows(job: subprocess.Popen[str]) -> dict[str, object]:
    """What the job says of its next batch in which something came."""
    assert job.stdout is not None
    for line in job.stdout:
        said: dict[str, object] = json.loads(line)
        if said["rows"]:
            return said
    raise AssertionError(f"the job ended with {job.wait()}")


@pytest.fixture
def servers():
    with Kafka() as broker, Postgres() as database, Cluster(workers=2) as cluster:
        broker.create_topic("searches", partitions=3)
        broker.create_topic("clicks", partitions=2)
        yield broker, database, cluster


def test_search_ctr_over_kafka_into_postgresql_loses_a_worker_and_is_right(servers, tmp_path):
    broker, database, cluster = servers
    searches: list[Event] = []
    clicks: list[Event] = []
    environment = {"CTR_KAFKA": broker.servers, "CTR_POSTGRES": "env:SHOP_URL", "SHOP_URL": database.url}
    packages = ",".join(map(str, jars(kafka_need().package)))
    complaints = tmp_path / "complaints"
    with complaints.open("w") as file:
        job = cluster.submit(JOB, cwd=tmp_path, conf={"spark.jars": packages}, env=environment, stderr=file)
    try:
        for number in range(SLICES):
            one = events(number)
            searches += one[0]
            clicks += one[1]
            send(broker, *one)
            if number == 2:
                cluster.kill_worker(0)  # with what has just been sent on its way
            batch_with_rows(job)
        send(broker, *last())
        wanted = expected(searches, clicks, tmp_path)
        until = time.monotonic() + PATIENCE_S
        while written(database.url) != wanted and time.monotonic() < until:
            batch_with_rows(job)
    finally:
        job.kill()
    assert "Lost executor" in complaints.read_text()
    assert len(cluster.workers) == 1
    assert written(database.url) == wanted
    assert sum(int(shown) for _, _, shown, _ in wanted) == SLICES * SESSIONS
