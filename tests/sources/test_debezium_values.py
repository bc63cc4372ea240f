"""Every type as Debezium writes it, with and without the schema beside the payload."""

from __future__ import annotations

import base64
import hashlib
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

SCHEMA = (
    "id long, i int, l long, f float, d double, b boolean, s string, x binary, day date, at timestamp, "
    "local timestamp_ntz, m decimal(10, 2), whole decimal(20, 0), wide decimal(38, 9), tags array<string>, "
    "inner struct<a: int, b: decimal(10, 3)>, by map<string, double>, numbers array<int>, said map<string, string>, "
    "blobs array<binary>, shape struct<wkb: binary, srid: int>"
)
BAD = object()
CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
US = (NOON - EPOCH) // timedelta(microseconds=1)


def bytes_of(unscaled):
    return base64.b64encode(
        unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    ).decode()


# what PostgreSQL's connector puts in the place of a large value that it does not know, by the column's type
UNKNOWN = b"__debezium_unavailable_value"
NO_TEXT, NO_BYTES = UNKNOWN.decode(), base64.b64encode(UNKNOWN).decode()
NO_UUID = str(UUID(bytes=hashlib.md5(UNKNOWN).digest(), version=3))
NO_POINT = base64.b64encode(struct.pack("<BIdd", 1, 1, -99_999_999, -99_999_999)).decode()
NO_SHAPE = base64.b64encode(bytes.fromhex("0101000020E6100000000000FC83D797C1000000FC83D797C1")).decode()
NO_PLACE = base64.b64encode(bytes.fromhex("0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640")).decode()
TAKEN_FOR_BYTES = Decimal(int.from_bytes(base64.b64decode("1234"), "big", signed=True)).scaleb(-2)


def message(n, column, value, named=None, parameters=None):
    row = {"id": n, column: value}
    payload = {"before": None, "after": row, "source": {"lsn": n, "ts_ms": 0}, "op": "c", "ts_ms": 0}
    if named is None:
        return payload
    fields = [{"field": "id", "type": "int64"}, {"field": column, "type": "x", "name": named or None}]
    if parameters is not None:
        fields[1]["parameters"] = parameters
    sides = [{"type": "struct", "field": side, "fields": fields} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": [*sides, {"type": "string", "field": "op"}]}, "payload": payload}


# column, value in the message, what it is; then the column's name in the message's schema, its parameters
CASES = [
    ("i", 7, 7), ("i", "7", 7), ("i", None, None), ("i", 3_000_000_000, BAD), ("i", "seven", BAD), ("i", 1.5, BAD),
    ("l", -(2**63), -(2**63)), ("l", 2**63, BAD), ("l", {"a": 1}, BAD),
    ("f", 0.5, 0.5), ("d", 0.1, 0.1), ("d", 1e300, 1e300), ("d", 12, 12.0), ("d", "NaN?", BAD),
    ("b", True, True), ("b", 0, False), ("b", "maybe", BAD),
    ("s", "text", "text"), ("s", 12, "12"), ("s", "", ""), ("s", '{"a": 1}', '{"a": 1}'), ("s", True, "true"),
    ("s", NO_TEXT, BAD), ("s", NO_BYTES, BAD), ("s", UNKNOWN.hex(), BAD), ("s", f'{{"{NO_TEXT}":"{NO_TEXT}"}}', BAD),
    ("s", f"not {NO_TEXT}", f"not {NO_TEXT}"), ("s", f'["{NO_TEXT}", 1]', f'["{NO_TEXT}", 1]'),
    ("x", "AAH/", b"\x00\x01\xff"), ("x", "", b""), ("x", "%%", BAD),
    ("x", NO_BYTES, BAD), ("x", NO_TEXT, BAD), ("tags", [NO_TEXT], BAD), ("tags", [NO_UUID], BAD),
    ("tags", f'["{NO_TEXT}"]', BAD), ("tags", ["a", NO_TEXT], ["a", NO_TEXT]), ("blobs", [NO_BYTES], BAD),
    ("numbers", list(UNKNOWN), BAD), ("numbers", [95], [95]), ("said", {NO_TEXT: NO_TEXT}, BAD),
    ("said", f'{{"{NO_TEXT}":"{NO_TEXT}"}}', BAD), ("said", {"k": "v"}, [("k", "v")]),
    ("shape", {"wkb": NO_SHAPE, "srid": 4326}, BAD), ("shape", {"wkb": NO_PLACE, "srid": 4326}, BAD),
    ("shape", {"x": -99999999.0, "y": -99999999.0, "wkb": NO_POINT, "srid": None}, BAD),
    ("shape", {"wkb": "AQ==", "srid": 1}, {"wkb": b"\x01", "srid": 1}),
    ("day", 0, date(1970, 1, 1)), ("day", -1, date(1969, 12, 31)), ("day", 20454, date(2026, 1, 1)),
    ("day", "2026-01-01", date(2026, 1, 1)), ("day", 20454, date(2026, 1, 1), f"{TIME}.Date"),
    ("day", US, BAD), ("day", "soon", BAD),
    ("at", US // 1000, NOON.replace(microsecond=123000)), ("at", US, NOON), ("at", US * 1000 + 999, NOON),
    ("at", "2026-01-01T12:00:00.123456Z", NOON), ("at", "2026-01-01T14:00:00.123456+02:00", NOON),
    ("at", "2026-01-01T12:00:00.123456789Z", NOON, f"{TIME}.ZonedTimestamp"),
    ("at", 1500, EPOCH + timedelta(microseconds=1500), f"{TIME}.MicroTimestamp"),
    ("at", 1500, EPOCH + timedelta(milliseconds=1500), f"{TIME}.Timestamp"),
    ("at", -1, EPOCH - timedelta(milliseconds=1), f"{CONNECT}.Timestamp"),
    ("at", -1, EPOCH - timedelta(microseconds=1), f"{TIME}.NanoTimestamp"),
    ("at", 2**63 - 1, BAD, f"{TIME}.Timestamp"), ("at", "noon", BAD), ("at", True, BAD),
    ("local", US, NOON.replace(tzinfo=None)), ("local", "2026-01-01T12:00:00.123456", NOON.replace(tzinfo=None)),
    ("m", 12.34, Decimal("12.34")), ("m", "12.34", Decimal("12.34")), ("m", "-12.30", Decimal("-12.30")),
    ("m", bytes_of(1234), Decimal("12.34")), ("m", bytes_of(-5), Decimal("-0.05")), ("m", bytes_of(0), Decimal("0.00")),
    ("m", "1234", Decimal("1234.00"), ""),  # the schema says that it is text
    ("m", "1234", TAKEN_FOR_BYTES),
    ("m", "1234", TAKEN_FOR_BYTES, f"{CONNECT}.Decimal"),
    ("m", bytes_of(12300), Decimal("1.23"), f"{CONNECT}.Decimal", {"scale": "4"}),
    ("m", bytes_of(12345), BAD, f"{CONNECT}.Decimal", {"scale": "4"}),
    ("m", {"scale": 1, "value": bytes_of(-123)}, Decimal("-12.30")),
    ("m", {"scale": -2, "value": bytes_of(3)}, Decimal(300)),
    ("m", {"scale": 0, "value": "?"}, BAD), ("m", {"no": "decimal"}, BAD),
    ("m", bytes_of(10**10), BAD), ("m", 1.239, BAD),
    ("m", "1.2.3", BAD), ("m", bytes_of(2**200), BAD),
    ("m", "", BAD), ("m", 1e-7, BAD), ("m", 1.5e7, Decimal(15_000_000)),
    ("whole", "12345678901234567890", Decimal("12345678901234567890")), ("whole", 2**64 - 1, Decimal(2**64 - 1)),
    ("whole", bytes_of(-(10**20) + 1), Decimal(-(10**20) + 1)),
    ("tags", ["a", None], ["a", None]), ("tags", [], []), ("tags", "text", BAD), ("tags", '["a"]', ["a"]),
    ("tags", '["a"] ', ["a"]), ("tags", '["a"]["b"]', BAD), ("tags", '["a"]}', BAD), ("tags", '["a"], "v": ["b"]', BAD),
    ("inner", {"a": 1, "b": 0.125, "c": 2}, {"a": 1, "b": Decimal("0.125")}), ("inner", {"a": "x"}, BAD),
    ("by", {"k": 1.5}, [("k", 1.5)]),
]  # fmt: skip


def test_every_type_is_read_as_it_was_written_and_a_wrong_value_is_named(parsed):
    messages = [message(n, column, value, *more) for n, (column, value, _, *more) in enumerate(CASES)]
    rows = {row["n"]: row for row in parsed("debezium", SCHEMA, ("id",), messages)}
    for n, (column, value, expected, *more) in enumerate(CASES):
        row, case = rows[n], (column, value, *more)
        if expected is BAD:
            assert row["malformed"] is not None, (case, row[column])
            assert row["place"] == f"column {column}", case
        else:
            assert row["malformed"] is None, (case, row["place"])
            assert row[column] == expected, case


DIGITS = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-300, 300)


@settings(max_examples=3)
@given(st.lists(DIGITS, min_size=100, max_size=300))
def test_decimals_are_exact_to_the_last_of_38_digits_in_every_way_of_writing_them(parsed, drawn):
    edges = [10**38 - 1, -(10**38) + 1, 2**64, 2**64 - 1, -(2**64), 2**127 % 10**38, -1, 255, 256, -128, -129]
    ways, expected = [], []
    with localcontext() as context:
        context.prec = 60
        for number in [*edges, *drawn]:
            value = Decimal(number).scaleb(-9)
            for written in (bytes_of(number), {"scale": 9, "value": bytes_of(number)}, format(value, "f")):
                ways.append(message(len(ways), "wide", written))
                expected.append(value)
            ways.append(f'{{"op": "c", "after": {{"id": {len(ways)}, "wide": {value:f}}}}}')
            expected.append(value)
    rows = parsed("debezium", "id long, wide decimal(38, 9)", ("id",), ways)
    assert [row["wide"] for row in sorted(rows, key=lambda r: r["id"])] == expected
