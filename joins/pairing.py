"""Which rows of two sides meet: equal keys, and times within bounds of each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.state.lookup import spread
from penstock.windows.aggregates.codes import codes
from penstock.windows.pairs import first_pair, pair_order
from penstock.windows.shapes import Ints, Mask


def shared_groups(left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]) -> tuple[Ints, Ints]:
    """The numbers of the keys of two sides, the same for equal keys; negative where a key has a null.

    >>> left, right = (pa.chunked_array([keys]) for keys in (["b", None, "a"], [None, "a"]))
    >>> [side.tolist() for side in shared_groups([left], [right])]
    [[0, -1, 2], [-2, 2]]
    """
    count = len(left[0])
    groups = codes([_together(mine, its) for mine, its in zip(left, right, strict=True)])
    # what is null on one side meets nothing, not even what is null on the other
    groups[:count][without_key(left)] = -1
    groups[count:][without_key(right)] = -2
    return groups[:count], groups[count:]


def without_key(keys: Sequence[pa.ChunkedArray]) -> Mask:
    """The rows with a null in a key."""
    lacking = np.zeros(len(keys[0]), np.bool_)
    for key in keys:
        if key.null_count:
            lacking |= key.is_null().to_numpy()
    return lacking


def _together(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """One column after the other; one without rows may have no type yet."""
    kind = left.type if len(left) else right.type
    return pa.chunked_array([*left.cast(kind).chunks, *right.cast(kind).chunks], kind)


def partners(
    group: Ints, time_us: Ints, other_group: Ints, other_us: Ints, first_us: int, last_us: int
) -> tuple[Ints, Ints, Ints]:
    """An order of the other rows in which the partners of each row stand together: where, and how many.

    A row has the partners of its group that are ``first_us`` to ``last_us`` after it, both ends in.
    """
    order = pair_order(other_group, other_us)
    other_group, other_us = other_group[order], other_us[order]
    start = first_pair(other_group, other_us, group, time_us + first_us)
    return order, start, first_pair(other_group, other_us, group, time_us + last_us + 1) - start


def has_partner(group: Ints, time_us: Ints, other_group: Ints, other_us: Ints, first_us: int, last_us: int) -> Mask:
    """Which rows have a partner among the others.

    >>> has_partner(np.array([0, 0, 1]), np.array([5, 8, 5]), np.array([0, 2]), np.array([7, 5]), 0, 2).tolist()
    [True, False, False]
    """
    if not len(group) or not len(other_group):
        return np.zeros(len(group), np.bool_)
    return partners(group, time_us, other_group, other_us, first_us, last_us)[2] > 0


def pairs(
    left_group: Ints, left_us: Ints, right_group: Ints, right_us: Ints, low_us: int, high_us: int
) -> tuple[Ints, Ints]:
    """The row numbers of all pairs with ``left + low <= right <= left + high``.

    >>> left, right = pairs(np.array([0, 1]), np.array([5, 5]), np.array([1, 0, 0]), np.array([6, 5, 6]), 0, 1)
    >>> sorted(zip(left.tolist(), right.tolist()))
    [(0, 1), (0, 2), (1, 0)]
    """
    if not len(left_group) or not len(right_group):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(left_group) < len(right_group):  # the side that is sorted is the smaller one
        right, left = pairs(right_group, right_us, left_group, left_us, -high_us, -low_us)
        return left, right
    order, start, count = partners(left_group, left_us, right_group, right_us, low_us, high_us)
    met = np.flatnonzero(count)
    count = count[met]
    return np.repeat(met, count), order[spread(start[met], count)]
