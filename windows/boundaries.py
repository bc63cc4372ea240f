"""Where local days, weeks and months begin, as instants.

A unit begins at the first instant at which the clocks of the zone show its first date or a later one. Nothing
else is asked of the clocks, so it holds where they skip midnight, show it twice, or skip a whole date; an
hour that they show again after midnight belongs to the day that has begun.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from penstock.windows.shapes import Ints

_DAY_S = 86_400
_CHUNK_DAYS = 64
_CHUNK_US = _CHUNK_DAYS * _DAY_S * 1_000_000
_EPOCH = datetime(1970, 1, 1)
# The calendar repeats itself, weekdays included, after 400 years. Dates that `datetime` cannot hold are looked
# up whole cycles nearer: the clock may stand at the beginning or the end of time.
_CYCLE_DAYS = 146_097
_FIRST_DAY = (date(2, 1, 1) - _EPOCH.date()).days
_LAST_CYCLE = 23


def _days(first: int, last: int) -> Ints:
    return np.arange(first, last + 1)


def _weeks(first: int, last: int) -> Ints:
    # day 0 was a Thursday: Mondays stand three days before the multiples of seven
    return np.arange((first + 3) // 7 * 7 - 3, last + 7, 7)


def _months(first: int, last: int) -> Ints:
    months = np.array([first, last], dtype="datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return np.arange(months[0], months[1] + 2).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


#: For each unit: the first dates, as days since the epoch, from the unit of ``first`` to one at or after ``last``.
UNITS: dict[str, Callable[[int, int], Ints]] = {"day": _days, "week": _weeks, "month": _months}


def boundaries_around(time_us: Ints, unit: str, zone: str) -> Ints:
    """Boundaries in order, with those next to each of the times: the last at or before it, and the first after."""
    low, high = int(time_us.min()) // _CHUNK_US, int(time_us.max()) // _CHUNK_US
    # times of centuries in one batch: only the chunks that occur, never all between
    chunks = range(low, high + 1) if high - low < 4 else np.unique(time_us // _CHUNK_US).tolist()
    found = [_chunk(chunk, unit, zone) for chunk in chunks]
    return found[0] if len(found) == 1 else np.unique(np.concatenate(found))


def boundaries(time_us: int, unit: str, zone: str) -> Ints:
    """The same for one time."""
    return _chunk(time_us // _CHUNK_US, unit, zone)


@lru_cache(maxsize=4096)
def _chunk(chunk: int, unit: str, zone: str) -> Ints:
    """The boundaries in a piece of time, with the last before it and the first after it."""
    # no clock is a day away from UTC: one date to the left surely began before, two to the right surely after
    dates = UNITS[unit](chunk * _CHUNK_DAYS - 1, (chunk + 1) * _CHUNK_DAYS + 2)
    clock = ZoneInfo(zone)
    # a date that was skipped begins with the next: one boundary for both
    found = np.unique(np.array([_begin(day, clock) for day in dates.tolist()], dtype=np.int64))
    found.setflags(write=False)
    return found


def _begin(day: int, zone: ZoneInfo) -> int:
    """The first instant, in microseconds, at which the clocks show this date, counted from 1970, or a later one."""
    cycle = (day - _FIRST_DAY) // _CYCLE_DAYS
    far = (cycle - min(max(cycle, 0), _LAST_CYCLE)) * _CYCLE_DAYS
    local = _EPOCH + timedelta(days=day - far)
    midnight_s = (day - far) * _DAY_S
    begin_s = midnight_s - _seconds(local.replace(tzinfo=zone).utcoffset())
    if _shown(begin_s, zone) != midnight_s:
        # midnight was skipped: of the two readings of such a time, fold=1 lies before the skip and fold=0 at or after
        before_s = midnight_s - _seconds(local.replace(tzinfo=zone, fold=1).utcoffset())
        instants = range(before_s, begin_s)
        begin_s = before_s + bisect_left(instants, midnight_s, key=lambda instant: _shown(instant, zone))
    return (begin_s + far * _DAY_S) * 1_000_000


def _shown(instant_s: int, zone: ZoneInfo) -> int:
    """What the clocks show at an instant, both in seconds since 1970."""
    instant = (_EPOCH + timedelta(seconds=instant_s)).replace(tzinfo=timezone.utc)
    return instant_s + _seconds(instant.astimezone(zone).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None  # a ZoneInfo always knows
    return offset.days * _DAY_S + offset.seconds
