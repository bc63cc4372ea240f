"""``sum`` of integers, durations and floats; nulls are skipped, and the sum of nothing is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.errors import RunError
from penstock.windows.aggregates.buffers import (
    Flags,
    column_of,
    filled,
    numbers,
    relabelled,
    taking_part,
    validity,
    whole,
)
from penstock.windows.aggregates.decimals import DecimalSum
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds, reduce_ranges
from penstock.windows.aggregates.wide import sum_longs


def any_in_range(column: pa.Array, lo: Bounds, hi: Bounds) -> Flags | None:
    """True for the ranges in which some row is not null; None when all are such."""
    there = validity(column)
    return None if there is None else reduce_ranges(np.logical_or, there, lo, hi)


@dataclass(frozen=True)
class IntegerSum:
    """The exact sum of integers as a long, or of durations as a duration; too great a sum is an error."""

    result_type: pa.DataType
    needs_order: bool = False

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The low 64 bits, null when there was no value, and how often the sum went past them."""
        return (pa.int64(), pa.int32())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value as a sum of its own."""
        column = taking_part(args[0], mask)
        if pa.types.is_duration(column.type):
            column = relabelled(column, pa.int64())
        return [column.cast(pa.int64()), column_of(np.zeros(rows, np.int32), pa.int32())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The sums of each range."""
        low, wraps = whole(state[0]), numbers(whole(state[1]))
        sums, over = sum_longs(filled(low, 0), wraps.astype(np.int64), lo, hi)
        return [column_of(sums, pa.int64(), any_in_range(low, lo, hi)), column_of(over, pa.int32())]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The sum, refused when it does not fit."""
        if numbers(whole(state[1])).any():
            kind = "bigint" if pa.types.is_integer(self.result_type) else "interval"
            raise RunError(f"sum overflowed {kind}; cast the argument to decimal(38, 0) or double")
        return relabelled(whole(state[0]), self.result_type)

    def mean(self, state: Sequence[pa.Array], count: pa.Array) -> pa.Array:
        """The sum over the count as a double; it cannot overflow."""
        low, wraps = whole(state[0]), numbers(whole(state[1]))
        exact = numbers(low).astype(np.longdouble) + wraps.astype(np.longdouble) * np.longdouble(2.0) ** 64
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (exact / numbers(count)).astype(np.float64)
        return column_of(means, pa.float64(), validity(low))


@dataclass(frozen=True)
class FloatSum:
    """The sum of floats as a double, carried in twice the precision so that the order hardly shows."""

    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A double, for floats too."""
        return pa.float64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The sum as a double, null when there was no value, and what rounding it left over."""
        return (pa.float64(), pa.float64())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value as a sum of its own."""
        column = taking_part(args[0], mask).cast(pa.float64())
        return [column, column_of(np.zeros(rows), pa.float64())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The sums of each range; a sum past the greatest double is infinite from then on."""
        high = whole(state[0])
        with np.errstate(over="ignore", invalid="ignore"):
            values = filled(high, 0.0).astype(np.longdouble) + numbers(whole(state[1]))
            total = reduce_ranges(np.add, values, lo, hi)
            rounded = total.astype(np.float64)
            rest = np.where(np.isfinite(rounded), total - rounded, 0.0).astype(np.float64)
        there = any_in_range(high, lo, hi)
        return [column_of(rounded, pa.float64(), there), column_of(rest, pa.float64())]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The sum."""
        return pc.add(whole(state[0]), whole(state[1]))

    def mean(self, state: Sequence[pa.Array], count: pa.Array) -> pa.Array:
        """The sum over the count."""
        with np.errstate(invalid="ignore", divide="ignore"):
            means = numbers(self.finish(state)) / numbers(count)
        return column_of(means, pa.float64(), validity(whole(state[0])))


def make_sum(
    name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]
) -> IntegerSum | FloatSum | DecimalSum | None:
    """The sum for one numeric or duration argument."""
    (kind,) = types
    if pa.types.is_signed_integer(kind):
        return IntegerSum(pa.int64())
    if pa.types.is_duration(kind):
        return IntegerSum(kind)
    if pa.types.is_floating(kind):
        return FloatSum()
    return DecimalSum(kind.precision, kind.scale) if pa.types.is_decimal128(kind) else None
