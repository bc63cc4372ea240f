"""``penstock replay``: what it gives is what the job gives of that span, and nothing of the job is touched."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import CheckpointError, Job, PlanError, cli, sinks, sources
from penstock.plan.input import CAME
from penstock.plan.node import walk
from penstock.replay import beside, own_checkpoint, prepared, replay
from penstock.replay_plan import as_they_are, since
from penstock.windows import hopping, same, session, sliding, tumbling

SCHEMA = "key string, n int, at timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
FROM, TO = BEGIN + timedelta(hours=4, minutes=20), BEGIN + timedelta(hours=9, minutes=40)


def job_of(build) -> Job:
    job = Job("shop")
    folder = sources.files("in", "json", SCHEMA)
    views = job.stream("views", folder, time="at", lateness="10 minutes")
    clicks = job.stream("clicks", folder, time="at", lateness="10 minutes")
    build(views, clicks.rename(n="m", at="then")).to(sinks.memory("out"))
    return job


def rows(seed: int, count: int = 150) -> list[tuple[str, int, datetime]]:
    """Events of twelve hours, some on the very edges; those of one key follow each other from long before the span."""
    chance = random.Random(seed)
    times = [BEGIN + timedelta(minutes=chance.randrange(720)) for _ in range(count)]
    edges = [FROM, TO, FROM - timedelta(microseconds=1), TO - timedelta(microseconds=1), FROM - timedelta(minutes=30)]
    others = [(chance.choice("ab"), i, at) for i, at in enumerate([*times, *edges])]
    return [*others, *(("c", i, BEGIN + timedelta(minutes=28 + 5 * i)) for i in range(90))]


# what the job is, and which of its results belong to a span
def starts(row):
    return row["window_start"] >= FROM and row["window_end"] <= TO


def ends(row):
    return FROM <= row["window_end"] < TO


def happens(row):
    return FROM <= max(at for at in (row["at"], row.get("then")) if at is not None) < TO


def lies(row):
    single = row["first"] == row["last"]  # a row, and no session
    return row["first"] >= FROM and (row["last"] < TO if single else row["last"] <= TO)


def meets(row):
    return FROM <= max(row["at"], row["last"] - timedelta(microseconds=1)) < TO


def stands(row):
    return True


HOUR = tumbling("1 hour")
EDGES = {"n": "count(*)", "first": "min(at)", "last": "max(at) + interval 9 minutes"}


def sessions(stream, **options):
    return stream.by("key").window(session("9 minutes", **options))


def alike(stream):
    return stream.select("key", "cast(n as long) as n", "first", "last")


CASES = {
    "rows": (lambda v, c: v.where("n % 2 = 0"), happens),
    "tumbling": (lambda v, c: v.by("key").window(HOUR).agg(n="count(*)", s="sum(n)"), starts),
    "sliding": (lambda v, c: v.by("key").window(sliding("1 hour")).agg(n="count(*)"), ends),
    "session": (lambda v, c: sessions(v).agg(n="count(*)"), starts),
    "session without its window": (lambda v, c: sessions(v).agg(**EDGES).select("key", "n", "first", "last"), lies),
    "session in a union": (
        lambda v, c: alike(sessions(v).agg(**EDGES)).union(alike(v.with_columns(first="at", last="at"))),
        lies,
    ),
    "session that is cut": (lambda v, c: sessions(v, max_duration="17 minutes").agg(n="count(*)"), starts),
    "session under a window": (
        lambda v, c: sessions(v).agg(n="count(*)").named("first").by("key").window(HOUR).agg(most="max(n)"), starts,
    ),
    "session under a join": (
        lambda v, c: c.join(alike(sessions(v).agg(**EDGES)), on="key", within="10 minutes").rename(then="at"), meets,
    ),
    "deduplicate": (lambda v, c: v.deduplicate("key", within="7 minutes"), happens),
    "deduplicate by time": (lambda v, c: v.deduplicate("key", within="7 minutes", ordered=True), happens),
    "left join": (lambda v, c: v.join(c, on="key", within=("0 seconds", "30 minutes"), how="left"), happens),
    "anti join": (lambda v, c: v.join(c, on="key", within="5 minutes", how="anti"), happens),
    "windows on windows": (
        lambda v, c: (
            v.by("key").window(hopping("1 hour", "20 minutes")).agg(n="count(*)").named("first")
            .by("key").window(HOUR).agg(most="max(n)").named("second")
        ),
        starts,
    ),
    "windows that change": (lambda v, c: v.by("key").window(HOUR, emit="updates").agg(n="count(*)"), starts),
    "as of a stream's table": (lambda v, c: v.asof(c.to_table("key")), happens),
}  # fmt: skip

# what a table says is what it said at the end of the span: the job itself, had it read no further
AS_OF_THE_END = {
    "lookup": (lambda v, c: v.lookup(c.to_table("key").drop("then")), happens),
    "running values": (lambda v, c: v.by("key").agg(n="count(*)", s="sum(n)", last="max(at)"), stands),
    "running values of windows": (
        lambda v, c: v.by("key").window(tumbling("20 minutes")).agg(n="count(*)").by("key").agg(most="max(n)"), stands,
    ),
    "running values of kept rows": (
        lambda v, c: v.deduplicate("key", within="7 minutes", ordered=True).by("key").agg(n="count(*)"), stands,
    ),
    "a stream's table": (lambda v, c: v.to_table("key"), stands),
    "a joined table": (lambda v, c: v.to_table("key").named("one").join(c.to_table("key"), how="left"), stands),
    "a table of windows": (
        lambda v, c: v.by("key").window(HOUR, emit="updates").agg(n="count(*)").by("key").agg(most="max(n)"), stands,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *AS_OF_THE_END])
def test_a_replay_gives_what_the_job_gives_of_that_span(spark, case):
    build, belongs = (CASES | AS_OF_THE_END)[case]
    job = job_of(build)
    again, _ = prepared_with_memory(job)

    def results(of: Job, last: datetime | None) -> list[dict]:
        frames = {
            name: spark.createDataFrame([row for row in rows(seed) if last is None or row[2] < last], SCHEMA)
            for seed, name in enumerate(["views", "clicks"])
        }
        (frame,) = of.run_batch({i.name: frames[i.name] for i in of.inputs}, spark).values()
        return sorted(frame.toArrow().to_pylist(), key=repr)

    if "clicks" not in {i.name for i in again.inputs}:
        del job._inputs["clicks"]
    expected = [row for row in results(job, TO if case in AS_OF_THE_END else None) if belongs(row)]
    assert expected
    assert results(again, None) == expected


def prepared_with_memory(job: Job):
    """A replay of an output that a test can read: the sink plays no part here."""
    name = job.outputs[0].name
    job._outputs[name] = type(job.outputs[0])(name, job.outputs[0].node, sinks.sqlite("o.db", "t"), job.outputs[0].key)
    return prepared(job, FROM.isoformat(), "again", TO.isoformat())


def shop(sink=None) -> Job:
    job = Job("shop")
    source = sources.files("in", "json", SCHEMA, cleanSource="delete")
    views = job.stream("views", source, time="at", lateness="1 hour")
    views.by("key").window(HOUR).agg(n="count(*)").to(sink or sinks.sqlite("o.db", "hourly"), name="hourly")
    return job


def test_a_replay_takes_no_file_away_and_reads_a_topic_from_before_the_first_event():
    again, _ = prepared(shop(), "2026-01-01 10:00", "again")
    assert again.inputs[0].source.options == ()
    job = Job("topic")
    source = sources.kafka("views", "localhost:9092", "json", SCHEMA, start="latest")
    job.stream("views", source, time="at", lateness="1 hour", max_ahead="1 hour").to(sinks.sqlite("o.db", "t"))
    (again, _) = prepared(job, "1970-01-02 00:00:00", "again")
    assert again.inputs[0].source.start == 23 * 3_600_000  # a clock may be ahead by an hour


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "hourly"}, "writes an output 'hourly' itself"),
        ({"name": "dead_letters"}, "writes an output 'dead_letters' itself"),
        ({"name": "../x"}, "cannot be the name of an output"),
        ({"name": "letters"}, "table letters in o.db is written by the job itself"),
        ({"end": "2026-01-01 09:00"}, "is not after"),
        ({"begin": "yesterday"}, "--from 'yesterday' is no time"),
        ({"output": "daily"}, "there is no output 'daily'; name one with --output: hourly"),
    ],
)
def test_what_would_write_over_the_job_or_makes_no_sense_is_refused(change, said):
    job = shop()
    job.dead_letters(sinks.sqlite("o.db", "letters"))
    asked = {"begin": "2026-01-01 10:00", "name": "again", **change}
    with pytest.raises(PlanError, match=said):
        prepared(job, **asked)


def test_an_output_without_places_and_an_input_without_times_cannot_be_replayed():
    with pytest.raises(PlanError, match="there is no place beside that"):
        prepared(shop(sinks.memory("hourly")), "2026-01-01", "again")
    for source, said in ((sources.rate(), "makes its rows by the clock"),):
        job = Job("ticks")
        job.stream("ticks", source, time="timestamp", lateness="0 seconds").to(sinks.sqlite("o.db", "t"))
        with pytest.raises(PlanError, match=said):
            prepared(job, "2026-01-01", "again")
    job = Job("wall")
    job.stream("walled", sources.files("in", "json", SCHEMA), time=None).to(sinks.sqlite("o.db", "t"))
    with pytest.raises(PlanError, match=r"the input 'walled' .* goes by the wall clock"):
        prepared(job, "2026-01-01", "again")


def table_job(build, time=None, kind="json") -> Job:
    job = Job("pages")
    clock = {"time": time, "lateness": "1 hour"} if time else {}
    source = sources.files("pages", kind, "key string, title string, at timestamp")
    pages = job.table("pages", source, key="key", **clock)
    views = job.stream("views", sources.files("in", "json", SCHEMA), time="at", lateness="1 hour")
    build(views, pages).to(sinks.sqlite("o.db", "t"), name="t")
    return job


def test_what_has_no_time_is_refused_where_a_span_of_it_is_asked_for():
    with pytest.raises(PlanError, match=r"changes 'changes_of_pages' .* have no event time"):
        prepared(table_job(lambda v, p: p.changes(), time="at"), "2026-01-01", "again")
    with pytest.raises(PlanError, match=r"how the table 'pages' was at --to: .* Leave --to out"):
        prepared(table_job(lambda v, p: p), "2026-01-01", "again", "2026-01-02")
    with pytest.raises(PlanError, match="or is in a format of changes"):
        prepared(table_job(lambda v, p: p, time="at", kind="debezium"), "2026-01-01", "again", "2026-01-02")
    prepared(table_job(lambda v, p: p), "2026-01-01", "again")
    prepared(table_job(lambda v, p: p, time="at"), "2026-01-01", "again", "2026-01-02")
    again, _ = prepared(table_job(lambda v, p: v.lookup(p.drop("at"))), "2026-01-01", "again", "2026-01-02")
    assert as_they_are(*walk(again.outputs[0].node)) == ("pages",)


@pytest.mark.parametrize(
    ("build", "start"),
    [
        (lambda v: v.by("key").window(session("1 hour")).agg(n="count(*)"), 22 * 3_600_000),
        (lambda v: v.by("key").window(session("1 hour")).agg(n="count(*)").select("key", "n"), 22 * 3_600_000),
        (lambda v: v.by("key").window(session("1 hour", max_duration="2 hours")).agg(n="count(*)"), "earliest"),
        (lambda v: v.by("key").window(session("1 hour")).agg(n="count(*)").window(HOUR).agg(n="max(n)"), "earliest"),
        (lambda v: v.by("key").window(HOUR).agg(n="count(*)").window(same()).agg(n="max(n)"), 22 * 3_600_000),
        (lambda v: v.by("key").window(HOUR, emit="updates").agg(n="count(*)"), 22 * 3_600_000),
        (lambda v: v.deduplicate("key", within="1 hour"), "earliest"),
        (lambda v: v.by("key").agg(n="count(*)"), "earliest"),
        (lambda v: v.to_table("key"), "earliest"),
    ],
)
def test_what_may_hang_on_any_event_before_is_read_from_its_beginning(build, start):
    job = Job("topic")
    source = sources.kafka("views", "localhost:9092", "json", SCHEMA, start="latest")
    views = job.stream("views", source, time="at", lateness="1 hour", max_ahead="1 hour")
    build(views).to(sinks.sqlite("o.db", "t"))
    again, _ = prepared(job, "1970-01-02 00:00:00", "again")
    assert again.inputs[0].source.start == start


@pytest.mark.parametrize("case", ["session under a window", "deduplicate", "running values of kept rows"])
def test_it_is_the_same_however_the_events_are_cut_into_batches(tester, case):
    build, belongs = (CASES | AS_OF_THE_END)[case]
    chance = random.Random(7)
    # as they came: out of order within the lateness, and at last one that closes all
    came = sorted(rows(0), key=lambda row: row[2] + timedelta(minutes=chance.randrange(9)))
    came = [row for row in came if case in CASES or row[2] < TO]
    came.append(("z", 0, BEGIN + timedelta(days=1)))
    job = job_of(build)
    again, _ = prepared_with_memory(job)
    found = []
    for of, size in ((job, 30), (again, 70)):
        t = tester(of)
        for i in range(0, len(came), size):
            t.push("views", [dict(zip(("key", "n", "at"), row, strict=True)) for row in came[i : i + size]])
        (name,) = (o.name for o in of.outputs)
        found.append(sorted((row for row in t.read(name) if row["key"] != "z"), key=repr))
    lived, replayed = found
    assert replayed == [row for row in lived if belongs(row)] != []


def ten(source) -> Job:
    job = Job("ten")
    views = job.stream("views", source, time="at", lateness="0 seconds")
    views.window(tumbling("10 minutes")).agg(n="count(*)").to(sinks.sqlite("o.db", "ten"), name="ten")
    job.dead_letters(sinks.sqlite("o.db", "dead"))
    return job


def event(minutes: int) -> dict:
    return {"key": "a", "n": 1, "at": (BEGIN + timedelta(minutes=minutes)).isoformat()}


def test_an_event_that_was_far_ahead_when_it_came_does_not_make_the_others_late(tester):
    job = ten(sources.files("in", "json", SCHEMA))
    again, _ = prepared(job, "2026-01-01", "again", "2026-01-01 01:00")
    live, replayed = tester(job, wall=BEGIN), tester(again, wall=BEGIN + timedelta(days=30))
    for minutes in (0, 3 * 1440, 1, 11, 61):
        for t in (live, replayed):
            t.push("views", event(minutes))
    assert [row["n"] for row in live.read("ten")] == [2, 1]
    assert replayed.read("again") == live.read("ten")
    assert replayed.late("window") == []


def put(file: Path, *events: dict, came: datetime | None = None) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    if came is not None:
        os.utime(file, (came.timestamp(), came.timestamp()))


def replay_into(job: Job, name: str, begin: str, end: str | None = None) -> list[str]:
    again, asked = prepared(job, begin, name, end)
    return replay(again, asked, f"replays/{name}", "live")


def in_table(name: str, columns: str) -> list[tuple]:
    with sqlite3.connect("o.db") as database:
        return sorted(database.execute(f"select {columns} from {name}"))


def test_an_event_that_came_after_the_span_moves_time_however_far_it_is(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, minutes in enumerate((0, 3 * 1440, 1, 11)):  # the second is wrong: no clock was there when it came
        put(Path(f"in/{i}.json"), event(minutes), came=BEGIN + timedelta(minutes=12 + i))
    put(Path("in/9.json"), event(4 * 1440), came=BEGIN + timedelta(days=4))  # after a long weekend
    said = replay_into(
        ten(sources.files(f"{tmp_path}/in", "json", SCHEMA, maxFilesPerTrigger=1)),
        "again", "2026-01-01", "2026-01-01 01:00",
    )  # fmt: skip
    assert in_table("again", "substr(window_start, 12, 5), n") == [("00:00", 2), ("00:10", 1)]
    assert said[-1] == "4 rows read, 0 late, 0 dead letters; time has come to 2026-01-05 00:00:00Z"


@pytest.mark.parametrize("kind", ["json", "csv", "debezium"])
def test_messages_of_a_replay_say_when_they_came_and_no_reader_sees_it(spark, kind):
    source = since(sources.kafka("views", "localhost:9092", kind, SCHEMA), 0, "views")
    assert (CAME in source.read(spark).columns) is (kind != "debezium")
    assert source.schema.names == ["key", "n", "at"]


def test_events_are_looked_up_in_a_table_that_is_there_whole(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = Job("look")
    source = sources.files(f"{tmp_path}/pages", "json", "key string, title string", maxFilesPerTrigger=1)
    pages = job.table("pages", source, key="key")
    views = job.stream("views", sources.files(f"{tmp_path}/in", "json", SCHEMA), time="at", lateness="0 seconds")
    views.lookup(pages).to(sinks.sqlite("o.db", "looked"))
    for i, key in enumerate("abc"):
        put(Path(f"pages/{i}.json"), {"key": key, "title": key.upper()}, came=BEGIN + timedelta(minutes=i))
    Path("in").mkdir()
    job.run(spark, checkpoint="live", once=True)
    put(Path("in/0.json"), *({"key": key, "n": 1, "at": "2026-01-01 10:00:00"} for key in "abc"))
    job.run(spark, checkpoint="live", once=True)
    said = replay_into(job, "again", "2026-01-01", "2026-01-02")
    lived = [("a", "A"), ("b", "B"), ("c", "C")]
    assert in_table("looked", "key, title") == in_table("again", "key, title") == lived
    assert "tables without a time of their own are as they are now: pages" in said


def test_places_beside_others():
    assert beside(sinks.kafka("views", "localhost:9092"), "again").topic == "again"
    assert beside(sinks.parquet("out/"), "again").path == "again"
    assert beside(sinks.postgres("views", "env:URL"), "again").table == "again"
    assert beside(sinks.console(), "again") is None


def test_a_replay_has_a_checkpoint_of_its_own_and_goes_on_only_with_itself(tmp_path):
    _, asked = prepared(shop(), "2026-01-01 10:00", "again")
    live = str(tmp_path / "live")
    with pytest.raises(CheckpointError, match="is the checkpoint of the job itself"):
        own_checkpoint(asked, live, live)
    mine = own_checkpoint(asked, str(tmp_path / "own"), live)
    assert own_checkpoint(asked, mine, live) == mine
    _, other = prepared(shop(), "2026-01-01 11:00", "again")
    with pytest.raises(CheckpointError, match=r"holds the replay of .*10:00:00Z into 'again', and this is .*11:00:00Z"):
        own_checkpoint(other, mine, live)


FILE = f"""
import os
from penstock import Job, sinks, sources
from penstock.windows import tumbling
job = Job("shop")
views = job.stream("views", sources.files(os.path.abspath("in"), "json", {SCHEMA!r}), time="at", lateness="0 seconds")
views.by("key").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.sqlite("out.db", "hourly"))
"""


def test_the_command_leaves_the_job_as_it_was(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("shop.py").write_text(FILE)
    Path("in").mkdir()
    events = [{"key": "a", "n": 1, "at": f"2026-01-01 {hour:02}:30:00"} for hour in range(8, 14)]
    Path("in/1.json").write_text("".join(json.dumps(row) + "\n" for row in events))

    def command(*words: str):
        return CliRunner().invoke(cli.app, list(words))

    def table(name: str) -> list[tuple[str, int]]:
        with sqlite3.connect("out.db") as database:
            return sorted((start[11:13], n) for start, n in database.execute(f"select window_start, n from {name}"))

    assert command("run", "shop.py", "--once").exit_code == 0
    before = {p: p.read_bytes() for p in Path("checkpoints/shop").rglob("*") if p.is_file()}
    lived = table("hourly")
    # the new code counts double
    Path("shop.py").write_text(FILE.replace("count(*)", "2 * count(*)"))
    words = ["replay", "shop.py", "--from", "2026-01-01 10:00", "--to", "2026-01-01 12:00", "--to-output", "twice"]
    ended = command(*words)
    assert ended.exit_code == 0, ended.output
    said = ended.stdout.splitlines()
    assert said[-3] == (
        "replayed output 'hourly' from 2026-01-01 10:00:00Z to 2026-01-01 12:00:00Z into table twice in out.db; "
        "its checkpoint is checkpoints/shop-replay-twice"
    )
    assert said[-1] == "6 rows read, 0 late, 0 dead letters; time has come to 2026-01-01 13:30:00Z"
    assert table("twice") == [("10", 2), ("11", 2)]
    assert table("hourly") == lived == [(f"{hour:02}", 1) for hour in range(8, 13)]
    assert {p: p.read_bytes() for p in Path("checkpoints/shop").rglob("*") if p.is_file()} == before
