"""The latencies: five minutes that go by in steps of ten seconds."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.jobs.latency_percentiles import job
from penstock.testing import JobCrashed


def clock(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-13T{time}+00:00")


def request(at: str, ms: float = 10.0, status: int = 200, service: str = "cart", endpoint: str = "/add"):
    return {"service": service, "endpoint": endpoint, "ms": ms, "status": status, "at": f"2026-03-13 {at}"}


def ending(t, output: str, end: str) -> list[dict[str, object]]:
    """The rows of the five minutes up to ``end``."""
    return [row for row in t.read(output) if row["window_end"] == clock(end)]


def test_the_last_five_minutes_every_ten_seconds(tester):
    t = tester(job)
    # 99 quick ones and one that took a second and failed
    t.push("requests", [*(request("20:00:03", ms) for ms in range(1, 100)), request("20:00:05", 1000, 503)])
    t.advance("requests", "2026-03-13 20:00:25")  # watermark 20:00:10: the first window that holds them closes
    assert t.new("latency") == [
        {"window_start": clock("19:55:10"), "window_end": clock("20:00:10"), "service": "cart",
         "p50_ms": 50.5, "p99_ms": pytest.approx(108.01), "per_second": pytest.approx(100 / 300), "error_rate": 0.01},
    ]  # fmt: skip
    t.push("requests", [request("20:04:58", 7)])
    t.advance("requests", "2026-03-13 20:11:00")
    # one result every ten seconds, the last of them for the five minutes up to 20:09:50
    assert len(t.new("latency")) == 58
    [both] = ending(t, "latency", "20:05:00")
    assert (both["per_second"], both["error_rate"]) == (pytest.approx(101 / 300), pytest.approx(1 / 101))
    [alone] = ending(t, "latency", "20:05:10")
    assert (alone["p50_ms"], alone["p99_ms"], alone["error_rate"]) == (7, 7, 0)


def test_a_late_request_counts_in_the_windows_that_are_still_open(tester):
    t = tester(job)
    t.push("requests", [request("20:04:00"), request("20:05:15")])  # watermark 20:05
    t.push("requests", [request("20:03:00", status=500)])  # its windows up to 20:05 are final
    t.push("requests", [request("20:00:00")])  # all of its windows are: the last ended at 20:05
    t.advance("requests", "2026-03-13 20:05:25")
    assert [row["error_rate"] for row in ending(t, "latency", "20:05:00")] == [0]
    assert [row["error_rate"] for row in ending(t, "latency", "20:05:10")] == [0.5]
    assert [(letter["reason"], letter["step"]) for letter in t.dead_letters()] == [("late", "window_by_service")]


def test_the_slowest_endpoints_are_ranked_from_twenty_requests_on(tester):
    t = tester(job)
    slowness = {"/a": 40, "/b": 80, "/c": 20, "/d": 60}
    t.push("requests", [request("20:00:01", ms, endpoint=e) for e, ms in slowness.items() for _ in range(20)])
    t.push("requests", [request("20:00:02", 900, endpoint="/once")])
    t.advance("requests", "2026-03-13 20:00:25")
    assert [(row["rank"], row["endpoint"], row["p99_ms"]) for row in by_rank(t.read("slowest_endpoints"))] == [
        (1, "/b", 80),
        (2, "/d", 60),
        (3, "/a", 40),
    ]


def by_rank(rows):
    return sorted(rows, key=lambda row: row["rank"])


@pytest.mark.parametrize("point", ["during_sink", "after_sink"])
def test_a_crash_changes_no_number(tester, point):
    t = tester(job)
    t.push("requests", [request("20:00:01", ms) for ms in (1, 2, 3)])
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("requests", [request("20:00:04", 4), request("20:00:25", 5)])
    t.restart()
    [row] = t.read("latency")
    assert (row["window_end"], row["p50_ms"], row["per_second"]) == (clock("20:00:10"), 2.5, pytest.approx(4 / 300))
