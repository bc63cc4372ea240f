"""Duplicates, wrong clocks and slow inputs through a real engine."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.windows import tumbling

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "k string, x long, at timestamp, sent timestamp, received timestamp"


def at(second, x=1, k="a", **more):
    return {"k": k, "x": x, "at": START + timedelta(seconds=second), **more}


def stream_of(job, name="events", lateness="10 seconds", **options):
    return job.stream(name, sources.files(name, "json", SCHEMA), time="at", lateness=lateness, **options)


def job_of(build, **options):
    job = Job("rows")
    build(stream_of(job, **options)).to(sinks.memory("out"))
    return job


def test_the_first_to_arrive_stays_and_stands_for_both_sides(tester):
    t = tester(job_of(lambda e: e.deduplicate("k", within="5 seconds")))
    t.push("events", at(10, 1), at(7, 2), at(15, 3), at(16, 4))
    assert [r["x"] for r in t.read("out")] == [1, 4]
    t.push("events", at(11, 5), at(21.5, 6), at(8, 7, k="b"))
    assert [r["x"] for r in t.read("out")] == [1, 4, 6, 7]
    t.push("events", at(60, 8))
    t.push("events", at(40, 9))  # watermark 50
    assert [r["x"] for r in t.late("deduplicate_by_k")] == [9]
    assert [r["x"] for r in t.read("out")] == [1, 4, 6, 7, 8]


def test_ordered_keeps_the_first_by_event_time_and_waits_for_the_watermark(tester):
    t = tester(job_of(lambda e: e.deduplicate("k", within="5 seconds", ordered=True)))
    t.push("events", at(10, 1), at(7, 2), at(15, 3))
    assert t.read("out") == []
    t.push("events", at(40, 4))
    assert [r["x"] for r in t.read("out")] == [2, 3]


def test_rows_without_duplicates_go_on_to_a_window_with_their_time(tester):
    def build(events):
        return (
            events.deduplicate("k", "x", within="1 minute").drop("at").window(tumbling("10 seconds")).agg(n="count(*)")
        )

    t = tester(job_of(build), buckets=3)
    t.push("events", at(1, 1), at(2, 1), at(3, 2), at(12, 3))
    t.push("events", at(4, 2), at(13, 3), at(60, 4))
    assert sorted(r["n"] for r in t.read("out")) == [1, 2]
    t.crash("after_sink")
    with pytest.raises(Exception, match="crashed"):
        t.push("events", at(61, 5))
    t.restart()
    t.advance("events", START + timedelta(minutes=5))
    assert sorted(r["n"] for r in t.read("out")) == [1, 2, 2]


def test_a_devices_wrong_clock_is_corrected_by_the_servers(tester):
    def build(events):
        return events.correct_clock("sent", "received").by("k").window(tumbling("10 seconds")).agg(n="count(*)")

    job = job_of(build)
    t = tester(job, wall=START + timedelta(hours=1))
    # the phone is a year behind: it saw the event 5 s before it sent it
    year = timedelta(days=365)
    t.push("events", at(1) | {"sent": START, "received": START})
    wrong = START - year
    t.push(
        "events",
        {
            "k": "a",
            "x": 1,
            "at": wrong,
            "sent": wrong + timedelta(seconds=5),
            "received": START + timedelta(seconds=12),
        },
    )
    t.advance("events", START + timedelta(minutes=5))
    assert [(r["window_start"], r["n"]) for r in t.read("out")] == [(START, 2)]


def test_max_ahead_and_the_watermark_follow_the_corrected_time(tester):
    job = job_of(lambda e: e.correct_clock("sent", "received").by("k").window(tumbling("10 seconds")).agg(n="count(*)"))
    job.dead_letters(sinks.memory("dead"))
    t = tester(job, wall=START)
    far = START + timedelta(days=400)
    t.push("events", {"k": "a", "x": 1, "at": far, "sent": far, "received": START})
    assert t.watermark == START - timedelta(seconds=10)
    t.push("events", {"k": "a", "x": 1, "at": START, "sent": START, "received": far}, at(3))
    assert [d["reason"] for d in t.dead_letters()] == ["bad_time", "bad_time"]
    assert t.watermark == START - timedelta(seconds=10)


def test_the_time_column_shows_the_corrected_time(tester):
    t = tester(job_of(lambda e: e.where("x > 0").correct_clock("sent", "received").select("at")), wall=START)
    t.push("events", at(0, sent=START, received=START + timedelta(seconds=7)))
    assert t.read("out") == [{"at": START + timedelta(seconds=7)}]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda e: e.deduplicate(within="1 second"), "name the columns"),
        (lambda e: e.deduplicate("kk", within="1 second"), "Did you mean 'k'?"),
        (lambda e: e.correct_clock("send", "received"), "Did you mean 'sent'?"),
        (lambda e: e.correct_clock("k", "received"), "timestamp"),
        (lambda e: e.with_columns(sent="received").correct_clock("x", "sent"), "timestamp"),
        (lambda e: e.with_columns(s="sent + interval 1 day").correct_clock("s", "received"), "is made by"),
        (lambda e: e.deduplicate("k", within="1 hour").correct_clock("sent", "received"), "right after job.stream"),
    ],
)
def test_nonsense_is_refused_on_the_line_that_wrote_it(wrong, told):
    with pytest.raises(PlanError, match=__file__.rsplit("/", 1)[-1]) as refused:
        wrong(stream_of(Job("rows")))
    assert told in str(refused.value)


def test_an_input_is_corrected_for_all_readers_or_for_none():
    job = Job("rows")
    events = stream_of(job)
    events.to(sinks.memory("as_it_came"))
    with pytest.raises(PlanError, match="with its clock corrected and without"):
        events.correct_clock("sent", "received").to(sinks.memory("corrected"))


def test_a_backlog_with_one_partition_an_hour_behind_loses_nothing(tester):
    """Two inputs of one union: the smaller time holds the step back, however far the other has come."""
    job = Job("two")
    left, right = stream_of(job, "left"), stream_of(job, "right")
    left.union(right).by("k").window(tumbling("1 minute")).agg(n="count(*)").to(sinks.memory("out"))
    t = tester(job)
    for minute in range(60, 66):
        t.push("left", *(at(60 * minute + s) for s in (0, 30)))
    for first in range(0, 66, 11):
        t.push("right", *(at(60 * minute) for minute in range(first, first + 11)))
    assert t.late("window_by_k") == []
    t.advance("left", START + timedelta(hours=2))
    t.advance("right", START + timedelta(hours=2))
    assert sum(r["n"] for r in t.read("out")) == 66 + 12


def test_processing_time_windows_close_by_the_wall_clock(tester):
    job = Job("wall")
    ticks = job.stream("ticks", sources.files("in", "json", "k string"), time=None)
    ticks.by("k").window(tumbling("10 seconds")).agg(n="count(*)").to(sinks.memory("out"))
    t = tester(job, wall=START)
    t.push("ticks", {"k": "a"}, {"k": "a"})
    t.wall("5 seconds")
    t.push("ticks", {"k": "a"})
    assert t.read("out") == []
    t.wall("5 seconds")
    assert [(r["window_start"], r["n"]) for r in t.read("out")] == [(START, 3)]
