"""Tables over changelogs, through a real engine."""

from __future__ import annotations

import json
import os
from decimal import Decimal

import pytest

from penstock import Job, PlanError, RunError, sinks, sources
from penstock.testing import JobCrashed

SCHEMA = "id long, name string not null, price decimal(10,2)"


def users(format="debezium", schema=SCHEMA, key="id", **options):  # noqa: A002
    job = Job("shop")
    table = job.table("users", sources.files("in", format, schema), key=key, **options)
    job.dead_letters(sinks.memory("dead"))
    table.to(sinks.memory("out"))
    return job


def change(op, lsn, before=None, after=None):
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": lsn * 1000}}


def user(number, name="ann", price="1.50"):
    return {"id": number, "name": name, "price": price}


def names(rows):
    return sorted((r["id"], r["name"]) for r in rows)


def test_a_table_follows_its_log_whatever_comes_late_twice_or_under_another_key(tester):
    t = tester(users(), partitions=2)
    t.push("users", change("r", 1, None, user(1)), change("c", 3, None, user(2, "bob")), None, "")
    t.push("users", change("u", 9, user(1), user(1, "anna")), change("u", 5, user(1), user(1, "too late")))
    assert names(t.read("out")) == [(1, "anna"), (2, "bob")]
    assert t.read("out")[0]["price"] == Decimal("1.50")
    t.push("users", change("u", 10, user(2, "bob"), user(3, "bob")), change("c", 3, None, user(2, "bob")))
    assert names(t.read("out")) == [(1, "anna"), (3, "bob")]
    t.new("out")
    t.crash("after_sink")
    with pytest.raises(JobCrashed):
        t.push("users", change("d", 11, {"id": 1}), None, change("u", 9, user(1), user(1, "anna")))
    t.restart()
    assert [(r["op"], r["id"]) for r in t.new("out")] == [("delete", 1)]
    assert t.dead_letters() == []


def test_what_cannot_be_used_is_a_dead_letter_with_the_message_and_a_truncate_stops_the_job(tester):
    t = tester(users())
    bad = [change("c", 1, None, {**user(1), "price": "?"}), change("c", 2, None, {"id": 2}), change("d", 3)]
    t.push("users", [*bad, "{broken", change("c", 4, None, user(None)), change("c", 5, None, user(5))])
    assert names(t.read("out")) == [(5, "ann")]
    letters = [(d["reason"], d["place"]) for d in t.dead_letters()]
    assert letters == [
        ("malformed", "partition 0 offset 0, column price"),
        ("malformed", "partition 0 offset 1, column name"),
        ("malformed", "partition 0 offset 2"),
        ("malformed", "partition 0 offset 3"),
        ("null_key", "partition 0 offset 4"),
    ]
    assert [json.loads(d["row"]) for d in t.dead_letters() if d["row"] != "{broken"][:3] == bad
    source = {"db": "shop", "table": "users", "lsn": 6}
    with pytest.raises(RunError, match=r"^table 'users' \(.*\): the source table shop.users was truncated.*offset 6"):
        t.push("users", {"op": "t", "source": source})


def test_maxwell_documents_that_are_of_no_row_are_counted_and_change_nothing(tester):
    t = tester(users("maxwell"))
    told = {"type": "insert", "ts": 5, "xid": 1, "data": user(1)}
    ignored = [{"type": "bootstrap-start", "data": {}}, {"type": "table-create", "sql": "create table users"}]
    t.push("users", [*ignored, told, {**told, "type": "update", "xoffset": 2, "data": user(1, "new")}])
    t.push("users", {**told, "type": "update", "xoffset": 1, "data": user(1, "late")})
    assert names(t.read("out")) == [(1, "new")]
    assert t.dead_letters() == []
    assert t._engine.counters().ignored == {"users": 2}


def test_of_equal_sequences_the_last_to_come_wins_delete_or_not(tester):
    t = tester(users("upsert"))
    key = {"id": 1}
    t.push("users", {"key": key, "value": None}, {"key": key, "value": user(1)})
    assert names(t.read("out")) == [(1, "ann")]
    t.push("users", {"key": key, "value": user(1, "x")}, {"key": key, "value": None})
    assert t.read("out") == []
    t.push("users", {"key": key, "value": {"name": "only the name"}})
    assert names(t.read("out")) == [(1, "only the name")]


def test_a_delete_ends_a_version_when_the_source_said_it(tester):
    job = Job("asof")
    events = job.stream("events", sources.files("e", "json", "id long, at timestamp"), time="at", lateness="0 seconds")
    schema = "id long, name string, since timestamp"
    table = job.table("users", sources.files("u", "debezium", schema), key="id", time="since", lateness="0 seconds")
    events.asof(table).to(sinks.memory("out"))
    t = tester(job)
    row = {"id": 1, "name": "ann", "since": 1_000_000}
    t.push("users", change("c", 1, None, row) | {"source": {"lsn": 1, "ts_ms": 1_000_000}})
    t.push("users", change("d", 2, row) | {"source": {"lsn": 2, "ts_ms": 2_000_000}})
    t.push("events", [{"id": 1, "at": "1970-01-01 00:30:00"}, {"id": 1, "at": "1970-01-01 00:33:20"}])
    t.advance("users", "1970-01-01 01:00:00")
    t.advance("events", "1970-01-01 01:00:00")
    assert sorted(str(r["name"]) for r in t.read("out")) == ["None", "ann"]


def test_a_delete_without_a_time_is_refused(tester):
    schema = "id long, name string, at timestamp"
    t = tester(users("upsert", schema, time="at", lateness="0 seconds"))
    t.push("users", {"key": {"id": 1}, "value": {"name": "ann", "at": "2026-01-01 10:00:00"}})
    t.push("users", {"key": {"id": 1}, "value": None})
    assert [d["reason"] for d in t.dead_letters()] == ["bad_time"]
    assert names(t.read("out")) == [(1, "ann")]


def test_the_files_of_one_batch_count_by_their_age_and_a_line_after_the_line_before(spark, tmp_path):
    # Spark reads the greatest file of a batch first: here it is the newest
    folder = tmp_path / "in"
    folder.mkdir()
    for age, (count, name) in enumerate([(10, "b"), (50, "c"), (200, "a")]):
        rows = [{"key": {"id": i}, "value": {"name": f"{name}{again}"}} for i in range(count) for again in range(3)]
        path = folder / f"{name}.json"
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))
    job = Job("ages")
    table = job.table("users", sources.files(str(folder), "upsert", SCHEMA), key="id")
    table.to(sinks.memory("ages"))
    job.start(spark, checkpoint=str(tmp_path / "checkpoint"), once=True).wait()
    found = {r["id"]: r["name"] for r in sinks.memory("ages").rows()}
    assert found == dict.fromkeys(range(200), "a2")


def test_run_batch_reads_messages_as_text(spark):
    messages = [
        change("c", 2, None, user(1, "new")),
        change("c", 1, None, user(1, "old")),
        change("c", 3, None, user(2)),
    ]
    frame = spark.createDataFrame([(json.dumps(m),) for m in messages], "value string")
    job = users()
    found = job.run_batch({"users": frame}, spark)["out"].collect()
    assert sorted((r.id, r.name) for r in found) == [(1, "new"), (2, "ann")]
    with pytest.raises(PlanError, match=r"input 'users'.*messages as text in a column value; it has v"):
        job.run_batch({"users": frame.toDF("v")}, spark)


def test_a_changelog_is_a_table_and_needs_no_telling():
    source = sources.files("in", "debezium", SCHEMA)
    with pytest.raises(PlanError, match=r"stream\('users'\): debezium messages are changes.*job\.table"):
        Job("shop").stream("users", source, time=None)
    with pytest.raises(PlanError, match=r"table\('users'\): sequence= is for plain rows"):
        Job("shop").table("users", source, key="id", sequence="price")
    with pytest.raises(PlanError, match=r"table\('users'\): delete_when= is for plain rows"):
        Job("shop").table("users", source, key="id", delete_when="price < 0")
    assert "as debezium says" in users().explain()
