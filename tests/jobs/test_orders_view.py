"""One view of three Debezium logs, right after every message, in any order, and after a crash."""

from __future__ import annotations

import json
import random
import sqlite3
from decimal import Decimal

import pytest

from penstock.jobs.orders_view import job, orders_view
from penstock.testing import JobCrashed


def message(op: str, lsn: int, row: dict[str, object], before: dict[str, object] | None = None) -> dict[str, object]:
    values = {"before": row, "after": None} if op == "d" else {"before": before, "after": row}
    return {"op": op, **values, "source": {"lsn": lsn, "ts_ms": 1773396000000 + lsn, "table": "t"}}


def order(lsn: int, key: int, customer: int | None, status: str = "open", op: str = "c") -> dict[str, object]:
    return message(op, lsn, {"id": key, "customer_id": customer, "status": status})


def customer(lsn: int, key: int, name: str, op: str = "c") -> dict[str, object]:
    return message(op, lsn, {"id": key, "name": name, "city": "Ulm"})


def item(lsn: int, key: int, of: int, product: str, pieces: int, price: str, op: str = "c") -> dict[str, object]:
    return message(op, lsn, {"id": key, "order_id": of, "product": product, "pieces": pieces, "price": price})


def view(t) -> dict[int, tuple[object, ...]]:
    return {r["id"]: (r["name"], r["lines"], r["total"], r["products"]) for r in t.read("orders_view")}


def totals(t) -> dict[int, tuple[object, ...]]:
    return {r["customer_id"]: (r["name"], r["orders"], r["spent"], r["dearest"]) for r in t.read("customer_totals")}


def test_the_view_follows_all_three_tables(tester):
    t = tester(job)
    t.push("orders", order(1, 1, 7), order(2, 2, 7))
    assert view(t) == {1: (None, 0, 0, None), 2: (None, 0, 0, None)}
    t.push(
        "items", item(3, 10, 1, "tea", 2, "4.50"), item(4, 11, 1, "jam", 1, "3.00"), item(5, 12, 2, "tea", 1, "4.50")
    )
    t.push("customers", customer(6, 7, "Ann"), customer(7, 8, "Bob"))
    assert view(t) == {1: ("Ann", 2, Decimal("12.00"), ["jam", "tea"]), 2: ("Ann", 1, Decimal("4.50"), ["tea"])}
    assert totals(t) == {7: ("Ann", 2, Decimal("16.50"), Decimal("12.00"))}

    t.push("customers", customer(8, 7, "Anna", "u"))
    t.push("items", message("d", 9, {"id": 11}), item(10, 10, 1, "tea", 3, "4.50", "u"))
    assert view(t)[1] == ("Anna", 1, Decimal("13.50"), ["tea"])

    t.push("orders", order(11, 1, 8, op="u"))  # it is Bob's after all
    assert totals(t) == {
        7: ("Anna", 1, Decimal("4.50"), Decimal("4.50")),
        8: ("Bob", 1, Decimal("13.50"), Decimal("13.50")),
    }
    t.push("orders", order(12, 2, 7, "cancelled", "u"))
    assert totals(t) == {8: ("Bob", 1, Decimal("13.50"), Decimal("13.50"))}
    t.push("orders", message("d", 13, {"id": 1}), None)
    assert (list(view(t)), totals(t)) == ([2], {})


LOG = [
    ("orders", order(1, 1, 7)),
    ("customers", customer(2, 7, "Ann")),
    ("items", item(3, 10, 1, "tea", 2, "4.50")),
    ("orders", order(4, 2, 7)),
    ("items", item(5, 11, 2, "jam", 1, "3.00")),
    ("customers", customer(6, 7, "Anna", "u")),
    ("items", item(7, 10, 1, "tea", 1, "4.00", "u")),
    ("orders", order(8, 1, 7, "sent", "u")),
    ("items", message("d", 9, {"id": 11})),
]


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_with_repeats_and_a_crash_gives_the_same_view(tester, seed):
    pick = random.Random(seed)
    mixed = pick.sample(LOG, len(LOG)) + pick.sample(LOG, 3)
    t = tester(job)
    for number, (name, said) in enumerate(mixed):
        if number == 4:
            t.crash(pick.choice(["before_sink", "during_sink", "after_sink"]))
        try:
            t.push(name, said)
        except JobCrashed:
            t.restart()
    assert view(t) == {1: ("Anna", 1, Decimal("4.00"), ["tea"]), 2: ("Anna", 0, 0, None)}
    assert totals(t) == {7: ("Anna", 2, Decimal("4.00"), Decimal("4.00"))}


def test_over_files_into_one_database(spark, tmp_path):
    for name in ("orders", "customers", "items"):
        (tmp_path / name).mkdir()
        lines = [json.dumps(said) for to, said in LOG if to == name]
        (tmp_path / name / "1.json").write_text("\n".join([*lines, "null", ""]))
    folders = (str(tmp_path / name) for name in ("orders", "customers", "items", "out"))
    orders_view(*folders).run(spark, checkpoint=str(tmp_path / "checkpoint"), once=True)
    with sqlite3.connect(tmp_path / "out" / "results.db") as database:
        assert database.execute("SELECT id, name, lines, total FROM orders_view ORDER BY id").fetchall() == [
            (1, "Anna", 1, "4.00"),
            (2, "Anna", 0, "0.00"),
        ]
        assert database.execute("SELECT name, orders, spent FROM customer_totals").fetchall() == [("Anna", 2, "4.00")]
