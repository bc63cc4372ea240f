"""``first``, ``last``, ``min_by`` and ``max_by``: the value of one row, picked by an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import column_of, flags, taking_part, whole
from penstock.windows.aggregates.ordering import ORDER_TYPES, Keys, Order, order_keys, orderable, sort_keys
from penstock.windows.aggregates.reduction import Bounds, winners


@dataclass(frozen=True)
class Pick:
    """The value of the row that comes first in time, or last, or has the least or greatest ``by``.

    Equal times are told apart by the order of arrival, and of rows equal in ``by`` the earliest is
    picked. A row with a null ``by`` does not take part; one with a null value does, unless
    ``ignore_nulls`` says otherwise.
    """

    result_type: pa.DataType
    by: pa.DataType | None = None
    greatest: bool = False
    ignore_nulls: bool = False
    needs_order: bool = True

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The value, what it was picked by, where its row stands in time, and whether there is a row."""
        by = () if self.by is None else (self.by,)
        return (self.result_type, *by, *ORDER_TYPES, pa.bool_())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each row picked from itself."""
        assert order is not None, "a pick needs the order of the rows"
        columns = [whole(column) for column in args]
        present = np.ones(rows, np.bool_) if mask is None else flags(whole(mask))
        if self.by is not None:
            present = present & flags(columns[1].is_valid())
        if self.ignore_nulls:
            present = present & flags(columns[0].is_valid())
        return [*columns, *order.columns(), column_of(present, pa.bool_())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The picked row of each range, whole."""
        columns = [whole(column) for column in state]
        picked = pa.array(winners(self.keys(columns), lo, hi))
        return [column.take(picked) for column in columns]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The value of the picked row, null where there is none."""
        return taking_part(state[0], state[-1])

    def keys(self, columns: Sequence[pa.Array]) -> list[Keys]:
        """What to pick by, least first: a row that takes part, its ``by``, its place in time."""
        present = flags(columns[-1])
        keys = [] if present.all() else [(~present).astype(np.int64)]
        times = order_keys(columns[-4:-1])
        if self.by is None:
            return keys + [~time if self.greatest else time for time in times]
        # an absent row has no part in the comparison: only others like it are left when it comes to this
        ranked = sort_keys(columns[1])
        return [*keys, ~ranked if self.greatest else ranked, *times]


def make_pick(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Pick:
    """``first`` and ``last`` of any type, with ``ignore_nulls``."""
    (kind,) = types
    ignore_nulls = bool(options.get("ignore_nulls", False))
    return Pick(kind, greatest=name in ("last", "last_value"), ignore_nulls=ignore_nulls)


def make_pick_by(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Pick | None:
    """``min_by`` and ``max_by`` of any type, by a type that is not nested."""
    kind, by = types
    return Pick(kind, by, greatest=name == "max_by") if orderable(by) else None
