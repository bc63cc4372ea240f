"""The kernel of final windows that are made of slices: combine per slice, fold the slices of what closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, TIME, Outcome, StepClock
from penstock.windows.exploded import exploded
from penstock.windows.pairs import pair_order
from penstock.windows.partials import SLICE, Partials
from penstock.windows.shapes import Ranges, Sliced

WINDOW_START = "__ps_window_start"
WINDOW_END = "__ps_window_end"
TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class WindowKernel:
    """Windows over partial aggregates, each out once, when it closes.

    State is one time buffer, by slice: per key and slice the partial aggregates. A row that is not late is
    added; then the windows that ``now`` closes are folded and come out, and slices that belong to closed
    windows only are dropped. With ``explode`` the one aggregate gives rows, and they come out one by one.
    """

    shape: Sliced
    partials: Partials
    explode: bool = False

    def late_before(self, previous_us: int | None) -> int:
        """A row before this time is late."""
        return self.shape.late_before(BEGINNING_US if previous_us is None else previous_us)

    def doubtful_before(self, previous_us: int | None) -> int:
        """There is no doubt."""
        return self.late_before(previous_us)

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Rows on their way to the shuffle, as partial aggregates per key and slice."""
        return self.partials.combine(rows, self.shape.slice_of(rows[TIME].to_numpy()))

    def ticks(self, clock: StepClock) -> bool:
        """Wall time closes no window."""
        return False

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Add what came, give what closed."""
        held = state.buffer("slices", time=SLICE)
        previous, now = clock.previous_us, clock.now_us
        came = pa.concat_tables(rows).drop_columns([BUCKET]) if rows else None
        main = None
        if now > previous:
            until = self.shape.closing_before(now)
            parts = [held.read(None, until)]
            if came is not None:
                parts.append(_where(came, came[SLICE].to_numpy() < until))
            main = self._closed([p for p in parts if p is not None and p.num_rows], previous, now)
        kept_from = self.shape.kept_from(now)
        held.drop_before(kept_from)
        if came is not None:
            held.add(self.partials.merge(_where(came, came[SLICE].to_numpy() >= kept_from)))
        held.merge_small(self.partials.merge)
        wake = None if held.first_us is None else self.shape.wake(held.first_us, now)
        return Outcome(main, wake)

    def _closed(self, parts: list[pa.Table], previous_us: int, now_us: int) -> pa.Table | None:
        if not parts:
            return None
        rows = pa.concat_tables(parts)
        group = self.partials.groups(rows)
        order = pair_order(group, rows[SLICE].to_numpy())
        rows, group = rows.take(pa.array(order)), group[order]
        found = self.shape.closing(group, rows[SLICE].to_numpy(), previous_us, now_us)
        if not len(found.low):
            return None
        results = window_results(self.partials, rows, found)
        return exploded(results, self.partials.names()[0]) if self.explode else results


def window_results(partials: Partials, parts: pa.Table, found: Ranges) -> pa.Table:
    """The results of windows over sorted parts: start, end, keys, aggregates."""
    start, end = (pa.array(us).cast(TIMESTAMP) for us in (found.start_us, found.end_us))
    keys = [parts[k].take(pa.array(found.low)) for k in partials.keys]
    results = partials.results(parts, found.low, found.high)
    return pa.table([start, end, *keys, *results], names=[WINDOW_START, WINDOW_END, *partials.keys, *partials.names()])


def _where(rows: pa.Table, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if chosen.all() else rows.filter(pa.array(chosen))
