"""Windows: pieces of event time over which rows are aggregated, and when their results come out."""

from penstock.windows.aligned import hopping, tumbling
from penstock.windows.calendars import calendar
from penstock.windows.cumulating import cumulating
from penstock.windows.firing import panes
from penstock.windows.same import same
from penstock.windows.sessions import session
from penstock.windows.sliding import sliding

__all__ = ["tumbling", "hopping", "sliding", "session", "cumulating", "calendar", "same", "panes"]
