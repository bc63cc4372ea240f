"""Codes are equal exactly when the rows are, for every type that a row may hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.aggregates.codes import codes, first_of_each

NAN = float("nan")
floats = st.sampled_from([0.0, -0.0, 1.5, NAN, -NAN])
longs = st.integers(-1, 1)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "long": (pa.int64(), longs),
    "float": (pa.float32(), floats),
    "double": (pa.float64(), floats),
    "decimal": (pa.decimal128(20, 1), longs.map(Decimal)),
    "string": (pa.string(), st.sampled_from(["", "a", "b"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\x00", b"\x00\x00"])),
    "date": (pa.date32(), longs),
    "null": (pa.null(), st.none()),
    "list": (pa.list_(pa.float64()), st.lists(st.none() | floats, max_size=2)),
    "lists": (pa.list_(pa.list_(pa.int64())), st.lists(st.lists(longs, max_size=2) | st.none(), max_size=2)),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.sampled_from("abc"), longs).flatmap(lambda m: st.permutations(list(m.items()))),
    ),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.float64())]))]),
        st.fixed_dictionaries(
            {"a": st.none() | longs, "b": st.none() | st.fixed_dictionaries({"c": st.none() | floats})}
        ),
    ),
    "empty": (pa.struct([]), st.just({})),
}


def plain(value: Any) -> Any:
    """A value that Python compares as grouping does."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(value)
    return [plain(part) for part in value] if isinstance(value, list) else value


def naive_codes(rows: list[tuple[Any, ...]]) -> list[int]:
    seen: list[Any] = []
    for row in rows:
        if (key := [plain(value) for value in row]) not in seen:
            seen.append(key)
    return [seen.index([plain(value) for value in row]) for row in rows]


@pytest.mark.parametrize("first", VALUES)
@given(draw=st.data())
@settings(max_examples=30, deadline=None)
def test_codes_are_dense_and_count_by_first_appearance(first: str, draw: st.DataObject) -> None:
    names = [first, *draw.draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=2))]
    rows = draw.draw(st.lists(st.tuples(*(st.none() | VALUES[name][1] for name in names)), max_size=10))
    cut = draw.draw(st.integers(0, len(rows)))
    columns = [pa.array([row[at] for row in rows], VALUES[name][0]) for at, name in enumerate(names)]
    assert codes(columns).tolist() == naive_codes(rows)
    assert codes([column.slice(cut) for column in columns]).tolist() == naive_codes(rows[cut:])
    chunked = [pa.chunked_array([column[:cut], column[cut:]]) for column in columns]
    assert codes(chunked).tolist() == naive_codes(rows)


@given(st.lists(st.sampled_from("abc")))
def test_the_first_of_each_value_is_marked(values: list[str]) -> None:
    wanted = [value not in values[:at] for at, value in enumerate(values)]
    assert first_of_each(codes([pa.array(values, pa.string())])).tolist() == wanted


def test_codes_are_long_integers() -> None:
    assert codes([pa.array(["a"])]).dtype == np.int64
