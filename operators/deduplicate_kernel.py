"""The kernel of deduplicate: of rows with one key, those that no kept row stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, Outcome, StepClock
from penstock.state.keyed import KeyedTable
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.pairs import reached
from penstock.windows.shapes import Ints, Mask


@dataclass(frozen=True)
class DeduplicateKernel:
    """Keep a row unless a kept row of its key is at most ``within_us`` away from it.

    Rows are taken in order of arrival and come out at once; ``ordered``, they wait until the clock has passed
    them and are taken by time. State is the times of kept rows, as long as a row that is not late could be a
    duplicate of one, and the rows that wait.
    """

    keys: tuple[str, ...]
    carried: tuple[str, ...]
    within_us: int
    ordered: bool

    def late_before(self, previous_us: int | None) -> int:
        """A row before the watermark is late."""
        return BEGINNING_US if previous_us is None else previous_us

    def doubtful_before(self, previous_us: int | None) -> int:
        """There is no doubt: a late row is late whatever the state holds."""
        return self.late_before(previous_us)

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Of rows with one key and one time, the first to arrive.

        What stands for the first stands for the others, and they come after it in either order. Rows of
        different times stay, however near: another task may hold a row that stands for one and not the other.
        """
        return self._without_repeats(rows.select([*self._columns, BUCKET]))

    def ticks(self, clock: StepClock) -> bool:
        """Wall time has no say."""
        return False

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Decide on the rows that came, or on those that time has passed."""
        came = pa.concat_tables([r.select(self._columns) for r in rows]) if rows else None
        wake = None
        if self.ordered:
            waiting = state.buffer("waiting", time=TIME)
            came = waiting.released(came, clock.now_us, self._without_repeats)
            wake = None if waiting.first_us is None else waiting.first_us + 1
        kept = state.table("kept", self.keys, within=(TIME,), time=TIME)
        main = self._decided(kept, came) if came is not None and came.num_rows else None
        # a reach beyond the beginning of time says no more, and would fit no int64
        needed_us = max(clock.now_us - self.within_us, BEGINNING_US)
        kept.drop_before(needed_us)
        if main is not None:
            kept.put(main.select([*self.keys, TIME]).filter(pa.array(_times(main) >= needed_us)))
        return Outcome(main if main is not None and main.num_rows else None, wake)

    @property
    def _columns(self) -> list[str]:
        return [*self.keys, *self.carried, TIME, PARTITION, POSITION]

    def _decided(self, kept: KeyedTable, rows: pa.Table) -> pa.Table:
        """The rows that are kept, in the order in which they are taken."""
        group = codes([rows[key] for key in self.keys])
        # codes count up by first appearance: the number of a distinct key is its code
        owner, seen = kept.find(rows.select(self.keys).filter(pa.array(first_of_each(group))))
        before = _times(seen) if len(owner) else np.empty(0, np.int64)
        order = self._taken(rows)
        # rows that were kept in batches before were taken before all of these
        group, time_us = np.concatenate((owner, group[order])), np.concatenate((before, _times(rows)[order]))
        chosen = first_taken(group, time_us, self.within_us)[len(owner) :]
        return rows.take(pa.array(order[chosen]))

    def _taken(self, rows: pa.Table) -> Ints:
        """The order in which rows are taken."""
        arrival = (rows[POSITION].to_numpy(), rows[PARTITION].to_numpy())
        return np.lexsort((*arrival, _times(rows)) if self.ordered else arrival)

    def _without_repeats(self, rows: pa.Table) -> pa.Table:
        """Of rows with one key and one time, the first to arrive."""
        if rows.num_rows < 2:
            return rows
        same = codes([rows[column] for column in (*self.keys, TIME)])
        if int(same.max()) + 1 == rows.num_rows:
            return rows
        order = np.lexsort((rows[POSITION].to_numpy(), rows[PARTITION].to_numpy()))[::-1]
        first = np.empty(int(same.max()) + 1, np.int64)
        first[same[order]] = order  # of several values for one place the last stays, which arrived first
        return rows.take(pa.array(np.sort(first)))


def first_taken(group: Ints, time_us: Ints, within_us: int) -> Mask:
    """Which rows are kept when each is taken in turn, unless a kept row of its group is within reach.

    >>> first_taken(np.array([0, 0, 0, 1]), np.array([5, 8, 9, 8]), 3).tolist()
    [True, False, True, True]

    Put the rows of a group on a line by time. Of the rows from some place to the right end, let the *head* be
    the leftmost that is kept. One more row on the left becomes the head when it does not reach the head there
    was, or was taken before it; otherwise that head stands for it. And right of what a head reaches, the same
    rows are kept as if nothing stood on the left. So a chain of heads from right to left, and a chain of kept
    rows from left to right, decide all rows, and chains are followed in steps that double.
    """
    if not len(group):
        return np.zeros(0, np.bool_)
    times, rank = np.unique(time_us, return_inverse=True)
    # no two rows are further apart than this, and sums with it stay 64-bit numbers
    reach_us = min(within_us, int(times[-1]) - int(times[0]))
    place = group * len(times) + rank
    line = np.argsort(place, kind="stable")
    rank, place = rank[line], place[line]
    base = place - rank
    beyond = np.searchsorted(place, base + np.searchsorted(times, times + reach_us, side="right")[rank])
    rows = np.arange(len(line))
    # a part is a stretch without a gap that none can reach across; parts know nothing of each other
    begins = np.flatnonzero(np.concatenate(([True], beyond[:-1] == rows[1:])))
    begin = np.repeat(begins, np.diff(begins, append=len(line)))
    head = rows
    if ((line[1:] < line[:-1]) & (begin[1:] == begin[:-1])).any():
        low = np.searchsorted(place, base + np.searchsorted(times, times - reach_us)[rank])
        left = _all_later_from(line, low) - 1
        # a chain that went on into the next part would only be longer: that part's own chain begins there
        heads = reached(np.append(begins[1:], len(line)) - 1, np.where(left >= begin, left, len(line)))
        at = np.flatnonzero(heads)
        head = at[len(at) - np.cumsum(heads[::-1], dtype=np.int64)[::-1]]  # the nearest that is not left of a row
    following = np.append(head, len(line))[beyond]
    ends_there = np.append(begin, len(line))[beyond] != begin
    kept = np.empty(len(line), np.bool_)
    kept[line] = reached(head[begins], np.where(ends_there, len(line), following))
    return kept


def _all_later_from(line: Ints, low: Ints) -> Ints:
    """For each place the leftmost one, not left of ``low``, from which all up to it were taken later.

    Least values of blocks of 1, 2, 4, ... places are climbed while a whole block was taken later, and
    descended again within the first that was not.
    """
    at = np.arange(len(line))
    climbing = at[1:][(line[:-1] > line[1:]) & (low[1:] < at[1:])]
    least = [line]
    stopped: list[Ints] = []
    while len(climbing):
        size, blocks = 1 << len(stopped), least[-1]
        odd = (at[climbing] & size) != 0
        passes = _later(blocks, climbing, at, line, low, size)
        at[climbing[odd & passes]] -= size
        stopped.append(climbing[odd & ~passes])
        climbing = climbing[~odd | passes]
        climbing = climbing[at[climbing] > low[climbing]]
        pairs = len(blocks) // 2 * 2
        least.append(np.minimum(blocks[:pairs:2], blocks[1:pairs:2]))
    descending = at[:0]
    for level in reversed(range(len(stopped))):
        passes = _later(least[level], descending, at, line, low, 1 << level)
        at[descending[passes]] -= 1 << level
        descending = np.concatenate((descending, stopped[level]))
    return at


def _later(blocks: Ints, rows: Ints, at: Ints, line: Ints, low: Ints, size: int) -> Mask:
    """Whether the block that ends where a row is now was taken after the row, and is in its reach."""
    start = at[rows] - size
    return np.asarray((start >= low[rows]) & (blocks[np.maximum(start, 0) // size] > line[rows]))


def _times(rows: pa.Table) -> Ints:
    return np.asarray(rows[TIME].to_numpy(), np.int64)
