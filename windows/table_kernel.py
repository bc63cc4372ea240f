"""The kernels of aggregates over a table, whose rows may change and leave.

One subtracts what left and adds what came, and keeps one part for each group. Where an aggregate cannot
subtract, the other keeps the rows, and looks at all rows of the groups that a batch touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.bucket import BucketState
from penstock.state.changelog import net, touched, weighted
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, WEIGHT, Outcome, StepClock, Timeless
from penstock.state.hashing import hash_rows
from penstock.state.samekeys import same_values
from penstock.windows.aggregates.buffers import whole
from penstock.windows.aggregates.codes import first_of_each
from penstock.windows.aggregates.counts import Count
from penstock.windows.aggregates.ordering import null_first_keys, orderable
from penstock.windows.aggregates.subtraction import negative
from penstock.windows.exploded import exploded
from penstock.windows.pairs import stops
from penstock.windows.partials import SLICE, STATE, Measure, Partials
from penstock.windows.shapes import Ints, begins


@dataclass(frozen=True)
class SubtractingKernel(Timeless):
    """Aggregates that subtract; state is one part for each group that has a row, and how many rows it has."""

    partials: Partials

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """A part for each group: what came less what left."""
        goes = rows[WEIGHT].to_numpy() < 0
        parts = self._counted.begin(rows, (BUCKET, *self.partials.keys))
        if goes.any():
            parts = pa.concat_tables([parts.filter(pa.array(~goes)), self._negative(parts.filter(pa.array(goes)))])
        parts = parts.append_column(SLICE, pa.array(np.zeros(parts.num_rows, np.int64)))
        return self._counted.merge(parts).drop_columns([SLICE])

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Add the parts to those that are held; a group without rows is gone."""
        if not rows:
            return Outcome(None, None)
        keys, counted = self.partials.keys, self._counted
        came = pa.concat_tables(rows).drop_columns([BUCKET])
        group = self.partials.groups(came)
        asked = came.select(keys).filter(pa.array(first_of_each(group))) if keys else came.slice(0, 1)
        table = state.table("parts", keys, schema=came.schema)
        owner, held = table.find(asked)
        order = np.argsort(np.concatenate((owner, group)), kind="stable")
        both = pa.concat_tables([held.select(came.column_names), came]).take(pa.array(order))
        low = np.searchsorted(np.concatenate((owner, group))[order], np.arange(int(group.max()) + 1))
        parts = counted.fold(both, low, stops(low, both.num_rows))
        lives = parts[parts.column_names[-1]].to_numpy() > 0  # the last state is how many rows there are
        table.delete(held.filter(pa.array(~lives[owner])))
        table.put(parts.filter(pa.array(lives)))
        before, now = self._values(held), self._values(parts)
        told = lives.copy()
        same = lives[owner] & same_values(before, now.take(pa.array(owner)))
        told[owner[same]] = False
        changes = weighted(before.filter(pa.array(~same)), now.filter(pa.array(told)))
        return Outcome(changes if changes.num_rows else None, None)

    @cached_property
    def _counted(self) -> Partials:
        """The aggregates, for each of them how many values are in it, and last how many rows there are."""
        values = (Measure(Count(), m.arguments, m.mask) for m in self.partials.measures)
        return replace(self.partials, measures=(*self.partials.measures, *values, Measure(Count(), (), None)))

    def _negative(self, parts: pa.Table) -> pa.Table:
        identity = [c for c in parts.column_names if not c.startswith(STATE)]
        states = iter([whole(parts[c]) for c in parts.column_names if c.startswith(STATE)])
        turned: list[pa.Array] = []
        for measure in self._counted.measures:
            turned += negative(measure.aggregate, [next(states) for _ in measure.aggregate.state_types()])
        names = [*identity, *(f"{STATE}{i}" for i in range(len(turned)))]
        return pa.table([*parts.select(identity).columns, *turned], names=names)

    def _values(self, parts: pa.Table) -> pa.Table:
        """Groups with their results: of no value at all there is none, though it may have been zero."""
        every = np.arange(parts.num_rows)
        found = self._counted.results(parts, every, every + 1)
        count = len(self.partials.measures)
        results = [
            value if isinstance(m.aggregate, Count) else pc.if_else(pc.greater(there, 0), value, None)
            for m, value, there in zip(self.partials.measures, found[:count], found[count:], strict=False)
        ]
        keys = self.partials.keys
        return pa.table([*parts.select(keys).columns, *results], names=[*keys, *self.partials.names()])


@dataclass(frozen=True)
class RegroupingKernel(Timeless):
    """Any aggregates; state is what they read of every row, by group and by ``row_key``, the table's own key.

    Where an aggregate asks for the order of rows, it is that of ``row_key``.
    """

    partials: Partials
    row_key: tuple[str, ...]
    explode: bool = False

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """The changes as they are."""
        return rows.select([*self._kept, WEIGHT, BUCKET])

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Change the rows of the groups that are touched, and tell how their results were and are."""
        if not rows:
            return Outcome(None, None)
        keys = self.partials.keys
        names = [*self._kept, WEIGHT]
        # every column free to hold nulls: as what is held
        came = pa.concat_tables(pa.table([t[n] for n in names], names=names) for t in rows)
        group = self.partials.groups(came)
        asked = came.select(keys).filter(pa.array(first_of_each(group))) if keys else came.slice(0, 1)
        table = state.table("rows", keys, within=self.row_key, schema=came.drop_columns([WEIGHT]).schema)
        owner, held = table.find(asked)
        found = touched(held, owner, came, group, self.row_key)
        table.delete(found.rows.filter(pa.array(found.ends)))
        table.put(found.rows.filter(pa.array(found.comes)))
        changed = np.isin(found.group, found.group[found.goes | found.comes])
        before, now = (
            self._results(found.rows.filter(pa.array(there & changed)), found.group[there & changed])
            for there in (found.was, found.now)
        )
        changes = net(weighted(before, now))
        return Outcome(changes if changes.num_rows else None, None)

    @property
    def _kept(self) -> list[str]:
        arguments = (c for m in self.partials.measures for c in (*m.arguments, m.mask) if c is not None)
        return list(dict.fromkeys((*self.partials.keys, *self.row_key, *arguments)))

    def _results(self, rows: pa.Table, group: Ints) -> pa.Table:
        """The results of each group, its rows in the order of their key: so the same rows give the same bits."""
        order = np.lexsort([*reversed(self._order(rows)), group])
        rows, group = rows.take(pa.array(order)), group[order]
        if self.partials.ordered:
            zeros, places = np.zeros(len(order), np.int64), np.arange(len(order))
            for name, values in ((TIME, zeros), (PARTITION, zeros.astype(np.int32)), (POSITION, places)):
                rows = rows.append_column(name, pa.array(values))
        keys, low = self.partials.keys, begins(group, group)
        parts = self.partials.begin(rows, keys)
        results = self.partials.results(parts, low, stops(low, len(group)))
        owners = rows.select(keys).take(pa.array(low))
        made = pa.table([*owners.columns, *results], names=[*keys, *self.partials.names()])
        return exploded(made, self.partials.names()[0]) if self.explode else made

    def _order(self, rows: pa.Table) -> list[Ints]:
        """What rows are put in order by: their key, null first, and where its type has no order a hash of it."""
        keys: list[Ints] = []
        for name in self.row_key:
            column = whole(rows[name])
            known = orderable(column.type)
            keys += null_first_keys(column) if known else [hash_rows(rows, [name]).astype(np.int64)]
        return keys
