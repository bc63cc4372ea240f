"""``count(distinct x)``: the values themselves are kept, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import column_of, flags, taking_part, whole
from penstock.windows.aggregates.codes import bounds, codes_within, first_of_each
from penstock.windows.aggregates.lists import flat_values, joined, list_column, owners, singletons
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds


@dataclass(frozen=True)
class CountDistinct:
    """How many different values there are; null is not one of them, and equal is as in grouping."""

    of: pa.DataType
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A long, never null."""
        return pa.int64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The different values."""
        return (pa.list_(self.of),)

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value by itself, nothing for a null."""
        column = taking_part(args[0], mask)
        return [singletons(column, flags(column.is_valid()))]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The different values of each range."""
        column = whole(state[0])
        rows, ends = joined(column, lo, hi)
        values = flat_values(column).take(pa.array(rows))
        new = first_of_each(codes_within(owners(ends), values))
        kept = np.concatenate(([0], np.cumsum(new)))
        return [list_column(values.filter(pa.array(new)), kept[ends])]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """How many there are."""
        return column_of(np.diff(bounds(whole(state[0]))), pa.int64())


def make_count_distinct(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> CountDistinct:
    """``count(distinct ...)`` of one column; several come as one struct, null where any of them is."""
    (kind,) = types
    return CountDistinct(kind)
