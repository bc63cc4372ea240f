"""What a second reader found: each was a wrong number, a lost or doubled row, or a hang."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from penstock import Job, PlanError, RunError, sinks, sources
from penstock.windows import tumbling

START = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
SCHEMA = "user string, n int, flag boolean, tags array<string>, at timestamp"


def at(seconds, **values):
    return {"user": "a", "n": 1, "flag": True, "tags": ["x"], "at": START + timedelta(seconds=seconds), **values}


def stream(job, name="s", **options):
    source = sources.files(name, "json", SCHEMA)
    return job.stream(name, source, **{"time": "at", "lateness": "0 seconds", **options})


def five(rows, **aggregates):
    return rows.window(tumbling("5 seconds")).agg(**(aggregates or {"n": "count(*)"}))


def test_a_bare_boolean_filter_does_not_bring_dropped_rows_back(tester):
    job = Job("flags")
    job.dead_letters(sinks.memory("dead"))
    rows = stream(job)
    five(rows.where("n > 0").where("flag"), n="count(*)", t="sum(n)").to(sinks.memory("one"))
    five(rows.where("flag")).named("second").to(sinks.memory("two"))
    t = tester(job)
    bad = at(1, at="2199-01-01 00:00:00")
    t.push("s", [at(1), at(2, n=-5), at(3, n=2, flag=False), bad, at(9, flag=False)])
    assert [(r["n"], r["t"]) for r in t.read("one")] == [(1, 1)]
    assert [r["n"] for r in t.read("two")] == [2]
    assert len(t.dead_letters()) == 1


def test_map_pandas_keeps_the_time_of_rows_that_do_not_show_it_and_may_not_lose_it(tester):
    def same(frame):
        return frame

    job = Job("mapped")
    rows = stream(job)
    windows = five(rows).named("fine").map_pandas(same, "window_start timestamp, window_end timestamp, n long")
    windows.window(tumbling("10 seconds")).agg(n="count(*)").named("coarse").to(sinks.memory("coarse"))
    t = tester(job)
    t.push("s", [at(s) for s in (1, 6, 11, 16, 21, 60)])
    assert sorted(r["n"] for r in t.read("coarse")) == [1, 2, 2]

    def forgets(frame):
        return frame.assign(at=frame["at"].where(frame.n != 2))

    job = Job("forgets")
    five(stream(job).map_pandas(forgets, SCHEMA).named("forgets")).to(sinks.memory("out"))
    with pytest.raises(RunError, match=r"forgets \(.*test_found_by_review.py:\d+\): .*without its time"):
        tester(job).push("s", [at(1), at(2, n=2)])


def test_a_predicate_that_is_never_true_does_not_hang(tester):
    job = Job("never")
    stream(job).where("false").to(sinks.memory("never"))
    t = tester(job)
    t.push("s", [at(1)])
    assert t.read("never") == []
    assert t.watermark == START + timedelta(seconds=1)


def test_aggregates_look_only_at_rows_that_are_asked_for(tester):
    job = Job("zeros")
    rows = stream(job)
    five(rows.where("n > 0"), t="sum(10 / n)").named("kept").to(sinks.memory("kept"))
    five(rows, t="sum(10 / n) filter (where n <> 0 -- not zero\n)").to(sinks.memory("filtered"))
    t = tester(job)
    t.push("s", [at(1, n=5), at(2, n=0), at(9)])
    assert [r["t"] for r in t.read("kept")] == [2.0]
    assert [r["t"] for r in t.read("filtered")] == [2.0]


def test_what_a_step_held_back_is_not_late_further_on_when_its_input_was_idle(tester):
    job = Job("idle")
    a = stream(job, "a", idle_after="1 minute")
    b = stream(job, "b")
    one = a.window(tumbling("5 seconds")).agg(n="count(*)").named("one")
    both = one.select("n").union(b.select("cast(n as long) as n"))
    both.window(tumbling("10 seconds")).agg(n="sum(n)").named("two").to(sinks.memory("out"))
    t = tester(job)
    t.push("a", [at(1)])
    t.push("b", [at(1)])
    t.wall("1 minute")
    t.push("b", [at(1000)])
    t.push("b", [at(1001)])
    t.push("a", [at(1002)])
    assert t.late("two") == []
    assert [r["n"] for r in t.read("out")] == [2]


def test_processing_time_is_never_late_and_closes_in_run_batch(spark, tester):
    job = Job("wall")
    job.stream("s", sources.files("s", "json", "n int"), time=None).window(tumbling("1 minute")).agg(n="count(*)").to(
        sinks.memory("out")
    )
    t = tester(job, wall="2026-01-01 10:00:30")
    t.push("s", [{"n": 1}])
    t.wall("40 seconds")
    t._wall_us -= 20_000_000  # the machine's clock is set back
    t.push("s", [{"n": 1}])
    assert t.late("window") == []
    bounded = job.run_batch({"s": spark.sql("select 1 as n")}, spark)["out"]
    assert [r.n for r in bounded.collect()] == [1]


def test_a_row_is_counted_once_on_its_way_through_union_and_explode(tester):
    job = Job("once")
    job.dead_letters(sinks.memory("dead"))
    rows = stream(job)
    five(rows.union(rows.where("n > 0"))).to(sinks.memory("twice"))
    t = tester(job)
    t.push("s", [at(1), at(9, n=-1), "{broken"])
    assert [r["n"] for r in t.read("twice")] == [2]
    assert len(t.dead_letters()) == 1
    assert t._engine.counters().rows == {"s": 3}
    job = Job("opened")
    job.dead_letters(sinks.memory("dead"))
    five(stream(job).explode("tags", "tag")).to(sinks.memory("opened"))
    t = tester(job)
    t.push("s", [at(1, tags=["x", "y"]), at(1, tags=["x", "y", "z"], at=None), at(9)])
    assert [r["n"] for r in t.read("opened")] == [2]
    assert len(t.dead_letters()) == 1
    assert t._engine.counters().rows == {"s": 3}


@pytest.mark.parametrize("cluster", [False, True])
def test_names_that_are_like_ours_or_change_places(tester, cluster):
    job = Job("names")
    rows = stream(job).rename(user="n", n="user").with_columns(key_0="user", result_0="2", carried_0="3")
    keyed = rows.by("result_0", "key_0", "carried_0").window(tumbling("5 seconds"))
    keyed.agg(total="sum(user) + 1", about="approx_count_distinct(n)").to(sinks.memory("keyed"))
    again = five(rows).named("fine").window(tumbling("10 seconds"))
    again.agg(windows="approx_count_distinct(window_start)", last="max(window_end)").to(sinks.memory("again"))
    t = tester(job, cluster=cluster)
    t.push("s", [at(1, n=4), at(2, n=4), at(6), at(20)])
    keyed = {row["key_0"]: (row["result_0"], row["carried_0"], row["total"], row["about"]) for row in t.read("keyed")}
    assert keyed[4] == (2, 3, 9, 1)
    [row] = t.read("again")
    assert row["windows"] == 2
    assert row["last"] == START + timedelta(seconds=10)


def test_the_watermark_never_goes_back_and_maps_are_read_as_they_were_pushed(tester):
    job = Job("back")
    schema = "m map<string, int>, at timestamp"
    a = job.stream("a", sources.files("a", "json", schema), time="at", lateness="0 seconds")
    b = job.stream("b", sources.files("b", "json", schema), time="at", lateness="0 seconds", idle_after="1 minute")
    a.union(b).to(sinks.memory("all"))
    t = tester(job)
    t.advance("a", "2026-01-01 12:00:00")
    t.wall("2 minutes")
    t.push("b", [{"m": {"q": 1}, "at": "2026-01-01 10:30:00"}])
    assert t.watermark == datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    assert [r["m"] for r in t.read("all")] == [{"q": 1}]


def test_more_nonsense_is_refused_when_it_is_written():
    rows = stream(Job("shop"))
    with pytest.raises(PlanError, match=r"is 0\.95"):
        five(rows, p="percentile(n, 95)")
    with pytest.raises(PlanError, match="leave 'as y' out"):
        five(rows, n="count(*) as y")
    with pytest.raises(PlanError, match="does not tell case"):
        rows.with_columns(USER="upper(user)")
    with pytest.raises(PlanError, match=r"test_found_by_review.py:\d+"):
        tumbling("5 mins")
    rows.to(sinks.memory("same"))
    with pytest.raises(PlanError, match="'same' already"):
        rows.where("n > 1").to(sinks.memory("same"), name="other")
