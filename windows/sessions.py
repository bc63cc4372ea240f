"""Sessions: rows of a key that follow each other closely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from penstock.plan.durations import Duration, duration, spoken
from penstock.windows.lengths import reach_us
from penstock.windows.pairs import first_pair, reached, running_greatest, stops
from penstock.windows.shapes import Ints, Mask


@dataclass(frozen=True)
class Session:
    """Rows whose neighbours are at most ``gap`` apart, cut ``max_duration`` after the first of them."""

    gap: timedelta
    max_duration: timedelta | None = None

    def describe(self) -> str:
        """The window in words."""
        most = "" if self.max_duration is None else f", at most {spoken(self.max_duration)}"
        return f"session with a gap of {spoken(self.gap)}{most}"

    @property
    def gap_us(self) -> int:
        """The gap in microseconds."""
        return reach_us(self.gap)

    @property
    def most_us(self) -> int | None:
        """The longest duration in microseconds."""
        return None if self.max_duration is None else reach_us(self.max_duration)

    @property
    def closes_within_us(self) -> int:
        """How long after its first row a session that is cut closes.

        At the cut no row can be added. But a row up to a gap before the first would move the cut, and is
        taken as long as it is not further than a gap behind the watermark.
        """
        return max(self.gap_us, self.most_us or 0)


def session(gap: Duration, max_duration: Duration | None = None) -> Session:
    """Rows of a key whose neighbours are at most ``gap`` apart; exactly ``gap`` is still together.

    Reported as ``[first, last + gap)``; it closes when the watermark is past its end. With ``max_duration`` a
    session holds ``[first, first + max_duration)``: the first row on the cut or after it begins the next one,
    and the end is the cut where ``last + gap`` reaches beyond it. A row is late when its time and the gap are
    before the watermark and no open session takes it, or when the session that it falls into has been cut
    and is closed.

    >>> session("10 seconds", max_duration="1 hour").describe()
    'session with a gap of 10 seconds, at most 1 hour'
    """
    longest = None if max_duration is None else duration(max_duration, "session: max_duration", least_us=1)
    return Session(duration(gap, "session: gap", least_us=1), longest)


def chain_begins(group: Ints, first_us: Ints, last_us: Ints, gap_us: int) -> Mask:
    """Where chains begin, among pieces of them sorted by group and ``first``: beyond the gap after all before.

    >>> chain_begins(np.array([0, 0, 0, 1]), np.array([0, 2, 10, 11]), np.array([5, 3, 11, 11]), 5).tolist()
    [True, False, False, True]
    """
    new = np.ones(len(group), np.bool_)
    reached = running_greatest(group, last_us)[:-1] + gap_us
    new[1:] = (group[1:] != group[:-1]) | (first_us[1:] > reached)
    return new


def cut_begins(begins: Mask, time_us: Ints, most_us: int) -> Mask:
    """Where sessions begin, among the rows of chains: at the first row of a chain, and at the first past each cut.

    Every row knows which row would begin the next session if it began one itself.

    >>> cut_begins(np.array([True, False, False, False]), np.array([0, 4, 8, 9]), 5).tolist()
    [True, False, True, False]
    """
    chain = np.cumsum(begins) - 1
    following = first_pair(chain, time_us, chain, time_us + most_us)
    firsts = np.flatnonzero(begins)
    ends = stops(firsts, len(time_us))
    return reached(firsts, np.where(following < ends[chain], following, len(time_us)))
