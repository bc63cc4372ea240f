"""Windows that grow: a total so far at each step, begun anew at each size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from penstock.plan.durations import Duration, duration, micros, spoken
from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.windows.pairs import first_pair
from penstock.windows.shapes import Ints, Ranges, begins, floor, floors, spread


@dataclass(frozen=True)
class Cumulating:
    """Windows ``[s, s + step)``, ``[s, s + 2 step)``, ... ``[s, s + size)``, ``s`` at each ``size`` since the epoch.

    A slice is a step long. The windows of one ``s`` all begin there, so its slices are kept until the last closes.
    """

    step: timedelta
    size: timedelta

    def describe(self) -> str:
        """The window in words."""
        return f"cumulating {spoken(self.step)} up to {spoken(self.size)}"

    def slice_of(self, time_us: Ints) -> Ints:
        """The start of the slice that holds each time."""
        return floors(time_us, micros(self.step))

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it has closed."""
        return self.kept_from(watermark_us)

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""
        return floor(watermark_us, micros(self.size))

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""
        return floor(watermark_us, micros(self.step))

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""
        step = micros(self.step)
        return floor(max(first_slice_us, watermark_us), step) + step

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice.

        All windows of a group that begin at one ``s`` and hold a row hold the first row from ``s`` on: they
        are the ends after that row.
        """
        step, size = micros(self.step), micros(self.size)
        whole = floors(slice_us, size)
        low = begins(group, whole)
        start = whole[low]
        first = floors(np.maximum(slice_us[low], previous_us), step) + step
        last = np.minimum(start + size, floor(now_us, step))
        nth, end = spread(first, last, step)
        low, start = low[nth], start[nth]
        return Ranges(low, first_pair(group, slice_us, group[low], end), start, end)


def cumulating(step: Duration, size: Duration) -> Cumulating:
    """Windows that begin together and grow by ``step`` up to ``size``, then begin anew: totals so far.

    A row is in every window of its ``size`` that ends after it: with steps of 2 minutes up to 10, a row at
    08:05 is in those that end at 08:06, 08:08 and 08:10. Each comes out once, when the watermark reaches
    its end, also when no row came since the one before. A row that comes when some of its windows have
    closed still counts in the others; it is late when all have. ``size`` is a multiple of ``step``.

    >>> cumulating("2 minutes", "10 minutes").describe()
    'cumulating 2 minutes up to 10 minutes'
    """
    piece = duration(step, "cumulating: step", least_us=1)
    whole = duration(size, "cumulating: size", least_us=1)
    if whole % piece:
        raise PlanError(
            f"cumulating: size={spoken(whole)!r} is no multiple of step={spoken(piece)!r}, so that the last step "
            f"would be a part of one. ({written_at()})"
        )
    return Cumulating(piece, whole)
