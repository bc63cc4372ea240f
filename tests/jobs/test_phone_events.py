"""The phones: one of each kind of trouble, and an hour whose count is mended as they come back online."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from penstock.jobs.phone_events import job
from penstock.testing import JobCrashed


def clock(time: str, day: int = 13) -> datetime:
    return datetime.fromisoformat(f"2026-03-{day}T{time}+00:00")


NOON = clock("12:00")
TOMORROW = clock("12:00", 14)


def sent(name: str, at: datetime, received: datetime, off: timedelta = timedelta(0)) -> dict[str, object]:
    """An event that happened at a true time, from a phone whose clock is ``off``, received at once when it was sent."""
    return {"event_id": name, "kind": "tap", "at": at + off, "sent": received + off, "received": received}


def online(name: str, at: datetime) -> dict[str, object]:
    """An event of a phone that is online and knows the time."""
    return sent(name, at, at)


def hours(t) -> list[tuple[str, int, str]]:
    """Each hour that a reader sees, with its count and what that is worth."""
    rows = sorted(t.read("events_per_hour"), key=lambda row: row["window_start"])
    return [(f"{row['window_start']:%H:%M}", row["events"], row["pane"]) for row in rows]


def test_an_hour_is_there_early_then_on_time_and_then_corrected(tester):
    t = tester(job, wall=TOMORROW)
    t.push("phones", [online("a", clock("12:05")), online("b", clock("12:10"))])
    assert hours(t) == []
    t.wall("1 minute")
    assert hours(t) == [("12:00", 2, "early")]
    t.push("phones", [online("c", clock("12:59"))])
    t.push("phones", [online("d", clock("13:10"))])  # watermark 13:00
    assert hours(t)[0] == ("12:00", 3, "on_time")
    # a phone that was in a tunnel from 12:30 until 15:00 on
    t.push("phones", [sent("e", clock("12:30"), clock("15:00")), sent("f", clock("14:59"), clock("15:00"))])
    assert hours(t)[0] == ("12:00", 4, "late")
    assert t.read("late_events") == []


def test_a_clock_that_is_a_year_off_counts_in_the_right_hour(tester):
    t = tester(job, wall=TOMORROW)
    year = timedelta(days=365)
    t.push(
        "phones",
        [
            sent("past", clock("11:40"), clock("12:05"), off=-year),
            sent("future", clock("11:50"), clock("12:05"), off=year),
            online("right", clock("12:06")),
        ],
    )
    assert t.watermark == clock("11:56")  # neither of them has moved time by a year
    t.push("phones", [online("next", clock("12:10"))])
    assert hours(t)[0] == ("11:00", 2, "on_time")
    assert t.dead_letters() == []


def test_what_a_phone_sends_again_counts_once(tester):
    t = tester(job, wall=TOMORROW)
    t.push("phones", [online("a", clock("12:05"))])
    # no answer came, so it sends again; the journey takes a second longer, and moves the corrected time
    again = sent("a", clock("12:05"), clock("12:06"))
    t.push("phones", [again | {"received": clock("12:06:01")}, again])
    t.push("phones", [online("b", clock("13:10"))])
    assert hours(t)[0] == ("12:00", 1, "on_time")
    # and once more the next morning, with an event that it had never sent
    t.push("phones", [sent("a", clock("12:05"), clock("08:00", 14)), sent("c", clock("12:07"), clock("08:00", 14))])
    assert hours(t)[0] == ("12:00", 2, "late")
    assert len(t.late("once")) == 2


def test_what_comes_after_the_last_correction_is_kept_aside(tester):
    t = tester(job, wall=TOMORROW + timedelta(days=2))
    t.push("phones", [online("a", clock("12:05")), online("b", clock("13:10", 15))])  # watermark 13:00, two days on
    t.push("phones", [sent("c", clock("12:06"), clock("13:11", 15))])
    assert [(row["event_id"], row["at"]) for row in t.read("late_events")] == [("c", clock("12:06"))]
    assert hours(t)[0] == ("12:00", 1, "on_time")
    assert t.dead_letters() == []


def test_broken_lines_and_missing_times_are_dead_letters(tester):
    t = tester(job, wall=NOON)
    t.push("phones", ['{"event_id": "a", "ki', online("b", NOON) | {"sent": None}, online("c", NOON) | {"at": None}])
    t.push(
        "phones", [online("d", NOON) | {"event_id": None}, online("e", NOON + timedelta(hours=2)), online("f", NOON)]
    )
    assert sorted(letter["reason"] for letter in t.dead_letters()) == [
        "bad_time",  # never sent
        "bad_time",  # never happened
        "bad_time",  # received two hours from now: it is the server's clock that is wrong
        "malformed",
        "malformed",  # without an id nobody can tell whether it has been counted
    ]
    assert t.watermark == clock("11:50")


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink"])
def test_a_crash_in_the_middle_of_a_correction_loses_and_doubles_nothing(tester, point):
    t = tester(job, wall=TOMORROW)
    t.push("phones", [online("a", clock("12:05")), online("b", clock("13:10"))])
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("phones", [sent("c", clock("12:30"), clock("13:20"))])
    t.restart()
    assert hours(t)[0] == ("12:00", 2, "late")
    t.push("phones", [sent("c", clock("12:30"), clock("13:21"))])  # the phone, too, has crashed
    assert hours(t)[0] == ("12:00", 2, "late")
