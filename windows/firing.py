"""When a window gives its value: once at its end, each time it changes, or in panes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.plan.durations import Duration, duration, spoken


@dataclass(frozen=True)
class Final:
    """Each window once, when it closes."""

    def describe(self) -> str:
        """When values come, in words."""
        return "once, at its end"


@dataclass(frozen=True)
class Updates:
    """The value so far, each time it changes; nothing changes once the window has closed."""

    def describe(self) -> str:
        """When values come, in words."""
        return "each time it changes"


@dataclass(frozen=True)
class Panes:
    """Values so far each ``early`` of wall time, one when the window closes, corrections for ``allowed_lateness``."""

    early: timedelta | None
    allowed_lateness: timedelta

    def describe(self) -> str:
        """When values come, in words."""
        early = "" if self.early is None else f"each {spoken(self.early)} before, "
        late = f", corrected for {spoken(self.allowed_lateness)} after" if self.allowed_lateness else ""
        return f"{early}at its end{late}"


Firing = Final | Updates | Panes


def panes(early: Duration | None = None, allowed_lateness: Duration = "0 seconds") -> Panes:
    """A value before, at and after the end of a window, told apart by the column ``pane``.

    ``early``: each time this much wall time has passed, the windows that are open and have changed show the
    value so far; without it none does. ``on_time``: when the watermark passes the window's end. ``late``: a
    row that comes within ``allowed_lateness`` of event time after that changes the value once more; rows that
    come later are late. Readers always see one current value of a window.

    >>> panes(early="10 seconds", allowed_lateness="1 hour").describe()
    'each 10 seconds before, at its end, corrected for 1 hour after'
    """
    every = None if early is None else duration(early, "panes: early", least_us=1)
    return Panes(every, duration(allowed_lateness, "panes: allowed_lateness"))
