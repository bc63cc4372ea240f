"""Orders in euros: the rate of their own time, corrected while they wait, none in a gap."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.jobs.currency import currency, job
from penstock.testing import JobCrashed

STEP = "rate_of_the_time"


def clock(time: str, day: int = 13) -> datetime:
    return datetime.fromisoformat(f"2026-03-{day}T{time}+00:00")


def order(name: str, at: str, amount: str = "100.00", currency: str = "USD", day: int = 13) -> dict[str, object]:
    return {"order_id": name, "currency": currency, "amount": amount, "at": f"2026-03-{day}T{at}Z"}


def rate(since: str, euros: str, currency: str = "USD", day: int = 13) -> dict[str, object]:
    return {"currency": currency, "euros": euros, "since": f"2026-03-{day}T{since}Z"}


def withdrawn(since: str, currency: str = "USD") -> dict[str, object]:
    return {"currency": currency, "withdrawn": True, "since": f"2026-03-13T{since}Z"}


def totals(t) -> dict[str, str | None]:
    """The orders that have come out, each with its euros."""
    rows = t.read("orders_in_euros")
    assert len({row["order_id"] for row in rows}) == len(rows)
    return {row["order_id"]: None if row["total"] is None else str(row["total"]) for row in rows}


def both_to(t, time: str) -> None:
    for name in ("orders", "rates"):
        t.advance(name, clock(time))


@pytest.mark.parametrize("first", ["orders", "rates"])
def test_an_order_has_the_rate_that_held_when_it_was_placed(tester, first):
    came = {
        "rates": [rate("10:00:00", "0.92"), rate("09:00:00", "0.90"), rate("09:00:00", "0.006125", "JPY")],
        "orders": [
            order("second", "10:00:00", "33.33"),  # from this instant on
            order("first", "09:59:59.999999", "33.33"),
            order("yen", "09:30:00", "1000.00", "JPY"),
            order("too early", "08:59:59"),
            order("unknown", "09:30:00", "5.00", "GBP"),
            order("nothing", "09:30:00", "5.00", None),
        ],
    }
    t = tester(job)
    for name in (first, "rates" if first == "orders" else "orders"):
        t.push(name, came[name])
    both_to(t, "11:00:00")
    assert totals(t) == {
        "first": "30.00",  # 29.997
        "second": "30.66",  # 30.6636
        "yen": "6.13",  # 6.125
        "too early": None,
        "unknown": None,
        "nothing": None,
    }
    assert [row for row in t.read("orders_in_euros") if row["order_id"] == "second"] == [
        {"order_id": "second", "currency": "USD", "amount": Decimal("33.33"), "at": clock("10:00"),
         "euros": Decimal("0.920000"), "since": clock("10:00"), "total": Decimal("30.66")},
    ]  # fmt: skip
    assert t.read("too_late") == []


def test_a_correction_reaches_the_orders_that_waited_and_a_late_one_does_not(tester):
    t = tester(job)
    t.push("rates", rate("09:00:00", "0.90"), rate("10:20:00", "0.94"))  # rates have come to 9:50
    t.push("orders", order("early", "09:45:00"), order("waits", "10:00:00"), order("last", "10:30:00"))
    assert totals(t) == {"early": "90.00"}
    t.push("rates", rate("09:50:00", "0.95"))  # half an hour behind: just in time
    t.push("rates", rate("09:49:59", "0.10"))
    assert t.late(STEP) == [{"currency": "USD", "euros": Decimal("0.100000"), "since": clock("09:49:59")}]
    assert [(row["euros"], row["order_id"]) for row in t.read("too_late")] == [(Decimal("0.100000"), None)]
    t.push("rates", rate("10:20:00", "0.93"))  # the same instant again: what comes later is the correction
    both_to(t, "11:30:00")
    assert totals(t) == {"early": "90.00", "waits": "95.00", "last": "93.00"}
    assert [(row["euros"], row["since"]) for row in t.read("current_rates")] == [(Decimal("0.930000"), clock("10:20"))]


def test_an_order_in_a_gap_has_no_amount(tester):
    t = tester(job)
    t.push("orders", order("before", "09:59:59"), order("in it", "10:00:00"), order("after", "11:00:00"))
    t.push("rates", rate("09:00:00", "0.90"), withdrawn("10:00:00"))
    assert t.read("current_rates") == []
    t.push("rates", rate("11:00:00", "0.92"))
    assert [row["euros"] for row in t.read("current_rates")] == [Decimal("0.920000")]
    both_to(t, "12:00:00")
    assert totals(t) == {"before": "90.00", "in it": None, "after": "92.00"}


def test_when_the_rates_are_silent_orders_wait_for_an_hour_of_the_wall_clock(tester):
    t = tester(job)
    t.push("rates", rate("18:00:00", "0.90"))
    t.push("orders", order("evening", "22:00:00"), order("night", "22:10:00"))
    t.wall("59 minutes")
    assert totals(t) == {}  # a rate of 20:00 might still come
    t.wall("1 minute")
    assert totals(t) == {"evening": "90.00"}  # time is now that of the orders, five minutes behind the last
    # and in the morning there are rates again
    t.push("rates", rate("07:00:00", "0.93", day=14))
    t.push("orders", order("morning", "07:10:00", day=14))
    t.wall("1 hour")
    t.push("orders", order("next", "07:15:00.000001", day=14))
    assert totals(t) == {"evening": "90.00", "night": "90.00", "morning": "93.00"}


def test_an_order_late_by_less_than_a_day_still_finds_its_rate(tester):
    t = tester(job)
    t.push("rates", rate("09:00:00", "0.90"), rate("10:00:00", "0.92"), rate("12:30:00", "0.95", day=14))
    t.push("orders", order("newest", "12:30:00", day=14))  # watermark 12:00, a day on
    t.push("orders", order("a day ago", "12:00:00"), order("older", "11:59:59"))
    assert totals(t) == {"a day ago": "92.00"}
    assert [(row["order_id"], row["euros"]) for row in t.read("too_late")] == [("older", None)]


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink"])
def test_after_a_crash_each_order_is_there_once_at_the_right_rate(tester, point):
    t = tester(job)
    t.push("rates", rate("09:00:00", "0.90"), rate("10:20:00", "0.94"))
    t.push("orders", order("waits", "10:00:00"), order("last", "10:30:00"))
    t.crash(point)
    with pytest.raises(JobCrashed):
        t.push("rates", rate("09:55:00", "0.95"), rate("10:40:00", "0.96"))  # rates have come to 10:10
    t.restart()
    assert totals(t) == {"waits": "95.00"}
    both_to(t, "11:30:00")
    assert totals(t) == {"waits": "95.00", "last": "94.00"}
    assert [row["euros"] for row in t.read("current_rates")] == [Decimal("0.960000")]


def test_a_batch_over_all_of_it_gives_what_the_stream_gave(tester, spark):
    rates = [rate("09:00:00", "0.90"), rate("10:00:00", "0.92"), rate("09:40:00", "0.91"), withdrawn("10:10:00")]
    orders = [order(f"o{i}", f"{h:02}:{m:02}:00", f"{i}.99") for i, (h, m) in enumerate(
        [(8, 50), (9, 0), (9, 45), (9, 39), (10, 10), (10, 5)])]  # fmt: skip
    t = tester(job)
    for order_row, rate_row in zip(orders[:4], rates, strict=True):
        t.push("orders", order_row)
        t.push("rates", rate_row)
    t.push("orders", orders[4:])
    both_to(t, "12:00:00")
    names = ("currency", "euros", "withdrawn", "since")  # a line of a file may leave some out
    whole = job.run_batch(
        {
            "orders": spark.createDataFrame(pa.Table.from_pylist(orders)),
            "rates": spark.createDataFrame(pa.Table.from_pylist([{n: row.get(n) for n in names} for row in rates])),
        }
    )
    for output, by in (("orders_in_euros", "order_id"), ("current_rates", "currency"), ("too_late", "order_id")):
        streamed = sorted(t.read(output), key=lambda row: row[by])
        assert streamed == sorted(whole[output].toArrow().to_pylist(), key=lambda row: row[by])
    assert totals(t) == {"o0": None, "o1": "1.79", "o2": "2.72", "o3": "3.59", "o4": None, "o5": "5.51"}


def test_over_files_in_two_runs(spark, tmp_path):
    def run(number: int, orders: list[dict[str, object]], rates: list[dict[str, object]]) -> list[tuple[object, ...]]:
        for folder, rows in (("orders", orders), ("rates", rates)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        over_files = currency(str(tmp_path / "orders"), str(tmp_path / "rates"), str(tmp_path / "out"))
        over_files.run(spark, checkpoint=str(tmp_path / "checkpoint"), once=True)
        with sqlite3.connect(tmp_path / "out" / "results.db") as database:
            return database.execute("SELECT order_id, total, since FROM orders_in_euros ORDER BY 1").fetchall()

    o1 = ("o1", "30.00", "2026-03-13T09:00:00.000000Z")
    o2 = ("o2", "95.00", "2026-03-13T09:55:00.000000Z")
    orders = [order("o1", "09:45:00", "33.33"), order("o2", "10:00:00"), order("o3", "10:30:00")]
    assert run(1, orders, [rate("09:00:00", "0.90"), rate("10:20:00", "0.94")]) == [o1]
    # o2 waited in the checkpoint for the correction that the second run brings
    assert run(2, [order("o4", "11:30:00")], [rate("09:55:00", "0.95"), rate("10:50:00", "0.96")]) == [o1, o2]
    with sqlite3.connect(tmp_path / "out" / "results.db") as database:
        assert database.execute("SELECT currency, euros FROM current_rates").fetchall() == [("USD", "0.960000")]
