"""The visits of users: how they grow, merge, end, and are cut."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from penstock.jobs.user_sessions import SCHEMA, job
from penstock.testing import JobCrashed


def clock(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-13T{time}+00:00")


def event(at: str, page: str = "/", user: str = "ann") -> dict[str, object]:
    return {"user": user, "page": page, "at": f"2026-03-13 {at}"}


def changes(t) -> list[tuple[str, str, str, int]]:
    """What has happened to live sessions since the last call: the first and the last event of each, its pages."""
    news = [
        (row["op"], f"{row['window_start']:%H:%M}", f"{row['last_at']:%H:%M}", row["pages"])
        for row in t.new("sessions_live")
    ]
    return sorted(news)


def test_a_session_is_shown_as_it_grows_and_comes_out_once_when_it_is_over(tester):
    t = tester(job)
    t.push("events", [event("10:00", "/")])
    t.push("events", [event("10:20", "/cart")])
    t.push("events", [event("10:05", "/shoes"), event("10:50", "/cart")])  # exactly half an hour is no pause
    assert changes(t) == [
        # a session that grows has another end: the old row goes, the new one takes its place
        ("delete", "10:00", "10:00", 1),
        ("delete", "10:00", "10:20", 2),
        ("insert", "10:00", "10:00", 1),
        ("insert", "10:00", "10:20", 2),
        ("insert", "10:00", "10:50", 4),
    ]
    assert t.read("sessions") == []
    t.advance("events", "2026-03-13 12:20")  # watermark 11:20: an event of 10:50 or later could still prolong it
    assert t.read("sessions") == []
    t.advance("events", "2026-03-13 12:20:00.000001")
    assert t.read("sessions") == t.read("sessions_live") == [
        {"window_start": clock("10:00"), "window_end": clock("11:20"), "user": "ann", "last_at": clock("10:50"),
         "pages": 4, "distinct_pages": 3, "first_page": "/", "last_page": "/cart", "seconds": 3000},
    ]  # fmt: skip


def test_an_event_between_two_sessions_makes_them_one(tester):
    t = tester(job)
    t.push("events", [event("10:00", "/"), event("10:50", "/cart"), event("10:50", user="bob")])
    assert changes(t) == [
        ("insert", "10:00", "10:00", 1),
        ("insert", "10:50", "10:50", 1),
        ("insert", "10:50", "10:50", 1),
    ]
    t.push("events", [event("10:25", "/shoes")])  # late by the clock on the wall, not by the lateness
    assert changes(t) == [
        ("delete", "10:00", "10:00", 1),
        ("delete", "10:50", "10:50", 1),
        ("insert", "10:00", "10:50", 3),
    ]
    assert sorted(row["user"] for row in t.read("sessions_live")) == ["ann", "bob"]


def test_a_merge_in_one_bucket_hides_no_session_in_another(tester):
    t = tester(job, buckets=8)  # as many as a real run has at least
    t.push("events", [event("10:00"), event("10:50"), event("10:40", user="bob")])
    t.push("events", [event("10:25"), event("18:25", user="zoe")])
    live = sorted((row["user"], row["pages"]) for row in t.read("sessions_live"))
    assert live == [("ann", 3), ("bob", 1), ("zoe", 1)]


def test_an_event_after_its_session_is_over_is_kept_aside(tester):
    t = tester(job)
    t.push("events", [event("10:00")])
    t.push("events", [event("13:00", user="bob")])  # watermark 12:00
    t.push("events", [event("10:10", "/cart")])
    t.push("events", [event("11:29", "/cart")])  # a session of this one alone would have ended at 11:59
    t.push("events", [event("11:30", "/shoes")])
    assert sorted((row["page"], row["at"]) for row in t.read("late_events")) == [
        ("/cart", clock("10:10")),
        ("/cart", clock("11:29")),
    ]
    assert len(t.late("live")) == 2
    t.advance("events", "2026-03-13 15:00")
    ann = [row for row in t.read("sessions") if row["user"] == "ann"]
    assert sorted((row["window_start"], row["pages"]) for row in ann) == [(clock("10:00"), 1), (clock("11:30"), 1)]


def test_a_script_that_never_pauses_is_cut_every_twelve_hours(tester):
    t = tester(job)
    start = clock("00:00")
    asks = [start + timedelta(minutes=20 * i) for i in range(40)]  # until 13:00
    t.push("events", [{"user": "robot", "page": "/prices", "at": at} for at in asks])
    t.advance("events", "2026-03-14 00:00")
    first, second = sorted(t.read("sessions"), key=lambda row: row["window_start"])
    assert (first["window_start"], first["window_end"], first["pages"]) == (start, clock("12:00"), 36)
    assert (second["window_start"], second["window_end"], second["pages"]) == (clock("12:00"), clock("13:30"), 4)


def test_after_a_crash_the_merged_session_stands_once(tester):
    t = tester(job)
    t.push("events", [event("10:00"), event("10:50")])
    before = t.read("sessions_live")
    t.crash("during_sink")
    with pytest.raises(JobCrashed):
        t.push("events", [event("10:25")])
    assert t.read("sessions_live") == before  # no reader sees the two gone and the one not yet there
    t.restart()
    assert [(row["window_start"], row["pages"]) for row in t.read("sessions_live")] == [(clock("10:00"), 3)]
    t.advance("events", "2026-03-13 14:00")
    assert [row["pages"] for row in t.read("sessions")] == [3]


def test_a_batch_over_all_events_gives_what_the_stream_gave(tester, spark):
    pages = ["/", "/shoes", "/cart", "/", "/pay", "/"]
    minutes = [0, 25, 80, 95, 50, 130]
    events = [
        {"user": user, "page": page, "at": clock("10:00") + timedelta(minutes=minute + shift)}
        for page, minute in zip(pages, minutes, strict=True)
        for user, shift in (("ann", 0), ("bob", 7))
    ]
    t = tester(job)
    for row in events:
        t.push("events", [row])
    t.advance("events", "2026-03-14 00:00")
    whole = job.run_batch({"events": spark.createDataFrame(events, SCHEMA.replace(" not null", ""))})
    for output in ("sessions", "sessions_live"):
        assert in_order(t.read(output)) == in_order(rows_of(whole[output]))
        assert len(t.read(output)) == 4


def rows_of(frame):
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.toArrow().to_pandas().itertuples(index=False)]


def in_order(rows):
    return sorted(rows, key=lambda row: (row["user"], row["window_start"]))
