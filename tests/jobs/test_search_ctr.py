"""The click-through rate: a search without a click in its own five minutes, a clicked one in those of its click."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime

import pyarrow as pa
import pytest

from penstock import sinks, sources
from penstock.jobs.search_ctr import job, search_ctr
from penstock.testing import JobCrashed


def clock(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-13T{time}+00:00")


def search(session: str, at: str, url: str = "/shoes") -> dict[str, object]:
    return {"session_id": session, "url": url, "at": f"2026-03-13T{at}Z"}


def click(session: str, at: str, number: int = 1) -> dict[str, object]:
    return {"session_id": session, "click_id": f"{session}-{number}", "clicked_at": f"2026-03-13T{at}Z"}


def rates(t) -> list[tuple[str, str, int, int]]:
    """Each window and page that has come out: how often it was shown, how often clicked."""
    return sorted((f"{r['window_start']:%H:%M}", r["url"], r["shown"], r["clicked"]) for r in t.read("ctr"))


def both_to(t, time: str) -> None:
    for name in ("searches", "clicks"):
        t.advance(name, clock(time))


def test_pairs_count_when_they_are_clicked_and_the_others_when_they_were_shown(tester):
    t = tester(job)
    t.push(
        "searches",
        search("s1", "10:00:00"),
        search("s2", "10:01:00"),
        search("s3", "10:04:59.999"),
        search("s4", "10:02:00", "/hats"),
        search("s5", "10:05:00"),
    )
    t.push(
        "clicks",
        click("s1", "10:00:20"),
        click("s1", "10:31:00", 2),  # a second click of the same search, half an hour on
        click("s2", "11:01:00"),  # exactly an hour still counts
        click("s3", "11:05:00"),  # a millisecond more does not
    )
    both_to(t, "11:14:59")  # watermark 11:04:59: a click on s3 could still come
    assert t.read("ctr") == []
    both_to(t, "11:15:00")
    assert sorted(t.read("ctr"), key=lambda row: row["url"]) == [
        {"window_start": clock("10:00"), "window_end": clock("10:05"), "url": "/hats",
         "shown": 1, "clicked": 0, "rate": 0.0},
        {"window_start": clock("10:00"), "window_end": clock("10:05"), "url": "/shoes",
         "shown": 2, "clicked": 1, "rate": 0.5},
    ]  # fmt: skip
    both_to(t, "12:20:00")
    assert rates(t)[2:] == [("10:05", "/shoes", 1, 0), ("10:30", "/shoes", 1, 1), ("11:00", "/shoes", 1, 1)]


def test_a_click_may_come_before_its_search_and_a_search_after_later_ones(tester):
    t = tester(job)
    t.push("clicks", click("s1", "10:03:00"), click("s2", "10:06:00"))
    t.push("searches", search("s2", "10:05:30"))
    t.push("searches", search("s1", "10:02:00"), search("s3", "10:03:30"))
    both_to(t, "11:20:00")
    assert rates(t) == [("10:00", "/shoes", 2, 1), ("10:05", "/shoes", 1, 1)]
    assert t.late("shown_and_clicked") == t.late("window_by_url") == []


def test_a_click_that_comes_too_late_changes_nothing_and_is_counted(tester):
    t = tester(job)
    t.push("searches", search("s1", "10:00:00"))
    both_to(t, "11:15:00")
    t.push("clicks", click("s1", "10:30:00"))
    assert rates(t) == [("10:00", "/shoes", 1, 0)]
    assert [row["click_id"] for row in t.late("shown_and_clicked")] == ["s1-1"]


def test_searches_come_out_though_nobody_clicks(tester):
    t = tester(job)
    t.push("searches", search("s1", "10:00:00"), search("s2", "11:20:00"))
    assert t.watermark is None  # nobody knows how far the clicks are
    t.wall("59 seconds")
    assert t.read("ctr") == []
    t.wall("1 second")
    assert rates(t) == [("10:00", "/shoes", 1, 0)]
    # in the morning the clicks are heard again
    t.push("clicks", click("s2", "11:25:00"))
    both_to(t, "12:40:00")
    assert rates(t)[1:] == [("11:25", "/shoes", 1, 1)]


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink"])
def test_a_crash_loses_and_doubles_no_search(tester, point):
    t = tester(job)
    t.push("searches", search("s1", "10:00:00"), search("s2", "10:01:00"))
    t.push("clicks", click("s1", "10:00:20"), click("s3", "11:20:00"))
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("searches", search("s3", "11:15:00"))  # watermark 11:05: it closes the first window
    t.restart()
    assert rates(t) == [("10:00", "/shoes", 2, 1)]
    both_to(t, "12:35:00")
    assert rates(t)[1:] == [("11:20", "/shoes", 1, 1)]  # s3, which came in the batch that crashed


def test_a_batch_over_all_of_it_gives_what_the_stream_gave(tester, spark):
    searches = [search(f"s{i}", f"10:{i:02}:00", "/hats" if i % 3 else "/shoes") for i in range(12)]
    clicks = [click(f"s{i}", f"10:{i + 7 * n:02}:30", n) for i in range(0, 12, 2) for n in (1, 2)]
    came = {"searches": searches, "clicks": clicks}
    t = tester(job)
    for first in range(0, 12, 4):
        for name, rows in came.items():
            t.push(name, rows[first : first + 4])
    both_to(t, "13:00:00")
    frames = {name: spark.createDataFrame(pa.Table.from_pylist(rows)) for name, rows in came.items()}
    whole = job.run_batch(frames)
    assert in_order(t.read("ctr")) == in_order(whole["ctr"].toArrow().to_pylist())
    assert sum(shown for _, _, shown, _ in rates(t)) == 12 + 6  # two clicks are two pairs
    assert sum(clicked for _, _, _, clicked in rates(t)) == 12


def in_order(rows):
    return sorted(rows, key=lambda row: (row["window_start"], row["url"]))


def test_over_files_in_two_runs(spark, tmp_path):
    def run(
        number: int, searches: list[dict[str, object]], clicks: list[dict[str, object]]
    ) -> list[tuple[object, ...]]:
        for folder, rows in (("searches", searches), ("clicks", clicks)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        over_files = search_ctr(
            lambda name, schema: sources.files(tmp_path / name, format="json", schema=schema),
            lambda table: sinks.sqlite(tmp_path / "out" / "results.db", table),
        )
        over_files.run(spark, checkpoint=str(tmp_path / "checkpoint"), once=True)
        with sqlite3.connect(tmp_path / "out" / "results.db") as database:
            return database.execute("SELECT window_start, url, shown, clicked, rate FROM ctr ORDER BY 1").fetchall()

    first = ("2026-03-13T10:00:00.000000Z", "/shoes", 2, 1, 0.5)
    second = ("2026-03-13T11:20:00.000000Z", "/shoes", 1, 1, 1.0)
    found = run(1, [search("s1", "10:00:00"), search("s2", "10:01:00"), search("s3", "11:20:00")],
                [click("s1", "10:00:20"), click("s3", "11:21:00")])  # fmt: skip
    assert found == [first]
    # s3 and its click were kept in the checkpoint
    assert run(2, [search("s4", "12:40:00")], [click("s4", "12:41:00")]) == [first, second]
