"""``count``: how many rows take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import column_of, flags, numbers, validity, whole
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds, add_ranges


@dataclass(frozen=True)
class Count:
    """The rows in which no argument is null; without arguments, all rows."""

    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A long, never null."""
        return pa.int64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The count so far."""
        return (pa.int64(),)

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """One for a row that counts, else zero."""
        counted = np.ones(rows, np.int64)
        if mask is not None:
            counted *= flags(whole(mask))
        for column in args:
            there = validity(whole(column))
            if there is not None:
                counted *= there
        return [column_of(counted, pa.int64())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The counts of each range, added."""
        return [column_of(add_ranges(numbers(whole(state[0])), lo, hi), pa.int64())]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The count."""
        return whole(state[0])


def make_count(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Count:
    """``count`` takes any number of arguments of any type."""
    return Count()
