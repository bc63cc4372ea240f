"""Pairs of group and time, sorted and searched as one number each."""

from __future__ import annotations

import numpy as np

from penstock.windows.shapes import Ints, Mask


def pair_order(group: Ints, time_us: Ints) -> Ints:
    """The order by group, then by time; rows that come as a few sorted stretches cost little.

    >>> pair_order(np.array([1, 0, 1]), np.array([7, 9, 5])).tolist()
    [1, 2, 0]
    """
    if not len(group):
        return np.zeros(0, np.int64)
    low, high = int(time_us.min()), int(time_us.max())
    if _fits(high - low + 1, group):
        return np.argsort(group * (high - low + 1) + (time_us - low), kind="stable")
    return np.lexsort((time_us, group))


def first_pair(group: Ints, time_us: Ints, wanted_group: Ints, wanted_us: Ints) -> Ints:
    """Where each wanted pair would stand among pairs sorted by group, then by time.

    >>> first_pair(np.array([0, 0, 2]), np.array([5, 9, 5]), np.array([0, 0, 1, 2]), np.array([-7, 6, 0, 5])).tolist()
    [0, 1, 2, 2]
    """
    if not len(group):
        return np.zeros(len(wanted_group), np.int64)
    low, high = int(time_us.min()), int(time_us.max())
    # what is wanted before all times, or after them, stands at the edge of its group: so it stays a small number
    rank, wanted, width = time_us - low, np.clip(wanted_us, low, high + 1) - low, high - low + 2
    if not (_fits(width, group) and _fits(width, wanted_group)):
        times = np.unique(time_us)
        rank, wanted, width = np.searchsorted(times, time_us), np.searchsorted(times, wanted_us), len(times) + 1
    return np.searchsorted(group * width + rank, wanted_group * width + wanted)


def running_greatest(group: Ints, time_us: Ints) -> Ints:
    """The greatest time so far within each group, over rows sorted by group.

    >>> running_greatest(np.array([0, 0, 1, 1]), np.array([7, 3, 2, 4])).tolist()
    [7, 7, 2, 4]
    """
    if not len(group):
        return time_us
    low, high = int(time_us.min()), int(time_us.max())
    times, rank, width = None, time_us - low, high - low + 1
    if not _fits(width, group):
        times, rank = np.unique(time_us, return_inverse=True)
        width = len(times)
    base = group * width
    greatest = np.maximum.accumulate(base + rank) - base
    return greatest + low if times is None else times[greatest]


def stops(starts: Ints, rows: int) -> Ints:
    """Where ranges of rows end that lie side by side; there may be none.

    >>> stops(np.array([0, 2]), 5).tolist()
    [2, 5]
    """
    return np.append(starts, rows)[1:]


def reached(starts: Ints, following: Ints) -> Mask:
    """Which rows are on the chains that begin at ``starts``, a chain ending at the number of rows.

    They are followed in steps that double, so that a chain of any length takes few.

    >>> reached(np.array([0]), np.array([2, 3, 4, 4])).tolist()
    [True, False, True, False]
    """
    end = len(following)
    on_chain = np.zeros(end + 1, np.bool_)
    on_chain[starts] = True
    leap = np.append(following, end)
    while True:
        found = leap[np.flatnonzero(on_chain)]
        found = found[found < end]
        if not len(found):
            return on_chain[:end]
        on_chain[found] = True
        leap = leap[leap]


def _fits(width: int, group: Ints) -> bool:
    """True when pairs of a group and one of ``width`` times fit a 64-bit number."""
    return width < 2**62 // (int(group.max(initial=0)) + 1)
