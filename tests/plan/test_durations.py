"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import PlanError
from penstock.plan.durations import duration, micros, spoken


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90 seconds", timedelta(seconds=90)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("1 week", timedelta(weeks=1)),
        ("0 seconds", timedelta(0)),
        ("5 microseconds", timedelta(microseconds=5)),
        ("  2 days ", timedelta(days=2)),
        (timedelta(milliseconds=3), timedelta(milliseconds=3)),
    ],
)
def test_text_and_timedelta_are_read(text, length):
    assert duration(text, "size") == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5m",
        "1.5 hours",
        "one hour",
        "5 fortnights",
        "1 month",
        "2 years",
        5,
        None,
        "5 seconds ago",
        "9" * 30 + " days",
    ],
)
def test_anything_else_is_refused_with_its_name(text):
    with pytest.raises(PlanError, match="lateness="):
        duration(text, "lateness")


def test_negative_only_where_it_makes_sense():
    assert duration("-5 seconds", "within", least_us=-(10**18)) == timedelta(seconds=-5)
    assert duration("-1 hour 30 minutes", "within", least_us=-(10**18)) == timedelta(minutes=-90)
    with pytest.raises(PlanError, match="negative"):
        duration("-5 seconds", "lateness")


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_what_is_spoken_is_read_back(length):
    assert duration(spoken(length), "size") == length
    assert micros(length) == length // timedelta(microseconds=1)
