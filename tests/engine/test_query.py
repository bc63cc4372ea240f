"""A job as a real query over real files, in this process: sources, starting and stopping, and what errors say."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import (
    BadRowError,
    CheckpointError,
    Job,
    PlanChangedError,
    PlanError,
    RunError,
    SinkError,
    sinks,
    sources,
)
from penstock.check import held_against
from penstock.run.query import promised, start
from penstock.state.checkpoint import Checkpoint
from penstock.windows import tumbling

SCHEMA = "key string, value long, at timestamp"
AT = [datetime(2026, 1, 1, 10, m, tzinfo=timezone.utc) for m in (1, 2, 59)]


def lines(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r, default=str) for r in rows) + "\n")


def once(job, spark, tmp_path):
    job.start(spark, checkpoint=str(tmp_path / "checkpoint"), once=True).wait()


def ten_minutes(job, source, sink, **options):
    stream = job.stream("events", source, time="at", lateness="0 seconds")
    stream.by("key").window(tumbling("10 minutes"), **options).agg(n="count(*)", total="sum(value)").to(sink)


def test_json_csv_and_parquet_files_give_the_same(spark, tmp_path):
    rows = [{"key": "a", "value": i, "at": t} for i, t in enumerate(AT)]
    lines(tmp_path / "json" / "1.json", *rows)
    lines(tmp_path / "csv" / "1.csv", "key,value,at", *(f"{r['key']},{r['value']},{r['at'].isoformat()}" for r in rows))
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "parquet" / "1.parquet")
    found = {}
    for kind in ("json", "csv", "parquet"):
        options = {"header": True} if kind == "csv" else {}
        sink = sinks.memory(f"files_{kind}")
        job = Job("files")
        ten_minutes(job, sources.files(str(tmp_path / kind), kind, SCHEMA, **options), sink)
        once(job, spark, tmp_path / kind / "_run")
        found[kind] = sink.rows()
    assert [(r["key"], r["n"], r["total"]) for r in found["json"]] == [("a", 2, 1)]
    assert found["json"] == found["csv"] == found["parquet"]


def test_broken_lines_wrong_types_and_missing_columns_are_dead_letters_with_their_place(spark, tmp_path):
    schema = "key string not null, value long, at timestamp"
    good = {"key": "a", "value": 1, "at": "2026-01-01 10:00:00"}
    lines(tmp_path / "in" / "1.json", good, "{broken", {**good, "value": "many"}, {"value": 3, "at": good["at"]}, "")
    job = Job("broken")
    stream = job.stream("events", sources.files(str(tmp_path / "in"), "json", schema), time="at", lateness="0 seconds")
    job.dead_letters(sinks.memory("broken_dead"))
    stream.to(sinks.memory("broken_good"))
    once(job, spark, tmp_path)
    assert [r["value"] for r in sinks.memory("broken_good").rows()] == [1]
    dead = sinks.memory("broken_dead").rows()
    assert [d["reason"] for d in dead] == ["malformed"] * 3
    assert all(d["place"].endswith("/in/1.json") and d["input"] == "events" for d in dead)
    assert dead[0]["row"] == "{broken"
    assert '"many"' in dead[1]["row"]


def test_without_dead_letters_a_job_without_state_stops_too_and_names_the_row(spark, tmp_path):
    lines(tmp_path / "in" / "1.json", "{broken")
    job = Job("stops")
    stream = job.stream("events", sources.files(str(tmp_path / "in"), "json", SCHEMA), time="at", lateness="1 day")
    stream.to(sinks.memory("stops"))
    (tmp_path / "in" / "1.json").rename(tmp_path / "aside.json")
    lines(tmp_path / "in" / "0.json", {"key": "a", "value": 1, "at": AT[0]})
    once(job, spark, tmp_path)
    assert [r["value"] for r in sinks.memory("stops").rows()] == [1]
    (tmp_path / "aside.json").rename(tmp_path / "in" / "1.json")
    with pytest.raises(BadRowError, match=r"'events'.*malformed.*1\.json: \{broken\. .*dead_letters"):
        once(job, spark, tmp_path)


def test_an_input_that_feeds_two_steps_and_an_output_is_read_once(spark, tmp_path):
    lines(tmp_path / "in" / "1.json", *({"key": k, "value": 1, "at": t} for k in "ab" for t in AT))
    job = Job("fans")
    stream = job.stream("events", sources.files(str(tmp_path / "in"), "json", SCHEMA), time="at", lateness="0 seconds")
    stream.where("key = 'a'").window(tumbling("10 minutes")).agg(n="count(*)").named("a").to(sinks.memory("fan_a"))
    stream.by("key").window(tumbling("1 minute")).agg(n="count(*)").named("each").to(sinks.memory("fan_each"))
    stream.to(sinks.memory("fan_all"))
    run = job.start(spark, checkpoint=str(tmp_path / "checkpoint"), once=True)
    assert run.wait()
    assert run.status()["rows"] == 6
    assert run.status()["running"] is False
    assert run.status()["watermark"] == "2026-01-01T10:59:00Z"
    assert [r["n"] for r in sinks.memory("fan_a").rows()] == [2]
    assert len(sinks.memory("fan_each").rows()) == 4
    assert len(sinks.memory("fan_all").rows()) == 6
    progress = run._query.recentProgress
    assert sum(p["numInputRows"] for p in progress) == 6


def test_a_run_is_started_watched_and_stopped_and_goes_on(spark, tmp_path):
    job = Job("goes_on")
    ten_minutes(job, sources.files(str(tmp_path / "in"), "json", SCHEMA), sinks.parquet(str(tmp_path / "out")))
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    run = job.start(spark, checkpoint=str(tmp_path / "checkpoint"))
    run._query.processAllAvailable()
    assert run.status()["running"] is True
    assert run.status()["batch"] == 0
    run.stop()
    assert run.status()["running"] is False
    lines(tmp_path / "in" / "2.json", {"key": "a", "value": 2, "at": AT[1]}, {"key": "b", "value": 0, "at": AT[2]})
    once(job, spark, tmp_path)
    assert [(r["key"], r["total"]) for r in pq.read_table(tmp_path / "out").to_pylist()] == [("a", 3)]


def test_a_source_of_sparks_own_and_ticks_that_let_time_pass(spark, tmp_path):
    """The rate source has no schema here and no size: columns are checked when it runs, and its rows are counted."""
    job = Job("rates")
    ticks = job.stream(
        "ticks",
        sources.spark(lambda s: s.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()),
        time="timestamp",
        lateness="0 seconds",
        idle_after="1 second",
    )
    ticks.where("value >= 0").window(tumbling("1 second")).agg(n="count(*)").to(sinks.memory("rates"))
    run = job.start(spark, checkpoint=str(tmp_path / "checkpoint"))
    while len(sinks.memory("rates").rows()) < 2:
        assert not run.wait(timeout=1)
    run.stop()
    assert all(r["n"] for r in sinks.memory("rates").rows())


@pytest.mark.parametrize("as_once", [False, True])
def test_a_lookup_after_load_waits_for_a_table_of_several_batches(spark, tmp_path, as_once):
    for number in range(3):
        lines(tmp_path / "names" / f"{number}.json", {"key": "abc"[number], "name": f"n{number}"})
    lines(tmp_path / "in" / "1.json", *({"key": key, "value": 1, "at": at} for key, at in zip("abc", AT, strict=False)))
    job = Job("loads")
    names = sources.files(str(tmp_path / "names"), "json", "key string, name string", maxFilesPerTrigger=1)
    stream = job.stream("events", sources.files(str(tmp_path / "in"), "json", SCHEMA), time="at", lateness="0 seconds")
    out = sinks.memory(f"loaded_{as_once}")
    named = stream.lookup(job.table("names", names, key="key"), after_load=True)
    named.window(tumbling("1 microsecond"), late="dead_letter").agg(who="max(name)").to(out)
    job.dead_letters(sinks.memory("loads_dead"))
    run = job.start(spark, checkpoint=str(tmp_path / "checkpoint"), once=as_once)
    while not out.rows():
        run.wait(timeout=1)
    run.stop()
    # the last one closes nothing: the watermark is at its own time
    assert sorted(row["who"] for row in out.rows()) == ["n0", "n1"]
    assert run.status()["batch"] >= (0 if as_once else 3)


def failing(spark, tmp_path, build):
    lines(tmp_path / "in" / "1.json", {"key": "x", "value": 0, "at": AT[0]})
    job = Job("fails")
    stream = job.stream("events", sources.files(str(tmp_path / "in"), "json", SCHEMA), time="at", lateness="0 seconds")
    build(stream).to(sinks.memory("fails"))
    with pytest.raises((RunError, PlanError)) as caught:
        once(job, spark, tmp_path)
    return caught.value


def raises(frame):
    raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("build", "cause"),
    [
        (lambda s: s.with_columns(ratio="1 / value").named("ratio"), "zero"),
        (lambda s: s.with_columns(ratio="cast(key as int)").named("ratio"), "'x'"),
        (lambda s: s.with_columns(n="no_such_function(key)").named("ratio"), "no_such_function"),
        (lambda s: s.where("value + at > 1").named("ratio"), "DATATYPE_MISMATCH"),
        (lambda s: s.by("key").window(tumbling("1 hour")).agg(n="sum(array(value))").named("ratio"), "sum"),
        (lambda s: s.map_pandas(raises, SCHEMA).named("ratio"), "ValueError: no such luck"),
    ],
    ids=["divide", "cast", "function", "types", "aggregate", "pandas"],
)
def test_errors_name_the_step_the_users_line_and_the_cause(spark, tmp_path, build, cause):
    error = failing(spark, tmp_path, build)
    text = str(error)
    assert cause in text
    assert "\n" not in text
    assert "org.apache" not in text
    assert "ratio" in text
    assert "test_query.py:" in text


def test_a_parquet_file_that_does_not_fit_its_schema_is_named(spark, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"key": ["a"], "value": ["text"], "at": AT[:1]}), tmp_path / "in" / "wrong.parquet")
    job = Job("misfit")
    ten_minutes(job, sources.files(str(tmp_path / "in"), "parquet", SCHEMA), sinks.memory("misfit"))
    with pytest.raises(RunError, match=r"wrong\.parquet") as caught:
        once(job, spark, tmp_path)
    assert "value" in str(caught.value)


def test_spark_and_state_of_different_copies_are_refused(spark, tmp_path):
    job = Job("copies")
    ten_minutes(job, sources.files(str(tmp_path / "in"), "json", SCHEMA), sinks.memory("copies"))
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    once(job, spark, tmp_path)
    (tmp_path / "checkpoint" / "manifest" / "0.json").unlink()
    lines(tmp_path / "in" / "2.json", {"key": "a", "value": 1, "at": AT[1]})
    with pytest.raises(CheckpointError, match=r"spark/commits/0 says that batch 0 is done: .*different copies"):
        once(job, spark, tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(PlanError, match="no output"):
        Job("empty").start(spark, checkpoint=str(tmp_path / "other" / "checkpoint"))


def test_a_new_output_begins_and_state_of_other_types_is_refused(spark, tmp_path):
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})

    def build(schema, more=False):
        job = Job("grows")
        source = sources.files(str(tmp_path / "in"), "json", schema)
        stream = job.stream("events", source, time="at", lateness="0 seconds")
        stream.by("key").window(tumbling("10 minutes")).agg(total="sum(value)").to(
            sinks.sqlite(str(tmp_path / "o.db"), "t")
        )
        if more:
            stream.to(sinks.sqlite(str(tmp_path / "o.db"), "second"))
        return job

    once(build(SCHEMA), spark, tmp_path)
    lines(tmp_path / "in" / "2.json", {"key": "a", "value": 2, "at": AT[1]})
    with pytest.raises(CheckpointError, match=r"step 'window_by_key' .*sum\(value\) was int64.* and is double"):
        once(build(SCHEMA.replace("long", "double")), spark, tmp_path)
    once(build(SCHEMA, more=True), spark, tmp_path)


def test_a_first_try_that_failed_does_not_pin_its_plan(spark, tmp_path):
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    for aggregate in ("sum(array(value))", "sum(value)"):
        job = Job("tries")
        source = sources.files(str(tmp_path / "in"), "json", SCHEMA)
        stream = job.stream("events", source, time="at", lateness="0 seconds")
        stream.window(tumbling("10 minutes")).agg(n=aggregate).to(sinks.memory("tries"))
        if "array" in aggregate:
            with pytest.raises(PlanError):
                once(job, spark, tmp_path)
        else:
            once(job, spark, tmp_path)


def test_a_first_try_that_failed_pins_the_places_that_it_read(spark, tmp_path):
    """Spark has noted the files of one folder, and would leave out those of the other."""

    def build(folder):
        job = Job("places")
        source = sources.files(str(tmp_path / folder), "json", SCHEMA)
        job.stream("events", source, time="at", lateness="1 day").to(sinks.memory("places"))
        return job

    lines(tmp_path / "test" / "1.json", "{broken")
    lines(tmp_path / "real" / "1.json", {"key": "a", "value": 7, "at": AT[0]})
    with pytest.raises(BadRowError):
        once(build("test"), spark, tmp_path)
    with pytest.raises(PlanChangedError, match="what Spark's log has read is of the other"):
        held_against(build("real"), str(tmp_path / "checkpoint"))
    with pytest.raises(PlanChangedError, match="what Spark's log has read is of the other"):
        once(build("real"), spark, tmp_path)


class KilledError(Exception):
    """What a test does to a batch."""


def test_a_first_batch_that_an_output_holds_is_ended_by_the_job_that_began_it(spark, tmp_path):
    def build(value):
        job = Job("first")
        source = sources.files(str(tmp_path / "in"), "json", SCHEMA)
        stream = job.stream("events", source, time="at", lateness="1 day")
        stream.select(f"{value} as value").to(sinks.sqlite(str(tmp_path / "o.db"), "rows"))
        return job

    def fault(point, batch):
        if point == "after_sink":
            raise KilledError

    def rows():
        with closing(sqlite3.connect(tmp_path / "o.db")) as database:
            return [row[0] for row in database.execute("SELECT value FROM rows")]

    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 7, "at": AT[0]})
    place = str(tmp_path / "checkpoint")
    with pytest.raises(RunError, match="KilledError"):
        start(build("value"), spark, checkpoint=place, once=True, fault=fault).wait()
    assert rows() == [7]
    for refused in (lambda job: held_against(job, place), lambda job: once(job, spark, tmp_path)):
        with pytest.raises(PlanChangedError, match="not as it was when it began batch 0"):
            refused(build("value * 100"))
    once(build("value"), spark, tmp_path)
    once(build("value * 100"), spark, tmp_path)
    lines(tmp_path / "in" / "2.json", {"key": "a", "value": 7, "at": AT[0]})
    once(build("value * 100"), spark, tmp_path)
    assert rows() == [7, 700]


def test_what_spark_refuses_before_the_query_begins_is_ours_to_say_and_takes_no_epoch(spark, tmp_path):
    job = Job("refuses")
    source = sources.spark(lambda s: s.readStream.format("no_such_format").load(), schema=SCHEMA)
    job.stream("events", source, time="at", lateness="1 day").to(sinks.memory("refuses"))
    with pytest.raises(RunError, match="no_such_format"):
        once(job, spark, tmp_path)
    assert Checkpoint.open(tmp_path / "checkpoint").newest_epoch() == 0


def test_a_run_takes_its_epoch_before_it_sweeps(spark, tmp_path, monkeypatch):
    """Without a lock the run before may still be at work: its files are swept only when it can commit no more."""
    found = []
    swept = Checkpoint.sweep_orphans

    def sweep(checkpoint, *given, **told):
        found.append(checkpoint.newest_epoch())
        return swept(checkpoint, *given, **told)

    monkeypatch.setattr(Checkpoint, "sweep_orphans", sweep)
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    job = Job("sweeps")
    ten_minutes(job, sources.files(str(tmp_path / "in"), "json", SCHEMA), sinks.memory("sweeps"))
    once(job, spark, tmp_path)
    once(job, spark, tmp_path)
    assert found == [1, 2]


@pytest.fixture
def elsewhere(spark):
    """A Spark whose file system, where nobody names one, is not that of this machine."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "nowhere://host/")
    yield
    settings.set("fs.defaultFS", before)


@pytest.mark.usefixtures("elsewhere")
def test_sparks_part_of_a_checkpoint_stands_beside_ours_whatever_its_path_and_sparks_file_system(spark, tmp_path):
    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    job = Job("paths")
    ten_minutes(job, sources.files((tmp_path / "in").as_uri(), "json", SCHEMA), sinks.memory("paths"))
    place = tmp_path / "50% of a+b%20c #1"
    for _ in range(2):
        job.start(spark, checkpoint=str(place), once=True).wait()
    assert sorted(p.name for p in (place / "spark" / "offsets").glob("[0-9]*")) == ["0"]
    assert {p.name for p in tmp_path.iterdir()} == {"in", place.name}


def test_a_cluster_that_has_not_come_yet_is_known_by_its_settings():
    assert promised({}.get) == 0
    assert promised({"spark.cores.max": "48"}.get) == 48
    assert promised({"spark.executor.instances": "6", "spark.executor.cores": "4"}.get) == 24
    assert promised({"spark.executor.instances": "6"}.get) == 6
    assert promised({"spark.cores.max": "some"}.get) == 0


def test_a_function_that_fails_in_a_sink_is_named(spark, tmp_path):
    def boom(frame, batch):
        raise KeyError("boom")

    lines(tmp_path / "in" / "1.json", {"key": "a", "value": 1, "at": AT[0]})
    job = Job("booms")
    ten_minutes(job, sources.files(str(tmp_path / "in"), "json", SCHEMA), sinks.call(boom))
    with pytest.raises(SinkError, match=r"output 'boom': .*boom.* failed in batch 0: KeyError: 'boom'"):
        once(job, spark, tmp_path)
