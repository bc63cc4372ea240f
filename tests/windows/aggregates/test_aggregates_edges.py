"""Aggregates at their edges: overflow, masks that let nothing in, slices and chunks, what is not ours."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.errors import RunError
from penstock.windows.aggregates.reduction import add_ranges, reduce_ranges, tiles
from penstock.windows.aggregates.registry import KERNEL_AGGREGATES, Aggregate, Order, make

LONG_MAX, DECIMAL_MAX, DECIMAL_MIN = 2**63 - 1, Decimal(10**38 - 1), Decimal(1 - 10**38)
LONG, DOUBLE, GREAT = pa.int64(), pa.float64(), pa.decimal128(38, 0)


def aggregate(name: str, *kinds: pa.DataType, distinct: bool = False, **options: Any) -> Aggregate:
    made = make(name, kinds, distinct, options)
    assert made is not None
    return made


def order(rows: int) -> Order:
    return Order(np.arange(rows), np.zeros(rows, np.int32), np.arange(rows))


def over_all(name: str, values: list[Any], kind: pa.DataType, mask: list[bool | None] | None = None) -> Any:
    """The aggregate of all rows, once merged at once and once row after row; the two must agree."""
    rows, made = len(values), aggregate(name, kind, **({"percentages": (0.5,)} if "percent" in name else {}))
    masked = None if mask is None else pa.array(mask, pa.bool_())
    state = made.start([pa.array(values, kind)], masked, order(rows), rows)
    whole = made.finish(made.merge(state, np.array([0]), np.array([rows]))).to_pylist()
    running = [column.slice(0, 1) for column in state]
    for at in range(1, rows):
        both = [pa.chunked_array([so_far, column.slice(at, 1)]) for so_far, column in zip(running, state, strict=True)]
        running = made.merge(both, np.array([0]), np.array([2]))
    assert made.finish(running).to_pylist() == whole
    return whole[0]


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([LONG_MAX, 1], LONG, "sum overflowed bigint"),
        ([-LONG_MAX, -2], LONG, "sum overflowed bigint"),
        ([LONG_MAX] * 5, LONG, "sum overflowed bigint"),
        ([timedelta(days=10**8 - 1)] * 2, pa.duration("us"), "sum overflowed interval"),
        ([DECIMAL_MAX, Decimal(1)], GREAT, r"sum overflowed decimal\(38, 0\)"),
        ([DECIMAL_MAX] * 7, GREAT, r"sum overflowed decimal\(38, 0\)"),
        ([DECIMAL_MIN] * 4, GREAT, r"sum overflowed decimal\(38, 0\)"),
    ],
    ids=[
        "long",
        "negative long",
        "long past 64 bits",
        "duration",
        "decimal",
        "past 128 bits",
        "negative decimal",
    ],
)
def test_a_sum_that_does_not_fit_is_an_error(values: list[Any], kind: pa.DataType, text: str) -> None:
    with pytest.raises(RunError, match=text):
        over_all("sum", values, kind)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([LONG_MAX, LONG_MAX, -LONG_MAX, -5], LONG),
        ([-(2**63), -(2**63), LONG_MAX, LONG_MAX, 1], LONG),
        ([*[DECIMAL_MAX] * 6, *[DECIMAL_MIN] * 5], GREAT),
        ([*[DECIMAL_MIN] * 6, *[DECIMAL_MAX] * 6], GREAT),
    ],
    ids=["up and down", "down and up", "decimals up and down", "decimals down and up"],
)
def test_a_sum_that_fits_in_the_end_is_right_whatever_it_was_on_the_way(values: list[Any], kind: pa.DataType) -> None:
    wanted = sum(map(int, values))
    assert over_all("sum", values, kind) == wanted
    assert int(over_all("sum", values[::-1], kind)) == wanted


def test_a_mean_of_longs_never_overflows() -> None:
    assert over_all("avg", [LONG_MAX] * 4, LONG) == float(LONG_MAX)


@pytest.mark.parametrize(("value", "mean"), [(1, "0.0313"), (-1, "-0.0313")])
def test_a_mean_of_decimals_is_rounded_half_up(value: int, mean: str) -> None:
    assert over_all("avg", [Decimal(value), *[Decimal(0)] * 31], pa.decimal128(5, 0)) == Decimal(mean)


def test_a_mean_without_room_for_its_four_digits_is_an_error() -> None:
    with pytest.raises(RunError, match=r"avg overflowed decimal\(38, 38\)"):
        over_all("avg", [Decimal("7.1")], pa.decimal128(38, 36))


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_floats_hardly_shows_in_their_sum(values: list[float], random: Any) -> None:
    made = aggregate("sum", DOUBLE)
    size = math.fsum(map(abs, values))
    for _ in range(3):
        random.shuffle(values)
        state = made.start([pa.array(values)], None, None, len(values))
        cut = np.arange(0, len(values), 7)
        state = made.merge(state, cut, np.append(cut[1:], len(values)))
        (got,) = made.finish(made.merge(state, np.array([0]), np.array([len(cut)]))).to_pylist()
        assert math.isclose(got, math.fsum(values), rel_tol=1e-15, abs_tol=size * 1e-17)


@pytest.mark.parametrize("name", sorted(KERNEL_AGGREGATES - {"min_by", "max_by"}))
def test_a_mask_that_lets_nothing_in_gives_the_value_of_nothing(name: str) -> None:
    flags = name in ("bool_and", "every", "bool_or", "any", "some")
    kind, values = (pa.bool_(), [True, False]) if flags else (LONG, [1, 2])
    nothing = {"count": 0, "collect_list": [], "array_agg": [], "collect_set": []}.get(name)
    assert over_all(name, values, kind, [False, None]) == nothing


@pytest.mark.parametrize("name", sorted(KERNEL_AGGREGATES))
def test_no_rows_and_no_ranges_give_no_results(name: str) -> None:
    flags = name in ("bool_and", "every", "bool_or", "any", "some")
    kinds = [pa.bool_() if flags else LONG] * (2 if name.endswith("_by") else 1)
    made = aggregate(name, *kinds, **({"percentages": (0.5,)} if name.startswith("percent") else {}))
    none = np.empty(0, np.int64)
    state = made.start([pa.array([], kind) for kind in kinds], None, order(0), 0)
    result = made.finish(made.merge(state, none, none))
    assert (len(result), result.type) == (0, made.result_type)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in ("count", "sum", "avg", "min", "first", "collect_list", "collect_set", "median")
        for kind in (LONG, DOUBLE, pa.decimal128(21, 2), pa.string(), pa.list_(LONG))
        if make(name, [kind], False, {}) is not None
    ],
    ids=str,
)
def test_slices_and_chunks_are_read_as_what_they_are(name: str, kind: pa.DataType) -> None:
    made = aggregate(name, kind)
    numbers = [4, None, 9, 3, None, 3, 8]
    values = [number if number is None else [number] for number in numbers] if pa.types.is_list(kind) else numbers
    plain = pa.array(values, pa.list_(LONG) if pa.types.is_list(kind) else LONG).cast(kind)
    padded = pa.concat_arrays([plain[3:], plain, plain[:2]]).slice(4, 7)
    chunked = pa.chunked_array([plain[:3], plain[3:3], plain[3:]])
    lo, hi = np.array([0, 2, 1]), np.array([3, 7, 7])
    results = []
    for column in (plain, padded, chunked):
        state = made.merge(made.start([column], None, order(7), 7), lo, hi)
        shifted = [pa.concat_arrays([part[2:], part]).slice(1) for part in state]
        results.append(made.finish(made.merge(shifted, lo[:2], hi[:1].repeat(2))).to_pylist())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("name", "kinds", "distinct", "options"),
    [
        ("approx_count_distinct", [LONG], False, {}),
        ("sum", [pa.string()], False, {}),
        ("sum", [pa.bool_()], False, {}),
        ("sum", [pa.null()], False, {}),
        ("sum", [LONG], True, {}),
        ("avg", [pa.duration("us")], False, {}),
        ("min", [pa.list_(LONG)], False, {}),
        ("max", [pa.struct([("a", LONG)])], False, {}),
        ("bool_and", [LONG], False, {}),
        ("max_by", [LONG, pa.list_(LONG)], False, {}),
        ("max_by", [LONG], False, {}),
        ("percentile", [LONG, LONG], False, {"percentages": (0.5,)}),
        ("percentile", [LONG], False, {"percentages": (0.5,), "descending": True}),
        ("count", [LONG, LONG], True, {}),
        ("max", [LONG], False, {"ignore_nulls": True}),
    ],
)
def test_what_is_not_ours_is_left_to_spark(
    name: str, kinds: list[pa.DataType], distinct: bool, options: dict[str, Any]
) -> None:
    assert make(name, kinds, distinct, options) is None


@given(st.data())
@settings(max_examples=200)
def test_ranges_are_folded_as_a_loop_would(draw: st.DataObject) -> None:
    values = np.array(draw.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30)), np.int64)
    lows = st.integers(0, len(values) - 1)
    ends = lows.flatmap(lambda lo: st.tuples(st.just(lo), st.integers(lo + 1, len(values))))
    ranges = draw.draw(st.lists(ends, max_size=8) | st.lists(ends, max_size=8).map(sorted))
    lo, hi = (np.array([end[side] for end in ranges], np.int64) for side in (0, 1))
    assert reduce_ranges(np.maximum, values, lo, hi).tolist() == [values[a:b].max() for a, b in ranges]
    wrapped = [(sum(map(int, values[a:b])) + 2**63) % 2**64 - 2**63 for a, b in ranges]
    assert add_ranges(values, lo, hi).tolist() == wrapped


def test_ranges_with_gaps_are_no_tiles() -> None:
    assert tiles(np.array([2, 4]), np.array([4, 9]))
    assert not tiles(np.array([2, 5]), np.array([4, 9]))
