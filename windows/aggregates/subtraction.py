"""Aggregates that can take a row back by adding its negative: what is counted, and exact sums.

A sum of floats is not among them, because what rounding took does not come back; nor is an extreme, a list or
anything else that a row which leaves uncovers other rows of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.windows.aggregates.averages import Average
from penstock.windows.aggregates.buffers import column_of, numbers, validity, whole
from penstock.windows.aggregates.counts import Count
from penstock.windows.aggregates.decimals import DecimalSum
from penstock.windows.aggregates.registry import Aggregate
from penstock.windows.aggregates.sums import IntegerSum

LEAST = np.iinfo(np.int64).min


def subtracts(aggregate: Aggregate) -> bool:
    """True when ``negative`` knows how.

    >>> from penstock.windows.aggregates.registry import make
    >>> subtracts(make("avg", [pa.int64()], False, {})), subtracts(make("sum", [pa.float64()], False, {}))
    (True, False)
    """
    if isinstance(aggregate, Average):
        return subtracts(aggregate.total)
    return isinstance(aggregate, Count | IntegerSum | DecimalSum)


@singledispatch
def negative(aggregate: Aggregate, state: Sequence[pa.Array]) -> list[pa.Array]:
    """State rows that, added to others, take away what these state rows added."""
    raise NotImplementedError(f"{aggregate} takes nothing back")


@negative.register
def negative_count(aggregate: Count, state: Sequence[pa.Array]) -> list[pa.Array]:
    return [pc.negate(whole(state[0]))]


@negative.register
def negative_integers(aggregate: IntegerSum, state: Sequence[pa.Array]) -> list[pa.Array]:
    low = whole(state[0])
    # the least long has no negative of 64 bits: it is itself, and one wrap more
    wraps = np.where(numbers(low) == LEAST, 1, 0) - numbers(whole(state[1])).astype(np.int64)
    with np.errstate(over="ignore"):
        turned = -numbers(low)
    return [column_of(turned, pa.int64(), validity(low)), column_of(wraps.astype(np.int32), pa.int32())]


@negative.register
def negative_decimals(aggregate: DecimalSum, state: Sequence[pa.Array]) -> list[pa.Array]:
    # a state row is one value here, of 38 digits at most: its negative is one too
    return [pc.negate(whole(state[0])), pc.negate(whole(state[1]))]


@negative.register
def negative_average(aggregate: Average, state: Sequence[pa.Array]) -> list[pa.Array]:
    return [*negative(aggregate.total, state[:-1]), *negative(Count(), state[-1:])]
