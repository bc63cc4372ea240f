"""Streams that meet streams and tables, through a real engine."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.testing import JobCrashed
from penstock.windows import tumbling

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LEFT, RIGHT = "k string, l long, at timestamp", "k string, r long, then timestamp"


def second(value):
    return START + timedelta(seconds=value)


def left(at, number, k="a"):
    return {"k": k, "l": number, "at": second(at)}


def right(at, number, k="a"):
    return {"k": k, "r": number, "then": second(at)}


def streams(job, lateness="0 seconds", **options):
    lefts = job.stream("lefts", sources.files("l", "json", LEFT), time="at", lateness=lateness, **options)
    rights = job.stream("rights", sources.files("r", "json", RIGHT), time="then", lateness=lateness, **options)
    return lefts, rights


def joined(how, within=("0 seconds", "10 seconds"), lateness="0 seconds", **options):
    job = Job("pairs")
    lefts, rights = streams(job, lateness)
    lefts.join(rights, on="k", within=within, how=how, name="meet", **options).to(sinks.memory("out"))
    return job


def pairs(rows):
    return sorted(((r["k"], r["l"], r.get("r")) for r in rows), key=repr)


TABLE = {
    "inner": [("a", 1, 10), ("a", 1, 11), ("a", 2, 11)],
    "left": [("a", 1, 10), ("a", 1, 11), ("a", 2, 11), ("b", 3, None), (None, 4, None)],
    "right": [("a", 1, 10), ("a", 1, 11), ("a", 2, 11), ("c", None, 12), (None, None, 13)],
    "full": [
        ("a", 1, 10),
        ("a", 1, 11),
        ("a", 2, 11),
        ("b", 3, None),
        (None, 4, None),
        ("c", None, 12),
        (None, None, 13),
    ],
    "semi": [("a", 1, None), ("a", 2, None)],
    "anti": [("b", 3, None), (None, 4, None)],
}


@pytest.mark.parametrize("how", TABLE)
@pytest.mark.parametrize("order", ["left first", "right first", "mixed"])
def test_each_pair_comes_out_once_and_an_outer_row_once_padded(tester, how, order):
    t = tester(joined(how, lateness="20 seconds"), buckets=3)
    lefts = [left(0, 1), left(5, 2), left(0, 3, "b"), left(1, 4, None)]
    rights = [right(0, 10), right(10, 11), right(3, 12, "c"), right(4, 13, None)]
    if order == "left first":
        t.push("lefts", lefts)
        t.push("rights", rights)
    elif order == "right first":
        t.push("rights", rights)
        t.push("lefts", lefts)
    else:
        for mine, other in zip(lefts, rights, strict=True):
            t.push("lefts", mine)
            t.push("rights", other)
    for name in ("lefts", "rights"):
        t.advance(name, second(100))
    assert pairs(t.read("out")) == sorted(TABLE[how], key=repr)


def test_a_padded_row_waits_until_no_partner_can_come(tester):
    t = tester(joined("left"))
    t.push("lefts", left(0, 1))
    t.push("lefts", left(20, 2))
    t.push("rights", right(10, 9, "b"))
    assert t.read("out") == []  # watermark 10: a partner at exactly 10 may still come
    t.push("rights", right(11, 9, "b"))
    assert pairs(t.read("out")) == [("a", 1, None)]


def test_a_window_after_a_left_join_counts_each_event_once(tester):
    job = Job("rate")
    lefts, rights = streams(job, lateness="2 seconds")
    met = lefts.join(rights, on="k", within=("0 seconds", "30 seconds"), how="left", name="meet")
    met.window(tumbling("10 seconds")).agg(shown="count(distinct l)", clicked="count(r)").to(sinks.memory("out"))
    assert "lag 30 seconds" in job.explain()
    t = tester(job)
    for s in range(0, 60, 2):
        t.push("lefts", left(s, s))
        t.push("rights", right(s, s, "a" if s % 4 else "other"))
    for name in ("lefts", "rights"):
        t.advance(name, second(600))
    assert t.late("window") == []
    assert sum(r["shown"] for r in t.read("out")) >= 30


def test_late_rows_meet_what_is_held_and_are_counted_when_they_find_nobody(tester):
    t = tester(joined("inner", within="5 seconds", late="capture"))
    t.push("lefts", left(20, 1))
    t.push("rights", right(18, 10), right(20, 11))  # watermark 20
    t.push("rights", right(16, 12))  # late, and the left at 20 is held
    t.push("rights", right(1, 13))  # late, nobody is there
    assert sorted(r["r"] for r in t.read("out")) == [10, 11, 12]
    assert [r["r"] for r in t.late("meet")] == [13]


def test_a_stream_may_be_joined_with_itself(tester):
    job = Job("again")
    lefts, _ = streams(job)
    later = lefts.rename(l="next", at="next_at")
    lefts.join(later, on="k", within=("1 microsecond", "10 seconds"), name="again").to(sinks.memory("out"))
    t = tester(job)
    t.push("lefts", left(0, 1), left(4, 2), left(20, 3))
    t.push("lefts", left(25, 4))
    assert sorted((r["l"], r["next"]) for r in t.read("out")) == [(1, 2), (3, 4)]


def test_crashes_change_nothing(tester):
    t = tester(joined("full"), buckets=3)
    for number, point in enumerate(["before_sink", "during_sink", "after_sink"]):
        t.crash(point)
        with pytest.raises(JobCrashed):
            t.push("lefts", left(number, number))
        t.restart()
        t.push("rights", right(number + 1, 10 + number))
    for name in ("lefts", "rights"):
        t.advance(name, second(100))
    found = Counter(pairs(t.read("out")))
    assert found == Counter(("a", i, 10 + j) for i in range(3) for j in range(3) if j + 1 >= i)


RATES = "currency string, rate double, gone boolean, since timestamp"


def rate(at, currency, value, gone=None):
    return {"currency": currency, "rate": value, "gone": gone, "since": second(at)}


def order(at, number, currency="EUR"):
    return {"id": number, "currency": currency, "at": second(at)}


def with_rates(build, **options):
    job = Job("orders")
    orders = job.stream(
        "orders", sources.files("o", "json", "id long, currency string, at timestamp"), time="at", lateness="0 seconds"
    )
    timing = {"time": "since", "lateness": "0 seconds"} | options
    rates = job.table("rates", sources.files("r", "json", RATES), key="currency", delete_when="gone", **timing)
    build(orders, rates).to(sinks.memory("out"))
    return job


def rated(rows):
    return sorted((r["id"], r["rate"]) for r in rows)


@pytest.mark.parametrize("first", ["orders", "rates"])
def test_an_order_gets_the_rate_that_held_at_its_time(tester, first):
    t = tester(with_rates(lambda o, r: o.asof(r.drop("gone"))), buckets=3)
    orders = [order(s, s) for s in (5, 10, 15, 25, 35)]
    rates = [rate(20, "EUR", 3.0), rate(10, "EUR", 2.0), rate(30, "EUR", None, True)]  # out of order, then gone
    for name in (first, "rates" if first == "orders" else "orders"):
        t.push(name, orders if name == "orders" else rates)
    t.advance("orders", second(100))
    t.advance("rates", second(100))
    found = {r["id"]: r["rate"] for r in t.read("out")}
    assert found == {5: None, 10: 2.0, 15: 2.0, 25: 3.0, 35: None}


def test_an_order_waits_for_the_rates(tester):
    t = tester(with_rates(lambda o, r: o.asof(r, how="inner")))
    t.push("orders", order(10, 1), order(50, 2))
    t.push("rates", rate(5, "EUR", 1.0))
    assert t.read("out") == []  # a rate between 5 and 10 may still come
    t.push("rates", rate(10, "EUR", 2.0))
    assert t.read("out") == []
    t.push("rates", rate(11, "EUR", 3.0))
    assert rated(t.read("out")) == [(1, 2.0)]


def test_tolerance_makes_an_old_version_a_miss_and_a_filter_a_gap(tester):
    def build(orders, rates):
        return orders.asof(rates.where("rate < 5").drop("gone"), tolerance="10 seconds")

    t = tester(with_rates(build))
    t.push("rates", rate(0, "EUR", 1.0), rate(20, "EUR", 9.0), rate(30, "EUR", 2.0))
    t.push("orders", *(order(s, s) for s in (10, 11, 25, 31)))
    t.advance("orders", second(100))
    t.advance("rates", second(100))
    assert {r["id"]: r["rate"] for r in t.read("out")} == {10: 1.0, 11: None, 25: None, 31: 2.0}


def test_history_answers_an_event_that_is_late(tester):
    job = with_rates(lambda o, r: o.asof(r, name="meet"), history="30 seconds")
    t = tester(job)
    t.push("rates", rate(0, "EUR", 1.0), rate(100, "EUR", 2.0))
    t.push("orders", order(100, 1))
    t.push("orders", order(80, 2))  # 20 seconds behind the watermark
    t.push("orders", order(60, 3))  # 40
    assert [r["id"] for r in t.late("meet")] == [3]
    t.advance("orders", second(200))
    t.advance("rates", second(200))
    assert rated(t.read("out")) == [(1, 2.0), (2, 1.0)]


def test_a_lookup_takes_the_row_as_it_is_now(tester):
    t = tester(with_rates(lambda o, r: o.lookup(r.drop("gone", "since")), time=None, lateness=None))
    t.push("orders", order(0, 1))
    t.push("rates", rate(0, "EUR", 1.0))
    t.push("orders", order(1, 2), order(2, 3, None))
    t.push("rates", rate(0, "EUR", None, True))
    t.push("orders", order(3, 4))
    assert sorted((r["id"], r["rate"]) for r in t.read("out")) == [(1, None), (2, 1.0), (3, None), (4, None)]
    assert t.watermark == second(3)  # the table has no time, and holds none back


def test_a_table_keeps_the_latest_by_sequence_and_remembers_deletes(tester):
    job = Job("users")
    users = job.table(
        "users", sources.files("u", "json", "id long, name string, v long, gone boolean"),
        key="id", sequence="v", delete_when="gone",
    )  # fmt: skip
    users.drop("gone").to(sinks.memory("out"))
    job.dead_letters(sinks.memory("dead"))
    t = tester(job)

    def user(number, name, v, gone=None):
        return {"id": number, "name": name, "v": v, "gone": gone}

    t.push("users", user(1, "ann", 2), user(1, "old", 1), user(2, "bob", 1), user(None, "nobody", 1))
    assert sorted((r["id"], r["name"]) for r in t.read("out")) == [(1, "ann"), (2, "bob")]
    t.push("users", user(1, None, 5, True), user(2, "bob", 2))
    assert [(r["id"], r["name"]) for r in t.read("out")] == [(2, "bob")]
    t.push("users", user(1, "back by an older row", 4))
    assert [(r["id"], r["name"]) for r in t.read("out")] == [(2, "bob")]
    t.push("users", user(1, "anew", 6))
    assert sorted((r["id"], r["name"]) for r in t.read("out")) == [(1, "anew"), (2, "bob")]
    assert [d["reason"] for d in t.dead_letters()] == ["null_key"]


def test_a_predicate_for_deletes_may_hold_text(tester):
    job = Job("users")
    source = sources.files("u", "json", "id long, op string")
    job.table("users", source, key="id", delete_when=r"op = 'd' or op = 'it\'s gone'").to(sinks.memory("out"))
    t = tester(job)
    t.push("users", {"id": 1, "op": "c"}, {"id": 2, "op": "c"}, {"id": 3, "op": "c"})
    t.push("users", {"id": 2, "op": "d"}, {"id": 3, "op": "it's gone"})
    assert [r["id"] for r in t.read("out")] == [1]


def test_a_stream_becomes_a_table(tester):
    job = Job("last")
    lefts, rights = streams(job)
    last = lefts.to_table("k")
    rights.lookup(last.rename(at="seen")).to(sinks.memory("out"))
    t = tester(job)
    t.push("lefts", left(5, 2), left(3, 1))
    t.push("rights", right(1, 1))
    assert [(r["r"], r["l"]) for r in t.read("out")] == [(1, 2)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda a, b, t: a.join(b, on="k", within=None), "never end"),
        (lambda a, b, t: a.join(b, on="kk", within="1 second"), "Did you mean 'k'?"),
        (lambda a, b, t: a.join(b, on="k", within=("2 seconds", "1 second")), "after the second"),
        (lambda a, b, t: a.join(b, on="k", within="1 second", how="outer"), "semi"),
        (lambda a, b, t: a.join(a, on="k", within="1 second"), "rename"),
        (lambda a, b, t: a.join(t, on="k", within="1 second"), "is no stream"),
        (lambda a, b, t: a.lookup(b), "is no table"),
        (lambda a, b, t: a.lookup(t, on={"l": "v"}), "the table's key"),
        (lambda a, b, t: a.lookup(t, how="full"), "left, inner"),
        (lambda a, b, t: a.asof(t), "has no time"),
        (lambda a, b, t: a.asof(b.by("k").agg(n="count(*)")), "no history"),
        (lambda a, b, t: a.to_table("nope"), "no such column"),
    ],
)
def test_nonsense_is_refused_on_the_line_that_wrote_it(wrong, told):
    job = Job("wrong")
    lefts, rights = streams(job)
    table = job.table("t", sources.files("t", "json", "k string, v long"), key="k")
    with pytest.raises(PlanError, match=__file__.rsplit("/", 1)[-1]) as refused:
        wrong(lefts, rights, table)
    assert told in str(refused.value)
