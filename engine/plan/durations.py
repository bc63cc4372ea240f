"""Durations as people write them: ``timedelta``, or whole numbers with full words."""

from __future__ import annotations

import re
from datetime import timedelta

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at

Duration = str | timedelta

#: Before all time and after all time, in microseconds, with room to add a window's size on either side.
BEGINNING_US = -(2**61)
END_US = 2**61

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?\d+)\s+([a-z]+)")
_WHOLE = re.compile(r"\s*(?:[+-]?\d+\s+[a-z]+\s*)+")
_WAYS = "a timedelta, or whole numbers with full words such as '90 seconds' or '1 hour 30 minutes'"


def duration(value: Duration, what: str, *, least_us: int = 0) -> timedelta:
    """The length of ``value``; ``what`` names it in the refusal.

    >>> duration("1 hour 30 minutes", "lateness")
    datetime.timedelta(seconds=5400)
    >>> duration("1 month", "lateness")
    Traceback (most recent call last):
    penstock.plan.errors.PlanError: lateness='1 month': a month has no fixed length; use days or weeks. (...)
    """
    if isinstance(value, timedelta):
        length = value
    elif isinstance(value, str):
        length = _parse(value, what)
    else:
        raise PlanError(f"{what}={value!r}: a duration is {_WAYS}. ({written_at()})")
    if micros(length) < least_us:
        bound = "negative" if least_us == 0 else "zero or negative"
        raise PlanError(f"{what}={value!r}: may not be {bound}. ({written_at()})")
    return length


def _parse(text: str, what: str) -> timedelta:
    if not _WHOLE.fullmatch(text):
        raise PlanError(f"{what}={text!r}: a duration is {_WAYS}. ({written_at()})")
    total, sign = 0, 1
    for number, word in _PART.findall(text):
        unit = word[:-1] if word.endswith("s") else word
        if unit in ("month", "year"):
            raise PlanError(f"{what}={text!r}: a {unit} has no fixed length; use days or weeks. ({written_at()})")
        if unit not in _UNITS_US:
            raise PlanError(
                f"{what}={text!r}: no such unit {word!r}; there are {', '.join(_UNITS_US)}. ({written_at()})"
            )
        # "-1 hour 30 minutes" is minus ninety minutes: the sign stands for all that follows
        sign = {"-": -1, "+": 1}.get(number[0], sign)
        total += sign * abs(int(number)) * _UNITS_US[unit]
    try:
        return timedelta(microseconds=total)
    except OverflowError:
        raise PlanError(f"{what}={text!r}: longer than time itself can be counted. ({written_at()})") from None


def micros(length: timedelta) -> int:
    """Whole microseconds, exact."""
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds


def spoken(length: timedelta) -> str:
    """The duration in words, as ``duration`` reads it.

    >>> spoken(timedelta(hours=1, minutes=30))
    '1 hour 30 minutes'
    """
    left, parts = abs(micros(length)), []
    for word, size in reversed(_UNITS_US.items()):
        if word == "week" and left % size:
            continue
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {word}{'' if count == 1 else 's'}")
    text = " ".join(parts) or "0 seconds"
    return f"-{text}" if micros(length) < 0 else text
