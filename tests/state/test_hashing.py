"""Hashes are for ever: golden values, and equal keys hash equal in every encoding."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.errors import PlanError
from penstock.state.hashing import hash_column, hash_rows
from penstock.state.samekeys import same_keys

UTC = dt.timezone.utc

COLUMNS: dict[str, Any] = {
    "int64": pa.array([0, 1, -1, 2**63 - 1, None]),
    "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
    "float64": pa.array([0.0, 1.5, float("nan"), float("inf"), None]),
    "bool": pa.array([False, True, None]),
    "string": pa.array(["", "a", "12345678", "123456789", "æøå", "x" * 300, None]),
    "binary": pa.array([b"\0", b"\0\0", b"a"]),
    "fixed": pa.array([b"abc", b"abd", None], pa.binary(3)),
    "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-1.50"), None], pa.decimal128(10, 2)),
    "timestamp": pa.array([dt.datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    "date": pa.array([dt.date(2020, 1, 1), None]),
    "time": pa.array([dt.time(1, 2, 3)], pa.time64("us")),
    "list": pa.array([[], [1], [1, 2], [2, 1], None]),
    "fixed list": pa.array([[1, 2], [2, 1], None], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None]),
    "map": pa.array([[("a", 1)], [("b", 1)], None], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(1),
}

GOLDEN: dict[str, list[str]] = {
    "int64": [
        "e220a8397b1dcdaf",
        "910a2dec89025cc1",
        "e4d971771b652c20",
        "2a67d7552e039ea7",
        "6a09e667f3bcc909",
    ],
    "uint64": ["e220a8397b1dcdaf", "e4d971771b652c20"],
    "float64": [
        "e220a8397b1dcdaf",
        "d6dab18e1392608a",
        "c72971d82e15bb46",
        "249e5410c2f97d99",
        "6a09e667f3bcc909",
    ],
    "bool": ["e220a8397b1dcdaf", "910a2dec89025cc1", "6a09e667f3bcc909"],
    "string": [
        "e220a8397b1dcdaf",
        "3e506e5796335af0",
        "82177327e1e4daac",
        "b0f00539162b363b",
        "9547102d7cb59a67",
        "1546d9cac139b512",
        "6a09e667f3bcc909",
    ],
    "binary": ["dce423fc82c0d5b8", "e60bbbf6ca094f3c", "3e506e5796335af0"],
    "fixed": ["fdb8877be1ebd46b", "d3ee6a7844717bf7", "6a09e667f3bcc909"],
    "decimal": ["c3ff66b95ab9ca06", "4bbd64cd08f17ac8", "6a09e667f3bcc909"],
    "timestamp": ["05b407cfae5e813e", "6a09e667f3bcc909"],
    "date": ["843e7f2e7a55b8a7", "6a09e667f3bcc909"],
    "time": ["628ec27b1faf875d"],
    "list": [
        "e220a8397b1dcdaf",
        "a00ad9b268aa4489",
        "54fbf540804cffb3",
        "653753793e7f2b44",
        "6a09e667f3bcc909",
    ],
    "fixed list": ["54fbf540804cffb3", "653753793e7f2b44", "6a09e667f3bcc909"],
    "struct": ["e79a10f0f16abb85", "26c6c3cce2397f6b", "6a09e667f3bcc909"],
    "map": ["d6a96974ac8d87b7", "d495742c2ed1acad", "6a09e667f3bcc909"],
    "null": ["6a09e667f3bcc909"],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_hash_of_a_value_never_changes(name: str) -> None:
    assert [f"{value:016x}" for value in hash_column(COLUMNS[name])] == GOLDEN[name]


def test_another_process_with_another_hash_seed_gives_the_same() -> None:
    program = (
        "import pyarrow as pa; from penstock.state.hashing import hash_rows;"
        "print(*hash_rows(pa.table({'a': ['x', None], 'b': [1.5, 2.5]}), ['a', 'b']))"
    )
    here = hash_rows(pa.table({"a": ["x", None], "b": [1.5, 2.5]}), ["a", "b"])
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert said.stdout.split() == [str(value) for value in here]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_slice_and_chunks_hash_as_the_whole(name: str) -> None:
    column = COLUMNS[name]
    whole = hash_column(column)
    assert (hash_column(column.slice(1)) == whole[1:]).all()
    assert (hash_column(pa.chunked_array([column.slice(0, 1), column.slice(1)])) == whole).all()
    assert len(hash_column(column.slice(0, 0))) == 0
    assert len(hash_column(pa.chunked_array([], column.type))) == 0


ENCODINGS = {
    "narrow integers": (pa.array([1, -2, None], pa.int8()), pa.array([1, -2, None], pa.int64())),
    "narrow floats": (pa.array([1.5, None], pa.float32()), pa.array([1.5, None], pa.float64())),
    "one zero": (pa.array([-0.0]), pa.array([0.0])),
    "dictionary": (pa.array(["a", None, "b"]).dictionary_encode(), pa.array(["a", None, "b"])),
    "large text": (pa.array(["a", None], pa.large_string()), pa.array(["a", None])),
    "text views": (
        pa.array(["a", "more than twelve"], pa.string_view()),
        pa.array(["a", "more than twelve"]),
    ),
    "zero in a list": (pa.array([[-0.0]]), pa.array([[0.0]])),
    "large lists": (pa.array([[1]], pa.large_list(pa.int64())), pa.array([[1]])),
}


@pytest.mark.parametrize(("left", "right"), ENCODINGS.values(), ids=ENCODINGS)
def test_an_encoding_does_not_change_the_hash(left: Any, right: Any) -> None:
    assert (hash_column(left) == hash_column(right)).all()


def test_every_nan_is_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    column = pa.array(bits.view(np.float64), from_pandas=False)
    assert len(set(hash_column(column))) == 1
    table = pa.table({"k": column})
    assert same_keys(table, table.take([1, 2, 0]), ["k"]).all()


def naive_hash(content: bytes) -> int:
    """The hash of up to 256 bytes, in plain Python."""

    def mix(number: int) -> int:
        number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        number = ((number ^ number >> 27) * 0x94D049BB133111EB) % 2**64
        return number ^ number >> 31

    state = mix((len(content) + 0x9E3779B97F4A7C15) % 2**64)
    for at in range(0, len(content), 8):
        state = mix(state ^ int.from_bytes(content[at : at + 8], "little"))
    return state


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_the_vectorised_hash_is_the_naive_one(contents: list[bytes]) -> None:
    hashes = hash_column(pa.array(contents, pa.binary()))
    assert hashes.tolist() == [naive_hash(content) for content in contents]


values = st.one_of(st.none(), st.text(max_size=20))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=50))
def test_hashes_are_equal_exactly_where_keys_are(rows: list[tuple[str | None, str | None]]) -> None:
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    assert len(set(hash_rows(table, ["a", "b"]).tolist())) == len(set(rows))
    shifted = table.take(np.roll(np.arange(len(rows)), 1))
    same = same_keys(table, shifted, ["a", "b"])
    assert same.tolist() == [rows[i] == rows[i - 1] for i in range(len(rows))]


def test_a_type_that_cannot_be_a_key_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match="month_day_nano_interval cannot be a key"):
        hash_column(pa.array([pa.MonthDayNano([1, 2, 3])]))
