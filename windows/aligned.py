"""Windows of one size that start at equal distances: tumbling and hopping."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import gcd

import numpy as np

from penstock.plan.durations import Duration, duration, micros, spoken
from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.windows.pairs import first_pair
from penstock.windows.shapes import Ints, Ranges, floor, floors, side_by_side, spread


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
        return floors(time_us, self.slice_us, micros(self.offset))

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it has closed."""
        return self.kept_from(watermark_us)

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""
        # the last window of a slice starts at the slice's own `every`; it is closed when that start + size has passed
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        return floor(watermark_us - size, every, offset) + every

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        return floor(watermark_us - size, every, offset) + size

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        return floor(max(first_slice_us, watermark_us) - size, every, offset) + every + size

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice.

        A window is found from the first of its rows: those that start after the row before it in the same
        group and hold the row itself. So each comes out once, and the work follows the results.
        """
        size, every, offset = micros(self.size), micros(self.every), micros(self.offset)
        if size == every:
            return side_by_side(group, slice_us, previous_us, now_us, lambda start: start + size)
        first = floors(np.maximum(slice_us, previous_us) - size, every, offset) + every
        same = group[1:] == group[:-1]
        np.maximum(first[1:], floors(slice_us[:-1], every, offset) + every, out=first[1:], where=same)
        last = np.minimum(floors(slice_us, every, offset), floor(now_us - size, every, offset))
        low, start = spread(first, last, every)
        end = start + size
        return Ranges(low, first_pair(group, slice_us, group[low], end), start, end)


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
