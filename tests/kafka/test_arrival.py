"""Time and order of arrival where topics meet: in a union, and in an input that no step reads yet."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from penstock import Job, sinks, sources
from penstock.compile.ingest import ingest
from penstock.compile.layout import Layout
from penstock.compile.types import frame_of
from penstock.run.clock import Clock
from penstock.run.reading import Reading
from penstock.sources.base import CLOCK, PARTITION, PLACE, POSITION
from penstock.state.edge import INPUT
from penstock.state.stage import Moment
from penstock.testing.servers.kafka import Message
from penstock.windows import tumbling

SCHEMA = "n int, at timestamp"
HOUR_US = 3_600_000_000


def at(second):
    return f"2026-01-01 10:{second // 60:02}:{second % 60:02}"


def topic_of(job, name, **options):
    return job.stream(name, sources.kafka(name, "h:1", "json", SCHEMA), time="at", lateness="0 seconds", **options)


def came(spark, rows):
    """Rows of a topic as the source gives them: partition, offset, hour."""
    names = {"n": pa.int32(), CLOCK: pa.int32(), PARTITION: pa.int32(), POSITION: pa.int64(), "hour": pa.int64()}
    columns = [[p for p, _, _ in rows], *[[p for p, _, _ in rows]] * 2, [o for _, o, _ in rows], [h for *_, h in rows]]
    table = pa.table({c: pa.array(v, t) for (c, t), v in zip(names.items(), columns, strict=True)})
    frame = frame_of(spark, table)
    return frame.selectExpr(
        "n", f"timestamp_micros(hour * {HOUR_US}L) AS at", CLOCK, PARTITION, POSITION, f"'here' AS {PLACE}"
    )


def reading(spark, job, given, small):
    layout = Layout(job)
    frames = {node: ingest(layout, node, given[node.name], f"{24 * HOUR_US}L") for node in layout.inputs}
    moment = Moment(0, 0, 0, Clock(), {}, {}, tuple(i.name for i in layout.inputs), None)
    return Reading(layout, frames, spark, small, moment)


@pytest.mark.parametrize("small", [True, False])
def test_of_an_input_that_no_step_reads_each_partition_keeps_its_time(spark, small):
    job = Job("copy")
    topic_of(job, "a").to(sinks.memory("copy"))
    job.dead_letters(sinks.memory("dead"))
    rows = [(0, 0, 3), (0, 1, 5), (1, 0, 2), (1, 1, 49)]  # the last is further ahead than it may be
    facts = reading(spark, job, {"a": came(spark, rows)}, small).observed()
    assert facts.newest == {0: {0: 5 * HOUR_US, 1: 2 * HOUR_US}}
    assert facts.rows == {0: 4}


def test_a_source_without_partitions_has_one_time(spark):
    job = Job("copy")
    topic_of(job, "a").to(sinks.memory("copy"))
    job.dead_letters(sinks.memory("dead"))
    frame = came(spark, [(0, 0, 3), (1, 0, 2)]).drop(CLOCK)
    assert reading(spark, job, {"a": frame}, True).observed().newest == {0: {0: 3 * HOUR_US}}
    assert reading(spark, job, {"a": frame.where("n > 7")}, False).observed().newest == {}


UNIONS = {
    "of topics": (came, came),
    "of a topic and files": (came, lambda *given: came(*given).drop(CLOCK, PARTITION, POSITION)),
    "of files": 2 * (lambda *given: came(*given).drop(CLOCK, PARTITION, POSITION),),
}


@pytest.mark.parametrize("case", UNIONS)
def test_rows_of_a_union_never_tie_in_their_order_of_arrival(spark, case):
    job = Job("both")
    union = topic_of(job, "a").union(topic_of(job, "b"))
    union.by("n").window(tumbling("1 hour")).agg(first="first(at)").to(sinks.memory("out"))
    rows = [(p, o, 1) for p in range(3) for o in range(4)]
    given = {name: make(spark, rows) for name, make in zip("ab", UNIONS[case], strict=True)}
    read = reading(spark, job, given, True)
    (root,) = (u for s in read.layout.stages for u in s.inputs)
    places = [tuple(r) for r in read.edge(root).select(PARTITION, POSITION).collect()]
    assert len(set(places)) == len(places) == 24
    assert all(None not in place for place in places)
    # again in other Spark partitions: what the sources know of their order decides, and not the way through Spark
    if case == "of topics":
        again = reading(spark, job, {name: f.repartition(3, F.col("n")) for name, f in given.items()}, True)
        wanted = sorted(tuple(r) for r in read.edge(root).select(INPUT, PARTITION, POSITION).collect())
        assert sorted(tuple(r) for r in again.edge(root).select(INPUT, PARTITION, POSITION).collect()) == wanted


def test_equal_times_of_two_topics_and_of_files_go_by_the_input(broker, topic, once, tmp_path, table):
    names = topic("left"), topic("right")
    for name, first in zip(names, (100, 200), strict=True):
        broker.send(name, [Message(json.dumps({"n": first + i, "at": at(i // 2)})) for i in range(8)])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("\n".join(json.dumps({"n": 300 + i, "at": at(i // 2)}) for i in range(8)))
    job = Job("ties")
    streams = [
        job.stream(f"s{i}", source, time="at", lateness="0 seconds")
        for i, source in enumerate(
            [
                *(sources.kafka(name, broker.servers, "json", SCHEMA) for name in names),
                sources.files(str(tmp_path / "in"), "json", SCHEMA),
            ]
        )
    ]
    union = streams[0].union(streams[1]).union(streams[2])
    listed = union.with_columns(k="1").by("k").window(tumbling("1 hour"))
    listed.agg(n="collect_list(n)").to(sinks.sqlite(str(tmp_path / "out.db"), "out"))
    once(job)
    for name in names:
        broker.send(name, [Message(json.dumps({"n": 0, "at": "2026-01-01 12:00:00"}))])
    (tmp_path / "in" / "1.json").write_text(json.dumps({"n": 0, "at": "2026-01-01 12:00:00"}))
    once(job)
    ((*_, numbers),) = table(tmp_path / "out.db", "out")
    by_time = [json.loads(numbers)[i : i + 6] for i in range(0, 24, 6)]
    assert [sorted(part) for part in by_time] == [
        [first + i + j for first in (100, 200, 300) for j in (0, 1)] for i in (0, 2, 4, 6)
    ]
    of_topics = [[n for n in part if n < 300] for part in by_time]
    assert of_topics == [[100 + i, 101 + i, 200 + i, 201 + i] for i in (0, 2, 4, 6)]


def test_a_step_that_is_new_begins_at_the_time_of_the_slowest_partition(broker, topic, once, tmp_path, table):
    name, out = topic("slow", partitions=2), str(tmp_path / "out.db")
    source = sources.kafka(name, broker.servers, "json", SCHEMA)

    def job(counted):
        made = Job("slow")
        made.dead_letters(sinks.sqlite(out, "dead"))
        rows = made.stream("rows", source, time="at", lateness="0 seconds")
        rows.select("n").to(sinks.sqlite(out, "copy"))
        if counted:
            rows.by("n").window(tumbling("1 minute")).agg(c="count(*)").to(sinks.sqlite(out, "counts"))
        return made

    def send(n, second, partition):
        broker.send(name, [Message(json.dumps({"n": n, "at": at(second)}), partition=partition)])

    send(1, 1800, 0)
    send(1, 0, 1)
    once(job(counted=False))
    send(2, 60, 1)  # half an hour behind the other partition, and not late
    run = once(job(counted=True))
    assert [str(change) for change in run.fit.carried if "counts" in str(change) or "window" in str(change)]
    send(3, 3000, 0)
    send(3, 3000, 1)
    status = once(job(counted=True)).status()
    assert status["late"] == 0
    assert [row[2:] for row in table(tmp_path / "out.db", "counts") if row[2] == 2] == [(2, 1)]
