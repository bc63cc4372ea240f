"""Fold ranges of sorted rows with NumPy: one call for all ranges, whether they tile the rows or overlap.

A range is ``[lo, hi)`` and never empty. Tumbling windows tile the rows, hopping windows overlap. Where they
overlap heavily, the cost follows the rows and the number of ranges, and no longer their length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.lookup import spread

Numbers = npt.NDArray[Any]
Bounds = npt.NDArray[np.int64]

# below this many rows to a range, one running sum is cheaper than a fold for each range
FEW_ROWS = 8

# above this many times the rows, all ranges together are too long to be folded one by one
HEAVY = 8

# folds to which a value may be given twice
REPEATABLE = frozenset((np.minimum, np.maximum, np.fmin, np.fmax, np.logical_or, np.logical_and))


def tiles(lo: Bounds, hi: Bounds) -> bool:
    """True when each range begins where the one before it ends."""
    return bool((lo[1:] == hi[:-1]).all())


def heavy(lo: Bounds, hi: Bounds) -> bool:
    """True when the ranges overlap so much that each row is in many of them.

    >>> starts = np.arange(100)
    >>> heavy(starts, starts + 5), heavy(starts, starts + 50)
    (False, True)
    """
    return bool(len(lo)) and int((hi - lo).sum()) > HEAVY * int(hi.max() - lo.min())


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
    if fold in REPEATABLE and heavy(lo, hi):
        return reduce_doubling(fold, values, lo, hi)
    cuts = np.empty(2 * len(lo), np.intp)
    cuts[::2], cuts[1::2] = lo, hi
    at_end = hi == len(values)
    if not at_end[:-1].any():
        # the last cut may be left out where it is the end: reduceat folds up to there by itself
        return np.asarray(fold.reduceat(values, cuts[:-1] if at_end[-1] else cuts)[::2])
    # reduceat takes no index past the rows; one more row stands there and is in no range
    return np.asarray(fold.reduceat(np.concatenate((values, values[-1:])), cuts)[::2])


def reduce_doubling(fold: np.ufunc, values: Numbers, lo: Bounds, hi: Bounds) -> Numbers:
    """The fold of each range, for a fold of ``REPEATABLE``: two folds of a power of two of rows cover any range.

    >>> rows = np.array([3, 1, 2, 5])
    >>> reduce_doubling(np.maximum, rows, np.array([0, 1]), np.array([3, 4])).tolist()
    [3, 5]
    """
    base, lengths = int(lo.min()), hi - lo
    longest = int(lengths.max())
    result = np.empty(len(lo), values.dtype)
    # at each place the fold of the ``width`` rows from there on
    from_here, width = values[base : hi.max()], 1
    while True:
        fit = np.flatnonzero((lengths >= width) & (lengths < 2 * width))
        if len(fit):
            result[fit] = fold(from_here[lo[fit] - base], from_here[hi[fit] - base - width])
        if 2 * width > longest:
            return result
        from_here = fold(from_here[:-width], from_here[width:])
        width *= 2


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
    return spread(lo, hi - lo)


def winners(keys: list[npt.NDArray[np.int64]], lo: Bounds, hi: Bounds) -> Bounds:
    """The row of each range that is least by the first key, then by the second and so on.

    Each key is asked only about the rows that are still equal. Of rows equal in every key the first wins.

    >>> first, second = np.array([2, 1, 1, 7]), np.array([0, 5, 4, 0])
    >>> winners([first, second], np.array([0, 2]), np.array([3, 4])).tolist()
    [2, 2]
    """
    if heavy(lo, hi):
        return winners_ranked(keys, lo, hi)
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


def winners_ranked(keys: list[npt.NDArray[np.int64]], lo: Bounds, hi: Bounds) -> Bounds:
    """The same as ``winners``: all rows are put in order once, and the least place of each range wins.

    >>> first, second = np.array([2, 1, 1, 7]), np.array([0, 5, 4, 0])
    >>> winners_ranked([first, second], np.array([0, 2]), np.array([3, 4])).tolist()
    [2, 2]
    """
    base, end = int(lo.min()), int(hi.max())
    by_place = np.lexsort([key[base:end] for key in reversed(keys)])
    place = np.empty(len(by_place), np.int64)
    place[by_place] = np.arange(len(by_place))
    return np.asarray(by_place[reduce_doubling(np.minimum, place, lo - base, hi - base)] + base)
