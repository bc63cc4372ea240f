"""The shapes of windows, and the arithmetic of when a row is in one and when one closes.

A window is made of *slices*, the longest pieces of time that no window cuts. Rows are combined per key
and slice; a result is a range of slices. All arithmetic is in whole microseconds and holds before 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import gcd

import numpy as np
import numpy.typing as npt

from penstock.plan.durations import Duration, duration, micros, spoken
from penstock.plan.errors import PlanError
from penstock.plan.written import written_at

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranges:
    """One result each: rows ``low`` to ``high`` of the sorted slices make the window ``start`` to ``end``."""

    low: Ints
    high: Ints
    start_us: Ints
    end_us: Ints


@dataclass(frozen=True)
class Aligned:
    """Windows of one ``size`` that start at each ``every`` from ``offset``: tumbling when the two are equal."""

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta(0)

    @property
    def slice_us(self) -> int:
        """The length of a slice."""
        return gcd(micros(self.size), micros(self.every))

    def describe(self) -> str:
        """The window in words."""
        shape = f"tumbling {spoken(self.size)}"
        if self.size != self.every:
            shape = f"hopping {spoken(self.size)} every {spoken(self.every)}"
        return shape + (f" from {spoken(self.offset)}" if self.offset else "")

    def slice_of(self, time_us: Ints) -> Ints:
        """The start of the slice that holds each time."""
        return _floor(time_us, self.slice_us, micros(self.offset))

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it has closed."""
        return self.kept_from(watermark_us)

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""
        # the last window of a slice starts at the slice's own `every`; it is closed when that start + size has passed
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        return int(_floor(watermark_us - size, every, offset)) + every

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        return int(_floor(watermark_us - size, every, offset)) + size

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        first_start = int(_floor(first_slice_us - size, every, offset)) + every
        next_start = int(_floor(watermark_us - size, every, offset)) + every
        return max(first_start, next_start) + size

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice.

        A window is found from the first of its rows: those that start after the row before it in the same
        group and hold the row itself. So each comes out once, and the work follows the results.
        """
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        if size == every:
            return _side_by_side(group, slice_us, size, previous_us, now_us)
        first = _floor(np.maximum(slice_us, previous_us) - size, every, offset) + every
        same = group[1:] == group[:-1]
        np.maximum(first[1:], _floor(slice_us[:-1], every, offset) + every, out=first[1:], where=same)
        last = np.minimum(_floor(slice_us, every, offset), int(_floor(now_us - size, every, offset)))
        count = np.maximum((last - first) // every + 1, 0)
        low = np.repeat(np.arange(len(group)), count)
        nth = np.arange(len(low)) - np.repeat(np.cumsum(count) - count, count)
        start = first[low] + nth * every
        end = start + size
        return Ranges(low, _first_at_or_after(group, slice_us, group[low], end), start, end)


def _floor(time_us: Ints | int, step: int, offset: int) -> Ints:
    return (np.asarray(time_us, dtype=np.int64) - offset) // step * step + offset


def _side_by_side(group: Ints, slice_us: Ints, size: int, previous_us: int, now_us: int) -> Ranges:
    """Windows that are slices themselves: each ends where the next pair of group and slice begins."""
    new = np.ones(len(group), dtype=bool)
    new[1:] = (group[1:] != group[:-1]) | (slice_us[1:] != slice_us[:-1])
    low = np.flatnonzero(new)
    high = np.append(low[1:], len(group))
    start = slice_us[low]
    closing = (start + size > previous_us) & (start + size <= now_us)
    return Ranges(low[closing], high[closing], start[closing], start[closing] + size)


def _first_at_or_after(group: Ints, slice_us: Ints, wanted_group: Ints, wanted_us: Ints) -> Ints:
    """Where (group, time) would stand among the sorted rows."""
    if not len(group):
        return np.zeros(0, dtype=np.int64)
    times = np.unique(slice_us)
    # ranks instead of the times themselves, so that group and time fit one integer
    rows = group * (len(times) + 1) + np.searchsorted(times, slice_us)
    wanted = wanted_group * (len(times) + 1) + np.searchsorted(times, wanted_us)
    return np.searchsorted(rows, wanted)


def tumbling(size: Duration, offset: Duration | None = None) -> Aligned:
    """Windows of one size, side by side: ``[start, start + size)``.

    A row on a boundary begins the next window. The result comes out when the watermark reaches the end;
    a row whose window has closed is late.

    >>> tumbling("5 minutes").describe()
    'tumbling 5 minutes'
    """
    length = duration(size, "tumbling: size", least_us=1)
    return Aligned(length, length, _offset(offset, "tumbling"))


def hopping(size: Duration, every: Duration, offset: Duration | None = None) -> Aligned:
    """Windows of one size that start at each ``every``: a row is in all that cover it.

    ``size`` need not be a multiple of ``every``. A row that comes when some of its windows have closed
    still counts in the others; it is late when all have.

    >>> hopping("10 minutes", "5 minutes").describe()
    'hopping 10 minutes every 5 minutes'
    """
    length = duration(size, "hopping: size", least_us=1)
    step = duration(every, "hopping: every", least_us=1)
    if step > length:
        raise PlanError(
            f"hopping: every={spoken(step)!r} is longer than size={spoken(length)!r}, so that rows in the gaps "
            f"would be in no window. ({written_at()})"
        )
    return Aligned(length, step, _offset(offset, "hopping"))


def _offset(offset: Duration | None, what: str) -> timedelta:
    return timedelta(0) if offset is None else duration(offset, f"{what}: offset", least_us=-(2**62))
