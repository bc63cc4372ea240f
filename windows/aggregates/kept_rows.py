"""Whole rows, kept until a window closes: for the aggregates that only Spark itself can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import flags, whole
from penstock.windows.aggregates.codes import bounds
from penstock.windows.aggregates.lists import (
    Fields,
    flat_values,
    joined_columns,
    list_of_rows,
    list_rows_result,
    singletons,
)
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds


@dataclass(frozen=True)
class KeptRows:
    """The rows themselves, nulls and repeats and all; of nothing an empty list.

    There is at least one field. The rows of a result stand in no promised order.
    """

    fields: Fields
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A list of structs."""
        return list_of_rows(self.fields)

    def state_types(self) -> tuple[pa.DataType, ...]:
        """For each field the values of the rows, one beside the other."""
        return tuple(pa.list_(kind) for _, kind in self.fields)

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each row by itself."""
        present = np.ones(rows, np.bool_) if mask is None else flags(whole(mask))
        return [singletons(whole(column), present) for column in args]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The rows of each range."""
        return joined_columns([whole(column) for column in state], lo, hi)

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """All rows."""
        columns = [whole(column) for column in state]
        return list_rows_result(self.fields, [flat_values(column) for column in columns], bounds(columns[0]))
