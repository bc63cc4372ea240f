"""The page views: the job, the hour that the demo plays through it, and the picture of that hour."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from penstock.demo import events
from penstock.demo.events import END, MINUTE, START, WRONG_CLOCK, arrivals, by_minute_received
from penstock.demo.results import draw
from penstock.jobs.page_views import job

STEP = "window_by_path"


def view(at: str, path: str = "/", visitor: str = "v1", load_ms: int = 100) -> dict[str, object]:
    return {"visitor": visitor, "device": "phone", "path": path, "load_ms": load_ms, "at": f"2026-03-13 {at}"}


def clock(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-13T{time}+00:00")


# the job


def test_views_count_in_the_window_in_which_they_happened(tester):
    t = tester(job)
    t.push("views", [view("20:07:00", visitor="v2", load_ms=300), view("20:01:00"), view("20:04:59.999")])
    t.push("views", [view("20:02:00", load_ms=200), view("20:17:00", "/cart")])  # time 20:05: the first closes
    assert t.new("views_by_path") == [
        {"window_start": clock("20:00"), "window_end": clock("20:05"), "path": "/",
         "views": 3, "visitors": 1, "p95_load_ms": pytest.approx(190)},
    ]  # fmt: skip
    t.advance("views", "2026-03-13 20:22:00")
    assert t.new("views_by_path") == [
        {"window_start": clock("20:05"), "window_end": clock("20:10"), "path": "/",
         "views": 1, "visitors": 1, "p95_load_ms": pytest.approx(300)},
    ]  # fmt: skip


def test_a_view_whose_window_has_closed_is_kept_aside(tester):
    t = tester(job)
    t.push("views", [view("20:17:00")])  # time 20:05
    t.push("views", [view("20:04:59", "/cart"), view("20:05:00")])
    assert [(row["path"], row["at"]) for row in t.read("late_views")] == [("/cart", clock("20:04:59"))]
    assert [row["path"] for row in t.late(STEP)] == ["/cart"]
    assert t.dead_letters() == []


def test_a_broken_line_and_a_wrong_clock_are_dead_letters_and_move_no_time(tester):
    t = tester(job)
    ahead = datetime.now(timezone.utc) + timedelta(days=1, hours=1)
    t.push("views", [view("20:01:00"), '{"visitor": "v1", "pa', {**view("20:02:00"), "at": ahead}])
    assert sorted(letter["reason"] for letter in t.dead_letters()) == ["bad_time", "malformed"]
    assert t.watermark == clock("19:49")


# the hour


def test_the_same_seed_gives_the_same_hour():
    assert arrivals(7) == arrivals(7)
    assert arrivals(7) != arrivals(8)


@pytest.mark.parametrize("seed", range(5))
def test_every_hour_is_on_time_within_12_minutes_but_for_its_stragglers(seed):
    newest, late, seen = START, 0, []
    for arrival in usable(arrivals(seed)):
        newest = max(newest, arrival.at)
        behind = newest - arrival.at
        late += behind > timedelta(minutes=12)
        assert behind <= timedelta(minutes=12) or behind > timedelta(minutes=30)
        seen.append(arrival.at)
    assert late == events.STRAGGLERS
    assert seen != sorted(seen)
    assert newest >= END + timedelta(minutes=12)


def usable(arrived):
    return [a for a in arrived if a.at is not None and a.at < WRONG_CLOCK]


def is_straggler(arrival) -> bool:
    return arrival.received - arrival.at > timedelta(minutes=20)


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def window_of(moment: datetime) -> datetime:
    return minute_of(moment) - timedelta(minutes=moment.minute % 5)


def test_the_job_and_the_picture_show_what_a_plain_count_gives(tester):
    arrived = arrivals()
    t = tester(job)
    minutes = by_minute_received(arrived)
    for first in range(0, len(minutes), 4):  # as far as the demo lets files run ahead of the job
        t.push("views", [a.line for minute in minutes[first : first + 4] for a in minute])

    counted = [a for a in usable(arrived) if not is_straggler(a) and a.at < END]
    by_minute = Counter(minute_of(a.at) for a in counted)
    read = {row["window_start"]: row["views"] for row in t.read("views_by_minute") if row["window_start"] < END}
    assert read == by_minute

    by_path = defaultdict(list)
    for arrival in counted:
        row = json.loads(arrival.line)
        by_path[window_of(arrival.at), row["path"]].append(row)
    assert {
        (row["window_start"], row["path"]): (row["views"], row["visitors"], pytest.approx(row["p95_load_ms"]))
        for row in t.read("views_by_path")
    } == {
        key: (len(rows), len({r["visitor"] for r in rows}), np.percentile([r["load_ms"] for r in rows], 95))
        for key, rows in by_path.items()
    }

    assert {row["at"] for row in t.read("late_views")} == {a.at for a in usable(arrived) if is_straggler(a)}
    assert Counter(letter["reason"] for letter in t.dead_letters()) == {"bad_time": 3, "malformed": 1}

    picture = draw(read, arrived)
    hour = [START + i * MINUTE for i in range(60)]
    assert drawn(picture, "by-event") == [by_minute[m] for m in hour]
    by_arrival = Counter(minute_of(a.received) for a in arrived)
    assert drawn(picture, "by-arrival") == [by_arrival[m] for m in hour]


# the picture


def drawn(picture: str, curve: str) -> list[int]:
    """The numbers of a curve; its points stand where the numbers say, on the axis as it is labelled."""
    found = re.search(rf'id="{curve}" data-views="([^"]+)" points="([^"]+)"', picture)
    assert found is not None
    numbers = [int(n) for n in found[1].split()]
    heights = [float(point.split(",")[1]) for point in found[2].split()]
    ticks = {
        int(views): float(y) - 4.5 for y, views in re.findall(r'y="([\d.]+)"[^>]*text-anchor="end">(\d+)<', picture)
    }
    pixels_a_view = (ticks[0] - ticks[100]) / 100
    assert [round((ticks[0] - y) / pixels_a_view) for y in heights] == numbers
    return numbers


def test_by_processing_time_there_is_a_dip_and_a_spike_that_event_time_does_not_have():
    arrived = arrivals()
    by_arrival = events.received_per_minute(arrived)
    by_event = Counter(minute_of(a.at) for a in usable(arrived))
    down, up = events.DOWN, events.UP
    assert all(by_arrival[down + i * MINUTE] < 0.75 * by_event[down + i * MINUTE] for i in range(10))
    assert by_arrival[up] > 3 * max(by_event.values())
