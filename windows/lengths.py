"""Lengths of time that can be added to any time."""

from __future__ import annotations

from datetime import timedelta

from penstock.plan.durations import micros

#: Longer than all times that rows can have lie apart; the sum of a few still lies before the end of time.
FOR_EVER_US = 2**59


def reach_us(length: timedelta) -> int:
    """Whole microseconds, no more than all of time: so that sums stay 64-bit numbers.

    >>> reach_us(timedelta(seconds=1)), reach_us(timedelta.max) == FOR_EVER_US
    (1000000, True)
    """
    return min(micros(length), FOR_EVER_US)
