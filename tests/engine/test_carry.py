"""A job before and after a change, through one checkpoint: what is carried over is done, and is right."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from penstock import Job, PlanChangedError, sinks, sources
from penstock.compile.layout import Layout
from penstock.compile.steps import compile_step
from penstock.compile.types import spark_schema
from penstock.plan.node import Node
from penstock.plan.schemas import schema
from penstock.plan.step import Step
from penstock.run import carry
from penstock.run.clock import Clock, InputTime, StepTime
from penstock.run.fit import PARTS
from penstock.testing import JobCrashed
from penstock.windows import session, tumbling
from penstock.windows.node import Window

START = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
SCHEMA = "url string, user string, ms long, at timestamp"


def at(minutes, url="/", ms=1, user="ann"):
    return {"url": url, "user": user, "ms": ms, "at": START + timedelta(minutes=minutes)}


def shop(aggregates, *, emit="final", where=None, lateness="0 seconds", sessions=False, raw=False, schema=SCHEMA):
    job = Job("shop")
    views = job.stream("views", sources.files("views", "json", schema), time="at", lateness=lateness)
    rows = views if where is None else views.where(where)
    rows.by("url").window(tumbling("10 minutes"), emit=emit).agg(**aggregates).to(sinks.console(), name="ten")
    if sessions:
        views.by("user").window(session("5 minutes")).agg(n="count(*)").named("visits").to(
            sinks.console(), name="visits"
        )
    if raw:
        views.select("ms").to(sinks.console(), name="raw")
    return job


def values(rows, *names):
    return sorted(tuple(row[name] for name in names) for row in rows)


@pytest.mark.parametrize("emit", ["final", "updates"])
def test_what_is_kept_of_an_aggregate_follows_its_text_and_not_its_place(tester, emit):
    """Sum and max of a long are of one type: nothing but the text tells them apart."""
    t = tester(shop({"a": "sum(ms)", "b": "max(ms)", "c": "count(*)"}, emit=emit))
    t.push("views", [at(1, ms=5), at(2, ms=7), at(3, "/x", ms=2)])
    t.restart(shop({"b": "sum(ms)", "c": "max(ms)", "a": "max(ms) - sum(ms)"}, emit=emit))
    t.push("views", [at(4, ms=1), at(5, "/x", ms=4), at(20)])
    t.advance("views", START + timedelta(hours=1))
    rows = [row for row in t.read("ten") if row["window_start"] == START]
    assert values(rows, "url", "a", "b", "c") == [("/", -6, 13, 7), ("/x", -2, 6, 4)]


def test_aggregates_over_types_that_changed_are_refused_before_anything_is_written(tester):
    t = tester(shop({"a": "sum(ms)", "b": "max(ms)"}))
    t.push("views", [at(1)])
    t.restart(shop({"b": "max(ms)", "a": "sum(ms)"}, schema=SCHEMA.replace("long", "double")))
    with pytest.raises(PlanChangedError, match=r"step 'window_by_url' .*sum\(ms\) was int64.* and is double"):
        t.push("views", [at(2)])
    assert t.read("ten") == []


def test_a_new_step_begins_where_its_input_is_and_a_new_output_with_the_next_batch(tester):
    t = tester(shop({"n": "count(*)"}))
    t.push("views", [at(0), at(30)])
    t.restart(shop({"n": "count(*)"}, sessions=True, raw=True))
    t.push("views", [at(1, ms=9), at(31, ms=2)])  # the first is late for the new step too
    t.advance("views", START + timedelta(hours=1))
    assert [(row["window_start"], row["n"]) for row in t.read("visits")] == [(START + timedelta(minutes=31), 1)]
    assert [row["ms"] for row in t.late("visits")] == [9]
    assert values(t.read("raw"), "ms") == [(2,), (9,)]
    assert values(t.read("ten"), "window_start", "n") == [(START, 1), (START + timedelta(minutes=30), 2)]
    t.restart(shop({"n": "count(*)"}))
    t.push("views", [at(70), at(90)])
    assert len(t.read("ten")) == 3
    assert t._engine.manifest.steps.keys() == {"window_by_url"}  # what is gone is let go


def test_a_filter_and_a_lateness_count_from_the_next_batch_and_time_does_not_go_back(tester):
    t = tester(shop({"n": "count(*)"}))
    t.push("views", [at(1), at(12), at(13)])
    t.restart(shop({"n": "count(*)"}, where="ms > 1", lateness="1 hour"))
    t.push("views", [at(2, ms=5), at(14), at(15, ms=5)])
    assert [row["ms"] for row in t.late("window_by_url")] == [5]  # its window was closed by the lateness as it was
    t.advance("views", START + timedelta(hours=2))
    ten = START + timedelta(minutes=10)
    assert values(t.read("ten"), "window_start", "n") == [(START, 1), (ten, 3)]


def everything():
    """A job with a step of every kind whose state is kept by key."""
    job = Job("all")
    views = job.stream("views", sources.files("views", "json", SCHEMA), time="at", lateness="1 minute")
    clicks = job.stream("clicks", sources.files("clicks", "json", SCHEMA), time="at", lateness="1 minute")
    users = job.table("users", sources.files("users", "json", "user string, name string"), key="user")
    once = views.deduplicate("user", "ms", within="1 hour")
    right = clicks.select("user", "url as target", "at as clicked")
    once.join(right, on="user", within=("0 seconds", "5 minutes"), how="left").to(sinks.console(), name="joined")
    once.lookup(users).by("name").agg(n="count(*)", total="sum(ms)").to(sinks.memory("by_name"))
    users.by("name").agg(n="count(*)").named("names").to(sinks.memory("names"))
    views.by("user", "url").window(session("2 minutes")).agg(n="count(*)").to(sinks.console(), name="visits")
    return job


def told(t):
    return {name: sorted(map(str, t.read(name))) for name in ("joined", "by_name", "names", "visits")}


def test_a_job_goes_on_in_more_and_in_fewer_buckets(tester):
    people = ["ann", "bob", "cid", "dan", "eve", None]
    script = [
        ("users", [{"user": p, "name": f"n{i % 2}"} for i, p in enumerate(people[:5])]),
        ("views", [at(i % 4, f"/{i % 3}", i % 4, people[i % 6]) for i in range(20)]),
        ("clicks", [at(2 + i % 3, "/c", 0, people[i % 6]) for i in range(5)]),
        ("views", [at(3 + i % 4, f"/{i % 3}", i % 5, people[i % 6]) for i in range(20)]),
        ("users", [{"user": p, "name": "n9"} for p in people[1:3]]),
        ("clicks", [at(5 + i % 3, "/d", 0, people[i % 6]) for i in range(6)]),
        ("views", [at(40)]),
        ("clicks", [at(40)]),
    ]
    calm, moving = tester(everything(), buckets=2), tester(everything(), buckets=2)
    buckets = iter([2, 5, 5, 1, 3, 3, 4, 2])
    for name, rows in script:
        calm.push(name, rows)
        moving.restart(buckets=next(buckets))
        moving.push(name, rows)
    assert told(moving) == told(calm)
    assert {len(sets) for sets in moving._engine.manifest.steps.values()} == {2}
    assert all(told(calm).values())


def test_a_batch_that_crashes_while_it_carries_over_is_run_again_from_the_state_as_it_was(tester):
    t = tester(shop({"a": "sum(ms)", "b": "max(ms)"}), buckets=2)
    t.push("views", [at(1, ms=5), at(2, ms=7)])
    changed = shop({"b": "max(ms)", "a": "sum(ms)"})
    t.restart(changed, buckets=3)
    t.crash("after_sink")
    with pytest.raises(JobCrashed):
        t.push("views", [at(3, ms=1)])
    t.restart()
    t.push("views", [at(20)])
    assert values(t.read("ten"), "a", "b") == [(13, 7)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"lateness": "1 hour"}),
        ({"lateness": "1 hour"}, {}),
        ({"emit": "updates"}, {"emit": "updates", "where": "ms > 5"}),
    ],
    ids=["more lateness", "less lateness", "a filter"],
)
def test_a_batch_that_an_output_may_hold_is_ended_by_the_job_that_began_it(tester, before, after):
    """Run by the changed job it would be skipped there, and its state would be another."""
    was, now = (shop({"n": "count(*)"}, **options) for options in (before, after))
    calm, crashed = tester(was), tester(was)
    for t in (calm, crashed):
        t.push("views", [at(1, ms=9)])
    second = [at(2, "/x"), at(2, "/y", ms=9), at(12, ms=9)]
    calm.push("views", second)
    calm.restart(now)
    crashed.crash("after_sink")
    with pytest.raises(JobCrashed):
        crashed.push("views", second)
    with pytest.raises(PlanChangedError, match="not as it was when it began batch 1"):
        crashed.restart(now)
    crashed.restart()
    crashed.restart(now)
    for t in (calm, crashed):
        t.push("views", [at(130, ms=9)])
    names = ("window_start", "url", "n")
    assert values(crashed.read("ten"), *names) == values(calm.read("ten"), *names)


def test_a_batch_that_no_output_can_hold_is_run_by_the_changed_job(tester):
    t = tester(shop({"n": "count(*)"}))
    t.push("views", [at(1)])
    t.crash("before_sink")
    with pytest.raises(JobCrashed):
        t.push("views", [at(2), at(3, ms=9)])
    t.restart(shop({"n": "count(*)"}, where="ms > 5"))
    t.push("views", [at(20, ms=9)])
    assert values(t.read("ten"), "n") == [(2,)]


def tagged(**aggregates):
    """Nobody has a kernel for the largest array: the rows are kept for Spark."""
    job = Job("tagged")
    schema = SCHEMA + ", tags array<string>"
    views = job.stream("views", sources.files("views", "json", schema), time="at", lateness="0 seconds")
    views.by("url").window(tumbling("10 minutes")).agg(**aggregates).to(sinks.console(), name="ten")
    return job


def test_rows_that_are_kept_for_spark_serve_more_calls_of_the_same_columns(tester):
    t = tester(tagged(n="count(*)", last="max(tags)"))
    t.push("views", [{**at(1), "tags": ["a"]}, {**at(2), "tags": ["b"]}])
    t.restart(tagged(first="min(tags)", last="max(tags)", n="count(*)"))
    t.push("views", [{**at(3), "tags": ["c"]}, {**at(20), "tags": []}])
    assert values(t.read("ten"), "n", "first", "last") == [(3, ["a"], ["c"])]


def test_rows_that_are_kept_for_spark_are_not_taken_for_partial_aggregates(tester):
    t = tester(tagged(n="count(*)", last="max(tags)"))
    t.push("views", [{**at(1), "tags": ["a"]}, {**at(1), "tags": ["b"]}])
    with pytest.raises(PlanChangedError, match="needs a rebuild, its rows are kept whole, for Spark to finish"):
        t.restart(tagged(n="count(*)"))
    t.restart()
    t.push("views", [{**at(20), "tags": []}])
    assert values(t.read("ten"), "n", "last") == [(2, ["b"])]


def test_what_a_run_kept_of_a_step_is_found_out_before_it_is_read(spark, tester):
    """Where the document cannot tell: a manifest that says only of partial aggregates what it keeps."""
    t = tester(tagged(n="count(*)", last="max(tags)"))
    t.push("views", [{**at(1), "tags": ["a"]}])
    manifest = t._engine.manifest
    assert manifest.body[PARTS] == {"window_by_url": []}
    checkpoint, (step,) = t._engine._checkpoint, Layout(tagged(n="count(*)")).stages
    frame = spark.createDataFrame([], spark_schema(schema(SCHEMA + ", tags array<string>", "test")))
    manifest.body[PARTS] = {}
    with pytest.raises(PlanChangedError, match=r"count\(\*\) was None and is int64"):
        carry.carried(compile_step(step, [frame], 2), manifest, checkpoint.files, 1, (2, 2), spark)


def test_a_changed_job_that_does_not_fit_is_refused_and_the_tester_goes_on_with_the_old_one(tester):
    t = tester(shop({"n": "count(*)"}))
    t.push("views", [at(1)])
    with pytest.raises(PlanChangedError, match=r"of max\(ms\) nothing is kept"):
        t.restart(shop({"n": "count(*)", "most": "max(ms)"}))
    t.restart()
    t.push("views", [at(20)])
    assert values(t.read("ten"), "n") == [(1,)]


def test_an_output_goes_to_another_place_from_there_on(spark, tmp_path):
    def build(table):
        job = Job("moves")
        views = job.stream("views", sources.files(str(tmp_path / "in"), "json", SCHEMA), time="at", lateness="1 day")
        views.select("ms").to(sinks.memory(table), name="rows")
        return job

    (tmp_path / "in").mkdir()
    for number, table in enumerate(["moves_a", "moves_b", "moves_b"]):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"ms": {number}, "at": "2026-01-01 10:00:00"}}\n')
        run = build(table).start(spark, checkpoint=str(tmp_path / "ck"), once=True)
        assert [c.of for c in run.fit.carried] == (["output 'rows'"] if number == 1 else [])
        run.wait()
    assert [r["ms"] for r in sinks.memory("moves_a").rows()] == [0]
    assert [r["ms"] for r in sinks.memory("moves_b").rows()] == [1, 2]


def test_a_key_of_any_type_is_found_in_its_bucket_again(spark):
    """What Spark hashed when the rows came, it hashes the same from what is kept."""
    keys = pa.table(
        {
            "a": pa.array(["x", None, "a longer text than a word of eight bytes, and than four of them"]),
            "b": pa.array([1, None, -5], pa.int16()),
            "c": pa.array([0.0, float("nan"), None]),
            "d": pa.array([START, None, START], pa.timestamp("us", "UTC")),
            "e": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        }
    )
    by_row = [int(carry.spark_hashes(spark, keys.slice(i, 1))[0]) for i in range(3)]
    assert carry.spark_hashes(spark, keys).tolist() == by_row
    assert len(set(by_row)) == 3


def test_every_step_says_by_which_columns_its_state_is_in_buckets():
    def concrete(kind):
        for sub in kind.__subclasses__():
            yield sub
            yield from concrete(sub)

    rule = carry.stored_key
    for kind in concrete(Step):
        assert rule.dispatch(kind) is not rule.dispatch(object), kind
    assert issubclass(Window, Node)


def test_a_new_step_has_the_time_of_its_inputs_less_the_lag_before_it():
    inputs = {"a": InputTime(0, watermark_us=50), "b": InputTime(0, watermark_us=30), "c": InputTime(0)}
    clock = Clock(inputs, {"old": 20}, 30)
    new = {
        "of a": StepTime(("a",), 5),
        "after old": StepTime(("a",), 0, ("old",)),
        "of both": StepTime(("a", "b"), 0),
        "of a silent one": StepTime(("a", "c"), 0),
        "of one that loads": StepTime(("a", "d (loading)"), 0),
        "after a silent one": StepTime(("a",), 0, ("of a silent one",)),
    }
    assert clock.with_new(new).steps == {"old": 20, "of a": 45, "after old": 20, "of both": 30}
