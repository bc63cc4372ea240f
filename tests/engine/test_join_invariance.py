"""Joins depend on the events, not on how two inputs interleave, are cut, spread or crash; and they are SQL's own."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import Job, sinks, sources
from penstock.testing import JobCrashed, JobTester

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
LEFT, RIGHT = "k string, l long, at timestamp", "k string, r long, then timestamp"
LOW, HIGH = -3, 5
HOWS = ["inner", "left", "right", "full", "semi", "anti", "asof"]


def job_of(how):
    job = Job("pairs")
    lefts = job.stream("lefts", sources.files("l", "json", LEFT), time="at", lateness="20 seconds")
    right = sources.files("r", "json", RIGHT)
    if how == "asof":
        rights = job.table("rights", right, key="k", time="then", lateness="20 seconds", delete_when="r % 5 = 0")
        lefts.asof(rights, tolerance="30 seconds", name="meet").to(sinks.memory("out"))
    else:
        rights = job.stream("rights", right, time="then", lateness="20 seconds")
        within = (f"{LOW} seconds", f"{HIGH} seconds")
        lefts.join(rights, on="k", within=within, how=how, name="meet").to(sinks.memory("out"))
    return job


def lefts_of(rows):
    return [{"k": k, "l": i, "at": START + timedelta(seconds=s, microseconds=i)} for i, (k, s) in enumerate(rows)]


def rights_of(rows, keyed):
    return [
        {"k": k or "a" if keyed else k, "r": i, "then": START + timedelta(seconds=s, microseconds=i)}
        for i, (k, s) in enumerate(rows)
    ]


def expected(how, lefts, rights):
    """The same question by nested loops."""
    if how == "asof":
        return Counter(map(tuple, (asof(left, rights) for left in lefts)))
    low, high = timedelta(seconds=LOW), timedelta(seconds=HIGH)
    pairs = [
        (a, b) for a in lefts for b in rights if a["k"] == b["k"] is not None and low <= b["then"] - a["at"] <= high
    ]
    met_left, met_right = {a["l"] for a, _ in pairs}, {b["r"] for _, b in pairs}
    if how == "semi":
        return Counter((a["k"], a["l"], None) for a in lefts if a["l"] in met_left)
    alone = [(a["k"], a["l"], None) for a in lefts if a["l"] not in met_left]
    if how == "anti":
        return Counter(alone)
    rows = [(a["k"], a["l"], b["r"]) for a, b in pairs]
    rows += alone if how in ("left", "full") else []
    rows += [(b["k"], None, b["r"]) for b in rights if b["r"] not in met_right] if how in ("right", "full") else []
    return Counter(rows)


def asof(left, rights):
    known = [b for b in rights if b["k"] == left["k"] and b["then"] <= left["at"]]
    last = max(known, key=lambda b: b["then"], default=None)
    missed = last is None or last["r"] % 5 == 0 or left["at"] - last["then"] > timedelta(seconds=30)
    return left["k"], left["l"], None if missed else last["r"]


def found(rows):
    return Counter((r["k"], r["l"], r.get("r")) for r in rows)


ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "ü", None]), st.integers(0, 40)), max_size=10)


def mixed(data, rows, time):
    """The rows in an order in which none comes later than the lateness, cut into pushes."""
    ordered = sorted(rows, key=lambda r: r[time])
    shift = data.draw(st.lists(st.integers(0, 19), min_size=len(rows), max_size=len(rows)))
    late = sorted(range(len(rows)), key=lambda i: (ordered[i][time] + timedelta(seconds=shift[i]), i))
    size = data.draw(st.integers(1, 6))
    return [[ordered[i] for i in late[n : n + size]] for n in range(0, len(late), size)]


def run(job, spark, pushes, crashes=(), **options):
    with JobTester(job, spark=spark, **options) as t:
        for number, (name, rows) in enumerate(pushes):
            if number in dict(crashes):
                t.crash(dict(crashes)[number])
            try:
                t.push(name, rows)
            except JobCrashed:
                t.restart()
        for name in ("lefts", "rights"):
            t.advance(name, START + timedelta(days=1))
        assert t.late("meet") == []
        return found(t.read("out"))


@settings(max_examples=2, phases=PHASES)
@given(ROWS, ROWS, st.data())
@pytest.mark.parametrize("how", HOWS)
def test_interleaving_cuts_buckets_partitions_and_crashes_change_nothing(spark, how, left_rows, right_rows, data):
    job, lefts, rights = job_of(how), lefts_of(left_rows), rights_of(right_rows, how == "asof")
    waiting = {"lefts": mixed(data, lefts, "at"), "rights": mixed(data, rights, "then")}
    pushes = []
    while any(waiting.values()):
        name = data.draw(st.sampled_from([n for n, left in waiting.items() if left]))
        pushes.append((name, waiting[name].pop(0)))
    points = st.sampled_from(["before_sink", "during_sink", "after_sink"])
    crashes = data.draw(st.dictionaries(st.integers(0, max(len(pushes) - 1, 0)), points, max_size=2))
    spread = {"buckets": data.draw(st.integers(1, 7)), "partitions": data.draw(st.integers(1, 3))}
    stormy = run(job, spark, pushes, crashes.items(), **spread)
    assert stormy == expected(how, lefts, rights)


@pytest.mark.parametrize("how", HOWS)
def test_the_cluster_and_run_batch_give_the_same(spark, how):
    left_rows = [("abü"[i % 3] if i % 7 else None, (i * 11) % 41) for i in range(40)]
    right_rows = [("abc"[i % 3] if i % 5 else None, (i * 7) % 41) for i in range(30)]
    lefts, rights = lefts_of(left_rows), rights_of(right_rows, how == "asof")
    wanted = expected(how, lefts, rights)
    lefts.sort(key=lambda r: r["at"])
    rights.sort(key=lambda r: r["then"])
    pushes = [("lefts", lefts[:20]), ("rights", rights[:15]), ("rights", rights[15:]), ("lefts", lefts[20:])]
    assert run(job_of(how), spark, pushes, cluster=True, buckets=3, partitions=2) == wanted
    frames = {
        "lefts": spark.createDataFrame([tuple(r.values()) for r in lefts], LEFT),
        "rights": spark.createDataFrame([tuple(r.values()) for r in rights], RIGHT),
    }
    assert found(job_of(how).run_batch(frames, spark)["out"].toArrow().to_pylist()) == wanted


SQL = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left semi", "anti": "left anti"}


@pytest.mark.parametrize("how", SQL)
def test_our_join_is_that_of_batch_spark_sql(spark, how):
    left = spark.range(2000).selectExpr(
        "case when id % 17 = 0 then null else concat('k', id % 40) end as k", "id as l",
        "timestamp_micros(1767225600000000 + abs(hash(id, 1)) % 300000000) as at",
    )  # fmt: skip
    right = spark.range(1500).selectExpr(
        "case when id % 13 = 0 then null else concat('k', id % 50) end as k", "id as r",
        "timestamp_micros(1767225600000000 + abs(hash(id, 2)) % 300000000) as then",
    )  # fmt: skip
    ours = job_of(how).run_batch({"lefts": left, "rights": right}, spark)["out"]
    left.createOrReplaceTempView("oracle_l")
    right.createOrReplaceTempView("oracle_r")
    columns = "l.k, l.l, l.at" if how in ("semi", "anti") else "coalesce(l.k, r.k) as k, l.l, l.at, r.r, r.then"
    theirs = spark.sql(
        f"select {columns} from oracle_l l {SQL[how]} join oracle_r r on l.k = r.k and "
        f"r.then between l.at + interval {LOW} seconds and l.at + interval {HIGH} seconds"
    )
    assert ours.dtypes == theirs.dtypes
    assert Counter(map(repr, ours.collect())) == Counter(map(repr, theirs.collect()))
    assert ours.count()
