"""Partial aggregates: one row per key and slice, begun from rows, merged as often as one likes, finished once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME
from penstock.windows.aggregates.codes import codes
from penstock.windows.aggregates.overlaps import merge_overlapping
from penstock.windows.aggregates.registry import Aggregate, Order
from penstock.windows.pairs import pair_order, stops
from penstock.windows.shapes import Ints, begins

SLICE = "slice_us"
STATE = "state_"
RESULT = "__ps_result_"


@dataclass(frozen=True)
class Measure:
    """One aggregate call: the columns that it reads, and the one that says which rows take part."""

    aggregate: Aggregate
    arguments: tuple[str, ...]
    mask: str | None

    def start(self, rows: pa.Table, order: Order | None) -> list[pa.Array]:
        """A state row for each row."""
        mask = None if self.mask is None else whole(rows, self.mask)
        arguments = [whole(rows, a) for a in self.arguments]
        return self.aggregate.start(arguments, mask, order, rows.num_rows)


@dataclass(frozen=True)
class Partials:
    """How rows of ``keys`` become partial aggregates; ``ordered`` when one of them asks where rows stand in time."""

    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    ordered: bool = False

    def reads(self) -> list[str]:
        """The columns of the rows that partial aggregates are made of."""
        order = (TIME, PARTITION, POSITION) if self.ordered else ()
        arguments = (c for m in self.measures for c in (*m.arguments, m.mask) if c is not None)
        return list(dict.fromkeys((BUCKET, *self.keys, *arguments, *order)))

    def begin(self, rows: pa.Table, identity: Sequence[str]) -> pa.Table:
        """A partial aggregate for each row, with the columns that say whose it is."""
        order = None
        if self.ordered:
            order = Order(*(rows[c].to_numpy() for c in (TIME, PARTITION, POSITION)))
        started = [state for m in self.measures for state in m.start(rows, order)]
        return self._parts(rows.select(list(identity)), started)

    def combine(self, rows: pa.Table, slices: Ints) -> pa.Table:
        """Rows as one partial aggregate for each key and slice."""
        rows, low = self.sorted(rows.select(self.reads()).append_column(SLICE, pa.array(slices)))
        return self.fold(self.begin(rows, (BUCKET, *self.keys, SLICE)), low, stops(low, rows.num_rows))

    def merge(self, parts: pa.Table) -> pa.Table:
        """The same with one row per key and slice."""
        if parts.num_rows < 2:
            return parts
        parts, low = self.sorted(parts)
        return parts if len(low) == parts.num_rows else self.fold(parts, low, stops(low, parts.num_rows))

    def fold(self, parts: pa.Table, low: Ints, high: Ints) -> pa.Table:
        """One part for each range of parts; what it says besides its state is that of the range's first."""
        identity = parts.select([c for c in parts.column_names if not c.startswith(STATE)])
        return self._parts(identity.take(pa.array(low)), self._merged(parts, low, high))

    def results(self, parts: pa.Table, low: Ints, high: Ints) -> list[pa.Array]:
        """The result of each aggregate for each range of parts; ranges may overlap."""
        found, states = [], iter(self._merged(parts, low, high))
        for measure in self.measures:
            found.append(measure.aggregate.finish([next(states) for _ in measure.aggregate.state_types()]))
        return found

    def names(self) -> list[str]:
        """The names of the results, in order."""
        return [f"{RESULT}{i}" for i in range(len(self.measures))]

    def groups(self, rows: pa.Table) -> Ints:
        """A number for each key."""
        return codes([rows[k] for k in self.keys]) if self.keys else np.zeros(rows.num_rows, dtype=np.int64)

    def sorted(self, rows: pa.Table) -> tuple[pa.Table, Ints]:
        """The rows by key and slice, and where each pair begins."""
        group, slices = self.groups(rows), rows[SLICE].to_numpy()
        order = pair_order(group, slices)
        return rows.take(pa.array(order)), begins(group[order], slices[order])

    def _merged(self, parts: pa.Table, low: Ints, high: Ints) -> list[pa.Array]:
        merged: list[pa.Array] = []
        states = iter([whole(parts, c) for c in parts.column_names if c.startswith(STATE)])
        for measure in self.measures:
            own = [next(states) for _ in measure.aggregate.state_types()]
            merged += merge_overlapping(measure.aggregate, own, low, high)
        return merged

    def _parts(self, identity: pa.Table, states: list[pa.Array]) -> pa.Table:
        names = [*identity.column_names, *(f"{STATE}{i}" for i in range(len(states)))]
        return pa.table([*identity.columns, *states], names=names)


def whole(rows: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    return rows[name].combine_chunks()
