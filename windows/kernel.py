"""The kernel of every window that is made of slices: combine per slice, fold the slices of what closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, Outcome, StepClock
from penstock.windows.aggregates.codes import codes
from penstock.windows.aggregates.reduction import gather
from penstock.windows.aggregates.registry import Aggregate, Order
from penstock.windows.shapes import Aligned, Ints

SLICE = "slice_us"
WINDOW_START = "__ps_window_start"
WINDOW_END = "__ps_window_end"
_TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Measure:
    """One aggregate call: the columns that it reads, and the one that says which rows take part."""

    aggregate: Aggregate
    arguments: tuple[str, ...]
    mask: str | None

    def start(self, rows: pa.Table, order: Order | None) -> list[pa.Array]:
        """A state row for each row."""
        mask = None if self.mask is None else _column(rows, self.mask)
        arguments = [_column(rows, a) for a in self.arguments]
        return self.aggregate.start(arguments, mask, order, rows.num_rows)


@dataclass(frozen=True)
class WindowKernel:
    """Windows over partial aggregates; with ``carried`` columns instead, over the rows themselves.

    State is one time buffer, by slice: per key and slice the partial aggregates (or the rows). A row that
    is not late is added; then the windows that ``now`` closes are folded and come out, and slices that
    belong to closed windows only are dropped.
    """

    shape: Aligned
    keys: tuple[str, ...]
    measures: tuple[Measure, ...] = ()
    carried: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def partial(self) -> bool:
        """True when partial aggregates are kept, False when rows are."""
        return not self.carried

    def late_before(self, previous_us: int | None) -> int:
        """A row before this time is late."""
        return self.shape.late_before(BEGINNING_US if previous_us is None else previous_us)

    def combine(self, rows: pa.Table) -> pa.Table:
        """Rows on their way to the shuffle, as partial aggregates per key and slice."""
        slices = pa.array(self.shape.slice_of(rows[TIME].to_numpy()))
        if not self.partial:
            return rows.select([BUCKET, *self.keys, *self.carried]).append_column(SLICE, slices)
        rows, low = self._sorted(rows.select(self._read()).append_column(SLICE, slices))
        order = None
        if self.ordered:
            order = Order(*(rows[c].to_numpy() for c in (TIME, PARTITION, POSITION)))
        started = [state for m in self.measures for state in m.start(rows, order)]
        identity = rows.select([BUCKET, *self.keys, SLICE])
        return self._folded(identity, started, low, _ends(low, rows.num_rows))

    def _read(self) -> list[str]:
        """The columns that partial aggregates are made of."""
        order = (TIME, PARTITION, POSITION) if self.ordered else ()
        arguments = (c for m in self.measures for c in (*m.arguments, m.mask) if c is not None)
        return list(dict.fromkeys((BUCKET, *self.keys, *arguments, *order)))

    def merge(self, partials: pa.Table) -> pa.Table:
        """Partial aggregates with one row per key and slice; rows stay as they are."""
        if not self.partial or partials.num_rows < 2:
            return partials
        partials, low = self._sorted(partials)
        if len(low) == partials.num_rows:
            return partials
        identity = partials.select([c for c in partials.column_names if not c.startswith("state_")])
        return self._folded(identity, self._states(partials), low, _ends(low, partials.num_rows))

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Add what came, give what closed."""
        held = state.buffer("slices", time=SLICE)
        previous, now = clock.previous_us, clock.now_us
        came = pa.concat_tables(rows) if rows else None
        if came is not None and BUCKET in came.column_names:
            came = came.drop_columns([BUCKET])
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
            held.add(self.merge(_where(came, came[SLICE].to_numpy() >= kept_from)))
        held.merge_small(self.merge)
        wake = None if held.first_us is None else self.shape.wake(held.first_us, now)
        return Outcome(main, wake)

    def _closed(self, parts: list[pa.Table], previous_us: int, now_us: int) -> pa.Table | None:
        if not parts:
            return None
        rows = pa.concat_tables(parts)
        group = self._groups(rows)
        order, _ = self._ordering(group, rows[SLICE].to_numpy())
        rows, group = rows.take(pa.array(order)), group[order]
        found = self.shape.closing(group, rows[SLICE].to_numpy(), previous_us, now_us)
        if not len(found.low):
            return None
        start = pa.array(found.start_us).cast(_TIMESTAMP)
        end = pa.array(found.end_us).cast(_TIMESTAMP)
        if not self.partial:
            members = gather(found.low, found.high)
            window = np.repeat(np.arange(len(found.low)), found.high - found.low)
            columns = [rows[c].take(pa.array(members)) for c in (*self.keys, *self.carried)]
            names = [WINDOW_START, WINDOW_END, *self.keys, *self.carried]
            return pa.table([start.take(pa.array(window)), end.take(pa.array(window)), *columns], names=names)
        results, states = [], iter(self._states(rows))
        for measure in self.measures:
            own = [next(states) for _ in measure.aggregate.state_types()]
            results.append(measure.aggregate.finish(measure.aggregate.merge(own, found.low, found.high)))
        keys = [rows[k].take(pa.array(found.low)) for k in self.keys]
        names = [WINDOW_START, WINDOW_END, *self.keys, *(f"__ps_result_{i}" for i in range(len(results)))]
        return pa.table([start, end, *keys, *results], names=names)

    def _groups(self, rows: pa.Table) -> Ints:
        return codes([rows[k] for k in self.keys]) if self.keys else np.zeros(rows.num_rows, dtype=np.int64)

    def _sorted(self, rows: pa.Table) -> tuple[pa.Table, Ints]:
        """The rows by key and slice, and where each pair begins."""
        order, pair = self._ordering(self._groups(rows), rows[SLICE].to_numpy())
        begins = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1])))[: len(pair)]
        return rows.take(pa.array(order)), begins

    def _ordering(self, group: Ints, slices: Ints) -> tuple[Ints, Ints]:
        """The order by group and slice, and the pairs in that order, each as one number."""
        rank = (slices - slices.min(initial=0)) // self.shape.slice_us
        width = int(rank.max(initial=0)) + 1
        if width >= 2**62 // max(1, int(group.max(initial=0)) + 1):
            rank = np.searchsorted(np.unique(slices), slices)
            width = int(rank.max(initial=0)) + 1
        pair = group * width + rank
        # equal pairs may come in any order: what depends on order has its own columns for it
        order = np.argsort(pair)
        return order, pair[order]

    def _states(self, partials: pa.Table) -> list[pa.Array]:
        return [_column(partials, c) for c in partials.column_names if c.startswith("state_")]

    def _folded(self, identity: pa.Table, started: list[pa.Array], low: Ints, high: Ints) -> pa.Table:
        folded, states = [], iter(started)
        for measure in self.measures:
            own = [next(states) for _ in measure.aggregate.state_types()]
            folded += measure.aggregate.merge(own, low, high)
        identity = identity.take(pa.array(low))
        names = [*identity.column_names, *(f"state_{i}" for i in range(len(folded)))]
        return pa.table([*identity.columns, *folded], names=names)


def _where(rows: pa.Table, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _ends(low: Ints, rows: int) -> Ints:
    return np.append(low[1:], rows)
