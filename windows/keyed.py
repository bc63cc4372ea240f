"""The kernel of windows that are held by key: sessions, sliding windows, and all whose results are a Table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.changelog import net
from penstock.state.edge import BUCKET, WEIGHT, Outcome, StepClock
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.exploded import exploded
from penstock.windows.firing import Final, Firing, Panes, Updates
from penstock.windows.held import Held, Seen, Touched
from penstock.windows.held_cuts import HeldCuts
from penstock.windows.held_sessions import HeldSessions
from penstock.windows.held_slices import HeldSlices
from penstock.windows.kernel import TIMESTAMP, WINDOW_END, WINDOW_START
from penstock.windows.lengths import reach_us
from penstock.windows.partials import Partials
from penstock.windows.running import running_changes
from penstock.windows.sessions import Session
from penstock.windows.shapes import Sliced
from penstock.windows.shown import Shown
from penstock.windows.timers import Timers, Untold


@dataclass(frozen=True)
class KeyedWindowKernel:
    """Windows over the parts that are held of a key; a batch looks only at keys that it touches.

    Touched are the keys of rows, those for which something falls due, and at a tick of wall time those that
    have been touched since the last. Without a shape there is one value for each key, over all its rows.
    """

    shape: Sliced | Session | None
    partials: Partials
    firing: Firing
    explode: bool = False

    def late_before(self, previous_us: int | None) -> int:
        """A row before this time is late."""
        return BEGINNING_US if self.shape is None else self._held.late_before(_known(previous_us))

    def doubtful_before(self, previous_us: int | None) -> int:
        """A row before this time may be late: the step decides, and needs the row as it came."""
        return (
            BEGINNING_US if self.shape is None else max(self._held.doubtful_before(_known(previous_us)), BEGINNING_US)
        )

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Rows on their way to the shuffle, as partial aggregates."""
        if self.shape is None:
            return self.partials.combine(rows, np.zeros(rows.num_rows, np.int64))
        return self._held.combine(rows, _known(previous_us))

    def ticks(self, clock: StepClock) -> bool:
        """True when it is time again for early values."""
        if not isinstance(self.firing, Panes) or self.firing.early is None:
            return False
        early, since = reach_us(self.firing.early), clock.since_us
        return (clock.wall_us - since) // early > (clock.previous_wall_us - since) // early

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Add what came, tell what has closed or changed."""
        clock = replace(clock, now_us=min(clock.now_us, END_US))
        came = pa.concat_tables(rows).drop_columns([BUCKET]) if rows else None
        if self.shape is None:
            touched = self._touched(came, None, None)
            changes = None if touched is None else running_changes(self.partials, state, touched)
            return Outcome(self._given(changes), None)
        held, timers = self._held, Timers(state.buffer("timers", time=Timers.TIME), self.partials)
        ticks, untold = self.ticks(clock), Untold(state.buffer("untold", time=Untold.TIME), self.partials)
        touched = self._touched(came, timers.fallen_due(clock.now_us), untold.all() if ticks else None)
        seen = None if touched is None else held.see(state, touched, clock)
        main = None
        if touched is not None and seen is not None:
            main = self._results(state, touched, seen, clock, ticks)
            if isinstance(held, HeldCuts) or not isinstance(self.firing, Updates):
                seen = timers.set(touched, seen, held.due(seen.windows, clock.now_us), clock.now_us)
            held.keep(state, touched, seen, clock.now_us)
        if isinstance(self.firing, Panes) and self.firing.early is not None:
            if ticks or clock.now_us == END_US:
                untold.forget()
            else:
                untold.add(came, clock.wall_us)
        held.drop(state, clock.now_us)
        self._shown.drop(state, clock.now_us)
        wake = held.look_again(clock.now_us) if state.sets() else None
        if wake is not None and timers.first_us is not None:
            wake = min(wake, timers.first_us)
        if seen is None:
            return Outcome(self._given(main), wake)
        return Outcome(self._given(main), wake, seen.late, seen.late_count)

    @property
    def _allowed_us(self) -> int:
        return reach_us(self.firing.allowed_lateness) if isinstance(self.firing, Panes) else 0

    @property
    def _held(self) -> Held:
        shape, partials, allowed_us = self.shape, self.partials, self._allowed_us
        assert shape is not None, "what has no window is not held by time"
        if not isinstance(shape, Session):
            return HeldSlices(shape, partials, allowed_us)
        if shape.most_us is None:
            return HeldSessions(shape, partials, allowed_us)
        return HeldCuts(shape, shape.most_us, partials, allowed_us)

    @property
    def _shown(self) -> Shown:
        return Shown(self.partials, self._allowed_us, panes=isinstance(self.firing, Panes))

    def _touched(self, came: pa.Table | None, *others: pa.Table | None) -> Touched | None:
        """The keys of tables, each once."""
        tables = [t for t in (came, *others) if t is not None and t.num_rows]
        if not tables:
            return None
        count = 0 if came is None else came.num_rows
        names = self.partials.keys
        if not names:
            return Touched(names, pa.table({"all": pa.nulls(1)}), came, np.zeros(count, np.int64))
        keys = pa.concat_tables([t.select(list(names)) for t in tables])
        group = codes(keys.columns)
        # codes count up by first appearance: the number of a distinct key is its code
        return Touched(names, keys.filter(pa.array(first_of_each(group))), came, group[:count])

    def _results(
        self, state: BucketState, touched: Touched, seen: Seen, clock: StepClock, ticks: bool
    ) -> pa.Table | None:
        if not isinstance(self.firing, Final):
            return self._shown.changes(state, touched, seen, clock, ticks)
        windows = seen.windows
        closed = np.flatnonzero(windows.close_us <= clock.now_us)
        results = self.partials.results(seen.parts, windows.low[closed], windows.high[closed])
        times = [pa.array(us[closed]).cast(TIMESTAMP) for us in (windows.start_us, windows.end_us)]
        rows = touched.named(windows.group[closed], pa.table(results, names=self.partials.names()))
        return pa.table([*times, *rows.columns], names=[WINDOW_START, WINDOW_END, *rows.column_names])

    def _given(self, rows: pa.Table | None) -> pa.Table | None:
        """Results as they come out, rows where they are lists of rows."""
        if rows is None or not rows.num_rows:
            return None
        if self.explode:
            weighted = WEIGHT in rows.column_names
            rows = exploded(rows, self.partials.names()[0])
            rows = net(rows) if weighted else rows
        return rows if rows.num_rows else None


def _known(previous_us: int | None) -> int:
    return BEGINNING_US if previous_us is None else previous_us
