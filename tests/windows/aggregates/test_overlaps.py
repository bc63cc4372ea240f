"""Ranges that overlap heavily give what each gives alone."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.aggregates import overlaps, reduction
from penstock.windows.aggregates.kept_rows import KeptRows
from penstock.windows.aggregates.moments import Deviation
from penstock.windows.aggregates.overlaps import merge_overlapping, pays, pays_from
from penstock.windows.aggregates.reduction import REPEATABLE, heavy, reduce_doubling, winners, winners_ranked
from penstock.windows.aggregates.registry import Aggregate, Order, make
from penstock.windows.aggregates.top import Top, make_top

Bounds = npt.NDArray[np.int64]

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "long": (pa.int64(), st.integers(-3, 3)),
    "great": (pa.int64(), st.sampled_from([2**63 - 1, -(2**63), 5])),
    "double": (pa.float64(), st.floats(-1e6, 1e6)),
    "wild": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf])),
    "money": (pa.decimal128(10, 2), st.decimals(-9, 9, places=2)),
    "string": (pa.string(), st.sampled_from(["", "a", "é"])),
}
NAMED: list[tuple[str, tuple[str, ...], bool]] = [
    ("count", (), False),
    ("count", ("string",), True),
    *(("sum", (x,), False) for x in ("long", "double", "wild", "money")),
    *(("avg", (x,), False) for x in ("long", "great", "double", "wild", "money")),
    *((name, (x,), False) for name in ("min", "max") for x in VALUES),
    *((name, (x,), False) for name in ("first", "last", "collect_list", "collect_set") for x in ("long", "string")),
    *((name, ("string", x), False) for name in ("min_by", "max_by") for x in VALUES),
    *((name, (x,), False) for name in ("stddev", "var_pop", "median") for x in ("long", "double")),
    ("stddev", ("wild",), False),
    ("bool_and", ("bool",), False),
    ("bool_or", ("bool",), False),
]


def named(name: str, types: tuple[str, ...], distinct: bool) -> Aggregate:
    made = make(name, [VALUES[x][0] for x in types], distinct, {})
    assert made is not None
    return made


def best(n: int, ties: bool) -> Aggregate:
    made = make_top(n, (("x", pa.string()),), ((pa.int64(), True, False),), ties)
    assert made is not None
    return made


CASES: list[tuple[Aggregate, tuple[str, ...]]] = [
    *((named(name, types, distinct), types) for name, types, distinct in NAMED),
    (best(1, False), ("string", "long")),
    (best(3, False), ("string", "long")),
    (best(2, True), ("string", "long")),
    (KeptRows((("x", pa.string()),)), ("string",)),
]


@st.composite
def overlapping(draw: st.DrawFn) -> tuple[int, Bounds, Bounds]:
    """A count of rows, and ranges of them by their beginnings, many or few, long or short."""
    rows = draw(st.integers(1, 24))
    lows = st.integers(0, rows - 1)
    some = lows.flatmap(lambda low: st.tuples(st.just(low), st.integers(low + 1, rows)))
    length = draw(st.integers(1, rows))
    each_row = [(low, min(low + length, rows)) for low in range(rows)]
    ranges = sorted(draw(st.lists(some, min_size=1, max_size=12) | st.just(each_row)))
    return rows, np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])


def same(one: Any, other: Any, size: float) -> bool:
    """Equal; with a ``size`` a float may be wrong in the last digits that numbers of this size have."""
    if size and isinstance(one, float) and isinstance(other, float) and math.isfinite(other):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12 * size)
    return str(one) == str(other)


def size_of(aggregate: Aggregate, values: list[Any]) -> float:
    """The greatest number that floats were added up from; 0 for what is exact."""
    if isinstance(aggregate, Top) or pays_from(aggregate) == math.inf:
        return 0.0
    greatest = 1.0 + max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    if not isinstance(aggregate, Deviation):
        return greatest
    # the root of a small fault is not small
    return greatest * 1e6 if aggregate.root else greatest**2


@pytest.mark.parametrize("types", sorted({types for _, types in CASES}), ids=", ".join)
@given(ranges=overlapping(), draw=st.data())
@settings(max_examples=25, deadline=None)
def test_overlapping_ranges_give_what_each_gives_alone(
    types: tuple[str, ...], ranges: tuple[int, Bounds, Bounds], draw: st.DataObject
) -> None:
    rows, lo, hi = ranges
    values = [draw.draw(st.lists(st.none() | VALUES[x][1], min_size=rows, max_size=rows)) for x in types]
    arguments = [pa.array(column, VALUES[x][0]) for column, x in zip(values, types, strict=True)]
    mask = pa.array(draw.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    position = np.array(draw.draw(st.permutations(range(rows))))
    order = Order(position // 3, position % 2, position)
    for aggregate in (aggregate for aggregate, its_types in CASES if its_types == types):
        state = aggregate.start(arguments, mask, order, rows)
        alone = [aggregate.merge(state, np.array([low]), np.array([high])) for low, high in zip(lo, hi, strict=True)]
        wanted = [aggregate.finish(each).to_pylist()[0] for each in alone]
        with mock.patch.object(reduction, "HEAVY", 1):
            plain = aggregate.merge(state, lo, hi)
        with mock.patch.object(overlaps, "pays", return_value=True), mock.patch.object(overlaps, "BLOCK", 20):
            levelled = merge_overlapping(aggregate, state, lo, hi)
        size = size_of(aggregate, values[0]) if values else 0.0
        for merged in (plain, levelled):
            assert tuple(column.type for column in merged) == aggregate.state_types()
            got = aggregate.finish(merged).to_pylist()
            assert len(got) == len(wanted)
            for ours, theirs in zip(got, wanted, strict=True):
                assert same(ours, theirs, size), f"{aggregate}: {got} is not {wanted}"


@given(ranges=overlapping(), draw=st.data())
def test_a_fold_by_doubling_is_the_fold_of_each_range(ranges: tuple[int, Bounds, Bounds], draw: st.DataObject) -> None:
    rows, lo, hi = ranges
    values = np.array(
        draw.draw(st.lists(st.sampled_from([0.0, 1.0, -2.5, np.nan, np.inf]), min_size=rows, max_size=rows))
    )
    for fold in REPEATABLE:
        typed = values if fold not in (np.logical_or, np.logical_and) else values > 0
        wanted = [fold.reduce(typed[low:high]) for low, high in zip(lo, hi, strict=True)]
        np.testing.assert_array_equal(reduce_doubling(fold, typed, lo, hi), wanted)


@given(ranges=overlapping(), draw=st.data())
def test_the_winner_by_rank_is_the_winner_of_each_range(
    ranges: tuple[int, Bounds, Bounds], draw: st.DataObject
) -> None:
    rows, lo, hi = ranges
    key = st.lists(st.integers(-1, 1), min_size=rows, max_size=rows)
    keys = [np.array(draw.draw(key)) for _ in range(2)]
    wanted = [min(range(low, high), key=lambda i: (keys[0][i], keys[1][i])) for low, high in zip(lo, hi, strict=True)]
    assert winners_ranked(keys, lo, hi).tolist() == wanted
    assert winners(keys, lo, hi).tolist() == wanted


def test_levels_are_for_long_ranges_of_the_aggregates_that_need_them() -> None:
    low = np.arange(1000)
    short, long = np.minimum(low + 5, 1000), np.minimum(low + 500, 1000)
    assert heavy(low, long)
    deviation, exact = named("stddev", ("double",), False), named("avg", ("money",), False)
    assert pays(deviation, low, long)
    assert not pays(deviation, low, short)
    assert not pays(exact, low, long)
    assert pays(named("avg", ("double",), False), low, long)
    assert pays(best(3, False), low, long)
    assert not pays(best(300, False), low, np.minimum(low + 60, 1000))


def test_a_long_sliding_sum_of_floats_is_right_to_the_last_digits() -> None:
    rows, length = 3000, 700
    values = np.random.default_rng(3).normal(size=rows)
    total = named("sum", ("double",), False)
    lo = np.arange(rows)
    hi = np.minimum(lo + length, rows)
    assert pays(total, lo, hi)
    state = total.start([pa.array(values)], None, None, rows)
    got = total.finish(merge_overlapping(total, state, lo, hi)).to_pylist()
    wanted = [math.fsum(values[low:high]) for low, high in zip(lo, hi, strict=True)]
    assert got == pytest.approx(wanted, rel=1e-13, abs=1e-13)


def test_nothing_overlaps_nothing() -> None:
    none = np.empty(0, np.int64)
    total = named("sum", ("money",), False)
    state = total.start([pa.array([Decimal("1.50")], pa.decimal128(10, 2))], None, None, 1)
    assert total.finish(merge_overlapping(total, state, none, none)).to_pylist() == []
