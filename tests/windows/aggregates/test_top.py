"""The best rows of a range against a sort in plain Python, over any order, any masks and any cut on the way."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.aggregates import top
from penstock.windows.aggregates.registry import Order
from penstock.windows.aggregates.top import Top, make_top

NAN, INF = float("nan"), float("inf")
FIELDS = (("name", pa.string()), ("id", pa.int64()))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.sampled_from([-128, 0, 127])),
    "long": (pa.int64(), st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, NAN, INF, -INF])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 5e-324, -1e300, NAN, INF, -INF])),
    "money": (pa.decimal128(10, 2), st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")])),
    "great": (pa.decimal128(38, 0), st.sampled_from([Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**63)])),
    "string": (pa.string(), st.sampled_from(["", "a", "aa", "é", "\U0001f600", "\uffee"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\x00", b"\xff"])),
    "date": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(2024, 2, 29)])),
    "time": (pa.timestamp("us"), st.sampled_from([datetime(1950, 1, 1), datetime(2024, 1, 1)])),
    "span": (pa.duration("us"), st.sampled_from([timedelta(-1), timedelta(0)])),
}


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return value.encode() if isinstance(value, str) else value


def before(one: Any, other: Any, descending: bool, nulls_first: bool) -> bool | None:
    """True when the first value stands before the second, None when they are equal."""
    if one is None or other is None:
        return None if one is other else (one is None) == nulls_first
    one, other = comparable(one), comparable(other)
    return None if one == other else (one > other if descending else one < other)


@dataclass(frozen=True)
class Row:
    fields: tuple[Any, ...]
    by: tuple[Any, ...]
    arrival: tuple[int, int]

    def beats(self, other: Row, how: Top, arrival: bool) -> bool:
        for one, two, (_, descending, nulls_first) in zip(self.by, other.by, how.by, strict=True):
            first = before(one, two, descending, nulls_first)
            if first is not None:
                return first
        return arrival and self.arrival < other.arrival


def naive(rows: list[Row], how: Top) -> list[dict[str, Any]]:
    """Each row asks all others: how many stand before it, and how many rank before it."""
    placed = []
    for row in rows:
        place = sum(other.beats(row, how, arrival=True) for other in rows)
        rank = sum(other.beats(row, how, arrival=False) for other in rows) if how.ties else place
        if rank < how.n:
            placed.append((place, {"name": row.fields[0], "id": row.fields[1], "rank": rank + 1}))
    return [row for _, row in sorted(placed, key=lambda each: each[0])]


@dataclass(frozen=True)
class Asked:
    how: Top
    rows: list[Row]
    mask: list[bool | None] | None
    cuts: list[int]
    ranges: list[tuple[int, int]]


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=2))
    by = tuple((KINDS[name][0], draw(st.booleans()), draw(st.booleans())) for name in names)
    how = make_top(draw(st.integers(1, 4)), FIELDS, by, draw(st.booleans()))
    assert how is not None
    values = st.tuples(*(st.none() | KINDS[name][1] | KINDS[name][1] for name in names))
    count = draw(st.integers(1, 16))
    positions = draw(st.permutations(range(count)))
    rows = [
        Row((draw(st.sampled_from(["x", "y", None])), at), draw(values), (position % 2, position))
        for at, position in enumerate(positions)
    ]
    mask = draw(st.none() | st.lists(st.sampled_from([True, True, False, None]), min_size=count, max_size=count))
    cuts = sorted({0, count} | draw(st.sets(st.integers(0, count), max_size=5)))
    lows = st.integers(0, len(cuts) - 2)
    some = lows.flatmap(lambda lo: st.tuples(st.just(lo), st.integers(lo + 1, len(cuts) - 1)))
    tiling = st.just([(at, at + 1) for at in range(len(cuts) - 1)])
    return Asked(how, rows, mask, cuts, draw(tiling | st.lists(some, max_size=4)))


def started(asked: Asked) -> list[pa.Array]:
    kinds = [*(kind for _, kind in FIELDS), *(kind for kind, _, _ in asked.how.by)]
    values = zip(*((*row.fields, *row.by) for row in asked.rows), strict=True)
    arguments = [pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)]
    mask = None if asked.mask is None else pa.array(asked.mask, pa.bool_())
    partition, position = (np.array(part) for part in zip(*(row.arrival for row in asked.rows), strict=True))
    # the event time is against the arrival, so that a tie that went by it would show
    return asked.how.start(arguments, mask, Order(-position, partition, position), len(asked.rows))


@pytest.mark.parametrize("crowded", [0, 2], ids=["weeded out", "as it is"])
@given(asked=asked())
@settings(max_examples=150, deadline=None)
def test_the_top_is_its_naive_twin_however_the_rows_are_cut(crowded: int, asked: Asked) -> None:
    how, cuts = asked.how, np.array(asked.cuts)
    assert pickle.loads(pickle.dumps(how)) == how
    wanted = []
    for lo, hi in asked.ranges:
        inside = range(asked.cuts[lo], asked.cuts[hi])
        wanted.append(naive([asked.rows[i] for i in inside if asked.mask is None or asked.mask[i]], how))
    lo, hi = (np.array([ends[side] for ends in asked.ranges], np.int64) for side in (0, 1))
    with mock.patch.object(top, "CROWDED", crowded):
        state = started(asked)
        at_once = how.merge(state, cuts[lo], cuts[hi])
        by_tiles = how.merge(how.merge(state, cuts[:-1], cuts[1:]), lo, hi)
    for merged in (at_once, by_tiles):
        assert tuple(column.type for column in merged) == how.state_types()
        result = how.finish(merged)
        result.validate(full=True)
        assert result.type == how.result_type
        assert result.to_pylist() == wanted


def prices(n: int, ties: bool, descending: bool = True) -> Top:
    made = make_top(n, (("who", pa.string()),), ((pa.int64(), descending, not descending),), ties)
    assert made is not None
    return made


def over_all(how: Top, who: list[str], price: list[int | None]) -> list[tuple[str, int]]:
    rows = len(who)
    order = Order(np.arange(rows), np.zeros(rows, np.int32), np.arange(rows))
    state = how.start([pa.array(who), pa.array(price, pa.int64())], None, order, rows)
    (best,) = how.finish(how.merge(state, np.array([0]), np.array([rows]))).to_pylist()
    return [(row["who"], row["rank"]) for row in best]


def test_rows_equal_to_the_last_stay_only_with_ties() -> None:
    who, price = ["a", "b", "c", "d", "e"], [5, 9, 5, 1, 5]
    assert over_all(prices(2, ties=False), who, price) == [("b", 1), ("a", 2)]
    assert over_all(prices(2, ties=True), who, price) == [("b", 1), ("a", 2), ("c", 2), ("e", 2)]
    assert over_all(prices(5, ties=True), who, price)[-1] == ("d", 5)


def test_nulls_stand_where_the_caller_says() -> None:
    assert over_all(prices(3, ties=False), ["a", "b", "c"], [1, None, 2]) == [("c", 1), ("a", 2), ("b", 3)]
    ascending = prices(3, ties=False, descending=False)
    assert over_all(ascending, ["a", "b", "c"], [1, None, 2]) == [("b", 1), ("a", 2), ("c", 3)]


def test_nulls_are_equal_whatever_number_stands_under_them() -> None:
    price = pa.array(np.array([7, 3, 9]), mask=np.array([True, True, True]))
    how = prices(1, ties=True)
    state = how.start([pa.array(["a", "b", "c"]), price], None, Order(*[np.arange(3)] * 3), 3)
    (best,) = how.finish(how.merge(state, np.array([0]), np.array([3]))).to_pylist()
    assert [(row["who"], row["rank"]) for row in best] == [("a", 1), ("b", 1), ("c", 1)]


def test_many_lists_of_far_apart_keys_are_weeded_out_rightly() -> None:
    rng = np.random.default_rng(7)
    rows, lists = 20_000, 50
    price = rng.integers(-(2**63), 2**63 - 1, rows)
    how = prices(3, ties=False)
    order = Order(np.arange(rows), np.zeros(rows, np.int64), np.arange(rows))
    state = how.start([pa.array(np.arange(rows).astype(str)), pa.array(price)], None, order, rows)
    lo = np.arange(0, rows, rows // lists)
    got = how.finish(how.merge(state, lo, lo + rows // lists)).to_pylist()
    for begin, best in zip(lo.tolist(), got, strict=True):
        wanted = begin + np.argsort(-price[begin : begin + rows // lists].astype(object), kind="stable")[:3]
        assert [row["who"] for row in best] == wanted.astype(str).tolist()


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null()], ids=str)
def test_a_type_without_an_order_has_no_top(kind: pa.DataType) -> None:
    assert make_top(1, FIELDS, ((pa.int64(), False, True), (kind, False, True)), False) is None
