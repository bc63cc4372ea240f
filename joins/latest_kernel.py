"""The kernel of a changelog that is read as a table: the latest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.joins.precedence import Precedence
from penstock.plan.durations import END_US
from penstock.state.bucket import BucketState
from penstock.state.changelog import weighted
from penstock.state.edge import BUCKET, DELETED, TIME, Outcome, StepClock, Timeless
from penstock.state.keyed import KeyedTable
from penstock.state.samekeys import same_values
from penstock.windows.aggregates.buffers import flags, whole
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.shapes import Ints

UNTIL = "__ps_until"  # of a held row: how long it is kept; a row that is there, to the end of time


@dataclass(frozen=True)
class LatestKernel(Timeless):
    """The changes of a table that holds of each key the row that counts, unless it is a delete.

    State is that row for every key, for ever. A delete stays too, without its values, so that an older upsert
    does not bring the row back: for ever, or for ``tombstones_us``. ``timed``, these are counted from the time of
    the delete to the watermark before the batch; otherwise by wall time, from the batch that brought it.
    """

    keys: tuple[str, ...]
    carried: tuple[str, ...]
    sequences: tuple[str, ...]
    arrival_wins: bool
    tombstones_us: int | None = None
    timed: bool = False

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Of rows with one key, the one that counts."""
        rows = rows.select([*self._brought, BUCKET])
        group = codes([rows[key] for key in self.keys])
        if int(group.max(initial=-1)) + 1 == len(group):
            return rows
        return rows.take(pa.array(np.sort(self._precedence.winners(rows, group))))

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Let the rows that came replace those that count less, and tell what that changes."""
        if not rows:
            return Outcome(None, None)
        came = pa.concat_tables(rows)
        # as what is held: every column is free to hold nulls
        came = pa.table({name: came[name] for name in self._brought})
        group = codes([came[key] for key in self.keys])
        # codes count up by first appearance: the number of a distinct key is its code
        keys = came.select(self.keys).filter(pa.array(first_of_each(group)))
        table = state.table("latest", self.keys, time=self._time, schema=came.schema)
        self._forget(table, clock)
        owner, held = table.find(keys)
        both = pa.concat_tables([t.select(self._columns) for t in (held, came)])
        winner = self._precedence.winners(both, np.concatenate((owner, group)))
        before = np.full(len(winner), -1)
        before[owner] = np.arange(len(owner))
        new = np.flatnonzero(winner >= len(owner))
        # what is new among the winners has come
        latest, before = self._emptied(came.take(pa.array(winner[new] - len(owner)))), before[new]
        table.put(self._kept(latest, clock))
        return Outcome(self._changes(held, before, latest), None)

    @property
    def _columns(self) -> list[str]:
        return [*self.keys, *self.carried, *self._precedence.columns]

    @property
    def _brought(self) -> list[str]:
        """What rows must bring: the columns that are held, and their time where it says how long they are."""
        return [*self._columns, *([TIME] if self._time is not None and self.timed else [])]

    @property
    def _time(self) -> str | None:
        return None if self.tombstones_us is None else UNTIL

    @property
    def _precedence(self) -> Precedence:
        return Precedence(self.sequences, self.arrival_wins)

    def _forget(self, table: KeyedTable, clock: StepClock) -> None:
        """Forget the deletes whose time was over before the batch, also in a bucket that slept through some."""
        if self.tombstones_us is not None:
            # no further than the end of time: to there are kept the rows that are there
            table.drop_before(min(clock.previous_us if self.timed else clock.wall_us, END_US))

    def _kept(self, rows: pa.Table, clock: StepClock) -> pa.Table:
        """The rows as they are held, with how long where deletes are not for ever."""
        if self.tombstones_us is None:
            return rows
        keep_us = min(self.tombstones_us, END_US)
        since_us = rows[TIME].to_numpy() if self.timed else np.full(rows.num_rows, clock.wall_us)
        until_us = np.minimum(since_us, END_US - keep_us) + keep_us
        until_us[~flags(whole(rows[DELETED]))] = END_US
        return rows.select(self._columns).append_column(UNTIL, pa.array(until_us))

    def _emptied(self, rows: pa.Table) -> pa.Table:
        """The rows, deletes without their values."""
        deleted = flags(whole(rows[DELETED]))
        if not deleted.any():
            return rows
        there = pa.array(np.arange(len(deleted)), mask=deleted)
        emptied = {name: rows[name].take(there) for name in self.carried}
        return pa.table({name: emptied.get(name, rows[name]) for name in rows.column_names})

    def _changes(self, held: pa.Table, before: Ints, latest: pa.Table) -> pa.Table | None:
        """What readers lose and what they get; ``before`` is the number of the held row of each latest one, or -1."""
        gained = ~flags(whole(latest[DELETED]))
        lost = before >= 0
        lost[lost] = ~flags(whole(held[DELETED]))[before[lost]]
        both = np.flatnonzero(gained & lost)
        if len(both):
            was, now = held.take(pa.array(before[both])), latest.take(pa.array(both))
            same = both[same_values(was, now.select(self.carried))]
            gained[same] = lost[same] = False
        names = [*self.keys, *self.carried]
        lost_rows, gained_rows = held.take(pa.array(before[lost])), latest.filter(pa.array(gained))
        changes = weighted(lost_rows.select(names), gained_rows.select(names))
        return changes if changes.num_rows else None
