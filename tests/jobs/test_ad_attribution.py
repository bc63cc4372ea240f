"""Clicks and purchases: the last click of each purchase, clicks that led to nothing, visitors who came back."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.jobs.ad_attribution import ad_attribution, job
from penstock.testing import JobCrashed

MOMENT = timedelta(microseconds=1)


def on(day: int, time: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-{day:02}T{time}+00:00")


def click(name: str, user: str, at: datetime, campaign: str = "spring") -> dict[str, object]:
    return {"click_id": name, "user": user, "campaign": campaign, "clicked_at": at}


def purchase(name: str, user: str, at: datetime, amount: str = "49.90") -> dict[str, object]:
    return {"purchase_id": name, "user": user, "amount": amount, "bought_at": at}


def attributed(t) -> list[tuple[str, str, int]]:
    """The purchases that have come out: each with the campaign of its last click, and how many clicks it had."""
    return sorted((row["purchase_id"], row["campaign"], row["clicks"]) for row in t.read("attributed"))


def led_to_nothing(t) -> list[str]:
    return sorted(row["click_id"] for row in t.read("unattributed_clicks"))


def both_to(t, time: datetime) -> None:
    for name in ("clicks", "purchases"):
        t.advance(name, time)


def test_the_last_click_of_seven_days_has_the_purchase(tester):
    t = tester(job)
    t.push(
        "clicks",
        click("a1", "ann", on(1, "10:00")),
        click("a2", "ann", on(3, "10:00"), "summer"),
        click("a3", "ann", on(4, "10:00")),  # after she bought
        click("b1", "bob", on(1, "10:00")),
        click("c1", "cid", on(1, "10:00")),
        click("d1", "dan", on(1, "10:00")),
    )
    t.push(
        "purchases",
        purchase("p1", "ann", on(4, "09:00")),
        purchase("p2", "bob", on(8, "10:00"), "5.00"),  # after exactly seven days
        purchase("p3", "cid", on(8, "10:00") + MOMENT),  # a moment more
        purchase("p4", "eve", on(2, "10:00")),  # who never clicked
    )
    both_to(t, on(8, "11:00"))  # watermark 10:00: another click of bob may come, and another purchase of dan
    assert attributed(t) == [("p1", "summer", 2)]
    assert led_to_nothing(t) == []
    both_to(t, on(8, "11:00") + MOMENT)
    assert t.new("attributed")[1:] == [
        {"purchase_id": "p2", "campaign": "spring", "amount": Decimal("5.00"), "clicks": 1}
    ]
    assert led_to_nothing(t) == ["c1", "d1"]
    both_to(t, on(11, "11:00") + MOMENT)
    assert led_to_nothing(t) == ["a3", "c1", "d1"]


def test_a_visitor_who_comes_back_to_a_campaign_within_a_day_counts_once_for_it(tester):
    t = tester(job)
    noon, next_noon = on(1, "12:00"), on(2, "12:00")
    visits = [
        ("ann", noon), ("ann", on(1, "13:00")), ("ann", on(1, "14:00")),
        ("bob", noon), ("bob", next_noon),  # after exactly a day
        ("cid", noon), ("cid", next_noon + MOMENT),
        ("dan", noon), ("dan", noon),  # twice in one instant is one visit
    ]  # fmt: skip
    clicks = [click(f"c{i}", user, at) for i, (user, at) in enumerate(visits)]
    t.push("clicks", clicks, click("e1", "eve", noon, "summer"), click("e2", "eve", on(1, "13:00"), "autumn"))
    t.advance("clicks", on(3, "00:59:59"))
    assert t.read("repeat_visitors") == []  # somebody of the first evening may come back until midnight
    t.advance("clicks", on(3, "01:00"))  # no purchase is needed for it: time is that of the clicks
    assert t.read("repeat_visitors") == [
        {"window_start": on(1, "00:00"), "window_end": on(2, "00:00"), "campaign": "spring", "visitors": 2}
    ]


def test_clicks_may_come_after_their_purchase_and_in_any_order(tester):
    t = tester(job)
    t.push("purchases", purchase("p1", "ann", on(1, "10:30")))
    t.push("clicks", click("a2", "ann", on(1, "10:10"), "summer"))
    t.push("clicks", click("a1", "ann", on(1, "09:10")))  # exactly an hour behind
    t.push("clicks", click("a0", "ann", on(1, "09:09:59")))  # late, but it meets the purchase that is held
    t.push("clicks", click("b1", "bob", on(1, "09:09:59")))  # late, and nobody is there
    assert t.late("clicked_and_bought") == [click("b1", "bob", on(1, "09:09:59"))]
    both_to(t, on(1, "11:31"))
    assert attributed(t) == [("p1", "summer", 3)]


def test_a_late_purchase_is_kept_aside_with_its_clicks(tester):
    t = tester(job)
    t.push("clicks", click("a1", "ann", on(1, "09:00")))
    both_to(t, on(3, "10:00"))
    t.push("purchases", purchase("p1", "ann", on(2, "09:00")))
    assert attributed(t) == []
    assert [(row["purchase_id"], row["click_id"]) for row in t.read("bought_too_late")] == [("p1", "a1")]
    both_to(t, on(9, "10:00"))
    assert led_to_nothing(t) == []  # it did lead to something


def test_people_buy_though_nobody_clicks(tester):
    t = tester(job)
    t.push("clicks", click("a1", "ann", on(1, "10:00")))
    t.push("purchases", purchase("p1", "ann", on(1, "12:00")))
    t.wall("6 hours")  # all are silent: no time passes
    assert t.watermark == on(1, "09:00")
    t.push("purchases", purchase("p2", "ann", on(1, "18:00")))
    assert attributed(t) == [("p1", "spring", 1)]
    t.push("clicks", click("a2", "ann", on(1, "17:30"), "summer"))  # the next campaign
    both_to(t, on(1, "20:00"))
    assert attributed(t) == [("p1", "spring", 1), ("p2", "summer", 2)]


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink"])
def test_a_crash_attributes_nothing_twice(tester, point):
    t = tester(job)
    t.push("clicks", click("a1", "ann", on(1, "10:00")), click("b1", "bob", on(1, "10:00")))
    t.push("purchases", purchase("p1", "ann", on(1, "12:00")), purchase("p2", "eve", on(9, "12:00")))
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("clicks", click("a2", "ann", on(1, "11:00"), "summer"), click("e1", "eve", on(9, "11:00")))
    t.restart()
    assert attributed(t) == [("p1", "summer", 2)]
    assert led_to_nothing(t) == ["b1"]
    both_to(t, on(17, "12:00"))
    assert attributed(t) == [("p1", "summer", 2), ("p2", "spring", 1)]
    assert led_to_nothing(t) == ["b1"]


def test_a_batch_over_all_of_it_gives_what_the_stream_gave(tester, spark):
    start = on(1, "10:00")
    clicks = [
        click(f"c{i}", "ann" if i % 2 else "bob", start + timedelta(hours=i * 7 % 40), ("spring", "summer")[i % 3 % 2])
        for i in range(9)
    ]
    purchases = [
        purchase(f"p{i}", user, start + timedelta(hours=i * 13)) for i, user in enumerate(["ann", "bob", "eve"])
    ]
    t = tester(job)
    # each input may be an hour out of order, these are more: they come in one push each
    t.push("purchases", purchases)
    t.push("clicks", clicks)
    both_to(t, on(30, "00:00"))
    came = {"clicks": clicks, "purchases": purchases}
    whole = job.run_batch({name: spark.createDataFrame(pa.Table.from_pylist(rows)) for name, rows in came.items()})
    for output in ("attributed", "unattributed_clicks", "repeat_visitors", "bought_too_late"):
        assert in_order(t.read(output)) == in_order(whole[output].toArrow().to_pylist())
        assert bool(t.read(output)) == (output != "bought_too_late")


def in_order(rows):
    return sorted(rows, key=repr)


def test_over_files_in_two_runs(spark, tmp_path):
    def run(number: int, clicks: list[dict[str, object]], purchases: list[dict[str, object]]) -> list[object]:
        for folder, rows in (("clicks", clicks), ("purchases", purchases)):
            (tmp_path / folder).mkdir(exist_ok=True)
            lines = [json.dumps(row, default=datetime.isoformat) + "\n" for row in rows]
            (tmp_path / folder / f"{number}.json").write_text("".join(lines))
        over_files = ad_attribution(str(tmp_path / "clicks"), str(tmp_path / "purchases"), str(tmp_path / "out"))
        over_files.run(spark, checkpoint=str(tmp_path / "checkpoint"), once=True)
        with sqlite3.connect(tmp_path / "out" / "results.db") as database:
            return [
                database.execute("SELECT purchase_id, campaign, amount, clicks FROM attributed ORDER BY 1").fetchall(),
                database.execute("SELECT click_id FROM unattributed_clicks ORDER BY 1").fetchall(),
                database.execute("SELECT window_start, campaign, visitors FROM repeat_visitors").fetchall(),
            ]

    clicks = [
        click("a1", "ann", on(1, "10:00")),
        click("a2", "ann", on(1, "12:00")),
        click("b1", "bob", on(1, "12:00"), "summer"),
        click("c1", "cid", on(4, "12:00"), "summer"),
    ]
    purchases = [purchase("p1", "ann", on(2, "12:00")), purchase("p2", "eve", on(4, "12:00"))]
    p1, back = ("p1", "spring", "49.90", 2), ("2026-03-01T00:00:00.000000Z", "spring", 1)
    assert run(1, clicks, purchases) == [[p1], [], [back]]
    # a week later: bob has not bought, cid has
    clicks, purchases = [click("d1", "dan", on(12, "12:00"))], [purchase("p3", "cid", on(10, "12:00"), "7.00")]
    assert run(2, clicks, [*purchases, purchase("p4", "eve", on(12, "12:00"))]) == [
        [p1, ("p3", "summer", "7.00", 1)],
        [("b1",)],
        [back],
    ]
