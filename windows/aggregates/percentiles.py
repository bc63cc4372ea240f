"""``percentile`` and ``median``: exact, by interpolation between the two nearest values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import Numbers, column_of, flags, numbers, taking_part, whole
from penstock.windows.aggregates.codes import bounds
from penstock.windows.aggregates.doubles import doubles, is_number
from penstock.windows.aggregates.lists import flat_values, joined, list_column, list_of, list_result, owners, singletons
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds


@dataclass(frozen=True)
class Percentile:
    """The values at ``percentages`` of the way from the least to the greatest; null when there is none."""

    percentages: tuple[float, ...]
    array: bool = False
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A double, or a list of them when the percentages came as an array."""
        return list_of(pa.float64()) if self.array else pa.float64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """All values."""
        return (pa.list_(pa.float64()),)

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value by itself, nothing for a null."""
        column = doubles(taking_part(args[0], mask))
        return [singletons(column, flags(column.is_valid()))]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The values of each range; they are sorted once, at the end."""
        column = whole(state[0])
        rows, ends = joined(column, lo, hi)
        return [list_column(flat_values(column).take(pa.array(rows)), ends)]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The percentiles."""
        column = whole(state[0])
        ends = bounds(column)
        values = numbers(flat_values(column))
        # NumPy too sorts NaN behind all other numbers
        values = values[np.lexsort((values, owners(ends)))]
        first, count = ends[:-1], np.diff(ends)
        there = count > 0
        found = [at_percentage(values, first[there], count[there], part) for part in self.percentages]
        if not self.array:
            result = np.zeros(len(count))
            result[there] = found[0]
            return column_of(result, pa.float64(), there)
        entries = np.stack(found, axis=1).ravel() if found else np.empty(0)
        sizes = np.concatenate(([0], np.cumsum(there * len(self.percentages))))
        return list_result(column_of(entries, pa.float64()), sizes, there)


def at_percentage(values: Numbers, first: Bounds, count: Bounds, percentage: float) -> Numbers:
    """The value at a percentage of each run of sorted values, by Spark's own formula."""
    position = (count - 1) * percentage
    below, above = np.floor(position), np.ceil(position)
    low = values[first + below.astype(np.int64)]
    high = values[first + above.astype(np.int64)]
    with np.errstate(invalid="ignore"):
        between = (above - position) * low + (position - below) * high
    # equal neighbours are the answer: the formula could round them, or make infinity no number
    return np.asarray(np.where((below == above) | (low == high), low, between))


def make_percentile(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Percentile | None:
    """The percentile of a number, without frequencies; the median is the one at a half."""
    (kind,) = types
    if not is_number(kind):
        return None
    if name == "median":
        return Percentile((0.5,))
    return Percentile(tuple(options["percentages"]), bool(options.get("array", False)))
