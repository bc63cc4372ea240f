"""Windows of the calendar: days, weeks and months as the clocks of a time zone show them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.windows.boundaries import UNITS, boundaries, boundaries_around
from penstock.windows.shapes import Ints, Ranges, side_by_side

#: Files beside the time zones that are none: they stand for this machine's own choice, or count leap seconds.
_NO_ZONES = ("localtime", "posixrules", "Factory", "posix/", "right/")


@dataclass(frozen=True)
class Calendar:
    """Local days, weeks or months: each a slice of its own, from one boundary to the next."""

    unit: str
    timezone: str

    def describe(self) -> str:
        """The window in words."""
        return f"calendar {self.unit} in {self.timezone}"

    def slice_of(self, time_us: Ints) -> Ints:
        """The start of the slice that holds each time."""
        if not len(time_us):
            return time_us
        bounds = boundaries_around(time_us, self.unit, self.timezone)
        return bounds[np.searchsorted(bounds, time_us, side="right") - 1]

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it has closed."""
        return self._bounds(watermark_us)[0]

    def kept_from(self, watermark_us: int) -> int:
        """Slices before this one belong to closed windows only."""
        return self._bounds(watermark_us)[0]

    def closing_before(self, watermark_us: int) -> int:
        """Slices from this one on belong to no window that is closed by now."""
        return self._bounds(watermark_us)[0]

    def wake(self, first_slice_us: int, watermark_us: int) -> int:
        """The earliest time at which a window closes that holds the first kept slice or a later one."""
        return self._bounds(max(first_slice_us, watermark_us))[1]

    def closing(self, group: Ints, slice_us: Ints, previous_us: int, now_us: int) -> Ranges:
        """The windows that close after ``previous`` and up to ``now``, over rows sorted by group and slice."""
        return side_by_side(group, slice_us, previous_us, now_us, self._ends)

    def _ends(self, start_us: Ints) -> Ints:
        if not len(start_us):
            return start_us
        bounds = boundaries_around(start_us, self.unit, self.timezone)
        return bounds[np.searchsorted(bounds, start_us, side="right")]

    def _bounds(self, time_us: int) -> tuple[int, int]:
        """The start and the end of the window that holds a time."""
        bounds = boundaries(time_us, self.unit, self.timezone)
        after = int(np.searchsorted(bounds, time_us, side="right"))
        return int(bounds[after - 1]), int(bounds[after])


def calendar(unit: str, timezone: str) -> Calendar:
    """Local days, weeks (from Monday) or months of a time zone, such as ``calendar("day", "Europe/Berlin")``.

    A day has 23 or 25 hours where the clocks change. It begins at the first instant at which the clocks show
    its date, or a later one: where they skip midnight at the skip, where they show midnight twice at the
    first. A date that they skip whole has no window. The result comes out when the watermark reaches the
    end; a row whose window has closed is late.

    >>> calendar("day", "Europe/Berlin").describe()
    'calendar day in Europe/Berlin'
    >>> calendar("day", "Europe/Berln")
    Traceback (most recent call last):
    penstock.plan.errors.PlanError: calendar: no such time zone 'Europe/Berln'; ... Did you mean 'Europe/Berlin'? (...)
    """
    if unit not in tuple(UNITS):
        there_is = ", ".join(repr(u) for u in UNITS)
        raise PlanError(f"calendar: no such unit {unit!r}; there is {there_is}.{_near(unit, UNITS)} ({written_at()})")
    if not _is_zone(timezone):
        zones = (name for name in available_timezones() if not name.startswith(_NO_ZONES))
        raise PlanError(
            f"calendar: no such time zone {timezone!r}; there are those of the IANA database, such as "
            f"'Europe/Berlin' or 'UTC'.{_near(timezone, zones)} ({written_at()})"
        )
    return Calendar(unit, timezone)


def _is_zone(name: str) -> bool:
    if not isinstance(name, str) or name.startswith(_NO_ZONES):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no file, no name of a file, a folder such as 'America'
        return False
    return True


def _near(wrong: object, names: Iterable[str]) -> str:
    """A guess at what was meant; a zone may be called by its city alone."""
    ordered = sorted(names)
    known = {name.rpartition("/")[2].lower(): name for name in ordered} | {name.lower(): name for name in ordered}
    near = difflib.get_close_matches(str(wrong).lower(), known, 1, 0.6)
    return f" Did you mean {known[near[0]]!r}?" if near else ""
