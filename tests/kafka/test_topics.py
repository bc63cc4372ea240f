"""Jobs over a real broker: time by partition, places, starts, formats, lost records, kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import duckdb
import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import RunError
from penstock.run.query import start
from penstock.sources.kafka_broker import AwayError
from penstock.sources.kafka_losses import LostDataError
from penstock.testing.servers.kafka import Message
from penstock.windows import tumbling

VIEWS = "url string, n int, at timestamp"
QUICK = {"kafka.request.timeout.ms": 1500, "kafka.default.api.timeout.ms": 2000}


def view(n: int, hour: int, minute: int, partition: int) -> Message:
    value = {"url": f"/{n % 3}", "n": n, "at": f"2026-01-01 {hour:02}:{minute:02}:00"}
    return Message(json.dumps(value), key=f"k{n}", partition=partition)


def counting(broker, name, out: Path, **options) -> Job:
    job = Job("views")
    source = sources.kafka(name, broker.servers, "json", VIEWS, columns=["key", "offset"], **options)
    views = job.stream("views", source, time="at", lateness="1 minute")
    job.dead_letters(sinks.sqlite(str(out), "dead"))
    counts = views.by("url").window(tumbling("10 minutes")).agg(n="count(*)", keys="count(distinct key)")
    counts.to(sinks.sqlite(str(out), "counts"))
    return job


def test_a_partition_that_is_an_hour_behind_loses_nothing_and_a_second_run_goes_on(
    broker, topic, once, tmp_path, table
):
    name, out = topic("views", partitions=3), tmp_path / "out.db"
    hours = {0: 10, 1: 10, 2: 9}
    sent = [view(p * 60 + m, hours[p], m, p) for p in hours for m in range(60)]
    broker.send(name, sent)
    broker.send(name, [Message(b"\xff\xfe", partition=0), Message(None, partition=1), Message("{broken", partition=2)])
    job = counting(broker, name, out, max_rows_per_batch=60)
    said = once(job).status()
    assert said["batch"] >= 3  # bounded batches: a backlog is not one of them
    assert said["late"] == 0
    assert said["watermark"] == "2026-01-01T09:58:00Z"
    assert said["inputs"]["views"] == {
        "partitions": {p: {"offset": 61, "latest": 61, "lag": 0} for p in "012"},
        "lag": 0,
    }
    assert sorted(row[4:] for row in table(out, "dead")) == [
        (f"topic {name}, partition 0, offset 60", "base64://4="),
        (f"topic {name}, partition 1, offset 60", "null"),
        (f"topic {name}, partition 2, offset 60", "{broken"),
    ]
    broker.send(name, [view(1000, 12, 0, p) for p in hours])
    again = once(job).status()
    assert again["late"] == 0
    rows = [json.loads(message.value) for message in sent]
    expected = duckdb.sql(
        f"""select time_bucket(interval 10 minutes, "at"::timestamp) as w, url, count(*)
        from (select unnest({rows!r}, recursive := true)) group by all"""
    ).fetchall()
    got = [(datetime.fromisoformat(row[0].replace("Z", "+00:00")), *row[2:]) for row in table(out, "counts")]
    assert sorted(got) == sorted((w.replace(tzinfo=timezone.utc), url, n, n) for w, url, n in expected)


STARTS = {
    "latest": ("latest", []),
    "a time": (datetime(2026, 1, 1, 0, 0, 4, tzinfo=timezone.utc), [4, 5]),
    "a time in words": ("2026-01-01 00:00:03", [3, 4, 5]),
    "offsets": ({1: 2}, [0, 2, 4, 5]),
}


def test_a_topic_is_read_from_where_the_job_says(broker, topic, once, tmp_path, table):
    name, out = topic(partitions=2), tmp_path / "out.db"
    begin = 1_767_225_600_000  # 2026-01-01
    broker.send(name, [Message(f'{{"n": {i}}}', partition=i % 2, timestamp_ms=begin + i * 1000) for i in range(6)])
    for number, (case, (at, expected)) in enumerate(STARTS.items()):
        job = Job(f"start{number}")
        source = sources.kafka(name, broker.servers, "json", "n int", start=at, columns=["partition", "timestamp"])
        job.stream("in", source, time=None).to(sinks.sqlite(str(out), f"t{number}"))
        once(job)
        rows = table(out, f"t{number}") if expected else []
        if case == "offsets":
            expected = [0, 2, 4, 5]  # all of partition 0, and partition 1 from its third
        assert sorted(row[0] for row in rows) == expected, case
        assert all(row[1] == row[0] % 2 for row in rows)
        assert all(row[2] == f"2026-01-01T00:00:0{row[0]}.000000Z" for row in rows)


def test_changes_in_three_formats_give_the_same_table(broker, topic, once, tmp_path, table):
    formats = {
        "upsert": [
            Message('{"id": 1, "v": "a"}', key='{"id": 1}'), Message('{"id": 2, "v": "b"}', key='{"id": 2}'),
            Message('{"id": 1, "v": "c"}', key='{"id": 1}'), Message(None, key='{"id": 2}'),
        ],
        "debezium": [
            Message(json.dumps({"op": "c", "after": {"id": 1, "v": "a"}, "source": {"lsn": 1}})),
            Message(json.dumps({"op": "c", "after": {"id": 2, "v": "b"}, "source": {"lsn": 2}})),
            Message(json.dumps({"op": "u", "after": {"id": 1, "v": "c"}, "source": {"lsn": 3}})),
            Message(json.dumps({"op": "d", "before": {"id": 2, "v": "b"}, "source": {"lsn": 4}}), key='{"id": 2}'),
            Message(None, key='{"id": 2}'),
        ],
        "maxwell": [
            Message(json.dumps({"type": "insert", "ts": 1, "xid": 1, "xoffset": 0, "data": {"id": 1, "v": "a"}})),
            Message(json.dumps({"type": "insert", "ts": 1, "xid": 1, "commit": True, "data": {"id": 2, "v": "b"}})),
            Message(json.dumps({"type": "update", "ts": 2, "xid": 2, "data": {"id": 1, "v": "c"}, "old": {"v": "a"}})),
            Message(json.dumps({"type": "delete", "ts": 3, "xid": 3, "data": {"id": 2, "v": "b"}})),
        ],
    }  # fmt: skip
    job = Job("tables")
    for kind, messages in formats.items():
        name = topic(kind)
        broker.send(name, messages)
        source = sources.kafka(name, broker.servers, kind, "id long, v string")
        job.table(kind, source, key="id").to(sinks.sqlite(str(tmp_path / "out.db"), kind))
    said = once(job).status()
    assert {kind: table(tmp_path / "out.db", kind) for kind in formats} == {kind: [(1, "c")] for kind in formats}
    assert set(said["inputs"]) == set(formats)


def reading(broker, name, out: Path, **options) -> Job:
    job = Job("rows")
    source = sources.kafka(name, broker.servers, "json", "n int", columns=["timestamp"], **options)
    stream = job.stream("rows", source, time="timestamp", lateness="0 seconds")
    stream.select("n").to(sinks.sqlite(str(out), "rows"))
    return job


def test_a_topic_that_lost_records_is_refused_by_name(broker, topic, once, tmp_path, table):
    name, out = topic("losing"), tmp_path / "out.db"
    broker.send(name, [f'{{"n": {i}}}' for i in range(2)])
    job = reading(broker, name, out)
    once(job)
    broker.send(name, ['{"n": 2}', '{"n": 3}'])
    broker.forget(name, {0: 3})
    wanted = f"topic {name!r}, partition 0 has lost 1 records that were not read: offset 2 comes next, and the earliest"
    before = table(out, "rows")
    with pytest.raises(LostDataError) as refused:
        once(job)
    assert wanted in str(refused.value)
    broker.delete_topic(name)
    with pytest.raises(LostDataError, match="has gone"):
        once(job)
    broker.create_topic(name)
    broker.send(name, [f'{{"n": {i}}}' for i in range(9)])  # more than there were: offsets alone do not tell
    with pytest.raises(LostDataError, match="was deleted and made anew"):
        once(job)
    assert table(out, "rows") == before == [(0,), (1,)]


def test_records_that_are_lost_before_the_first_batch_is_done_are_named_too(broker, topic, once, tmp_path, table):
    name = topic("losing")
    broker.send(name, ['{"n": 0}', '{"n": 1}'])
    job = reading(broker, name, tmp_path / "out.db")

    def forgetful(point, batch):
        if point == "before_sink":
            broker.forget(name, {0: 1})

    wanted = "has lost 1 records that were not read: offset 0 comes next"
    with pytest.raises(LostDataError, match=wanted):
        once(job, fault=forgetful)
    with pytest.raises(LostDataError, match=wanted):
        once(job)


def test_a_topic_made_anew_under_a_live_run_ends_it_before_anything_of_the_new_one_is_written(
    broker, topic, spark, tmp_path, table
):
    name, out = topic("anew"), tmp_path / "out.db"
    broker.send(name, ['{"n": 0}', '{"n": 1}'])

    def made_anew(point, batch):
        if (point, batch) == ("after_commit", 0):
            broker.delete_topic(name)
            broker.create_topic(name)
            broker.send(name, [f'{{"n": {10 + i}}}' for i in range(9)])  # more than there were: offsets do not tell

    running = start(
        reading(broker, name, out, **QUICK), spark, checkpoint=str(tmp_path / "checkpoint"), fault=made_anew
    )
    try:
        with pytest.raises(LostDataError, match="was deleted and made anew"):
            running.wait(timeout=100)
    finally:
        running.stop()
    assert table(out, "rows") == [(0,), (1,)]


def test_a_run_asks_the_broker_once_a_batch(broker, topic, once, tmp_path, monkeypatch):
    from penstock.sources.kafka_broker import Broker

    name, asked = topic("asked"), []
    broker.send(name, [f'{{"n": {i}}}' for i in range(6)])
    now = Broker.now
    monkeypatch.setattr(Broker, "now", lambda self, *given: asked.append(given) or now(self, *given))
    said = once(reading(broker, name, tmp_path / "out.db", max_rows_per_batch=2)).status()
    batches = said["batch"] + 1
    assert batches >= 3
    assert len(asked) == batches + 1  # and once for this status
    assert said["inputs"]["rows"]["partitions"]["0"] == {"offset": 6, "latest": 6, "lag": 0}


def test_no_topic_no_broker_and_a_wrong_secret_are_told_at_the_start(broker, topic, once, tmp_path, table, monkeypatch):
    with pytest.raises(RunError, match=r"there is no topic 'nothing'.*Create it"):
        once(reading(broker, "nothing", tmp_path / "out.db"))

    class Nowhere:
        servers = "127.0.0.1:1"

    with pytest.raises(AwayError, match=r"no Kafka broker answers at 127.0.0.1:1"):
        once(reading(Nowhere, "nothing", tmp_path / "out.db", **QUICK))
    monkeypatch.setenv("JAAS", "not-a-module required password='swordfish'")
    options = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": "env:JAAS"}
    with pytest.raises(RunError) as refused:
        once(reading(broker, topic(), tmp_path / "out.db", **options, **QUICK))
    assert "swordfish" not in str(refused.value)


def test_a_planted_secret_is_found_nowhere(broker, topic, once, tmp_path, table, monkeypatch):
    name = topic("planted")
    broker.send(name, ['{"n": 1}', "{broken"])
    monkeypatch.setenv("JAAS", "org.apache.kafka.common.security.plain.PlainLoginModule required password='swordfish';")
    job = reading(broker, name, tmp_path / "out.db", max_rows_per_batch=1, **{"kafka.sasl.jaas.config": "env:JAAS"})
    with pytest.raises(RunError) as refused:
        once(job)
    assert "{broken" in str(refused.value)
    assert "swordfish" not in str(refused.value) + str(refused.value.java) + job.explain() + repr(job)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"swordfish" in path.read_bytes()]


SEARCH_CTR = """
import os, signal, sys
from penstock import Job, sinks, sources
from penstock.run.query import start
from penstock.windows import tumbling

servers, searches_in, clicks_in, *fault_at = sys.argv[1:]
job = Job("search_ctr")
searches = job.stream("searches", sources.kafka(searches_in, servers, format="json", max_rows_per_batch=20,
                      schema="session_id string, url string, at timestamp"),
                      time="at", lateness="10 minutes")
clicks = job.stream("clicks", sources.kafka(clicks_in, servers, format="json", max_rows_per_batch=20,
                    schema="session_id string, click_id string, clicked_at timestamp"),
                    time="clicked_at", lateness="10 minutes")
(searches
    .join(clicks, on="session_id", within=("0 seconds", "1 hour"), how="left", name="shown_and_clicked")
    .by("url")
    .window(tumbling("5 minutes"))
    .agg(shown="count(*)", clicked="count(click_id)")
    .with_columns(rate="clicked / shown")
    .to(sinks.sqlite("out.db", "ctr"), name="ctr"))

def fault(point, batch):
    if fault_at == [point, str(batch)]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    start(job, checkpoint="checkpoint", once=True, fault=fault).wait()
"""


def test_the_search_job_is_killed_in_the_middle_and_goes_on_to_the_right_rates(broker, topic, tmp_path, table):
    searches, clicks = topic("searches", partitions=3), topic("clicks", partitions=2)
    shown = [
        {"session_id": f"s{i}", "url": f"/{i % 4}", "at": f"2026-01-01 {10 + i // 30}:{i % 30 * 2:02}:00"}
        for i in range(60)
    ]
    clicked = [
        {"session_id": f"s{i}", "click_id": f"c{i}", "clicked_at": shown[i]["at"][:-2] + "20"} for i in range(0, 60, 3)
    ]
    ends = "2026-01-01 20:00:00"  # time goes on, and all that is asked for closes
    last_shown = [{"session_id": "end", "url": "/end", "at": ends}] * 3
    last_clicked = [{"session_id": "end", "click_id": "end", "clicked_at": ends}] * 2
    broker.send(searches, [Message(json.dumps(r), partition=i % 3) for i, r in enumerate(shown + last_shown)])
    broker.send(clicks, [Message(json.dumps(r), partition=i % 2) for i, r in enumerate(clicked + last_clicked)])
    (tmp_path / "job.py").write_text(SEARCH_CTR)

    def run(*fault):
        command = [sys.executable, "job.py", broker.servers, searches, clicks, *fault]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ})

    assert run("during_sink", "2").returncode == -signal.SIGKILL
    again = run()
    assert again.returncode == 0, again.stderr
    pairs = duckdb.sql(
        f"""with s as (select unnest({shown!r}, recursive := true)),
        c as (select unnest({clicked!r}, recursive := true))
        select time_bucket(interval 5 minutes, coalesce(clicked_at, "at")::timestamp) w, url, count(*), count(click_id),
        count(click_id) / count(*) from s left join c using (session_id) group by all"""
    ).fetchall()
    expected = sorted((f"{w.isoformat()}.000000Z", url, n, k, rate) for w, url, n, k, rate in pairs)
    assert sorted((row[0], *row[2:]) for row in table(tmp_path / "out.db", "ctr")) == expected


def test_a_broker_that_goes_away_for_good_ends_the_run_with_its_name(broker, topic, spark, tmp_path, table):
    name = topic("away")
    broker.send(name, ['{"n": 1}'])
    options = {**QUICK, "fetchOffset.numRetries": 1}
    job = reading(broker, name, tmp_path / "out.db", **options)

    def fault(point, batch):
        if point == "after_commit":
            broker.stop()

    try:
        running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"), fault=fault)
        with pytest.raises(AwayError, match=r"no Kafka broker answers"):
            running.wait()
    finally:
        broker.start()
    assert table(tmp_path / "out.db", "rows") == [(1,)]
