"""Windows on a stream: what only batches one after the other can show."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from penstock import BadRowError, Job, sinks, sources
from penstock.testing import JobCrashed
from penstock.windows import hopping, tumbling

SCHEMA = "user string, n int, at timestamp"
START = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)


def at(seconds, user="a", n=1):
    return {"user": user, "n": n, "at": START + timedelta(seconds=seconds)}


def window(start, end, **values):
    return {"window_start": START + timedelta(seconds=start), "window_end": START + timedelta(seconds=end), **values}


def counts(lateness="10 seconds", shape=None, late="drop", dead=False, **aggregates):
    job = Job("counts")
    clicks = job.stream("clicks", sources.files("in", format="json", schema=SCHEMA), time="at", lateness=lateness)
    result = clicks.by("user").window(shape or tumbling("5 seconds"), late=late)
    result.agg(**(aggregates or {"n": "count(*)"})).to(sinks.memory("counts"))
    if dead:
        job.dead_letters(sinks.memory("dead"))
    return job


def ordered(rows):
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


def test_a_window_comes_out_once_the_watermark_passes_its_end(tester):
    t = tester(counts())
    t.push("clicks", [at(10), at(11), at(14), at(15)])
    assert t.new("counts") == []
    t.push("clicks", [at(25)])  # watermark 15 s
    assert t.new("counts") == [window(10, 15, user="a", n=3)]
    assert t.new("counts") == []
    assert t.watermark == START + timedelta(seconds=15)


def test_an_event_exactly_lateness_behind_is_on_time_and_one_before_it_is_late(tester):
    t = tester(counts(lateness="10 seconds", shape=tumbling("1 second")))
    t.push("clicks", [at(20)])
    t.push("clicks", [at(10), at(9.999999)])  # watermark 10 s
    assert t.late("window_by_user") == [at(9.999999)]
    t.advance("clicks", START + timedelta(seconds=21))
    assert t.read("counts") == [window(10, 11, user="a", n=1)]


def test_rows_of_one_batch_are_judged_by_the_clock_before_it(tester):
    t = tester(counts(lateness="0 seconds"))
    t.push("clicks", [at(100), at(1), at(50)])
    assert t.late("window_by_user") == []
    assert ordered(t.read("counts")) == ordered([window(0, 5, user="a", n=1), window(50, 55, user="a", n=1)])


def test_a_hopping_row_counts_in_the_windows_that_are_still_open(tester):
    t = tester(counts(lateness="0 seconds", shape=hopping("10 seconds", "5 seconds")))
    t.push("clicks", [at(10)])  # closes [0, 10): nothing in it
    t.push("clicks", [at(7)])  # [0, 10) has closed, [5, 15) has not
    assert t.late("window_by_user") == []
    t.push("clicks", [at(30)])
    assert ordered(t.read("counts")) == ordered([window(5, 15, user="a", n=2), window(10, 20, user="a", n=1)])


def test_advance_moves_time_without_a_row_and_never_back(tester):
    t = tester(counts())
    t.push("clicks", [at(1)])
    t.advance("clicks", START + timedelta(seconds=15))
    assert t.read("counts") == [window(0, 5, user="a", n=1)]
    t.advance("clicks", START)
    assert t.watermark == START + timedelta(seconds=5)


def test_a_row_that_a_filter_drops_still_moves_time(tester):
    job = Job("filtered")
    clicks = job.stream("clicks", sources.files("in", "json", SCHEMA), time="at", lateness="0 seconds")
    kept = clicks.where("n > 0").with_columns(inverse="10 / n")
    kept.window(tumbling("5 seconds")).agg(total="sum(inverse)").to(sinks.memory("totals"))
    t = tester(job)
    t.push("clicks", [at(1, n=2), at(2, n=0), at(9, n=0)])  # a dropped row must not divide by its zero
    assert t.read("totals") == [window(0, 5, total=5.0)]


def test_late_rows_are_dropped_captured_or_dead_letters(tester):
    for late in ("drop", "capture", "dead_letter"):
        job = counts(lateness="0 seconds", late=late, dead=True)
        if late == "capture":
            step = job.outputs[0]
            from penstock.stream import Stream

            Stream(job, step.node).late.select("user", "n").to(sinks.memory("late"))
        t = tester(job)
        t.push("clicks", [at(20)])
        t.push("clicks", [at(1, n=7)])
        assert t.late("window_by_user") == [at(1, n=7)]
        assert [d["reason"] for d in t.dead_letters()] == (["late"] if late == "dead_letter" else [])
        if late == "capture":
            assert t.read("late") == [{"user": "a", "n": 7}]
        if late == "dead_letter":
            letter = t.dead_letters()[0]
            assert letter["input"] == "clicks"
            assert letter["step"] == "window_by_user"
            assert letter["place"] == "partition 0 offset 1"
            assert '"n": 7' in letter["row"]


def test_bad_rows_go_to_the_dead_letters_and_never_move_time(tester):
    t = tester(counts(dead=True))
    far = datetime.now(timezone.utc) + timedelta(days=400)
    t.push("clicks", [at(1), "{broken", {"user": "x"}, {"user": "y", "at": far}, '{"n": "many"}', at(2)])
    assert [(d["reason"], d["input"]) for d in t.dead_letters()] == [
        ("malformed", "clicks"),
        ("bad_time", "clicks"),
        ("bad_time", "clicks"),
        ("malformed", "clicks"),
    ]
    assert t.dead_letters()[0]["row"] == "{broken"
    assert t.dead_letters()[0]["place"] == "partition 0 offset 1"
    assert t.watermark == START - timedelta(seconds=8)
    t.advance("clicks", START + timedelta(seconds=15))
    assert t.read("counts") == [window(0, 5, user="a", n=2)]


def test_without_dead_letters_a_bad_row_stops_the_job_and_is_named(tester):
    t = tester(counts())
    with pytest.raises(BadRowError, match=r"'clicks'.*malformed.*offset 0.*\{broken.*dead_letters"):
        t.push("clicks", ["{broken"])


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink"])
def test_after_a_crash_the_output_is_as_if_there_had_been_none(tester, point):
    t = tester(counts())
    t.push("clicks", [at(1), at(2)])
    t.crash(point)
    with pytest.raises(JobCrashed, match=point):
        t.push("clicks", [at(3), at(20)])
    assert len(t.read("counts")) == (1 if point == "after_sink" else 0)
    with pytest.raises(JobCrashed):
        t.push("clicks", [at(21)])
    t.restart()
    assert t.read("counts") == [window(0, 5, user="a", n=3)]
    t.push("clicks", [at(40)])
    assert ordered(t.read("counts")) == ordered([window(0, 5, user="a", n=3), window(20, 25, user="a", n=1)])


def test_windows_without_a_key_and_windows_on_windows(tester):
    job = Job("chained")
    clicks = job.stream("clicks", sources.files("in", "json", SCHEMA), time="at", lateness="0 seconds")
    fine = clicks.by("user").window(tumbling("5 seconds")).agg(n="count(*)").named("fine")
    fine.to(sinks.memory("fine"))
    coarse = fine.window(tumbling("10 seconds")).agg(users="count(distinct user)", clicks="sum(n)")
    coarse.to(sinks.memory("coarse"))
    t = tester(job)
    t.push("clicks", [at(1), at(2, "b"), at(6), at(9, "c"), at(10)])
    # what the fine window closed in this batch is counted by the coarse one in the same batch
    assert t.read("coarse") == [window(0, 10, users=3, clicks=4)]
    assert len(t.read("fine")) == 4


def test_a_null_key_is_a_group_and_nulls_are_skipped_in_sums(tester):
    t = tester(counts(lateness="0 seconds", n="count(*)", total="sum(n)", present="count(n)"))
    t.push("clicks", [at(1, user=None), at(2, user=None, n=None), at(3, user="a", n=None), at(9)])
    assert ordered(t.read("counts")) == ordered(
        [window(0, 5, user=None, n=2, total=1, present=1), window(0, 5, user="a", n=1, total=None, present=0)]
    )


def test_every_aggregate_that_is_sparks_own_is_finished_by_spark(tester):
    t = tester(
        counts(
            lateness="0 seconds",
            about="approx_count_distinct(n)",
            most="mode(n)",
            first="first(n)",
            all="collect_list(n)",
            best="max_by(n, n)",
            share="count_if(n > 1) / count(*)",
        )
    )
    t.push("clicks", [at(3, n=3), at(1, n=1)])
    t.push("clicks", [at(2, n=3), at(20)])
    assert t.read("counts") == [window(0, 5, user="a", about=2, most=3, first=1, all=[1, 3, 3], best=3, share=2 / 3)]


def test_a_quiet_input_holds_time_until_it_is_idle(tester):
    job = Job("two")
    left = job.stream("left", sources.files("l", "json", SCHEMA), time="at", lateness="0 seconds")
    right = job.stream(
        "right", sources.files("r", "json", SCHEMA), time="at", lateness="0 seconds", idle_after="1 minute"
    )
    left.union(right).by("user").window(tumbling("5 seconds")).agg(n="count(*)").to(sinks.memory("counts"))
    t = tester(job)
    t.push("left", [at(1), at(20)])
    assert t.watermark is None
    assert t.read("counts") == []
    t.wall("59 seconds")
    assert t.read("counts") == []
    t.wall("1 second")  # right has been silent for a minute
    assert t.read("counts") == [window(0, 5, user="a", n=1)]
    t.push("right", [at(19, "b"), at(21, "b")])
    assert t.late("window_by_user") == [at(19, "b")]


def test_processing_time_windows_close_by_the_wall_clock(tester):
    job = Job("arrivals")
    clicks = job.stream("clicks", sources.files("in", "json", SCHEMA), time=None)
    clicks.window(tumbling("1 minute")).agg(n="count(*)").to(sinks.memory("arrivals"))
    t = tester(job, wall="2026-01-01 10:00:30")
    t.push("clicks", [at(1), at(2)])
    t.push("clicks", [at(3)])
    t.wall("29 seconds")
    assert t.read("arrivals") == []
    t.wall("1 second")
    assert t.read("arrivals") == [window(0, 60, n=3)]


def test_a_job_without_state_gives_its_rows_at_once(tester):
    job = Job("plain")
    clicks = job.stream("clicks", sources.files("in", "json", SCHEMA), time="at", lateness="1 second")
    job.dead_letters(sinks.memory("dead"))
    clicks.where("n > 1").select("upper(user) as who", "n").to(sinks.memory("big"))
    clicks.explode("sequence(1, n)", "i").drop("at").to(sinks.memory("each"))
    t = tester(job)
    t.push("clicks", [at(1, n=1), at(2, n=2), "{broken"])
    assert t.read("big") == [{"who": "A", "n": 2}]
    assert ordered(t.read("each")) == [
        {"user": "a", "n": 1, "i": 1}, {"user": "a", "n": 2, "i": 1}, {"user": "a", "n": 2, "i": 2}
    ]  # fmt: skip
    assert [d["reason"] for d in t.dead_letters()] == ["malformed"]
    assert t.watermark == START + timedelta(seconds=1)


def test_explode_and_map_pandas_on_the_way_to_a_window(tester):
    job = Job("mapped")
    clicks = job.stream("clicks", sources.files("in", "json", SCHEMA), time="at", lateness="0 seconds")

    def doubled(frame):
        return frame.assign(n=frame.n * 2)

    mapped = clicks.explode("filter(sequence(1, n), x -> x > 1)", "i").map_pandas(
        doubled, "user string, n int, at timestamp, i int"
    )
    mapped.by("user").window(tumbling("5 seconds")).agg(n="sum(n)", i="sum(i)").to(sinks.memory("counts"))
    t = tester(job)
    t.push("clicks", [at(1, n=3), at(2, n=1)])
    t.push("clicks", [at(9, n=0)])  # an empty array: no row, but it is 9 s now
    assert t.read("counts") == [window(0, 5, user="a", n=12, i=5)]
    assert t.watermark == START + timedelta(seconds=9)
