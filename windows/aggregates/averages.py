"""``avg``: a sum and how many values are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.windows.aggregates.buffers import whole
from penstock.windows.aggregates.counts import Count
from penstock.windows.aggregates.decimals import DecimalSum
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds
from penstock.windows.aggregates.sums import FloatSum, IntegerSum, make_sum


@dataclass(frozen=True)
class Average:
    """The mean of the values; nulls are skipped, and the mean of nothing is null."""

    total: IntegerSum | FloatSum | DecimalSum
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """A double, but a decimal for decimals."""
        return self.total.mean_type if isinstance(self.total, DecimalSum) else pa.float64()

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The state of the sum, and the count."""
        return (*self.total.state_types(), *Count().state_types())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value as a sum of one."""
        return [*self.total.start(args, mask, order, rows), *Count().start(args, mask, order, rows)]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The sums and the counts of each range."""
        return [*self.total.merge(state[:-1], lo, hi), *Count().merge(state[-1:], lo, hi)]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The sum over the count."""
        return self.total.mean(state[:-1], whole(state[-1]))


def make_average(name: str, types: Sequence[pa.DataType], options: Mapping[str, Any]) -> Average | None:
    """The mean of one number; Spark itself does the mean of durations."""
    total = make_sum(name, types, options)
    return None if total is None or pa.types.is_duration(total.result_type) else Average(total)
