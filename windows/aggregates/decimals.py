"""``sum`` and ``avg`` of decimals, exact to the last digit and with Spark's precisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.errors import RunError
from penstock.windows.aggregates.buffers import column_of, filled, numbers, relabelled, taking_part, validity, whole
from penstock.windows.aggregates.ordering import Order
from penstock.windows.aggregates.reduction import Bounds, reduce_ranges
from penstock.windows.aggregates.wide import sum_words

WIDEST = 38
# the thread's own decimal context has fewer digits than a decimal can
WIDE = Context(prec=WIDEST)


@dataclass(frozen=True)
class DecimalSum:
    """The exact sum of ``decimal(precision, scale)``; too great a sum is an error."""

    precision: int
    scale: int
    needs_order: bool = False

    @property
    def result_type(self) -> pa.DataType:
        """Ten digits more than the argument."""
        return pa.decimal128(min(WIDEST, self.precision + 10), self.scale)

    @property
    def mean_type(self) -> pa.DataType:
        """Four digits more than the argument, all of them behind the point."""
        return pa.decimal128(min(WIDEST, self.precision + 4), min(WIDEST, self.scale + 4))

    @property
    def kept_type(self) -> pa.DataType:
        """As many digits as there are."""
        return pa.decimal128(WIDEST, self.scale)

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The low 128 bits, null when there was no value, and how often the sum went past them."""
        return (self.kept_type, pa.int32())

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each value as a sum of its own."""
        column = relabelled(taking_part(args[0], mask), self.kept_type)
        return [column, column_of(np.zeros(rows, np.int32), pa.int32())]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The sums of each range."""
        low, wraps = whole(state[0]), numbers(whole(state[1]))
        sums, over = sum_words(filled(low, 0), wraps.astype(np.int64), lo, hi)
        there = validity(low)
        some = None if there is None else reduce_ranges(np.logical_or, there, lo, hi)
        return [column_of(sums, self.kept_type, some), column_of(over, pa.int32())]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The sum, refused when it has more digits than its type."""
        return self.within(state, self.result_type)

    def within(self, state: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
        """The sum as ``kind``, of the same scale, or an error."""
        low = whole(state[0])
        most = pa.scalar(Decimal(10**kind.precision - 1).scaleb(-self.scale, WIDE), self.kept_type)
        outside = pc.or_(pc.greater(low, most), pc.less(low, pc.negate(most)))
        if numbers(whole(state[1])).any() or pc.any(outside).as_py():
            raise RunError(f"sum overflowed decimal({kind.precision}, {kind.scale}); cast the argument to double")
        return relabelled(low, kind)

    def mean(self, state: Sequence[pa.Array], count: pa.Array) -> pa.Array:
        """The sum over the count, rounded half up."""
        total = self.within(state, self.kept_type)
        # no values, no quotient: a null count keeps the division by zero away
        divisor = pc.if_else(total.is_valid(), count, pa.scalar(None, pa.int64()))
        quotient = pc.divide(total.cast(pa.decimal256(WIDEST, self.scale)), divisor.cast(pa.decimal256(19, 0)))
        kind = self.mean_type
        try:
            # the quotient is cut off many digits further on, which leaves the digit that decides as it is
            return pc.round(quotient, kind.scale, round_mode="half_towards_infinity").cast(kind)
        except pa.ArrowInvalid as fault:
            raise RunError(f"avg overflowed decimal({kind.precision}, {kind.scale})") from fault
