"""Where local days, weeks and months begin, against a twin that asks the zone's clocks minute by minute."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.plan.errors import PlanError
from penstock.windows import calendar
from penstock.windows.boundaries import boundaries_around

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
UNITS = ("day", "week", "month")

# each zone with years in which its clocks did something worth a look
YEARS = [
    ("UTC", 1969),
    ("Europe/Berlin", 2026),
    ("Europe/Berlin", 1945),  # two hours ahead for some weeks
    ("Europe/London", 1968),  # summer time all the year from here
    ("America/New_York", 2024),
    ("America/Sao_Paulo", 2018),  # midnight skipped, and 23:00 twice
    ("Africa/Cairo", 2014),  # four changes
    ("Africa/Cairo", 2023),
    ("Africa/Casablanca", 2024),  # changes with Ramadan
    ("Africa/Monrovia", 1972),  # off by 44 minutes and a half until then
    ("America/Havana", 2024),  # midnight twice
    ("America/Asuncion", 2023),
    ("America/St_Johns", 2006),  # at 00:01 back to 23:01: the date itself goes back
    ("America/Toronto", 1919),  # from 23:30 to 00:30
    ("Antarctica/Troll", 2024),  # two hours at once
    ("Asia/Beirut", 2022),
    ("Asia/Kolkata", 1945),
    ("Asia/Tehran", 2021),
    ("Atlantic/Azores", 2024),
    ("Australia/Lord_Howe", 2024),  # half an hour
    ("Pacific/Apia", 2011),  # no 30 December
    ("Pacific/Kiritimati", 1994),  # no last day of the year
    ("Pacific/Kwajalein", 1969),  # one date twice
    ("Pacific/Kwajalein", 1993),  # no 21 August
    ("America/Juneau", 1867),  # one date twice, and offsets that count seconds
]


def instant(year, month=1, day=1, hour=0, zone="UTC"):
    return (datetime(year, month, day, hour, tzinfo=ZoneInfo(zone)) - EPOCH) // timedelta(microseconds=1)


def local(time_us, zone):
    return (EPOCH + timedelta(microseconds=time_us)).astimezone(ZoneInfo(zone))


@lru_cache(None)
def shown(time_us, zone):
    """The latest date that the clocks have shown by an instant."""
    return max(local(time_us - n * MINUTE, zone).date() for n in range(26 * 60))


def unit_of(date, unit):
    return {"day": date, "week": date - timedelta(days=date.weekday()), "month": date.replace(day=1)}[unit]


def changes(zone, year):
    """The instants of a year at which the clocks of a zone change, to the second."""

    def ahead(time_us):
        return local(time_us, zone).utcoffset()

    found = []
    for low in range(instant(year), instant(year + 1), DAY):
        high = low + DAY
        if ahead(low) == ahead(high):
            continue
        while high - low > SECOND:
            middle = (low + high) // 2 // SECOND * SECOND
            low, high = (middle, high) if ahead(middle) == ahead(low) else (low, middle)
        found.append(high)
    return found


def starts(times, unit, zone):
    return calendar(unit, zone).slice_of(np.array(times, dtype=np.int64))


@pytest.mark.parametrize(("zone", "year"), YEARS)
def test_days_weeks_and_months_are_those_that_the_clocks_show_around_every_change_of_the_year(zone, year):
    for change in [*changes(zone, year), instant(year, 3), instant(year + 1)]:
        times = list(range(change - 26 * HOUR, change + 26 * HOUR, MINUTE))
        dates = [shown(times[0], zone)]
        for time in times[1:]:
            dates.append(max(dates[-1], local(time, zone).date()))
        for unit in UNITS:
            begun = starts(times, unit, zone)
            assert (begun <= times).all()
            expected = [unit_of(a, unit) != unit_of(b, unit) for a, b in pairwise(dates)]
            assert (np.diff(begun) != 0).tolist() == expected
            for start in np.unique(begun).tolist():
                assert unit_of(shown(start, zone), unit) != unit_of(shown(start - 1, zone), unit)
                assert unit_of(shown(start, zone), unit) in {unit_of(d, unit) for d in dates}


def test_the_years_above_have_changes_in_them():
    assert sum(len(changes(zone, year)) for zone, year in YEARS) > 40
    assert len(changes("Africa/Cairo", 2014)) == 4


@pytest.mark.parametrize(
    ("zone", "date", "starts_at", "hours"),
    [
        ("Europe/Berlin", (2026, 3, 29), "2026-03-28T23:00", 23),
        ("Europe/Berlin", (2026, 10, 25), "2026-10-24T22:00", 25),
        ("America/Sao_Paulo", (2018, 11, 4), "2018-11-04T03:00", 23),
        ("America/Sao_Paulo", (2018, 2, 17), "2018-02-17T02:00", 25),
        ("America/Havana", (2024, 11, 3), "2024-11-03T04:00", 25),
        ("Asia/Beirut", (2022, 3, 27), "2022-03-26T22:00", 23),
        ("Pacific/Apia", (2011, 12, 29), "2011-12-29T10:00", 24),
        ("Pacific/Apia", (2011, 12, 31), "2011-12-30T10:00", 24),
        ("Australia/Lord_Howe", (2024, 4, 7), "2024-04-06T13:00", 24.5),
    ],
)
def test_days_of_unusual_length(zone, date, starts_at, hours):
    shape = calendar("day", zone)
    noon = instant(*date, 12, zone=zone)
    start, end = shape.kept_from(noon), shape.wake(noon, noon)
    assert start == (datetime.fromisoformat(starts_at + "+00:00") - EPOCH) // timedelta(microseconds=1)
    assert (end - start) / HOUR == hours


def test_weeks_begin_on_monday_and_months_on_the_first_also_before_1970():
    berlin = "Europe/Berlin"
    wednesday = instant(1969, 12, 31, 18, zone=berlin)
    assert starts([wednesday], "week", berlin).tolist() == [instant(1969, 12, 29, zone=berlin)]
    assert starts([wednesday], "month", berlin).tolist() == [instant(1969, 12, 1, zone=berlin)]
    assert calendar("month", berlin).wake(wednesday, wednesday) == instant(1970, 1, 1, zone=berlin)


ALL_TIME = st.integers(BEGINNING_US, 2 * END_US - 1) | st.integers(instant(1800), instant(2200))
ANY_ZONE = st.sampled_from(sorted({zone for zone, _ in YEARS}))


@given(st.sampled_from(UNITS), ANY_ZONE, st.lists(ALL_TIME, min_size=1, max_size=8))
def test_windows_lie_side_by_side_from_before_all_time_to_after_it(unit, zone, times):
    shape = calendar(unit, zone)
    begun = starts(times, unit, zone)
    for time, start in zip(times, begun.tolist(), strict=True):
        end = shape.wake(time, time)
        assert start <= time < end
        assert shape.late_before(time) == shape.kept_from(time) == shape.closing_before(time) == start
        assert shape.wake(start, BEGINNING_US) == end
        assert [shape.kept_from(t) for t in (start, end - 1, end)] == [start, start, end]
        assert starts([start, end - 1, end], unit, zone).tolist() == [start, start, end]
    group = np.arange(len(times))
    found = shape.closing(group, begun, BEGINNING_US - 32 * DAY, 2 * END_US + 32 * DAY)
    assert found.low.tolist() == group.tolist()
    assert found.end_us.tolist() == [shape.wake(t, t) for t in times]


@given(st.sampled_from(UNITS), ANY_ZONE, st.integers(instant(9210), instant(9600)), st.integers(1, 100))
def test_the_calendar_goes_on_beyond_the_years_that_python_knows(unit, zone, time, cycles):
    far = cycles * (400 * 365 + 97) * DAY
    assert local(starts([time], unit, zone)[0].item(), zone).date() == unit_of(local(time, zone).date(), unit)
    assert starts([time + far], unit, zone) == starts([time], unit, zone) + far


def test_times_that_are_centuries_apart_cost_only_their_own_days():
    times = np.array([instant(1900), instant(2026), instant(2200)])
    assert len(boundaries_around(times, "day", "Europe/Berlin")) < 250


def test_no_rows_have_no_slices():
    assert len(starts([], "day", "UTC")) == 0
    nothing = np.zeros(0, dtype=np.int64)
    assert len(calendar("day", "UTC").closing(nothing, nothing, 0, DAY).low) == 0


def test_a_calendar_is_a_value():
    shape = calendar("day", "Europe/Berlin")
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert shape != calendar("week", "Europe/Berlin")
    assert shape.describe() == "calendar day in Europe/Berlin"


@pytest.mark.parametrize(
    ("unit", "zone", "says"),
    [
        ("year", "UTC", r"no such unit 'year'; there is 'day', 'week', 'month'\."),
        ("weeks", "UTC", r"no such unit 'weeks'.*Did you mean 'week'\?"),
        (None, "UTC", "no such unit None"),
        ("day", "Europe/Berln", r"no such time zone 'Europe/Berln'.*Did you mean 'Europe/Berlin'\?"),
        ("day", "europe/berlin", r"Did you mean 'Europe/Berlin'\?"),
        ("day", "Berlin", r"Did you mean 'Europe/Berlin'\?"),
        ("day", "America", "no such time zone 'America'"),
        ("day", "", "no such time zone ''"),
        ("day", "../UTC", "no such time zone"),
        ("day", "localtime", "no such time zone 'localtime'"),
        ("day", None, "no such time zone None"),
    ],
)
def test_a_calendar_of_no_known_unit_or_zone_is_refused_on_the_line_that_wrote_it(unit, zone, says):
    with pytest.raises(PlanError, match=rf"^calendar: .*{says}.* \(.*test_calendar\.py:\d+\)$"):
        calendar(unit, zone)
