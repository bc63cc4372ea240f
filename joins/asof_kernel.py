"""The kernel of as-of joins: each event with the version of its key that held at the event's own time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.joins.pairing import without_key
from penstock.joins.precedence import Precedence
from penstock.joins.timeline import Timeline
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, LATE, PARTITION, POSITION, TIME, Outcome, StepClock
from penstock.state.pack import opened
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.shapes import Ints

ARRIVAL = (TIME, PARTITION, POSITION)


@dataclass(frozen=True)
class AsOfKernel:
    """Events of edge 0 with versions of edge 1, which are placed by their own time.

    An event waits until the watermark is after it: then every version that it could need has come. State is the
    events that wait, and of each key the versions that hold at a time from ``history_us`` before the watermark
    on. A batch looks only at keys for which an event is answered, a version came, or a delete has become old.

    ``right_types`` are those of ``right_carried``: of these a miss has nulls, also where no version ever came.
    """

    keys: tuple[str, ...]
    left_carried: tuple[str, ...]
    right_carried: tuple[str, ...]
    how: str
    tolerance_us: int | None
    history_us: int
    sequences: tuple[str, ...] = ()
    arrival_wins: bool = False
    right_types: tuple[pa.DataType, ...] = ()

    def late_before(self, edge: int, previous_us: int | None) -> int:
        """The step counts late rows itself."""
        return BEGINNING_US

    def doubtful_before(self, edge: int, previous_us: int | None) -> int:
        """A version is late before the watermark, an event where versions that it needs may be gone."""
        if previous_us is None:
            return BEGINNING_US
        return max(previous_us - (0 if edge else self.history_us), BEGINNING_US)

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Of versions of one key and time, the one that counts; events and late versions as they are."""
        names = [*(self._version if edge else self._event), BUCKET, *([LATE] if LATE in rows.column_names else [])]
        rows = rows.select(names)
        if not edge:
            return rows
        on_time = np.flatnonzero(_times(rows) >= self.doubtful_before(1, previous_us))
        timely = rows.select([*self.keys, TIME]).take(pa.array(on_time))
        group = codes(timely.columns)
        if len(group) < 2 or int(group.max()) + 1 == len(group):
            return rows
        chosen = np.ones(rows.num_rows, np.bool_)
        chosen[on_time] = False
        chosen[on_time[self._precedence.winners(rows.take(pa.array(on_time)), group)]] = True
        return rows.filter(pa.array(chosen))

    def ticks(self, clock: StepClock) -> bool:
        """Wall time has no say."""
        return False

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """Place the versions that came, and answer the events that time has passed."""
        now_us = min(clock.now_us, END_US)
        events, late, late_events = self._judged(0, rows[0], clock.previous_us)
        versions, late_right, late_versions = self._judged(1, rows[1], clock.previous_us)
        waiting = state.buffer("waiting", time=TIME)
        due = waiting.released(events, now_us)
        wake_us = None if waiting.first_us is None else waiting.first_us + 1
        main = self._met(state, due, versions, max(now_us - self.history_us, BEGINNING_US))
        return Outcome(main, wake_us, late, late_events + late_versions, late_right)

    @property
    def _event(self) -> list[str]:
        return [*self.keys, *self.left_carried, *ARRIVAL]

    @property
    def _version(self) -> list[str]:
        return [*self.keys, *self.right_carried, TIME, *self._precedence.columns]

    @property
    def _precedence(self) -> Precedence:
        return Precedence(self.sequences, self.arrival_wins)

    def _judged(
        self, edge: int, tables: Sequence[pa.Table], previous_us: int
    ) -> tuple[pa.Table | None, pa.Table | None, int]:
        """The rows that are not late, those that are, as they came, and how many these are."""
        if not tables:
            return None, None, 0
        came = pa.concat_tables(tables)
        is_late = _times(came) < self.doubtful_before(edge, previous_us)
        late_count = int(is_late.sum())
        late = None
        if late_count:
            late = opened(came.filter(pa.array(is_late))[LATE]) if LATE in came.column_names else None
            came = came.filter(pa.array(~is_late))
        # as what is held: every column is free to hold nulls
        kept = pa.table({name: came[name] for name in (self._version if edge else self._event)})
        return kept, late, late_count

    def _met(
        self, state: BucketState, events: pa.Table | None, versions: pa.Table | None, needed_us: int
    ) -> pa.Table | None:
        """The events with their versions; those that no event from ``needed_us`` on can need are forgotten."""
        if versions is not None:
            # a null key meets nothing: it is asked for and never found
            versions = versions.filter(pa.array(~without_key([versions[key] for key in self.keys])))
        ended = state.buffer("ended", time=TIME)
        touching = [events, versions, ended.read(None, needed_us)]
        ended.drop_before(needed_us)
        groups, keys = self._numbered(touching)
        if keys is None:
            return None
        table = state.table("versions", self.keys, within=(TIME,))
        owner, held = table.find(keys)
        known = [t.select(self._version) for t in (held, versions) if t is not None and t.num_rows]
        if not known:
            return self._results(events, None, None)
        rows = pa.concat_tables(known)
        line = Timeline.of(rows, np.concatenate((owner, groups[1])), len(owner), self._precedence)
        gone, fresh = line.unneeded(needed_us), line.row >= len(owner)
        table.delete(rows.select([*self.keys, TIME]).take(pa.array(line.row[gone & line.held])))
        table.put(rows.take(pa.array(line.row[fresh & ~gone])))
        # a deleted key may never be touched again: this looks at it once more, when its delete is old
        ended.add(rows.select([*self.keys, TIME]).take(pa.array(line.row[fresh & ~gone & line.deleted])))
        ended.merge_small()
        found = None if events is None else line.at(groups[0], _times(events), self.tolerance_us)
        return self._results(events, rows, found)

    def _numbered(self, tables: Sequence[pa.Table | None]) -> tuple[list[Ints], pa.Table | None]:
        """For the rows of each table the number of their key, and the keys by number, None when there are none."""
        there = [t for t in tables if t is not None and t.num_rows]
        if not there:
            return [], None
        # column by column: whether a key may be null is another matter on each side
        chunks = [pa.chunked_array([c for t in there for c in t[key].chunks]) for key in self.keys]
        group = codes(chunks)
        ends = np.cumsum([0 if t is None else t.num_rows for t in tables])
        # codes count up by first appearance: the number of a distinct key is its code
        keys = pa.table(chunks, names=list(self.keys)).filter(pa.array(first_of_each(group)))
        return np.split(group, ends[:-1]), keys

    def _results(self, events: pa.Table | None, rows: pa.Table | None, found: Ints | None) -> pa.Table | None:
        """Events, by time and arrival, with the columns of the rows that were found for them; -1 is a miss."""
        if events is None:
            return None
        if found is None:
            found = np.full(events.num_rows, -1)
        order = np.lexsort([events[name].to_numpy() for name in reversed(ARRIVAL)])
        if self.how == "inner":
            order = order[found[order] >= 0]
        if not len(order):
            return None
        taken = events.take(pa.array(order))
        where = pa.array(found[order], mask=found[order] < 0)
        columns = {name: taken[name] for name in (*self.keys, *self.left_carried)}
        if rows is None:
            types = self.right_types or [pa.null()] * len(self.right_carried)
            nulls = (pa.nulls(len(order), kind) for kind in types)
            columns |= dict(zip(self.right_carried, nulls, strict=True))
        else:
            columns |= {name: rows[name].take(where) for name in self.right_carried}
        return pa.table({**columns, **{name: taken[name] for name in ARRIVAL}})


def _times(rows: pa.Table) -> Ints:
    return np.asarray(rows[TIME].to_numpy(), np.int64)
