"""What each message does to which row, format by format, and what is no change at all."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException

from penstock import RunError
from penstock.compile.failures import explained

SCHEMA, KEY = "id long not null, part string, v long, must string not null", ("id", "part")


def row(number, part="a", v=1, **more):
    return {"id": number, "part": part, "v": v, "must": "m", **more}


def envelope(op, before=None, after=None, source=None, **more):
    return {"op": op, "before": before, "after": after, "source": source or {"lsn": 5, "ts_ms": 7}, "ts_ms": 9, **more}


def wrapped(payload):
    return {"schema": {"type": "struct", "fields": []}, "payload": payload}


def done(rows):
    """What was made of each message: a list by its number."""
    found = {}
    for r in rows:
        kind = "bad" if r["malformed"] else "ignored" if r["ignored"] else "delete" if r["deleted"] else "upsert"
        what = r["place"] if kind == "bad" else None if kind == "ignored" else (r["id"], r["part"])
        found.setdefault(r["n"], []).append((kind, what))
    return found


DEBEZIUM = [
    (envelope("c", None, row(1)), [("upsert", (1, "a"))]),
    (wrapped(envelope("r", None, row(1))), [("upsert", (1, "a"))]),
    (envelope("u", None, row(1, v=2)), [("upsert", (1, "a"))]),
    (envelope("u", row(1), row(1, v=2)), [("upsert", (1, "a"))]),
    (envelope("u", row(1), row(1, "b")), [("delete", (1, "a")), ("upsert", (1, "b"))]),
    (envelope("u", {"id": 1, "part": "a"}, row(2, "b")), [("delete", (1, "a")), ("upsert", (2, "b"))]),
    (envelope("u", {"id": 1, "part": None}, row(1, "b")), [("upsert", (1, "b"))]),  # the key before is not known
    (wrapped(envelope("d", row(1))), [("delete", (1, "a"))]),
    (envelope("d", {"id": 1, "part": "a"}), [("delete", (1, "a"))]),
    (envelope("d", {"id": 1, "part": "a", "v": "wrong"}), [("delete", (1, "a"))]),
    (envelope("d", None), [("bad", None)]),
    (envelope("c", row(1), None), [("bad", None)]),
    (envelope("c", None, "text"), [("bad", None)]),
    ("null", None), ("", None), ("  ", None), (wrapped(None), None),
    ("{broken", [("bad", None)]), ("[1]", [("bad", None)]), ('"text"', [("bad", None)]), ("{}", [("bad", None)]),
    ({"ts_ms": 1}, [("bad", None)]),  # a heartbeat
    ({"source": {}, "ddl": "create table t", "tableChanges": []}, [("bad", None)]),
    (envelope("m", None, None), [("bad", None)]),
    (envelope("c", None, row(1, new="column")), [("upsert", (1, "a"))]),
    (envelope("c", None, {"id": 1, "part": "a", "must": "m"}), [("upsert", (1, "a"))]),
    (envelope("c", None, {"id": 1, "part": "a"}), [("bad", "column must")]),
    (envelope("c", None, row(None)), [("bad", "column id")]),
    (envelope("c", None, row(1, None)), [("upsert", (1, None))]),  # a row without its key is refused further on
    (envelope("c", None, row("one")), [("bad", "column id")]),
]  # fmt: skip


def behind(text):
    """Messages that begin well and go on: read as Spark reads them they would be good."""
    return [text + more for more in (text, " garbage", "}", "]", ',"x":1', f",{text}", "],[1", "\0")]


def test_text_behind_a_message_makes_it_malformed(parsed):
    upsert = entry({"id": 1, "part": "a"}, row(1))
    whole = {
        "debezium": [envelope("c", None, row(1)), wrapped(envelope("c", None, row(1))), wrapped(None)],
        "maxwell": [document("insert", row(1)), document("table-create")],
        "upsert": [upsert, entry({"id": 1, "part": "a"}, None)],
    }
    for name, messages in whole.items():
        for text in map(json.dumps, messages):
            found = done(parsed(name, SCHEMA, KEY, [*behind(text), f" \t{text}\r\n "]))
            assert [found.get(n) for n in range(8)] == [[("bad", None)]] * 8, (name, text)
            assert found.get(8) not in ([("bad", None)], None) or text == json.dumps(wrapped(None)), (name, text)


def test_text_behind_a_key_or_a_value_of_two_parts_makes_it_malformed(parsed):
    key, value = '{"id": 1, "part": "a"}', '{"v": 2, "must": "m"}'
    keys = [*behind(key), *[key] * 8, f" {key}\n"]
    values = [*[value] * 8, *behind(value), f" {value}\n"]
    found = done(parsed("upsert", SCHEMA, KEY, values, key=keys))
    assert [found[n] for n in range(17)] == [*[[("bad", None)]] * 16, [("upsert", (1, "a"))]]


def test_debezium(parsed):
    found = done(parsed("debezium", SCHEMA, KEY, [message for message, _ in DEBEZIUM]))
    for n, (message, expected) in enumerate(DEBEZIUM):
        assert found.get(n) == expected, message


def document(kind, data=None, old=None, **more):
    told = {"database": "d", "table": "t", "type": kind, "ts": 7, "xid": 3, **more}
    return told | ({} if data is None else {"data": data}) | ({} if old is None else {"old": old})


MAXWELL = [
    (document("insert", row(1)), [("upsert", (1, "a"))]),
    (document("bootstrap-insert", row(1)), [("upsert", (1, "a"))]),
    (document("update", row(1, v=2), {"v": 1}), [("upsert", (1, "a"))]),
    (document("update", row(1, "b"), {"part": "a"}), [("delete", (1, "a")), ("upsert", (1, "b"))]),
    (document("update", row(2, "b"), {"id": 1, "part": "a"}), [("delete", (1, "a")), ("upsert", (2, "b"))]),
    (document("delete", row(1)), [("delete", (1, "a"))]),
    (document("bootstrap-start", {}), [("ignored", None)]),
    (document("bootstrap-complete", {}), [("ignored", None)]),
    (document("table-create", sql="create table t"), [("ignored", None)]),
    (document("database-drop"), [("ignored", None)]),
    (document("insert"), [("bad", None)]),
    (document("truncated", row(1)), [("bad", None)]),
    ("null", None), ("", None), ("{broken", [("bad", None)]), ("7", [("bad", None)]),
    (document("insert", {"id": 1, "part": "a"}), [("bad", "column must")]),
    (document("insert", row(1, v="x")), [("bad", "column v")]),
]  # fmt: skip


def test_maxwell(parsed):
    found = done(parsed("maxwell", SCHEMA, KEY, [message for message, _ in MAXWELL]))
    for n, (message, expected) in enumerate(MAXWELL):
        assert found.get(n) == expected, message


def entry(key, value):
    return {"key": key, "value": value}


UPSERT = [
    (entry({"id": 1, "part": "a"}, {"v": 2, "must": "m"}), [("upsert", (1, "a"))]),
    (entry({"id": 1}, row(1)), [("upsert", (1, "a"))]),
    (entry({"id": 1, "part": "a"}, None), [("delete", (1, "a"))]),
    (entry({"id": 1, "part": "a"}, {"v": "x", "must": "m"}), [("bad", "column v")]),
    (entry({"id": 1, "part": "a"}, "text"), [("bad", None)]),
    (entry(None, row(1)), [("bad", None)]),
    ({"key": {"id": 1, "part": "a"}}, [("bad", None)]),
    ({"value": row(1)}, [("bad", None)]),
    ("null", [("bad", None)]), ("{broken", [("bad", None)]), ("", None),
]  # fmt: skip


def test_upsert(parsed):
    found = done(parsed("upsert", SCHEMA, KEY, [message for message, _ in UPSERT]))
    for n, (message, expected) in enumerate(UPSERT):
        assert found.get(n) == expected, message


def test_upsert_in_two_parts_as_kafka_brings_it(parsed):
    keys = ['{"id": 1, "part": "a"}', '{"id": 2, "part": "b"}', '{"id": 3, "part": "c"}', "broken"]
    values = ['{"v": 2, "must": "m"}', "null", "{broken", '{"v": 2, "must": "m"}']
    found = done(parsed("upsert", SCHEMA, KEY, values, key=keys))
    assert found == {0: [("upsert", (1, "a"))], 1: [("delete", (2, "b"))], 2: [("bad", None)], 3: [("bad", None)]}


def test_columns_may_be_called_as_parts_of_a_message_are(parsed):
    schema = "id long, `key` string, `value` string, op string, payload string, `a.b` string, `it's` long"
    told = {"id": 1, "key": "k", "value": "v", "op": "o", "payload": "p", "a.b": "d", "it's": 7}
    for name, message in (
        ("debezium", envelope("c", None, told)),
        ("maxwell", document("insert", told)),
        ("upsert", entry({"id": 1}, told)),
    ):
        (found,) = parsed(name, schema, ("id",), [message])
        assert {c: found[c] for c in told} == told


def sequence(r):
    return tuple(r[f"seq_{i}"] for i in range(5) if f"seq_{i}" in r)


# in the order in which they count, the first the oldest
ORDERED = {
    "debezium": [
        envelope("r", None, row(1), {"ts_ms": 3}) | {"ts_ms": 1},
        envelope("r", None, row(1), {"snapshot": "true"}) | {"ts_ms": 4},
        envelope("u", None, row(1), {"lsn": 1, "ts_ms": 99}),
        envelope("u", None, row(1), {"lsn": 10, "ts_ms": 98}),
        envelope("u", None, row(1), {"scn": "99", "ts_ms": 97}),
        envelope("u", None, row(1), {"scn": 1000, "ts_ms": 96}),
        envelope("u", None, row(1), {"file": "bin.9", "pos": 900, "row": 0}),
        envelope("u", None, row(1), {"file": "bin.10", "pos": 99, "row": 0}),
        envelope("u", None, row(1), {"file": "bin.10", "pos": 100, "row": 2}),
        envelope("u", None, row(1), {"file": "bin.10", "pos": 100, "row": 11}),
        envelope("u", None, row(1), {"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ab0:0002"}),
        envelope("r", None, row(1), {"commit_lsn": "00000027:00000ac0:0002"}),
    ],
    "maxwell": [
        document("bootstrap-insert", row(1), ts=9) | {"xid": None},
        document("update", row(1), ts=9, xid=8),
        document("update", row(1), ts=9, xid=10),
        document("update", row(1), ts=9, xid=10, xoffset=2),
        document("update", row(1), ts=9, xid=10, xoffset=11),
        document("update", row(1), ts=9, xid=10, commit=True),
        document("update", row(1), ts=10, xid=1),
    ],
}


@pytest.mark.parametrize("name", ORDERED)
def test_messages_are_ordered_as_numbers_by_their_place_in_the_log(parsed, name):
    rows = sorted(parsed(name, SCHEMA, KEY, ORDERED[name]), key=lambda r: r["n"])
    nulls_first = [tuple((x is not None, x or 0 if not isinstance(x, str) else x) for x in sequence(r)) for r in rows]
    assert nulls_first == sorted(nulls_first)
    assert len(set(nulls_first)) == len(rows)


def test_a_message_says_when_it_was_said(parsed):
    sources = [{"lsn": 1, "ts_ms": 7}, {"lsn": 2}]
    rows = parsed("debezium", SCHEMA, KEY, [envelope("d", row(1), None, s) for s in sources])
    assert [r["said"] for r in rows] == [7_000, 9_000]
    assert [r["said"] for r in parsed("maxwell", SCHEMA, KEY, [document("delete", row(1))])] == [7_000_000]


def test_a_truncated_source_stops_the_job_by_name(parsed):
    source = {"db": "shop", "schema": "public", "table": "orders", "lsn": 1}
    with pytest.raises(PySparkException) as caught:
        parsed("debezium", SCHEMA, KEY, [envelope("c", None, row(1)), envelope("t", None, None, source)])
    told = explained(caught.value, ())
    assert type(told) is RunError
    assert str(told).startswith(
        "table 'things': the source table shop.public.orders was truncated (op t), at an unknown"
    )
