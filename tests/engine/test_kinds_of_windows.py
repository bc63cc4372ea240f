"""Every kind of window through a real engine: the examples of the book of semantics, pushed row by row."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.windows import calendar, cumulating, hopping, panes, same, session, sliding, tumbling

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "k string, x long, at timestamp"


def at(second, x=1, k="a"):
    return {"k": k, "x": x, "at": START + timedelta(seconds=second)}


def job_of(build, lateness="10 seconds", **options):
    job = Job("windows")
    events = job.stream("events", sources.files("in", "json", SCHEMA), time="at", lateness=lateness, **options)
    build(events).to(sinks.memory("out"))
    return job


def spans(rows, *columns):
    """Start and end in seconds, then the columns asked for."""
    second = timedelta(seconds=1)
    return sorted(
        ((r["window_start"] - START) / second, (r["window_end"] - START) / second, *(r[c] for c in columns))
        for r in rows
    )


def total(events, shape, **options):
    return events.by("k").window(shape, **options).agg(n="count(*)", total="sum(x)")


def test_a_hop_counts_each_row_in_all_windows_that_cover_it(tester):
    t = tester(job_of(lambda e: total(e, hopping("10 seconds", "5 seconds"))))
    t.push("events", [at(s, x) for s, x in zip((5, 7, 9, 11, 13, 17), (4, 2, 5, 3, 1, 6), strict=True)])
    t.advance("events", START + timedelta(seconds=60))
    assert spans(t.read("out"), "total") == [(0, 10, 11), (5, 15, 15), (10, 20, 10), (15, 25, 6)]


def test_rows_exactly_a_gap_apart_are_one_session(tester):
    t = tester(job_of(lambda e: total(e, session("5 seconds"))))
    t.push("events", at(0), at(5), at(10.001))
    t.advance("events", START + timedelta(seconds=25.001))  # watermark 15.001: exactly at the end, still open
    assert spans(t.read("out"), "n") == [(0, 10, 2)]
    t.advance("events", START + timedelta(seconds=25.002))
    assert spans(t.read("out"), "n") == [(0, 10, 2), (10.001, 15.001, 1)]


def test_a_late_row_that_an_open_session_takes_is_not_late(tester):
    t = tester(job_of(lambda e: total(e, session("5 seconds", None)), lateness="0 seconds"))
    t.push("events", at(10))
    t.push("events", at(14))  # watermark 14
    t.push("events", at(6))  # 6 + 5 is before 14, and the session from 10 takes it
    t.push("events", at(0))  # nobody takes it
    assert [r["at"] for r in t.late("window_by_k")] == [START]
    t.advance("events", START + timedelta(seconds=60))
    assert spans(t.read("out"), "n") == [(6, 19, 3)]


def test_a_session_is_cut_at_its_longest_duration(tester):
    t = tester(job_of(lambda e: total(e, session("5 seconds", max_duration="10 seconds"))))
    t.push("events", *(at(s) for s in (0, 4, 8, 10, 13)))
    t.advance("events", START + timedelta(seconds=60))
    assert spans(t.read("out"), "n") == [(0, 10, 3), (10, 18, 2)]


def test_a_sliding_window_ends_at_each_row_with_both_ends_in(tester):
    t = tester(job_of(lambda e: total(e, sliding("5 seconds"))))
    t.push("events", at(8.0), at(9.2), at(12.4), at(12.4, 5))
    t.advance("events", START + timedelta(seconds=60))
    assert spans(t.read("out"), "n", "total") == [(3, 8, 1, 1), (4.2, 9.2, 2, 2), (7.4, 12.4, 4, 8)]


def test_cumulating_windows_grow_step_by_step(tester):
    t = tester(job_of(lambda e: total(e, cumulating("2 minutes", "10 minutes")), lateness="0 seconds"))
    t.push("events", at(8 * 3600 + 5 * 60))
    t.push("events", at(8 * 3600 + 7 * 60, 2))
    t.advance("events", START + timedelta(hours=9))
    minutes = [(int(e / 60) - 480, x) for _, e, x in spans(t.read("out"), "total")]
    assert minutes == [(6, 1), (8, 3), (10, 3)]


def test_a_calendar_day_has_23_hours_when_the_clocks_go_forward(tester):
    t = tester(job_of(lambda e: total(e, calendar("day", "Europe/Berlin"))))
    t.push("events", {"k": "a", "x": 1, "at": "2026-03-28 23:30:00"}, {"k": "a", "x": 1, "at": "2026-03-29 21:59:59"})
    t.push("events", {"k": "a", "x": 1, "at": "2026-03-29 22:00:00"})
    t.advance("events", "2026-04-02 00:00:00")
    first, second = sorted(t.read("out"), key=lambda r: r["window_start"])
    assert (first["n"], first["window_end"] - first["window_start"]) == (2, timedelta(hours=23))
    assert (second["n"], second["window_end"] - second["window_start"]) == (1, timedelta(hours=24))


def test_the_same_window_ranks_what_a_window_counted(tester):
    def hot(events):
        counts = events.by("k").window(tumbling("10 seconds")).agg(n="count(*)")
        return counts.window(same()).top(2, by="n desc, k")

    t = tester(job_of(hot, lateness="0 seconds"))
    t.push("events", at(1), at(2), at(3, k="b"), at(4, k="c"), at(5, k="c"), at(6, k="c"), at(12, k="d"))
    t.push("events", at(30))
    assert spans(t.read("out"), "k", "n", "rank") == [(0, 10, "a", 2, 2), (0, 10, "c", 3, 1), (10, 20, "d", 1, 1)]


def test_same_closes_with_the_sliding_window_that_made_the_rows(tester):
    def both(events):
        each = events.by("k").window(sliding("5 seconds")).agg(n="count(*)")
        return each.window(same()).agg(keys="count(*)", n="sum(n)")

    t = tester(job_of(both, lateness="0 seconds"))
    t.push("events", at(1), at(1, k="b"), at(3))
    t.advance("events", START + timedelta(seconds=3))
    assert spans(t.read("out"), "keys", "n") == [(-4, 1, 2, 2)]
    t.advance("events", START + timedelta(seconds=4))
    assert spans(t.read("out"), "keys", "n") == [(-4, 1, 2, 2), (-2, 3, 1, 2)]


@pytest.mark.parametrize(
    "shape",
    [tumbling("10 seconds"), sliding("10 seconds"), session("10 seconds"), calendar("day", "UTC")],
    ids=lambda s: s.describe(),
)
def test_a_window_without_a_key_is_over_the_whole_stream(tester, shape):
    t = tester(job_of(lambda e: e.window(shape).agg(n="count(*)", keys="count(distinct k)")))
    t.push("events", at(1), at(1, k="b"), at(2, k=None))
    t.advance("events", START + timedelta(days=3))
    assert max((r["n"], r["keys"]) for r in t.read("out")) == (3, 2)


def test_updates_show_the_value_so_far_each_time_it_changes(tester):
    t = tester(job_of(lambda e: e.by("k").window(tumbling("10 seconds"), emit="updates").agg(high="max(x)")))
    t.push("events", at(1, 3), at(2, 5))
    assert [(r["op"], r["high"]) for r in t.new("out")] == [("insert", 5)]
    t.push("events", at(3, 4))
    assert t.new("out") == []
    t.push("events", at(4, 7))
    assert [(r["op"], r["high"]) for r in t.new("out")] == [("update", 7)]
    t.push("events", at(40, 1), at(5, 9))
    t.push("events", at(6, 11))  # watermark 30: late
    assert [(r["op"], r["high"]) for r in t.new("out")] == [("update", 9), ("insert", 1)]
    assert len(t.late("window_by_k")) == 1


def test_sessions_that_a_row_joins_are_deleted_and_the_joined_one_appears(tester):
    t = tester(job_of(lambda e: total(e, session("5 seconds"), emit="updates")))
    t.push("events", at(0), at(8))
    assert spans(t.read("out"), "n") == [(0, 5, 1), (8, 13, 1)]
    t.new("out")
    t.push("events", at(4))
    assert spans(t.read("out"), "n") == [(0, 13, 3)]
    assert sorted(r["op"] for r in t.new("out")) == ["delete", "delete", "insert"]


def test_panes_are_early_then_on_time_then_late(tester):
    fires = panes(early="30 seconds", allowed_lateness="1 minute")
    t = tester(job_of(lambda e: total(e, tumbling("10 seconds"), emit=fires), lateness="0 seconds"))

    def news():
        return [(r["op"], r["n"], r["pane"]) for r in t.new("out")]

    t.push("events", at(1), at(2))
    assert news() == []
    t.wall("29 seconds")
    assert news() == []
    t.wall("1 second")  # the stream is quiet
    assert news() == [("insert", 2, "early")]
    t.wall("30 seconds")  # nothing changed
    assert news() == []
    t.push("events", at(12))
    assert news() == [("update", 2, "on_time")]
    t.push("events", at(3))
    assert news() == [("update", 3, "late")]
    t.push("events", at(70, k="b"))  # watermark 70: the window was correctable until then
    news()
    t.push("events", at(4))
    assert news() == []
    assert [r["at"] for r in t.late("window_by_k")] == [START + timedelta(seconds=4)]


def test_a_reported_session_that_grows_again_is_replaced_at_once(tester):
    fires = panes(allowed_lateness="1 minute")
    t = tester(job_of(lambda e: total(e, session("5 seconds"), emit=fires), lateness="0 seconds"))
    t.push("events", at(0), at(20, k="b"))  # watermark 20: the session of a is over
    assert [(r["op"], r["k"], r["pane"]) for r in t.new("out")] == [("insert", "a", "on_time")]
    t.push("events", at(4))
    assert spans([r for r in t.read("out") if r["k"] == "a"], "n", "pane") == [(0, 9, 2, "late")]


def test_a_running_value_follows_every_row(tester):
    t = tester(job_of(lambda e: e.by("k").agg(n="count(*)", mean="avg(x)")))
    t.push("events", at(1, 2), at(2, 4), at(3, 9, k="b"))
    assert sorted((r["k"], r["n"], r["mean"]) for r in t.read("out")) == [("a", 2, 3.0), ("b", 1, 9.0)]
    t.new("out")
    t.push("events", at(0, 6))
    assert [(r["op"], r["k"], r["n"], r["mean"]) for r in t.new("out")] == [("update", "a", 3, 4.0)]


def test_a_running_top_lets_rows_drop_out(tester):
    t = tester(job_of(lambda e: e.by("k").top(2, by="x desc")))
    t.push("events", at(1, 5), at(2, 3), at(3, 4))
    assert sorted((r["rank"], r["x"]) for r in t.read("out")) == [(1, 5), (2, 4)]
    t.new("out")
    t.push("events", at(4, 7))
    assert sorted((r["rank"], r["x"]) for r in t.read("out")) == [(1, 7), (2, 5)]
    assert [r["op"] for r in t.new("out")] == ["update", "update"]


def test_ties_share_a_rank_and_stay(tester):
    t = tester(job_of(lambda e: e.window(tumbling("10 seconds")).top(2, by="x desc", ties=True)))
    t.push("events", at(1, 5, "a"), at(2, 3, "b"), at(3, 3, "c"), at(4, 1, "d"))
    t.advance("events", START + timedelta(seconds=60))
    assert sorted((r["rank"], r["k"]) for r in t.read("out")) == [(1, "a"), (2, "b"), (2, "c")]


def test_an_aggregate_of_sparks_own_is_finished_in_any_final_window(tester):
    for shape in (session("5 seconds"), sliding("5 seconds"), cumulating("5 seconds", "10 seconds")):
        t = tester(job_of(lambda e, shape=shape: e.by("k").window(shape).agg(n="approx_count_distinct(x)")))
        t.push("events", at(1, 5), at(1, 6), at(1, 6))
        t.advance("events", START + timedelta(seconds=60))
        assert {r["n"] for r in t.read("out")} == {2}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda e: e.by("k").agg(n="approx_count_distinct(x)"), "approx_count_distinct"),
        (lambda e: e.window(tumbling("1 second"), emit="updates").agg(n="mode(x)"), "emit='final'"),
        (lambda e: e.window(same()).agg(n="count(*)"), "the rows have no window"),
        (lambda e: e.window(tumbling("1 second"), emit="sometimes"), "'updates'"),
        (lambda e: e.window("1 hour"), "is no window"),
        (lambda e: e.by("k").top(0, by="x"), "from 1 on"),
        (lambda e: e.by("k").top(2, by="y"), "no such column"),
        (lambda e: e.by("k").top(2, by="x", ties=True), "ties"),
        (lambda e: e.by("k").agg(n="count(*)").drop("k"), "key"),
        (lambda e: e.by("k").agg(n="count(*)").with_columns(k="upper(k)"), "key"),
        (lambda e: e.by("k").agg(n="count(*)").select("n"), "key"),
        (lambda e: e.by("k").agg(n="count(*)").to(sinks.parquet("out")), "only append"),
        (lambda e: e.by("k").window(tumbling("1 second"), emit=panes()).agg(pane="count(*)"), "pane"),
        (lambda e: cumulating("3 seconds", "10 seconds"), "multiple"),
        (lambda e: calendar("year", "UTC"), "year"),
        (lambda e: calendar("day", "Europe/Berlni"), "Europe/Berlin"),
        (lambda e: session("0 seconds"), "gap"),
        (lambda e: sliding("-1 seconds"), "size"),
    ],
)
def test_nonsense_is_refused_on_the_line_that_wrote_it(wrong, told):
    job = Job("windows")
    events = job.stream("events", sources.files("in", "json", SCHEMA), time="at", lateness="1 second")
    with pytest.raises(PlanError, match=__file__.rsplit("/", 1)[-1]) as refused:
        wrong(events)
    assert told in str(refused.value)


@pytest.mark.parametrize("cluster", [False, True], ids=["driver", "cluster"])
def test_row_steps_follow_a_table_and_what_no_longer_fits_goes(tester, cluster):
    def build(events):
        return (
            events.by("k").agg(n="count(*)", low="min(x)").where("low > 1").with_columns(twice="n * 2").rename(k="key")
        )

    t = tester(job_of(build), cluster=cluster, buckets=3)
    t.push("events", at(1, 5), at(2, 3, "b"))
    assert sorted((r["key"], r["twice"]) for r in t.read("out")) == [("a", 2), ("b", 2)]
    t.new("out")
    t.push("events", at(3, 1), at(4, 4, "b"))
    assert sorted((r["op"], r["key"]) for r in t.new("out")) == [("delete", "a"), ("update", "b")]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"K": "count(*)"}, "is a key"),
        ({"WINDOW_END": "count(*)"}, "is a window column"),
        ({"n": "count(*)", "N": "sum(x)"}, "stands twice"),
        ({"n": "sum(count(*))"}, "count stands inside sum"),
    ],
)
def test_names_and_nested_aggregates_are_refused_whatever_their_case(wrong, told):
    events = Job("windows").stream("e", sources.files("in", "json", SCHEMA), time="at", lateness="1 second")
    with pytest.raises(PlanError, match=told):
        events.by("k").window(tumbling("1 second")).agg(**wrong)
