"""Fold ranges of sorted rows with NumPy: one call for all ranges, whether they tile the rows or overlap.

A range is ``[lo, hi)`` and never empty. Tumbling windows tile the rows, hopping windows overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Bounds = npt.NDArray[np.int64]

# below this many rows to a range, one running sum is cheaper than a fold for each range
FEW_ROWS = 8


def tiles(lo: Bounds, hi: Bounds) -> bool:
    """True when each range begins where the one before it ends."""
    return bool((lo[1:] == hi[:-1]).all())


def reduce_ranges(fold: np.ufunc, values: Numbers, lo: Bounds, hi: Bounds) -> Numbers:
    """The fold of each range.

    >>> rows = np.array([3, 1, 2, 5])
    >>> reduce_ranges(np.maximum, rows, np.array([0, 2]), np.array([2, 4])).tolist()
    [3, 5]
    >>> reduce_ranges(np.maximum, rows, np.array([0, 1, 2]), np.array([3, 4, 4])).tolist()
    [3, 5, 5]
    """
    if not len(lo):
        return values[:0]
    if tiles(lo, hi):
        covered = values[: hi[-1]]
        if len(lo) == hi[-1] - lo[0]:
            return covered[lo[0] :]
        return np.asarray(fold.reduceat(covered, lo))
    cuts = np.empty(2 * len(lo), np.intp)
    cuts[::2], cuts[1::2] = lo, hi
    at_end = hi == len(values)
    if not at_end[:-1].any():
        # the last cut may be left out where it is the end: reduceat folds up to there by itself
        return np.asarray(fold.reduceat(values, cuts[:-1] if at_end[-1] else cuts)[::2])
    # reduceat takes no index past the rows; one more row stands there and is in no range
    return np.asarray(fold.reduceat(np.concatenate((values, values[-1:])), cuts)[::2])


def add_ranges(values: npt.NDArray[np.int64], lo: Bounds, hi: Bounds) -> npt.NDArray[np.int64]:
    """The sum of each range in 64 bits, wrapped: the caller knows whether it can overflow."""
    if FEW_ROWS * len(lo) < len(values) and tiles(lo, hi):
        return reduce_ranges(np.add, values, lo, hi)
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    # a running sum that wrapped still gives the right difference
    return np.asarray(running[hi] - running[lo])


def gather(lo: Bounds, hi: Bounds) -> Bounds:
    """The rows of all ranges, one range after the other; a range may be empty here.

    >>> gather(np.array([0, 1]), np.array([2, 4])).tolist()
    [0, 1, 1, 2, 3]
    """
    counts = hi - lo
    before = np.cumsum(counts) - counts
    return np.asarray(np.arange(counts.sum()) + np.repeat(lo - before, counts))


def winners(keys: list[npt.NDArray[np.int64]], lo: Bounds, hi: Bounds) -> Bounds:
    """The row of each range that is least by the first key, then by the second and so on.

    Each key is asked only about the rows that are still equal. Of rows equal in every key the first wins.

    >>> first, second = np.array([2, 1, 1, 7]), np.array([0, 5, 4, 0])
    >>> winners([first, second], np.array([0, 2]), np.array([3, 4])).tolist()
    [2, 2]
    """
    rows, counts = gather(lo, hi), hi - lo
    for key in keys:
        if len(rows) == len(counts):
            break
        starts = np.cumsum(counts) - counts
        values = key[rows]
        least = np.minimum.reduceat(values, starts)
        alive = values == np.repeat(least, counts)
        rows = rows[alive]
        counts = np.add.reduceat(alive, starts, dtype=np.int64)
    return np.asarray(rows[np.cumsum(counts) - counts])
