"""Sessions, held by key: a part for each session that can still grow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, LATE, TIME, StepClock
from penstock.state.keyed import KeyedTable
from penstock.state.pack import opened
from penstock.windows.held import Seen, Together, Touched, Windows
from penstock.windows.pairs import first_pair, pair_order, stops
from penstock.windows.partials import SLICE, Partials
from penstock.windows.sessions import Session, chain_begins
from penstock.windows.shapes import Ints, Mask

LAST = "last_us"


@dataclass(frozen=True)
class HeldSessions:
    """Sessions of any duration: each a part from its first row to its last, until it is sealed.

    Rows that may be late travel alone, because only here it is known whether a session takes them. What came
    and what is held are chained first; a chain of nothing but such rows is late.
    """

    shape: Session
    partials: Partials
    allowed_us: int

    def late_before(self, watermark_us: int) -> int:
        """Without the sessions of its key no row is known to be late."""
        return BEGINNING_US

    def doubtful_before(self, watermark_us: int) -> int:
        """A row before this time needs a session that takes it; a session that ended before it is sealed."""
        return watermark_us - self.shape.gap_us - self.allowed_us

    def combine(self, rows: pa.Table, watermark_us: int) -> pa.Table:
        """Rows as pieces of sessions; those that may be late as they are."""
        rows, group, time_us, alone = by_time(self.partials, rows, self.doubtful_before(watermark_us))
        low = np.flatnonzero(alone | chain_begins(group, time_us, time_us, self.shape.gap_us))
        high = stops(low, len(group))
        parts = begun(self.partials, rows, low, high)
        return parts.add_column(parts.column_names.index(SLICE) + 1, LAST, pa.array(time_us[high - 1]))

    def see(self, state: BucketState, touched: Touched, clock: StepClock) -> Seen | None:
        """The sessions of these keys that are not sealed."""
        owner, held = self._table(state).find(touched.keys)
        bound = self.doubtful_before(clock.previous_us)
        if len(owner):
            open_ = held[LAST].to_numpy() >= bound
            owner, held = owner[open_], held.filter(pa.array(open_))
        both = Together.of(owner, held, touched, clock.now_us)
        if both is None:
            return None
        order = pair_order(both.group, both.parts[SLICE].to_numpy())
        parts, group, origin = both.parts.take(pa.array(order)), both.group[order], both.origin[order]
        new = chain_begins(group, parts[SLICE].to_numpy(), parts[LAST].to_numpy(), self.shape.gap_us)
        taken = accepted(np.flatnonzero(new), (origin < 0) | (parts[SLICE].to_numpy() >= bound))
        late = origin[~taken]
        parts, group, fresh, new = parts.filter(pa.array(taken)), group[taken], origin[taken] >= 0, new[taken]
        low = np.flatnonzero(new)
        if len(low) < len(group):
            last = np.maximum.reduceat(parts[LAST].to_numpy(), low)
            parts = self.partials.fold(parts, low, stops(low, len(group)))
            parts = parts.set_column(parts.column_names.index(LAST), LAST, pa.array(last))
            group, fresh = group[low], np.logical_or.reduceat(fresh, low)
        held_us = held[SLICE].to_numpy() if len(owner) else owner
        windows = self._windows(group, parts[SLICE].to_numpy(), parts[LAST].to_numpy())
        refused = as_they_came(touched.came, late)
        return Seen(parts, group, fresh, windows, owner, held_us, both.timer_us, refused, len(late))

    def keep(self, state: BucketState, touched: Touched, seen: Seen, now_us: int) -> None:
        """Put the sessions that have changed, in place of those that they took in."""
        table = self._table(state)
        first = seen.parts[SLICE].to_numpy()
        at = first_pair(seen.group, first, seen.held_group, seen.held_us)
        # a session that began with another row has been taken in; one that has been sealed leaves by its time
        taken_in = (seen.held_group != np.append(seen.group, -1)[at]) | (seen.held_us != np.append(first, 0)[at])
        if taken_in.any():
            times = pa.table({SLICE: seen.held_us[taken_in]})
            table.delete(touched.named(seen.held_group[taken_in], times))
        chosen = seen.fresh & (seen.parts[LAST].to_numpy() >= self.doubtful_before(now_us))
        table.put(seen.rows(touched, chosen))

    def drop(self, state: BucketState, now_us: int) -> None:
        """Forget the sessions that are sealed."""
        self._table(state).drop_before(self.doubtful_before(now_us))

    def due(self, windows: Windows, now_us: int) -> Ints:
        """A session's close."""
        return windows.close_us

    def look_again(self, now_us: int) -> int:
        """When a session that has just begun would be sealed."""
        return now_us + self.shape.gap_us + self.allowed_us + 1

    def _windows(self, group: Ints, first_us: Ints, last_us: Ints) -> Windows:
        rows, end = np.arange(len(group)), last_us + self.shape.gap_us
        return Windows(group, rows, rows + 1, first_us, end, end + 1, rows)

    def _table(self, state: BucketState) -> KeyedTable:
        return state.table("parts", self.partials.keys, within=(SLICE,), time=LAST)


def by_time(partials: Partials, rows: pa.Table, doubtful_before: int) -> tuple[pa.Table, Ints, Ints, Mask]:
    """Rows by key and time, the number of the key, the time, and which rows begin a part because they may be late."""
    columns = [*partials.reads(), *([LATE] if LATE in rows.column_names else [])]
    group, time_us = partials.groups(rows), rows[TIME].to_numpy()
    order = pair_order(group, time_us)
    rows = rows.select(columns).append_column(SLICE, rows[TIME]).take(pa.array(order))
    group, time_us = group[order], time_us[order]
    alone = time_us < doubtful_before
    alone[1:] |= alone[:-1].copy()
    return rows, group, time_us, alone


def begun(partials: Partials, rows: pa.Table, low: Ints, high: Ints) -> pa.Table:
    """A part for each range of rows."""
    identity = [BUCKET, *partials.keys, SLICE, *([LATE] if LATE in rows.column_names else [])]
    parts = partials.begin(rows, identity)
    return parts if len(low) == parts.num_rows else partials.fold(parts, low, high)


def accepted(low: Ints, sure: Mask, is_open: Mask | None = None) -> Mask:
    """The parts of sessions, which begin at ``low``, that have one part that is surely not late, or are open."""
    taken = np.logical_or.reduceat(sure, low)
    return np.repeat(taken if is_open is None else taken | is_open, np.diff(low, append=len(sure)))


def as_they_came(came: pa.Table | None, rows: Ints) -> pa.Table | None:
    """The rows as they came, where they travelled along."""
    if came is None or LATE not in came.column_names or not len(rows):
        return None
    return opened(came[LATE].take(pa.array(rows)))
