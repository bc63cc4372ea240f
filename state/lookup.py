"""Look many keys up at once in sorted columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.state.runs import Values

Positions = npt.NDArray[np.int64]


def spread(starts: Positions, counts: Positions) -> Positions:
    """The numbers of ranges, laid end to end.

    >>> spread(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def equal_ranges(stored: Values, wanted: Values) -> tuple[Positions, Positions, Positions]:
    """Which of the wanted values a sorted column has, and where each of these begins and ends.

    >>> [part.tolist() for part in equal_ranges(np.array([1, 4, 4, 9]), np.array([4, 5, 9]))]
    [[0, 2], [1, 3], [3, 4]]
    """
    starts = np.searchsorted(stored, wanted)
    hit = np.flatnonzero((starts < len(stored)) & (stored[np.minimum(starts, len(stored) - 1)] == wanted))
    return hit, starts[hit], np.searchsorted(stored, wanted[hit], side="right")


def narrowed(stored: Values, starts: Positions, stops: Positions, wanted: Values) -> tuple[Positions, Positions]:
    """Each range of a column, which is sorted within it, narrowed to the value that is wanted there.

    >>> narrowed(np.array([1, 4, 4, 2, 3]), np.array([0, 3]), np.array([3, 5]), np.array([4, 9]))
    (array([1, 5]), array([3, 5]))
    """
    first = _bisected(stored, starts, stops, wanted, beyond=False)
    return first, _bisected(stored, first, stops, wanted, beyond=True)


def _bisected(stored: Values, low: Positions, high: Positions, wanted: Values, beyond: bool) -> Positions:
    """The place in each range of the first value that is not below the wanted one, or that is beyond it."""
    while (unsettled := low < high).any():
        middle = (low + high) >> 1
        seen = stored[np.minimum(middle, len(stored) - 1)]
        pass_over = unsettled & ((seen <= wanted) if beyond else (seen < wanted))
        low = np.where(pass_over, middle + 1, low)
        high = np.where(unsettled & ~pass_over, middle, high)
    return low
