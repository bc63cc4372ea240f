"""``penstock replay``: what it gives is what the job gives of that span, and nothing of the job is touched."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import CheckpointError, Job, PlanError, cli, sinks, sources
from penstock.replay import beside, own_checkpoint, prepared
from penstock.windows import hopping, session, sliding, tumbling

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
    """Events of twelve hours, some on the very edges."""
    chance = random.Random(seed)
    times = [BEGIN + timedelta(minutes=chance.randrange(720)) for _ in range(count)]
    edges = [FROM, TO, FROM - timedelta(microseconds=1), TO - timedelta(microseconds=1), FROM - timedelta(minutes=30)]
    return [(chance.choice("ab"), i, at) for i, at in enumerate([*times, *edges])]


# what the job is, and which of its results belong to a span
def starts(row):
    return row["window_start"] >= FROM and row["window_end"] <= TO


def ends(row):
    return FROM <= row["window_end"] < TO


def happens(row):
    return FROM <= max(at for at in (row["at"], row.get("then")) if at is not None) < TO


HOUR = tumbling("1 hour")
CASES = {
    "rows": (lambda v, c: v.where("n % 2 = 0"), happens),
    "tumbling": (lambda v, c: v.by("key").window(HOUR).agg(n="count(*)", s="sum(n)"), starts),
    "sliding": (lambda v, c: v.by("key").window(sliding("1 hour")).agg(n="count(*)"), ends),
    "session": (lambda v, c: v.by("key").window(session("9 minutes")).agg(n="count(*)"), starts),
    "left join": (lambda v, c: v.join(c, on="key", within=("0 seconds", "30 minutes"), how="left"), happens),
    "anti join": (lambda v, c: v.join(c, on="key", within="5 minutes", how="anti"), happens),
    "windows on windows": (
        lambda v, c: (
            v.by("key").window(hopping("1 hour", "20 minutes")).agg(n="count(*)").named("first")
            .by("key").window(HOUR).agg(most="max(n)").named("second")
        ),
        starts,
    ),
    "as of a stream's table": (lambda v, c: v.asof(c.to_table("key")), happens),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_replay_gives_what_the_job_gives_of_that_span(spark, case):
    build, belongs = CASES[case]
    job = job_of(build)
    again, _ = prepared_with_memory(job)
    frames = {name: spark.createDataFrame(rows(seed), SCHEMA) for seed, name in enumerate(["views", "clicks"])}

    def results(of: Job) -> list[dict]:
        (frame,) = of.run_batch({i.name: frames[i.name] for i in of.inputs}, spark).values()
        return sorted(frame.toArrow().to_pylist(), key=repr)

    if "clicks" not in {i.name for i in again.inputs}:
        del job._inputs["clicks"]
    expected = [row for row in results(job) if belongs(row)]
    assert expected
    assert results(again) == expected


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
