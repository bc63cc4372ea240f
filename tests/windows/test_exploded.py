"""Lists of rows become rows, and rows that cancel each other are gone, whatever they hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.windows.exploded import cancelled, exploded

BEST = pa.list_(pa.field("element", pa.struct([("who", pa.string()), ("rank", pa.int32())]), nullable=False))
SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), ("best", BEST), ("size", pa.float64())])
structs = st.fixed_dictionaries({"who": st.none() | st.sampled_from("ab"), "rank": st.integers(1, 3)})
results_of = st.fixed_dictionaries(
    {"key": st.integers(0, 3), "best": st.none() | st.lists(structs, max_size=3), "size": st.none() | st.just(0.5)}
)


def in_pieces(rows: list[dict[str, Any]], schema: pa.Schema, cut: int) -> pa.Table:
    """The rows as a table of one or two chunks, the first of them a slice with rows before and behind it."""
    first = pa.Table.from_pylist([*rows[:1], *rows, *rows[:1]], schema).slice(min(1, len(rows)), cut)
    return pa.concat_tables([first, pa.Table.from_pylist(rows[cut:], schema)]) if cut < len(rows) else first


@given(st.lists(results_of, max_size=6), st.integers(0, 6))
def test_a_list_of_rows_becomes_rows(rows: list[dict[str, Any]], cut: int) -> None:
    got = exploded(in_pieces(rows, SCHEMA, min(cut, len(rows))), "best")
    got.validate(full=True)
    assert got.schema == pa.schema([SCHEMA.field("key"), SCHEMA.field("size"), *BEST.value_type])
    assert got.to_pylist() == [
        {"key": row["key"], "size": row["size"], **entry} for row in rows for entry in row["best"] or ()
    ]


CHANGES = pa.schema([("a", pa.string()), ("b", pa.float64()), ("c", pa.list_(pa.int64())), ("w", pa.int8())])
changes_of = st.fixed_dictionaries(
    {
        "a": st.none() | st.sampled_from("xy"),
        "b": st.none() | st.sampled_from([0.0, -0.0, math.nan]),
        "c": st.none() | st.lists(st.integers(0, 1), max_size=1),
        "w": st.sampled_from([1, -1]),
    }
)


def content(row: dict[str, Any], names: str) -> tuple[str, ...]:
    return tuple(str(row[name] + 0.0 if isinstance(row[name], float) else row[name]) for name in names)


def naive(rows: list[dict[str, Any]], names: str) -> list[int]:
    """The rows that stay: from the last to the first, as many of a content as its weights leave over."""
    left: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        left[content(row, names)] += row["w"]
    stay = []
    for at in reversed(range(len(rows))):
        row = rows[at]
        if left[content(row, names)] * row["w"] > 0:
            left[content(row, names)] -= row["w"]
            stay.append(at)
    return stay[::-1]


@given(st.lists(changes_of, max_size=12), st.integers(0, 12), st.sampled_from(["abc", "a", "ac", ""]))
def test_a_row_and_its_negative_are_gone(rows: list[dict[str, Any]], cut: int, names: str) -> None:
    table = in_pieces(rows, CHANGES, min(cut, len(rows)))
    got = cancelled(table, "w", None if names == "abc" else list(names))
    assert got.schema == CHANGES
    assert str(got.to_pylist()) == str(table.take(pa.array(naive(rows, names), pa.int64())).to_pylist())


def test_weights_alone_cancel_too() -> None:
    table = pa.table({"w": pa.array([1, -1, -1], pa.int8())})
    assert cancelled(table, "w").to_pylist() == [{"w": -1}]


def test_rows_of_one_sign_stay_as_they_are() -> None:
    table = pa.table({"a": [1, 1], "w": pa.array([1, 1], pa.int8())})
    assert cancelled(table, "w") is table
