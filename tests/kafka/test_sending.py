"""What a job sends to a real topic, and what its readers make of it after a crash."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import SinkError, TransientSinkError
from penstock.sinks.kafka_repeats import Repeats


class Crashed(Exception):
    """A run that ends between what it sent and its commit."""


def crash_after_sending(point, batch):
    if (point, batch) == ("after_sink", 1):
        raise Crashed


def test_rows_that_are_sent_again_after_a_crash_are_told_from_new_ones(broker, topic, once, tmp_path, table):
    plain, keyed, totals = topic("plain", 3), topic("keyed", 3), topic("totals", 2)
    (tmp_path / "in").mkdir()
    rows = [{"url": f"/{i % 4}", "n": i % 3, "at": f"2026-01-01 10:00:{i:02}"} for i in range(60)]
    for i in range(3):
        path = tmp_path / "in" / f"{i}.json"
        path.write_text("\n".join(map(json.dumps, rows[i * 20 : i * 20 + 20])))
    job = Job("sending")
    source = sources.files(str(tmp_path / "in"), "json", "url string, n int, at timestamp", maxFilesPerTrigger=1)
    views = job.stream("views", source, time="at", lateness="1 hour")
    views.to(sinks.kafka(plain, broker.servers))
    views.to(sinks.kafka(keyed, broker.servers, key="url"))
    # a group of 15 rows in the end: its row goes away again
    views.by("url").agg(n="count(*)", last="max(at)").where("n < 12").to(sinks.kafka(totals, broker.servers))
    with pytest.raises(Exception, match="Crashed"):
        once(job, fault=crash_after_sending)
    once(job)

    expected = Counter(
        json.dumps({**row, "at": row["at"].replace(" ", "T") + ".000000Z"}, separators=(",", ":")).encode()
        for row in rows
    )
    for name in (plain, keyed):
        sent = broker.read(name)
        assert len(sent) == 80  # batch 1 came twice
        seen = Repeats()
        assert Counter(m.value for m in sent if seen.is_new(m.partition, m.headers)) == expected
    where = {(m.key, m.partition) for m in broker.read(keyed)}
    assert len(where) == 4
    assert {key for key, _ in where} == {json.dumps({"url": f"/{i}"}, separators=(",", ":")).encode() for i in range(4)}

    last = {m.key: m.value for m in broker.read(totals)}
    assert set(last.values()) == {None}

    copy = Job("copy")
    back = sources.kafka(plain, broker.servers, "json", "url string, n int, at timestamp", columns=["id"])
    distinct = copy.stream("sent", back, time="at", lateness="1 hour").deduplicate("id", within="1 second")
    distinct.select("url", "n", "at").to(sinks.sqlite(str(tmp_path / "out.db"), "distinct"))
    upserts = sources.kafka(totals, broker.servers, "upsert", "url string, n long, last timestamp")
    copy.table("totals", upserts, key="url").to(sinks.sqlite(str(tmp_path / "out.db"), "totals"))
    once(copy)
    got = Counter((url, n, at[:19]) for url, n, at in table(tmp_path / "out.db", "distinct"))
    assert got == Counter((row["url"], row["n"], row["at"].replace(" ", "T")) for row in rows)
    assert table(tmp_path / "out.db", "totals") == []


def writer(sink, owner):
    return sink.writer([sinks.Target("out", sink)], owner())


def test_a_topic_that_is_not_there_and_a_broker_that_is_away_are_told_apart(spark, broker, owner):
    with pytest.raises(SinkError, match="there is no topic 'nothing'") as refused:
        writer(sinks.kafka("nothing", broker.servers), owner)
    assert not isinstance(refused.value, TransientSinkError)
    quick = {"kafka.request.timeout.ms": 1500, "kafka.default.api.timeout.ms": 2000}
    with pytest.raises(TransientSinkError, match="no Kafka broker answers"):
        writer(sinks.kafka("out", "127.0.0.1:1", **quick), owner)


def test_a_batch_is_tried_again_while_the_broker_is_away_and_a_row_too_large_is_not(spark, broker, topic, owner):
    import pyarrow as pa

    def batch(value):
        return {"out": sinks.Changes(sinks.Rows(spark, table=pa.table({"v": [value]})))}

    quick = {"kafka.max.block.ms": 1500, "kafka.delivery.timeout.ms": 2000, "kafka.request.timeout.ms": 1500}
    name = topic()
    out = writer(sinks.kafka(name, broker.servers, **quick), owner)
    with pytest.raises(SinkError, match="larger than") as refused:
        out.write(0, batch("x" * 2_000_000))
    assert not isinstance(refused.value, TransientSinkError)
    broker.kill()
    try:
        with pytest.raises(TransientSinkError, match=f"cannot write to Kafka topic {name}"):
            out.write(0, batch("x"))
    finally:
        broker.start()
    assert out.write(0, batch("y"))
    assert json.loads(broker.read(name)[-1].value) == {"v": "y"}
