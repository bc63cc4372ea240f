"""``collect_list`` and ``collect_set``: the values of a range, in order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import flags, numbers, taking_part, whole
from penstock.windows.aggregates.codes import bounds, codes_within, first_of_each
from penstock.windows.aggregates.lists import flat_values, joined, list_column, list_of, list_result, owners, singletons
from penstock.windows.aggregates.ordering import ORDER_TYPES, Order
from penstock.windows.aggregates.reduction import Bounds


@dataclass(frozen=True)
class Collect:
    """The values by event time and then order of arrival, without nulls; of nothing an empty list.

    With ``once`` a value stands only where it appears first.
    """

    of: pa.DataType
    once: bool = False
    needs_order: bool = True

    @property
    def result_type(self) -> pa.DataType:
        """A list of the argument's type."""
        return list_of(self.of)

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The values, and beside them where each stands in time."""
        return tuple(pa.list_(kind) for kind in (self.of, *ORDER_TYPES))

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value by itself, nothing for a null."""
        assert order is not None, "a collected value needs its place in time"
        column = taking_part(args[0], mask)
        present = flags(column.is_valid())
        return [singletons(part, present) for part in (column, *order.columns())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The values of each range in order of time, so that lists stay sorted and cheap to sort again."""
        rows, ends = joined(whole(state[0]), lo, hi)
        flat = [flat_values(whole(column)) for column in state]
        time, partition, position = (numbers(part)[rows] for part in flat[1:])
        rows = rows[np.lexsort((position, partition, time, owners(ends)))]
        if self.once:
            new = first_of_each(codes_within(owners(ends), flat[0].take(pa.array(rows))))
            rows, ends = rows[new], np.concatenate(([0], np.cumsum(new)))[ends]
        return [list_column(part.take(pa.array(rows)), ends) for part in flat]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The values alone."""
        column = whole(state[0])
        return list_result(flat_values(column), bounds(column))


def make_collect(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Collect:
    """The collected values of one column of any type."""
    (kind,) = types
    return Collect(kind, once=name == "collect_set")


def make_collect_distinct(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Collect:
    """A list of distinct values is a set."""
    (kind,) = types
    return Collect(kind, once=True)
