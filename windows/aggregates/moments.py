"""``variance`` and ``stddev``: count, mean and squared distance from the mean, merged by Chan's formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import column_of, filled, numbers, taking_part, validity, whole
from penstock.windows.aggregates.doubles import doubles, is_number
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds, gather, reduce_ranges


@dataclass(frozen=True)
class Deviation:
    """The variance of the values, or its root; of a sample of one it is null, as it is of nothing."""

    sample: bool
    root: bool
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A double, whatever the argument."""
        return pa.float64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """How many values, their mean, and the sum of their squared distances from it."""
        return (pa.int64(), pa.float64(), pa.float64())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value as its own mean."""
        column = doubles(taking_part(args[0], mask))
        there = validity(column)
        count = np.ones(rows, np.int64) if there is None else there.astype(np.int64)
        values = filled(column, 0.0)
        with np.errstate(invalid="ignore"):
            distance = values - values  # not a number for an infinite value, as in Spark
        return [
            column_of(count, pa.int64()),
            column_of(values, pa.float64()),
            column_of(distance, pa.float64()),
        ]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The moments of each range."""
        rows = gather(lo, hi)
        lengths = hi - lo
        starts = np.cumsum(lengths) - lengths
        ends = starts + lengths
        count, mean, distance = (numbers(whole(column))[rows] for column in state)
        weight = count.astype(np.longdouble)
        total = reduce_ranges(np.add, count, starts, ends)
        with np.errstate(invalid="ignore", over="ignore"):
            means = reduce_ranges(np.add, weight * mean, starts, ends) / np.maximum(total, 1)
            apart = mean - np.repeat(means, lengths)
            # a side without values has no mean, and may not drag one in
            between = np.where(count > 0, weight * apart * apart, 0.0)
            distances = reduce_ranges(np.add, distance + between, starts, ends)
            columns = [means.astype(np.float64), distances.astype(np.float64)]
        return [column_of(total, pa.int64()), *(column_of(part, pa.float64()) for part in columns)]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The variance or deviation."""
        count, _, distance = (numbers(whole(column)) for column in state)
        degrees = count - 1 if self.sample else count
        with np.errstate(invalid="ignore"):
            variance = distance / np.maximum(degrees, 1)
            result = np.sqrt(variance) if self.root else variance
        return column_of(result, pa.float64(), degrees > 0)


def make_deviation(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Deviation | None:
    """The deviation of one number of any kind."""
    (kind,) = types
    if not is_number(kind):
        return None
    return Deviation(sample=not name.endswith("_pop"), root=name.startswith("std"))
