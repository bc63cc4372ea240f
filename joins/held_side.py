"""What a join of streams holds of one side: the rows that may still find a partner."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.plan.durations import END_US
from penstock.state.bucket import BucketState
from penstock.state.buffer import TimeBuffer
from penstock.state.edge import PARTITION, POSITION, TIME
from penstock.state.keyed import KeyedTable
from penstock.windows.aggregates.codes import encode, first_of_each
from penstock.windows.aggregates.codes import pairs as code_pairs
from penstock.windows.shapes import Ints, Mask

NUMBER = "__ps_number"  # of a held row: no other held row of the bucket has it
SLICE = "__ps_slice"  # of a held row: the stretch of time that it is found by, beside its key
WAITS = "__ps_waits"  # of a held row: it had no partner when it came, so that it may come out without one
ORDER = (TIME, PARTITION, POSITION)


@dataclass(frozen=True)
class Side:
    """The columns of one side as they are packed.

    ``types`` are those of ``carried``: what stands beside a row without a partner are nulls of these types, in
    a bucket to which no row of the side has come too.
    """

    keys: tuple[str, ...]
    carried: tuple[str, ...]
    types: tuple[pa.DataType, ...] = ()


@dataclass(frozen=True)
class Role:
    """What a side is in a join.

    The partners of a row are ``first_us`` to ``last_us`` after it. ``pads``: a row without one comes out beside
    nulls. ``alone``: a row comes out only if it has none. ``once``: a row is done with its first. ``shown``: its
    columns are in the results.
    """

    name: str
    side: Side
    first_us: int
    last_us: int
    pads: bool
    alone: bool
    once: bool
    shown: bool

    @property
    def waits(self) -> bool:
        """True when a row without a partner comes out."""
        return self.pads or self.alone

    @property
    def columns(self) -> tuple[str, ...]:
        """What results need of a row."""
        return (*self.side.keys, *(self.side.carried if self.shown else ()), *ORDER)


class HeldSide:
    """The rows of one side that may still find a partner, by key and by a stretch of time.

    A stretch is a few times as long as the bounds are apart: of a key with many rows only those are read that are
    near the times asked for. A row that waits to come out without a partner is also kept by time, whole; that it
    found one is noted beside it, so that no row is written again.
    """

    def __init__(self, state: BucketState, role: Role, previous_us: int) -> None:
        self._role = role
        # older ones are forgotten, whether or not there was an occasion to drop them: buckets must not differ in it
        self._from_us = previous_us - role.last_us
        self._slice_us = 4 * (role.last_us - role.first_us + 1)
        self._state = state

    def find(self, keys: pa.Table, group: Ints, first_us: Ints, last_us: Ints) -> tuple[Ints, pa.Table | None]:
        """The held rows of keys near the times that are asked for, with the group of each; None if there is none."""
        oldest_us = self._rows.first_us
        if oldest_us is None:
            return np.zeros(0, np.int64), None
        first, last = first_us // self._slice_us, last_us // self._slice_us
        oldest, asks = oldest_us // self._slice_us, np.arange(len(group))
        also = np.flatnonzero(first < last)  # the bounds are closer than a stretch is long: two at the most
        asks, slices = np.concatenate((asks, also)), np.concatenate((first, last[also]))
        sensible = (group[asks] >= 0) & (slices >= oldest)
        asks, slices = asks[sensible], slices[sensible]
        if not len(asks):
            return np.zeros(0, np.int64), None
        chosen = first_of_each(code_pairs(group[asks], encode(pa.array(slices))))
        asks = asks[chosen]
        wanted = keys.take(pa.array(asks)).append_column(SLICE, pa.array(slices[chosen]))
        owner, rows = self._rows.find(wanted)
        known = rows[TIME].to_numpy() >= self._from_us
        return group[asks][owner[known]], rows.filter(pa.array(known)) if known.any() else None

    def keep(self, rows: pa.Table, waits: Mask, numbers: Ints) -> None:
        """Hold rows; ``waits`` are those that come out if they find no partner."""
        if not rows.num_rows:
            return
        role = self._role
        own = {NUMBER: pa.array(numbers), SLICE: pa.array(rows[TIME].to_numpy() // self._slice_us)}
        if role.waits:
            own[WAITS] = pa.array(waits)
            self._waiting.add(_with(rows.select(role.columns), {NUMBER: own[NUMBER]}).filter(own[WAITS]))
            self._waiting.merge_small()
        # what comes out with a partner is read from here, what comes out without one from where it waits
        names = role.columns if role.shown and not role.alone else (*role.side.keys, TIME)
        self._rows.put(_with(rows.select(names), own))

    def settled(self, rows: pa.Table) -> Mask:
        """Which held rows were known before this batch to have found a partner."""
        known = np.zeros(rows.num_rows, np.bool_)
        if rows.num_rows:
            known[self._settled.find(rows)[0]] = True
        return known

    def settle(self, rows: pa.Table, now_us: int) -> None:
        """Note that held rows have found a partner, where it matters after this batch."""
        rows = rows.select([TIME, NUMBER])
        self._settled.put(rows.filter(pa.array(rows[TIME].to_numpy() >= now_us - self._role.last_us)))

    def passed(self, now_us: int, settled: pa.Table | None) -> pa.Table | None:
        """The rows that have waited until no partner can come, but for those that found one in this batch or before."""
        rows = self._waiting.read(None, now_us - self._role.last_us)
        if rows is None:
            return None
        self._waiting.drop_before(now_us - self._role.last_us)
        over = self.settled(rows)
        if settled is not None:
            over |= np.isin(rows[NUMBER].to_numpy(), settled[NUMBER].to_numpy())
        return rows.filter(pa.array(~over))

    def drop(self, now_us: int) -> None:
        """Forget the rows that no partner can come for."""
        for table in (self._rows, self._settled):
            table.drop_before(now_us - self._role.last_us)

    def wake_us(self, now_us: int) -> int | None:
        """When a row that waits comes out, or many can be forgotten; None when nothing is held."""
        oldest, waiting = self._rows.first_us, self._waiting.first_us
        if oldest is None:
            return None
        if waiting is not None:
            return waiting + self._role.last_us + 1
        # what is only forgotten is forgotten a stretch at a time: a silent bucket sleeps through most batches
        reach_us = self._role.last_us - self._role.first_us + 1
        return min(max(oldest + self._role.last_us + 1, now_us + reach_us), END_US)

    @cached_property
    def _rows(self) -> KeyedTable:
        key = (*self._role.side.keys, SLICE)
        return self._state.table(self._role.name, key, within=(TIME, NUMBER), time=TIME)

    @cached_property
    def _settled(self) -> KeyedTable:
        return self._state.table(f"{self._role.name}_settled", (TIME, NUMBER), time=TIME)

    @cached_property
    def _waiting(self) -> TimeBuffer:
        return self._state.buffer(f"{self._role.name}_waiting", time=TIME)


class Numbers:
    """The next number of a held row: rows may be equal in all that they carry, the order of arrival too."""

    def __init__(self, state: BucketState) -> None:
        self._saved = state.buffer("numbers", time=NUMBER)  # one row, of which no more than its time is ever read
        self._next = self._saved.first_us or 0

    def take(self, count: int) -> Ints:
        """Numbers that no held row has."""
        self._next += count
        return np.arange(self._next - count, self._next)

    def save(self) -> None:
        """Count on from here in the next batch."""
        if self._next > (self._saved.first_us or 0):
            self._saved.add(pa.table({NUMBER: [self._next]}))
            self._saved.drop_before(self._next)

    def forget(self) -> None:
        """Nothing is held: numbers start again."""
        self._saved.drop_before(2**63 - 1)


def _with(rows: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    return pa.table([*rows.columns, *columns.values()], names=[*rows.column_names, *columns])
