"""``min``, ``max``, ``bool_and`` and ``bool_or``: the least or the greatest value of a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import (
    Numbers,
    column_of,
    filled,
    numbers,
    storage,
    taking_part,
    validity,
    whole,
)
from penstock.windows.aggregates.ordering import Order, orderable, sort_keys
from penstock.windows.aggregates.reduction import Bounds, reduce_ranges, winners


@dataclass(frozen=True)
class Extreme:
    """The least value, or the greatest; nulls are skipped, and that of nothing is null.

    NaN is greater than any other float, false is less than true, text compares by its bytes.
    """

    result_type: pa.DataType
    greatest: bool
    needs_order: bool = False

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The value so far, null when there was none."""
        return (self.result_type,)

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value by itself."""
        return [taking_part(args[0], mask)]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The least or greatest of each range."""
        column = whole(state[0])
        if pa.types.is_decimal(self.result_type) or storage(self.result_type) is None:
            return [column.take(pa.array(self.winning_rows(column, lo, hi)))]
        there = validity(column)
        some = None if there is None else reduce_ranges(np.logical_or, there, lo, hi)
        return [column_of(self.fold(column, lo, hi), self.result_type, some)]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return whole(state[0])

    def fold(self, column: pa.Array, lo: Bounds, hi: Bounds) -> Numbers:
        """The extreme of each range of a fixed-width column; a null never wins over a value."""
        dtype = numbers(column).dtype
        fold, loser = self.fold_and_loser(dtype)
        values = filled(column, loser)
        if dtype.kind == "f":
            # adding zero makes -0.0 and 0.0 one value, so that the order of rows cannot show
            values = values + dtype.type(0.0)
        return reduce_ranges(fold, values, lo, hi)

    def fold_and_loser(self, dtype: np.dtype[Any]) -> tuple[np.ufunc, Any]:
        """How two values are compared, and a value that loses to any other."""
        if dtype.kind == "f":
            # fmin passes over NaN and maximum is led by it: both hold it for the greatest
            return (np.maximum, -np.inf) if self.greatest else (np.fmin, np.nan)
        if dtype.kind == "b":
            return (np.logical_or, False) if self.greatest else (np.logical_and, True)
        limits = np.iinfo(dtype)
        return (np.maximum, limits.min) if self.greatest else (np.minimum, limits.max)

    def winning_rows(self, column: pa.Array, lo: Bounds, hi: Bounds) -> Bounds:
        """The row of each range that holds its extreme, a null row only where there is nothing else."""
        keys = sort_keys(column)
        if self.greatest:
            keys = ~keys
        there = validity(column)
        return winners([keys] if there is None else [(~there).astype(np.int64), keys], lo, hi)


def make_extreme(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Extreme | None:
    """``min`` and ``max`` of a type that is not nested; the others of booleans only."""
    (kind,) = types
    if name not in ("min", "max") and not pa.types.is_boolean(kind):
        return None
    return Extreme(kind, greatest=name in ("max", "bool_or", "any", "some")) if orderable(kind) else None
