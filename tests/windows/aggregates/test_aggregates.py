"""Every aggregate against its naive twin, over any masks, any overlapping ranges and any cut on the way."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.errors import RunError
from penstock.windows.aggregates.registry import KERNEL_AGGREGATES, Order, make

WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
NAN, INF = float("nan"), float("inf")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


# The twins: each takes the rows of a range that the mask lets in, oldest first, as tuples of arguments.


def some(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return value.encode() if isinstance(value, str) else value


def hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, hashable(part)) for name, part in sorted(value.items()))
    if isinstance(value, list):
        return tuple(hashable(part) for part in value)
    return comparable(value) if isinstance(value, float) else value


def naive_sum(rows: list[tuple[Any, ...]]) -> Any:
    values = some(rows)
    if not values:
        return None
    if isinstance(values[0], timedelta):
        return sum(values, timedelta())
    if isinstance(values[0], Decimal):
        total = Decimal(0)
        for value in values:
            total = WIDE.add(total, value)
        return total
    return naive_float_sum(values) if isinstance(values[0], float) else sum(values)


def naive_float_sum(values: list[float]) -> float:
    if any(math.isnan(v) for v in values) or {INF, -INF} <= set(values):
        return NAN
    return math.fsum(values)


def naive_avg(rows: list[tuple[Any, ...]]) -> Any:
    total, count = naive_sum(rows), len(some(rows))
    if total is None:
        return None
    return WIDE.divide(total, Decimal(count)) if isinstance(total, Decimal) else total / count


def naive_variance(rows: list[tuple[Any, ...]], sample: bool) -> float | None:
    values = [float(value) for value in some(rows)]
    degrees = len(values) - sample
    if degrees <= 0:
        return None
    if any(not math.isfinite(value) for value in values):
        return NAN
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / degrees


def naive_by(rows: list[tuple[Any, ...]], pick: Callable[..., Any]) -> Any:
    taking_part = [row for row in rows if row[1] is not None]
    return pick(taking_part, key=lambda row: comparable(row[1]), default=(None,))[0]


def naive_percentile(rows: list[tuple[Any, ...]], percentage: float) -> float | None:
    values = sorted((float(value) for value in some(rows)), key=comparable)
    if not values:
        return None
    at = (len(values) - 1) * percentage
    low, high = values[math.floor(at)], values[math.ceil(at)]
    if low == high or at == math.floor(at):
        return low
    return (math.ceil(at) - at) * low + (at - math.floor(at)) * high


def by_first_appearance(rows: list[tuple[Any, ...]]) -> list[Any]:
    seen: dict[Any, Any] = {}
    for value in some(rows):
        seen.setdefault(hashable(value), value)
    return list(seen.values())


# The types, with values that are near to each other so that ties are common.

doubles = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, -1e300, 1e-9, 3.0, NAN, INF, -INF])
tame = st.floats(-1e6, 1e6)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "int": (pa.int32(), st.integers(-3, 3) | st.just(2**31 - 1)),
    "long": (pa.int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])),
    "small": (pa.int64(), st.integers(-3, 3)),
    "float": (pa.float32(), st.sampled_from([0.5, -0.0, 0.0, 2.0, NAN, INF, -INF])),
    "double": (pa.float64(), doubles),
    "tame": (pa.float64(), tame),
    "money": (pa.decimal128(10, 2), st.decimals(-9, 9, places=2)),
    "fine": (pa.decimal128(38, 34), st.decimals("-999.9", "999.9", places=34)),
    "great": (
        pa.decimal128(38, 0),
        st.sampled_from([Decimal(0), Decimal(1), Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**90)]),
    ),
    "string": (pa.string(), st.sampled_from(["", "a", "aa", "b", "é", "z", "\U0001f600", "\uffee"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\x00", b"\xff", b"a"])),
    "date": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(1, 1, 1), date(2024, 2, 29)])),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.integers(-(10**12), 10**12).map(lambda us: EPOCH + timedelta(microseconds=us)),
    ),
    "local": (pa.timestamp("us"), st.sampled_from([datetime(1950, 1, 1), datetime(2024, 1, 1)])),
    "duration": (pa.duration("us"), st.integers(-5, 5).map(lambda us: timedelta(microseconds=us))),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 1) | st.none(), max_size=2)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.float64())]),
        st.fixed_dictionaries({"a": st.integers(0, 1) | st.none(), "b": st.sampled_from([0.0, NAN])}),
    ),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 1)).map(lambda m: sorted(m.items())),
    ),
    "null": (pa.null(), st.none()),
}
ALL = tuple(TYPES)
NUMBERS = ("byte", "int", "small", "float", "tame", "money")
NESTED = ("list", "struct", "map", "null")
ORDERED = tuple(name for name in ALL if name not in NESTED)


@dataclass(frozen=True)
class Case:
    """An aggregate, the types of its arguments, and its twin."""

    name: str
    types: tuple[str, ...]
    twin: Callable[[list[tuple[Any, ...]]], Any]
    distinct: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "".join(f" {option}" for option, value in self.options.items() if value is not False)
        return f"{self.name}({'distinct ' * self.distinct}{', '.join(self.types)}){options}"


def root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def cases() -> list[Case]:
    def every(rows: list[tuple[Any, ...]]) -> bool | None:
        return all(some(rows)) if some(rows) else None

    def either(rows: list[tuple[Any, ...]]) -> bool | None:
        return any(some(rows)) if some(rows) else None

    several = {"percentages": (0.0, 0.9, 1.0), "array": True}
    each = [
        Case("count", (), len),
        Case("count", ("int", "string"), lambda rows: sum(None not in row for row in rows)),
        *(Case(name, ("bool",), every) for name in ("bool_and", "every")),
        *(Case(name, ("bool",), either) for name in ("bool_or", "any", "some")),
        *(Case("min_by", ("string", by), lambda rows: naive_by(rows, min)) for by in ORDERED),
        *(Case("max_by", ("string", by), lambda rows: naive_by(rows, max)) for by in ORDERED),
        *(Case("max_by", (x, "byte"), lambda rows: naive_by(rows, max)) for x in NESTED),
        Case("array_agg", ("string",), some),
        Case("collect_list", ("double",), by_first_appearance, distinct=True),
        Case("max", ("int",), lambda rows: max(some(rows), default=None), distinct=True),
    ]
    for x in ALL:
        each += [
            Case("count", (x,), lambda rows: len(some(rows))),
            Case("count", (x,), lambda rows: len(by_first_appearance(rows)), distinct=True),
            *(Case(name, (x,), lambda rows: rows[0][0] if rows else None) for name in ("first", "first_value")),
            Case("last_value", (x,), lambda rows: rows[-1][0] if rows else None),
            Case("any_value", (x,), lambda rows: (*some(rows), None)[0], options={"ignore_nulls": True}),
            Case("last", (x,), lambda rows: (None, *some(rows))[-1], options={"ignore_nulls": True}),
            Case("collect_list", (x,), some),
            Case("collect_set", (x,), by_first_appearance),
        ]
    for x in ORDERED:
        each += [
            Case("min", (x,), lambda rows: min(some(rows), key=comparable, default=None)),
            Case("max", (x,), lambda rows: max(some(rows), key=comparable, default=None)),
        ]
    for x in (
        "byte",
        "int",
        "long",
        "small",
        "float",
        "double",
        "tame",
        "money",
        "fine",
        "great",
        "duration",
    ):
        each += [Case("sum", (x,), naive_sum)]
        each += [] if x == "duration" else [Case(name, (x,), naive_avg) for name in ("avg", "mean")]
    for x in NUMBERS:
        each += [
            *(Case(name, (x,), lambda rows: naive_variance(rows, True)) for name in ("variance", "var_samp")),
            Case("var_pop", (x,), lambda rows: naive_variance(rows, False)),
            *(
                Case(name, (x,), lambda rows: root(naive_variance(rows, True)))
                for name in ("std", "stddev", "stddev_samp")
            ),
            Case("stddev_pop", (x,), lambda rows: root(naive_variance(rows, False))),
            Case("median", (x,), lambda rows: naive_percentile(rows, 0.5)),
            *(
                Case(name, (x,), lambda rows: naive_percentile(rows, 0.3), options={"percentages": (0.3,)})
                for name in ("percentile", "percentile_cont")
            ),
            Case(
                "percentile",
                (x,),
                lambda rows: [naive_percentile(rows, p) for p in (0.0, 0.9, 1.0)] if some(rows) else None,
                options=several,
            ),
        ]
    return each


CASES = cases()


@dataclass(frozen=True)
class Rows:
    """Rows with a mask and an order, the tiles that they are cut into, and ranges of tiles."""

    args: list[tuple[Any, ...]]
    mask: list[bool | None] | None
    order: list[tuple[int, int, int]]
    cuts: list[int]
    ranges: list[tuple[int, int]]

    def naive(self, twin: Callable[[list[tuple[Any, ...]]], Any]) -> list[Any]:
        wanted = []
        for lo, hi in self.ranges:
            inside = range(self.cuts[lo], self.cuts[hi])
            let_in = [i for i in inside if self.mask is None or self.mask[i]]
            wanted.append(twin([self.args[i] for i in sorted(let_in, key=lambda i: self.order[i])]))
        return wanted


@st.composite
def rows_of(draw: st.DrawFn, types: tuple[str, ...]) -> Rows:
    value = st.tuples(*(st.none() | TYPES[name][1] | TYPES[name][1] for name in types))
    args = draw(st.lists(value, min_size=1, max_size=12))
    count = len(args)
    mask = draw(st.none() | st.lists(st.sampled_from([True, True, False, None]), min_size=count, max_size=count))
    time = st.lists(st.integers(-1, 1), min_size=count, max_size=count)
    position = draw(st.permutations(range(count)))
    order = list(zip(draw(time), (at % 2 for at in position), position, strict=True))
    cuts = sorted({0, count} | draw(st.sets(st.integers(0, count), max_size=4)))
    lows = st.integers(0, len(cuts) - 2)
    overlapping = st.lists(
        lows.flatmap(lambda lo: st.tuples(st.just(lo), st.integers(lo + 1, len(cuts) - 1))), max_size=4
    )
    tiling = st.just([(at, at + 1) for at in range(len(cuts) - 1)])
    return Rows(args, mask, order, cuts, draw(tiling | overlapping))


def fits(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, Decimal):
        return value.copy_abs() < Decimal(10).scaleb(kind.precision - kind.scale - 1, WIDE)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def same(got: Any, wanted: Any, kind: pa.DataType, tolerance: float) -> bool:
    if got is None or wanted is None:
        return got is wanted
    if isinstance(wanted, Decimal) and pa.types.is_decimal(kind):
        return bool(got == wanted.quantize(Decimal(1).scaleb(-kind.scale), context=WIDE))
    if isinstance(wanted, float):
        close = math.isclose(got, wanted, rel_tol=1e-12, abs_tol=tolerance)
        return close or (math.isnan(got) and math.isnan(wanted))
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return [hashable(part) for part in got] == [hashable(part) for part in wanted]
    return bool(hashable(got) == hashable(wanted))


def overflows(case: Case, rows: Rows, wanted: list[Any], kind: pa.DataType) -> bool:
    """True when a sum, or a mean made from it, has no room in its type; a mean of longs always has."""
    if case.name not in ("sum", "avg", "mean") or (case.name != "sum" and not pa.types.is_decimal(kind)):
        return False
    widest = pa.decimal128(38, TYPES[case.types[0]][0].scale) if pa.types.is_decimal(kind) else kind
    sums_fit = all(fits(total, widest) for total in rows.naive(naive_sum))
    return not (sums_fit and all(fits(value, kind) for value in wanted))


def check(case: Case, rows: Rows, args: list[pa.Array], mask: pa.Array | None, order: Order) -> None:
    aggregate = make(case.name, [column.type for column in args], case.distinct, case.options)
    assert aggregate is not None
    assert pickle.loads(pickle.dumps(aggregate)) == aggregate
    state = aggregate.start(args, mask, order if aggregate.needs_order else None, len(rows.args))
    lo, hi = (np.array([ends[side] for ends in rows.ranges], np.int64) for side in (0, 1))
    cuts = np.array(rows.cuts)
    at_once = aggregate.merge(state, cuts[lo], cuts[hi])
    by_tiles = aggregate.merge(aggregate.merge(state, cuts[:-1], cuts[1:]), lo, hi)

    wanted = rows.naive(case.twin)
    kind = aggregate.result_type
    sizes = [abs(row[0]) for row in rows.args if row and isinstance(row[0], float) and math.isfinite(row[0])]
    tolerance = sum(sizes) * (1e-9 if case.name.startswith(("std", "var")) else 1e-15)
    for merged in (at_once, by_tiles):
        assert tuple(column.type for column in merged) == aggregate.state_types()
        if overflows(case, rows, wanted, kind):
            with pytest.raises(RunError, match="overflowed"):
                aggregate.finish(merged)
            continue
        result = aggregate.finish(merged)
        result.validate(full=True)
        assert result.type == kind
        got = result.to_pylist()
        assert len(got) == len(wanted)
        for ours, naive in zip(got, wanted, strict=True):
            assert same(ours, naive, kind, tolerance), f"{case}: {got} is not {wanted}"


@pytest.mark.parametrize("types", sorted({case.types for case in CASES}), ids=", ".join)
@given(draw=st.data())
@settings(max_examples=25, deadline=None)
def test_an_aggregate_is_its_naive_twin_however_the_rows_are_cut(types: tuple[str, ...], draw: st.DataObject) -> None:
    rows = draw.draw(rows_of(types))
    kinds = [TYPES[name][0] for name in types]
    args = [pa.array(column, kind) for column, kind in zip(zip(*rows.args, strict=True), kinds, strict=False)]
    mask = None if rows.mask is None else pa.array(rows.mask, pa.bool_())
    order = Order(*(np.array(part, np.int64) for part in zip(*rows.order, strict=True)))
    for case in CASES:
        if case.types == types:
            check(case, rows, args, mask, order)


def test_every_name_has_a_twin() -> None:
    assert {case.name for case in CASES} == KERNEL_AGGREGATES
