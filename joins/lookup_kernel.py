"""The kernel of lookups: each event with the row of a table as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.changelog import settled
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, WEIGHT, Outcome, StepClock, TimelessJoin
from penstock.state.keyed import KeyedTable
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.shapes import Ints


@dataclass(frozen=True)
class LookupKernel(TimelessJoin):
    """Events of edge 0 with the rows of a table whose changes come along edge 1, and apply first.

    State is the table's rows, one for each key. A null in a key meets nothing.

    ``right_types`` are those of ``right_carried``: of these a miss has nulls, also where no row ever came. With
    ``after_load`` events wait until the table is loaded.
    """

    keys: tuple[str, ...]
    left_carried: tuple[str, ...]
    right_carried: tuple[str, ...]
    how: str
    right_types: tuple[pa.DataType, ...] = ()
    after_load: bool = False

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """The rows as they are."""
        return rows.select([*((*self._table_columns, WEIGHT) if edge else self._event), BUCKET])

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """Change the table, then look every event up."""
        events, changes = rows
        table = state.table("rows", self.keys)
        if changes:
            self._change(table, pa.concat_tables(changes))
        came, wake = pa.concat_tables(events).select(self._event) if events else None, None
        if self.after_load:
            waiting = state.buffer("waiting", time=TIME)
            came = waiting.released(came, END_US if clock.loaded else BEGINNING_US)
            # whatever the time: what waits looks again in every batch
            wake = None if waiting.first_us is None else BEGINNING_US
        return Outcome(None if came is None else self._found(table, came), wake)

    @property
    def _event(self) -> list[str]:
        return [*self.keys, *self.left_carried, TIME, PARTITION, POSITION]

    @property
    def _table_columns(self) -> list[str]:
        return [*self.keys, *self.right_carried]

    def _change(self, table: KeyedTable, changes: pa.Table) -> None:
        """Put the rows that are there now; of a key that only loses its row, delete it."""
        now, gone = settled(changes.select([*self._table_columns, WEIGHT]), self.keys)
        table.delete(gone.select(self.keys))
        table.put(now)

    def _found(self, table: KeyedTable, events: pa.Table) -> pa.Table | None:
        """The events in order of arrival, with the rows of their keys."""
        events = events.take(pa.array(np.lexsort([events[name].to_numpy() for name in (POSITION, PARTITION)])))
        group = codes([events[key] for key in self.keys])
        owner, rows = table.find(events.select(self.keys).filter(pa.array(first_of_each(group))))
        # codes count up by first appearance: the number of a distinct key is its code
        row_of = np.full(int(group.max(initial=-1)) + 1, -1)
        row_of[owner] = np.arange(len(owner))
        found: Ints = row_of[group]
        for key in self.keys:
            found[pc.is_null(events[key]).to_numpy()] = -1
        if self.how == "inner":
            events, found = events.filter(pa.array(found >= 0)), found[found >= 0]
        if not events.num_rows:
            return None
        columns = {name: events[name] for name in (*self.keys, *self.left_carried)}
        if len(owner):
            where = pa.array(found, mask=found < 0)
            columns |= {name: rows[name].take(where) for name in self.right_carried}
        else:
            types = self.right_types or [pa.null()] * len(self.right_carried)
            nulls = (pa.nulls(events.num_rows, kind) for kind in types)
            columns |= dict(zip(self.right_carried, nulls, strict=True))
        return pa.table({**columns, **{name: events[name] for name in (TIME, PARTITION, POSITION)}})
