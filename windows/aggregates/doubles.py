"""Numbers of any kind as doubles, each the double nearest to it, as Spark's casts give them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import column_of, filled, validity
from penstock.windows.aggregates.ordering import narrow

# whole numbers up to here, and powers of ten up to there, are doubles exactly
EXACT_WHOLE = 2**53
EXACT_POWER = 22


def is_number(kind: pa.DataType) -> bool:
    """True for the types that have a nearest double."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_floating(kind) or types.is_decimal128(kind))


def doubles(column: pa.Array) -> pa.Array:
    """The column as doubles, null where it is null.

    >>> from decimal import Decimal
    >>> doubles(pa.array([Decimal("7.85"), None])).to_pylist()
    [7.85, None]
    """
    if not pa.types.is_decimal(column.type):
        # not safe: a long past 2**53 has a nearest double too
        return column.cast(pa.float64(), safe=False)
    words = filled(column, 0)
    low = words[:, 0]
    small = narrow(words) & (low <= EXACT_WHOLE) & (low >= -EXACT_WHOLE)
    if column.type.scale > EXACT_POWER or not small.all():
        # Arrow's own cast rounds twice and may miss the nearest; reading the digits does not
        return column.cast(pa.string()).cast(pa.float64())
    # one division of two exact numbers is rounded once
    return column_of(low / np.float64(10**column.type.scale), pa.float64(), validity(column))
