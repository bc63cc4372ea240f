"""What a shape of windows answers, and the arithmetic that shapes share.

A window is made of *slices*, the longest pieces of time that no window cuts. Rows are combined per key
and slice; a result is a range of slices. All arithmetic is in whole microseconds and holds before 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Ranges:
    """One result each: rows ``low`` to ``high`` of the sorted slices make the window ``start`` to ``end``."""

    low: Ints
    high: Ints
    start_us: Ints
    end_us: Ints


class Sliced(Protocol):
    """What a kernel asks of a window that is made of slices."""

    def describe(self) -> str:
        """The window in words."""

    def slice_of(self, time_us: Ints) -> Ints:
        """The start of the slice that holds each time."""

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it has closed."""

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice."""


def floor(time_us: int, step: int, offset: int = 0) -> int:
    """The last multiple of ``step``, counted from ``offset``, at or before a time."""
    return (time_us - offset) // step * step + offset


def floors(time_us: Ints, step: int, offset: int = 0) -> Ints:
    """The same for many times."""
    return (time_us - offset) // step * step + offset


def begins(group: Ints, of_us: Ints) -> Ints:
    """Where each pair of group and time begins, among rows sorted by both."""
    new = np.ones(len(group), dtype=bool)
    new[1:] = (group[1:] != group[:-1]) | (of_us[1:] != of_us[:-1])
    return np.flatnonzero(new)


def side_by_side(group: Ints, slice_us: Ints, previous_us: int, now_us: int, end_of: Callable[[Ints], Ints]) -> Ranges:
    """Windows that are slices themselves: each ends where the next pair of group and slice begins."""
    low = begins(group, slice_us)
    high = np.append(low, len(group))[1:]
    start = slice_us[low]
    end = end_of(start)
    closing = (end > previous_us) & (end <= now_us)
    return Ranges(low[closing], high[closing], start[closing], end[closing])


def spread(first: Ints, last: Ints, step: int) -> tuple[Ints, Ints]:
    """The times from each ``first`` to its ``last``, both in, with the number of the pair that each is of."""
    count = np.maximum((last - first) // step + 1, 0)
    pair = np.repeat(np.arange(len(first)), count)
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    return pair, first[pair] + nth * step
