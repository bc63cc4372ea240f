"""Windows that look back from each row: what happened in the time up to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from penstock.plan.durations import Duration, duration, spoken
from penstock.windows.lengths import reach_us
from penstock.windows.pairs import first_pair
from penstock.windows.shapes import Ints, Ranges, begins


@dataclass(frozen=True)
class Sliding:
    """For each distinct event time of a key the ``size`` up to it, both ends in: every such time is a slice.

    The end is in the window, so that it closes when the watermark is past its end and not yet at it.
    """

    size: timedelta

    def describe(self) -> str:
        """The window in words."""
        return f"sliding {spoken(self.size)}"

    def slice_of(self, time_us: Ints) -> Ints:
        """The start of the slice that holds each time."""
        return time_us

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: the window that ends with it has closed."""
        return watermark_us

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""
        return watermark_us - reach_us(self.size)

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""
        return watermark_us

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""
        return max(first_slice_us, watermark_us) + 1

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice."""
        first = begins(group, slice_us)
        high = np.append(first[1:], len(group))
        end = slice_us[first]
        closing = (end >= previous_us) & (end < now_us)
        first, high, end = first[closing], high[closing], end[closing]
        start = end - reach_us(self.size)
        return Ranges(first_pair(group, slice_us, group[first], start), high, start, end)


def sliding(size: Duration) -> Sliding:
    """For each distinct event time ``t`` of a key the window ``[t - size, t]``, both ends in.

    ``window_start`` is ``t - size`` and ``window_end`` is ``t``. The result comes out when the watermark is
    past ``t``. A row before the watermark is late; any other also counts in the results of its key that
    reach back to it.

    >>> sliding("5 minutes").describe()
    'sliding 5 minutes'
    """
    return Sliding(duration(size, "sliding: size", least_us=1))
