"""Windows of slices, held by key: a part for each key and slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.plan.durations import END_US
from penstock.state.bucket import BucketState
from penstock.state.edge import TIME, StepClock
from penstock.state.keyed import KeyedTable
from penstock.windows.held import Seen, Together, Touched, Windows
from penstock.windows.lengths import reach_us
from penstock.windows.pairs import pair_order, stops
from penstock.windows.partials import SLICE, Partials
from penstock.windows.shapes import Ints, Sliced, begins
from penstock.windows.sliding import Sliding


@dataclass(frozen=True)
class HeldSlices:
    """Slices by key, until every window that holds them is sealed."""

    shape: Sliced
    partials: Partials
    allowed_us: int

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late: every window that would hold it is sealed."""
        return self.shape.late_before(watermark_us - self.allowed_us)

    def doubtful_before(self, watermark_us: int) -> int:
        """There is no doubt."""
        return self.late_before(watermark_us)

    def combine(self, rows: pa.Table, watermark_us: int) -> pa.Table:
        """Rows as one part for each key and slice."""
        return self.partials.combine(rows, self.shape.slice_of(rows[TIME].to_numpy()))

    def see(self, state: BucketState, touched: Touched, clock: StepClock) -> Seen | None:
        """The slices of these keys, and the windows that are not sealed."""
        owner, held = self._table(state).find(touched.keys)
        both = Together.of(owner, held, touched, clock.now_us)
        if both is None:
            return None
        order = pair_order(both.group, both.parts[SLICE].to_numpy())
        parts, group, fresh = both.parts.take(pa.array(order)), both.group[order], both.origin[order] >= 0
        low = begins(group, parts[SLICE].to_numpy())
        if len(low) < len(group):
            parts = self.partials.fold(parts, low, stops(low, len(group)))
            group, fresh = group[low], np.logical_or.reduceat(fresh, low)
        windows = self._windows(group, parts[SLICE].to_numpy(), clock.previous_us)
        held_us = held[SLICE].to_numpy() if len(owner) else owner
        return Seen(parts, group, fresh, windows, owner, held_us, both.timer_us, None, 0)

    def keep(self, state: BucketState, touched: Touched, seen: Seen, now_us: int) -> None:
        """Put the slices that have changed, but for those whose windows are sealed."""
        chosen = seen.fresh & (seen.parts[SLICE].to_numpy() >= self.shape.kept_from(now_us - self.allowed_us))
        self._table(state).put(seen.rows(touched, chosen))

    def drop(self, state: BucketState, now_us: int) -> None:
        """Forget the slices whose windows are sealed."""
        self._table(state).drop_before(self.shape.kept_from(now_us - self.allowed_us))

    def due(self, windows: Windows, now_us: int) -> Ints:
        """A window's close."""
        return windows.close_us

    def look_again(self, now_us: int) -> int:
        """When a window that is open now may be sealed, or a slice is of use to no window to come."""
        watermark_us = now_us - self.allowed_us
        if isinstance(self.shape, Sliding):
            return now_us + self.allowed_us + reach_us(self.shape.size) + 1
        return self.shape.wake(self.shape.kept_from(watermark_us), watermark_us) + self.allowed_us

    def _windows(self, group: Ints, slice_us: Ints, watermark_us: int) -> Windows:
        found = self.shape.closing(group, slice_us, watermark_us - self.allowed_us, END_US)
        # a sliding window holds its end
        close = found.end_us + 1 if isinstance(self.shape, Sliding) else found.end_us
        chain = np.arange(len(found.low))
        return Windows(group[found.low], found.low, found.high, found.start_us, found.end_us, close, chain)

    def _table(self, state: BucketState) -> KeyedTable:
        return state.table("parts", self.partials.keys, within=(SLICE,), time=SLICE)
