"""Sessions of a longest duration, held by key: a part for each time, for a row may move every cut after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.edge import StepClock
from penstock.state.keyed import KeyedTable
from penstock.windows.held import Seen, Together, Touched, Windows
from penstock.windows.held_sessions import accepted, as_they_came, begun, by_time
from penstock.windows.pairs import first_pair, pair_order, stops
from penstock.windows.partials import SLICE, Partials
from penstock.windows.sessions import Session, chain_begins, cut_begins
from penstock.windows.shapes import Ints, Mask, begins

CUT = "cut_us"
GONE = "gone_us"


@dataclass(frozen=True)
class HeldCuts:
    """Sessions of a longest duration: their rows by time, until a session is sealed, and then where it was cut.

    A row before the cut of a sealed session is late, though the next session of its chain may be open. So the
    last such cut of a key is remembered, while anything of the key is held and until every row before the cut
    would be late without it.
    """

    shape: Session
    longest_us: int
    partials: Partials
    allowed_us: int

    def late_before(self, watermark_us: int) -> int:
        """Without the sessions of its key no row is known to be late."""
        return BEGINNING_US

    def doubtful_before(self, watermark_us: int) -> int:
        """A row before this time may fall before the cut of a sealed session."""
        return watermark_us - self.allowed_us

    def combine(self, rows: pa.Table, watermark_us: int) -> pa.Table:
        """Rows as parts of one time each; those that may be late as they are."""
        rows, group, time_us, alone = by_time(self.partials, rows, self.doubtful_before(watermark_us))
        alone[begins(group, time_us)] = True
        low = np.flatnonzero(alone)
        return begun(self.partials, rows, low, stops(low, len(group)))

    def see(self, state: BucketState, touched: Touched, clock: StepClock) -> SeenCuts | None:
        """The sessions of these keys that are not sealed."""
        owner, held = self._table(state).find(touched.keys)
        both = Together.of(owner, held, touched, clock.now_us)
        if both is None:
            return None
        order = pair_order(both.group, both.parts[SLICE].to_numpy())
        cut_us, cut_gone_us = self._cuts(state, touched, clock.previous_us)
        before_cut = both.parts[SLICE].to_numpy()[order] < cut_us[both.group[order]]
        late, order = both.origin[order[before_cut]], order[~before_cut]
        group, origin, time_us = both.group[order], both.origin[order], both.parts[SLICE].to_numpy()[order]
        # a session of rows that may be late is taken when it is open: one that would come too late is not
        sessions = self._windows(group, time_us)
        sure = (origin < 0) | (time_us >= clock.previous_us - self.shape.gap_us - self.allowed_us)
        taken = accepted(sessions.low, sure, sessions.close_us + self.allowed_us > clock.previous_us)
        late = np.concatenate((late, origin[~taken]))
        parts, group, fresh = both.parts.take(pa.array(order[taken])), group[taken], origin[taken] >= 0
        low = begins(group, parts[SLICE].to_numpy())
        if len(low) < len(group):
            parts = self.partials.fold(parts, low, stops(low, len(group)))
            group, fresh = group[low], np.logical_or.reduceat(fresh, low)
        windows = self._windows(group, parts[SLICE].to_numpy())
        held_us = held[SLICE].to_numpy() if len(owner) else owner
        seen = Seen(
            parts, group, fresh, windows, owner, held_us, both.timer_us, as_they_came(touched.came, late), len(late)
        )
        return SeenCuts(**vars(seen), cut_us=cut_us, cut_gone_us=cut_gone_us)

    def keep(self, state: BucketState, touched: Touched, seen: Seen, now_us: int) -> None:
        """Put the rows that came, delete those of sessions that are sealed, and remember where these were cut."""
        sealed = seen.windows.close_us + self.allowed_us <= now_us
        passed = np.repeat(sealed, seen.windows.high - seen.windows.low)
        table, time_us = self._table(state), seen.parts[SLICE].to_numpy()
        # all that is held is also seen, so that each has its place
        over = np.append(passed, False)[first_pair(seen.group, time_us, seen.held_group, seen.held_us)]
        if over.any():
            table.delete(touched.named(seen.held_group[over], pa.table({SLICE: seen.held_us[over]})))
        chosen = seen.fresh & ~passed
        table.put(seen.rows(touched, chosen))
        assert isinstance(seen, SeenCuts)
        self._remember(state, touched, seen, sealed, now_us)

    def drop(self, state: BucketState, now_us: int) -> None:
        """Forget the rows that are surely of sealed sessions, and the cuts that say nothing any more."""
        self._table(state).drop_before(now_us - self.shape.closes_within_us - self.allowed_us)
        self._cut_table(state).drop_before(now_us + 1)

    def due(self, windows: Windows, now_us: int) -> Ints:
        """A session's close, then when it is sealed: its rows have to be told from those of the next."""
        return np.where(windows.close_us > now_us, windows.close_us, windows.close_us + self.allowed_us)

    def look_again(self, now_us: int) -> int:
        """When a cut that is made now says nothing any more."""
        return now_us + self.shape.gap_us + self.allowed_us + 1

    def _windows(self, group: Ints, time_us: Ints) -> Windows:
        new = chain_begins(group, time_us, time_us, self.shape.gap_us)
        low = np.flatnonzero(cut_begins(new, time_us, self.longest_us))
        high = stops(low, len(group))
        first_us, reach_us = time_us[low], time_us[high - 1] + self.shape.gap_us
        end = np.minimum(reach_us, first_us + self.longest_us)
        close = np.minimum(reach_us + 1, first_us + self.shape.closes_within_us)
        return Windows(group[low], low, high, first_us, end, close, np.cumsum(new, dtype=np.int64)[low])

    def _cuts(self, state: BucketState, touched: Touched, watermark_us: int) -> tuple[Ints, Ints]:
        """For each key where its last sealed session was cut, and until when that says something."""
        cut_us, gone_us = np.full((2, touched.keys.num_rows), BEGINNING_US)
        owner, rows = self._cut_table(state).find(touched.keys)
        if len(owner):
            standing = rows[GONE].to_numpy() > watermark_us
            cut_us[owner[standing]] = rows[CUT].to_numpy()[standing]
            gone_us[owner[standing]] = rows[GONE].to_numpy()[standing]
        return cut_us, gone_us

    def _remember(self, state: BucketState, touched: Touched, seen: SeenCuts, sealed: Mask, now_us: int) -> None:
        windows, cut_us = seen.windows, seen.cut_us.copy()
        was_cut = sealed & (windows.end_us == windows.start_us + self.longest_us)
        np.maximum.at(cut_us, windows.group[was_cut], windows.end_us[was_cut])
        needed_us, last_us = cut_us.copy(), seen.parts[SLICE].to_numpy()[windows.high - 1]
        np.maximum.at(needed_us, windows.group[~sealed], last_us[~sealed] + 1)
        gone_us = needed_us + self.shape.gap_us + self.allowed_us
        changed = (cut_us > seen.cut_us) | (gone_us > seen.cut_gone_us)
        chosen = np.flatnonzero((cut_us > BEGINNING_US) & (gone_us > now_us) & changed)
        self._cut_table(state).put(touched.named(chosen, pa.table({CUT: cut_us[chosen], GONE: gone_us[chosen]})))

    def _table(self, state: BucketState) -> KeyedTable:
        return state.table("parts", self.partials.keys, within=(SLICE,), time=SLICE)

    def _cut_table(self, state: BucketState) -> KeyedTable:
        return state.table("cuts", self.partials.keys, time=GONE)


@dataclass(frozen=True)
class SeenCuts(Seen):
    """What is seen of sessions of a longest duration: also, for each key, the last cut and until when it counts."""

    cut_us: Ints
    cut_gone_us: Ints
