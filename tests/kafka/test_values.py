"""Messages as rows, on frames as the connector gives them: no broker is needed to see what becomes of bytes."""

from __future__ import annotations

import struct
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from penstock import sources
from penstock.compile.types import frame_of, spark_schema
from penstock.sources import kafka_avro, kafka_values
from penstock.sources.base import CLOCK, MALFORMED, PARTITION, PLACE, POSITION
from penstock.sources.kafka_values import HEADERS

DDL = "id long not null, name string, price decimal(9, 2), at timestamp, tags array<string>"
MESSAGES = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("headers", HEADERS),
    ]
)  # fmt: skip


def frame(spark, values, keys=None, headers=None):
    count = len(values)
    rows = {
        "key": keys or [None] * count, "value": values, "topic": ["t"] * count, "partition": [2] * count,
        "offset": list(range(count)), "timestamp": [datetime(2026, 1, 1, tzinfo=timezone.utc)] * count,
        "headers": headers or [[]] * count,
    }  # fmt: skip
    return frame_of(spark, pa.table(rows, schema=MESSAGES))


def declared(ddl=DDL):
    return sources.kafka("t", "h:1", "json", ddl).declared


LINES = [
    b'{"id": 1, "name": "a", "price": 1.25, "at": "2026-01-01T10:00:00.000001Z", "tags": ["x", null]}',
    b'{"id": 2}',
    b'{"id": "x"}',
    b'{"id": 3, "price": "much"}',
    b'{"id": 4, "name": {"first":"a"}, "unknown": 1}',
    b"{broken",
    b"[1]",
    b'"text"',
    b'{"id": 5, "at": "yesterday"}',
    b'{"id": 9223372036854775808}',
    '{"id": 6, "name": "é\\u0000"}'.encode(),
]


def test_json_is_read_as_from_a_file(spark, tmp_path):
    (tmp_path / "lines.json").write_bytes(b"\n".join(LINES))
    struct_of = spark_schema(declared()).add(MALFORMED, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    file = spark.read.options(**options).schema(struct_of).json(str(tmp_path / "lines.json"))
    ours = kafka_values.rows(frame(spark, LINES), declared(), "json", {}, {}).select(*declared().names, MALFORMED)
    as_file = {str(row) for row in file.toArrow().to_pylist()}
    assert {str(row) for row in ours.toArrow().to_pylist()} == as_file
    assert len(as_file) == len(LINES)


BEHIND = [
    b'{"id": 1}{"id": 2}', b'{"id": 1} garbage', b'{"id": 1}}', b'{"id": 1}]', b'{"id": 1}, {"id": 2}', b'{"id": 1},',
    b'{"id": 1}, "x": 2', b'{"id": 1}], "x": [{"id": 2}', b'{"id": 1}]}', b'{"id": 1}\0', b'{"id": 1}\n{"id": 2}',
    b'1}{"row":2', b'{"id": 1}, null]}', b"null", b'[{"id": 1}]', b'[{"id": 1}, {"id": 2}]', b"]", b"]}", b"", b" ",
    b'{"id": 1} // a word', b'{"id": 1} ,{"id": null}',
]  # fmt: skip


def test_json_with_text_behind_it_is_malformed_and_white_space_is_none(spark):
    good = [b'{"id": 7}', b' \t{"id": 7}\r\n ', b"{'id': 7}"]
    rows = kafka_values.rows(frame(spark, [*BEHIND, *good]), declared(), "json", {}, {}).toArrow().to_pylist()
    assert [row[MALFORMED] for row in rows] == [*(value.decode() for value in BEHIND), None, None, None]
    assert [row["id"] for row in rows[len(BEHIND) :]] == [7, 7, 7]


def test_options_of_the_json_reader_still_count(spark):
    lines = [b'{"id": 1} // said by the reader\n', b'{"id": 2, "at": "01.02.2026"} /* that */ ', b'{"id": 3} {}']
    options = {"allowComments": "true", "timestampFormat": "dd.MM.yyyy"}
    rows = kafka_values.rows(frame(spark, lines), declared(), "json", {}, options).toArrow().to_pylist()
    assert [row["id"] for row in rows[:2]] == [1, 2]
    assert [row[MALFORMED] for row in rows] == [None, None, lines[2].decode()]
    assert rows[1]["at"] == datetime(2026, 2, 1, tzinfo=timezone.utc)


def test_bytes_that_are_no_text_are_kept_and_no_value_is_malformed(spark):
    values = [b'\xff\xfe{"id": 1}', None, b'{"id": 1}']
    rows = kafka_values.rows(frame(spark, values), declared(), "json", {}, {}).toArrow().to_pylist()
    assert [row[MALFORMED] for row in rows] == ["base64://57ImlkIjogMX0=", "null", None]
    assert rows[0][PLACE] == "topic t, partition 2, offset 0"
    assert [(row[CLOCK], row[PARTITION], row[POSITION]) for row in rows] == [(2, 2, 0), (2, 2, 1), (2, 2, 2)]


def test_csv_is_read_and_what_is_no_text_is_no_cell(spark):
    values = [b"1;a", b"x;a", b"\xff\xff", b"2;b;c"]
    rows = kafka_values.rows(frame(spark, values), declared("id long, name string"), "csv", {}, {"sep": ";"})
    made = [(row["id"], row["name"], row[MALFORMED]) for row in rows.toArrow().to_pylist()]
    assert made[0] == (1, "a", None)
    assert [bad for _, _, bad in made[1:]] == ["x;a", "base64://8=", "2;b;c"]


def test_what_a_message_says_besides_its_value_comes_by_the_names_that_were_asked_for(spark):
    beside = {"key": "k", "headers": "h", "partition": "p", "offset": "o", "timestamp": "t", "id": "i"}
    sent = [{"key": n, "value": v} for n, v in zip(kafka_values.SENT, (b"j", b"o", b"c", b"7", b"3"), strict=True)]
    given = frame(spark, [b'{"id": 1}'] * 3, [b"u1", None, b"\xff"], [sent, [], sent[:-1]])
    rows = kafka_values.rows(given, declared("id long"), "json", beside, {})
    schema = sources.kafka("t", "h:1", "json", "id long", columns=beside).schema
    made = rows.select(*schema.names).toArrow()
    assert made.schema.types == schema.types
    assert made["k"].to_pylist() == ["u1", None, "base64:/w=="]
    assert made["i"].to_pylist() == ["j/o/c/7/3", "t/2/1", "t/2/2"]
    assert made["h"].to_pylist()[0] == sent


def test_bytes_that_are_no_text_never_delete(spark):
    changes = kafka_values.changes(frame(spark, [b"\xff", None], [b'{"id": 1}', b"\xff"]), two_parts=True)
    rows = changes.select("key", "value").toArrow().to_pylist()
    assert rows == [{"key": '{"id": 1}', "value": "base64:/w=="}, {"key": "base64:/w==", "value": None}]


def varint(number):
    """A whole number as Avro writes it."""
    folded = (number << 1) ^ (number >> 63)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    return bytes([*out, folded])


def text(value):
    return varint(len(value.encode())) + value.encode()


def avro(spark, values, ddl, written=None):
    """What is made of messages in Avro: dicts, by the schema that they were written with."""
    schema = declared(ddl)
    fields = None if written is None else {"type": "record", "name": "r", "fields": written}
    told = kafka_avro.derived(schema, "k") if fields is None else kafka_avro.given(fields, schema, "k")
    return kafka_values.avro_rows(frame(spark, values), schema, {}, told).toArrow().to_pylist()


def test_avro_is_read_by_the_schema_that_follows_from_the_rows(spark):
    at = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
    full = varint(-7) + b"\x02" + text("é") + b"\x02" + varint(int(at.timestamp() * 1e6))
    full += b"\x02" + varint(2) + struct.pack(">h", -125) + b"\x02" + b"\x02" + varint(3)
    values = [full, varint(8) + b"\x00" * 4, full[:-1], b"", None]
    made = avro(spark, values, "id long not null, name string, at timestamp, price decimal(9, 2), part struct<n: int>")
    assert [row["id"] for row in made[:2]] == [-7, 8]
    assert (made[0]["name"], made[0]["at"], str(made[0]["price"]), made[0]["part"]) == ("é", at, "-1.25", {"n": 3})
    assert [row[MALFORMED] for row in made[:2]] == [None, None]  # nulls are no reason to refuse a row
    assert [row[MALFORMED] is not None for row in made[2:]] == [True, True, True]
    assert made[2][MALFORMED].startswith("base64:")


def test_avro_is_read_by_the_schema_that_it_was_written_with(spark):
    fields = [
        {"name": "extra", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id", "type": ["int", "null"]},
    ]
    (row,) = avro(
        spark, [text("more") + varint(1_767_261_600_000) + b"\x00" + varint(5)], "id long, at timestamp", fields
    )
    assert (row["id"], row["at"]) == (5, datetime(2026, 1, 1, 10, tzinfo=timezone.utc))
    assert row[MALFORMED] is None


def test_avro_with_bytes_before_or_behind_the_row_is_malformed(spark):
    row = b"\x02" + text("ab") + b"\x02" + varint(7)
    framed = b"\x00" + (7).to_bytes(4, "big") + row  # as a schema registry's client writes it
    values = [row, framed, row + b"\x00", row + row, row[:-1], kafka_avro.MARK, row + kafka_avro.MARK[:-1]]
    made = avro(spark, values, "url string, n long")
    assert (made[0]["url"], made[0]["n"], made[0][MALFORMED]) == ("ab", 7, None)
    assert [r[MALFORMED] is not None for r in made[1:]] == [True] * 6
    # a list may come in several parts, a decimal with more bytes than it needs: other bytes, the same row
    listed = b"\x02" + varint(1) + text("a") + varint(-1) + varint(2) + text("b") + b"\x00"
    padded = b"\x02" + varint(3) + b"\x00\x00\x7d"
    written = [
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    ]
    values = [listed + padded, listed + padded + b"\x00"]
    good, more = avro(spark, values, "tags array<string>, price decimal(9, 2)", written)
    assert (good["tags"], str(good["price"]), good[MALFORMED]) == (["a", "b"], "1.25", None)
    assert more[MALFORMED] is not None


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
TEN = 1_767_261_600_000  # 2026-01-01 10:00
# the type that was written, the value's bytes, the type that is declared, what it is then; None: it would be another
NARROWED = [
    ("double", struct.pack("<d", 1.9), "int", None), ("double", struct.pack("<d", 2.0), "int", "2"),
    ("double", struct.pack("<d", 1e300), "int", None), ("double", struct.pack("<d", float("nan")), "int", None),
    ("double", struct.pack("<d", 0.5), "float", "0.5"), ("double", struct.pack("<d", 0.1), "float", None),
    ("double", struct.pack("<d", float("nan")), "float", "nan"), ("float", struct.pack("<f", 0.5), "double", "0.5"),
    ("double", struct.pack("<d", 1.25), "decimal(9, 2)", "1.25"),
    ("double", struct.pack("<d", 1.2345), "decimal(9, 2)", None),
    ("long", varint(2**53 + 1), "double", None), ("long", varint(2**53), "double", "9007199254740992.0"),
    ("long", varint(2**31), "int", None), ("int", varint(7), "long", "7"), ("int", varint(7), "string", "7"),
    ("int", varint(2), "boolean", None),
    (DECIMAL, varint(2) + struct.pack(">h", 12345), "decimal(10, 2)", None),
    (DECIMAL, varint(2) + struct.pack(">h", 12300), "decimal(10, 2)", "1.23"),
    (DECIMAL, varint(2) + struct.pack(">h", 12345), "decimal(12, 6)", "1.234500"),
    ("string", text("1.2345"), "decimal(10, 2)", None), ("string", text("1.5"), "decimal(10, 2)", "1.50"),
    ("string", text("07"), "int", "7"), ("string", text("x"), "int", None),
    ("string", text("2026-01-01T10:00:00Z"), "timestamp", "2026-01-01 10:00:00+00:00"),
    (MILLIS, varint(TEN), "date", None), (MILLIS, varint(TEN - TEN % 86_400_000), "date", "2026-01-01"),
    (MILLIS, varint(TEN + 1), "timestamp_ntz", "2026-01-01 10:00:00.001000"),
]  # fmt: skip


def test_an_avro_value_that_its_column_cannot_hold_is_malformed_and_never_another_value(spark):
    for at, (written, value, kind, expected) in enumerate(NARROWED):
        (row,) = avro(spark, [value], f"v {kind}", [{"name": "v", "type": written}])
        case = (at, written, kind)
        assert (row[MALFORMED] is None) == (expected is not None), (case, row)
        if expected is not None:
            assert str(row["v"]) == expected, case


@pytest.mark.parametrize("net", [False, True])
def test_a_row_has_the_same_number_however_spark_hands_it_over(spark, net):
    from penstock.sinks.kafka_messages import messages

    rows = pa.table(
        {"k": [i % 40 for i in range(200)] if not net else list(range(200)), "v": [i % 7 for i in range(200)]}
    )
    gone = pa.table({"k": [3, 1000, 1001]})
    seen = []
    for parts in (1, 7):
        frame_now = frame_of(spark, rows).repartition(parts, "v")
        deletes = frame_of(spark, gone).repartition(parts) if net else None
        sent = messages(frame_now, deletes, ["k"] if net else [], {"job": "j"}, 3, net=net).toArrow().to_pylist()
        numbers = [next(h["value"] for h in m["headers"] if h["key"] == "row") for m in sent]
        assert len(set(numbers)) == len(numbers)
        seen.append(
            sorted(
                (m["key"] or "", m["value"] or "", m["partition"] or 0, n) for m, n in zip(sent, numbers, strict=True)
            )
        )
    assert seen[0] == seen[1]
    assert len(seen[0]) == (202 if net else 200)  # a key that is deleted and there again is one message


def test_of_a_keys_rows_the_last_is_sent_and_times_keep_their_microseconds(spark):
    from penstock.sinks.kafka_messages import messages

    at = datetime(2026, 1, 1, 10, 0, 0, 1, tzinfo=timezone.utc)
    rows = pa.table({"k": ["a", "b", "a"], "at": [None, None, at]})
    sent = messages(frame_of(spark, rows).coalesce(1), None, ["k"], {}, 1, net=True).toArrow().to_pylist()
    assert {m["key"]: m["value"] for m in sent} == {
        '{"k":"a"}': '{"k":"a","at":"2026-01-01T10:00:00.000001Z"}',
        '{"k":"b"}': '{"k":"b","at":null}',
    }
