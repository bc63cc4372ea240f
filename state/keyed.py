"""A keyed table: the rows of a key, the newest of each identity, until their time has passed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.hashing import hash_rows, plain
from penstock.state.lookup import Positions, equal_ranges, narrowed, spread
from penstock.state.newest import newest_rows
from penstock.state.runs import TIME, Run, Values, sort_values
from penstock.state.runset import RunSet
from penstock.state.samekeys import same_keys

HASH = "_penstock_hash"
MARK = "_penstock_mark"
LIVES = "_penstock_lives"
KEY = b"penstock.key"
WITHIN = b"penstock.within"


class KeyedTable:
    """Rows by key: put, deleted, and found at a cost that follows the keys asked for and not the table.

    A key has one row, or with ``within`` one for each value of these columns; key and within are a row's
    identity. Runs are sorted by the hash of the key, then by the first column of ``within`` if it is an integer.
    A newer run hides the rows of an older one; a deleted row is one that says so, until a merge reaches the
    oldest run. Null is a key like any other. With an empty key all rows are of one key.

    With ``time``, an int64 column without nulls, rows can be dropped by time. The newest row of an identity is
    the only one that counts: when it expires, no older one comes back, whatever its time.
    """

    def __init__(
        self,
        runs: RunSet,
        key: Sequence[str],
        within: Sequence[str] = (),
        time: str | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        self._runs = runs
        self._key = tuple(key)
        self._within = tuple(within)
        self._identity = (*self._key, *self._within)
        self._time = time
        self._schema = schema

    def put(self, rows: pa.Table) -> None:
        """Set the rows of their identities; an identity that comes twice in one call is refused."""
        if rows.num_rows:
            table = self._stored(rows, lives=True)
            if table.num_rows < rows.num_rows:
                raise ValueError(f"rows to put have the same key ({', '.join(self._identity)}) more than once")
            self._append(table)

    def delete(self, rows: pa.Table) -> None:
        """Remove the rows of these identities; those that are not there are passed over."""
        found = self._find(rows, self._identity)[1]
        if found.num_rows:
            # what says that a row is deleted is the row itself, so that both expire together
            self._append(self._stored(found, lives=False))

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows of these keys, in the order of asking; keys without a row are left out."""
        return self.find(keys)[1]

    def find(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """The rows of these keys in the order of asking, and for each the row number in ``keys``.

        Rows of a key come sorted by the first column of ``within`` if it is an integer, null first. When the
        key is empty, the first row of ``keys`` asks for all rows.
        """
        return self._find(keys if self._key else keys.slice(0, 1), self._key)

    def find_same(self, rows: pa.Table) -> tuple[Positions, pa.Table]:
        """The rows of the identities of ``rows``, in the order of asking, and for each the row number there."""
        return self._find(rows, self._identity)

    def scan(self) -> pa.Table:
        """All rows, those of a key together and in the order of ``find``."""
        if not self._runs.runs:
            return self._empty(None)
        return self._bare(self._newest(0, len(self._runs.runs)))

    def drop_before(self, us: int) -> None:
        """Forget the rows before a time; a row that is put later lives, whatever its time.

        Runs that are wholly passed leave without being opened, if no older run can hold an older row of their
        identities that would come back: when the time is part of the identity, or when the older ones leave too.
        """
        kept: list[Run] = []
        for run in self._runs.runs:
            low, high = self._times(run)
            if high < us and (self._time in self._identity or not kept):
                continue
            if low < us:
                # beyond the greatest time a bound says nothing more, and a clock's end fits no int64
                live_from = max(min(us, high + 1), low if run.live_from is None else run.live_from)
                run = dataclasses.replace(run, live_from=live_from)
            kept.append(run)
        self._runs.runs = tuple(kept)

    @property
    def first_us(self) -> int | None:
        """No row has a smaller time; known without opening a file, None when there is surely no row."""
        spans = [(*self._times(run), run.live_from) for run in self._runs.runs]
        lows = [low if bound is None else bound for low, high, bound in spans if bound is None or bound <= high]
        return min(lows, default=None)

    def _find(self, keys: pa.Table, columns: Sequence[str]) -> tuple[Positions, pa.Table]:
        """The live rows that have what was asked for in ``columns``, which are the key or the identity."""
        if not self._runs.runs or not keys.num_rows:
            return np.empty(0, np.int64), self._empty(keys)
        stored = self._runs.read(self._runs.runs[-1]).schema
        if columns:
            keys = keys.select(columns).cast(pa.schema([stored.field(name) for name in columns]))
        hashes = self._hashes(keys)
        marks = self._marks(keys) if columns == self._identity and self._within else None
        open_keys = np.argsort(hashes, kind="stable")  # in the order of the file, neighbours share pages
        found: list[tuple[Positions, pa.Table]] = []
        for run in reversed(self._runs.runs):
            which, rows = self._matches(run, keys, columns, hashes, marks, open_keys)
            if not len(which):
                continue
            found.append((which, rows))
            if columns == self._identity:  # older runs have nothing to say about these
                still_open = np.ones(len(hashes), dtype=np.bool_)
                still_open[which] = False
                open_keys = open_keys[still_open[open_keys]]
                if not len(open_keys):
                    break
        if not found:
            return np.empty(0, np.int64), self._empty(keys)
        return self._arranged(found[::-1], len(hashes), distinct=len(found) == 1 or columns == self._identity)

    def _matches(
        self,
        run: Run,
        keys: pa.Table,
        columns: Sequence[str],
        hashes: Values,
        marks: Values | None,
        open_keys: Positions,
    ) -> tuple[Positions, pa.Table]:
        """The rows of a run that have the keys, and for each the row number in ``keys``, in the order of the run."""
        rows = self._runs.read(run)
        hit, starts, stops = equal_ranges(sort_values(rows, HASH), hashes[open_keys])
        which = open_keys[hit]
        if marks is not None:
            starts, stops = narrowed(sort_values(rows, MARK), starts, stops, marks[which])
        counts = stops - starts
        which, where = np.repeat(which, counts), spread(starts, counts)
        if not len(which):
            return which, rows.slice(0, 0)
        whole = len(where) == rows.num_rows and (where[1:] > where[:-1]).all()
        rows = self._judged(run, rows if whole else rows.take(pa.array(where)))
        if columns:  # different keys may share a hash
            same = same_keys(rows, keys.take(pa.array(which)), columns)
            if not same.all():
                return which[same], rows.filter(pa.array(same))
        return which, rows

    def _arranged(
        self, found: Sequence[tuple[Positions, pa.Table]], asked: int, distinct: bool
    ) -> tuple[Positions, pa.Table]:
        """The live ones of rows found in runs, oldest first, in the order of asking."""
        rows = pa.concat_tables([table for _, table in found])
        groups = np.concatenate([which for which, _ in found])
        counts = np.bincount(groups, minlength=asked)
        slots = np.cumsum(counts) - counts
        order = np.empty(len(groups), np.int64)
        done = 0
        for which, _ in found:
            # in a run the rows of a key stand together: they move as one block, so nothing is sorted
            begin = np.flatnonzero(np.concatenate([[True], which[1:] != which[:-1]]))
            size = np.diff(begin, append=len(which))
            order[spread(slots[which[begin]], size)] = np.arange(done, done + len(which))
            slots[which[begin]] += size
            done += len(which)
        if not distinct:
            order = newest_rows(order, groups, self._sort_marks(rows), rows, self._within)
        order = order[rows.column(LIVES).to_numpy()[order]]
        return groups[order], self._bare(rows.take(pa.array(order)))

    def _stored(self, rows: pa.Table, lives: bool) -> pa.Table:
        """The rows as a run holds them, each identity once, sorted by hash and mark."""
        if self._time is not None:
            times = rows.column(self._time)
            if times.type != pa.int64() or times.null_count:
                raise ValueError(f"time {self._time!r} is {times.type} with {times.null_count} nulls; need int64")
        metadata = {KEY: "\0".join(self._key)}
        columns = {HASH: pa.array(self._hashes(rows)), LIVES: pa.array(np.full(rows.num_rows, lives))}
        if self._within:
            metadata[WITHIN] = "\0".join(self._within)
            columns[MARK] = pa.array(self._marks(rows))
        if self._time is not None:
            metadata[TIME] = self._time
        names = [*columns, *rows.column_names]
        table = pa.table([*columns.values(), *rows.columns], names=names, metadata=metadata)
        return table.take(pa.array(self._newest_of(table)))

    def _append(self, table: pa.Table) -> None:
        self._runs.append(table)
        self._runs.merge(self._newest)

    def _newest(self, start: int, stop: int) -> pa.Table:
        """The newest rows in a slice of the runs; what is gone is kept while an older run could still hold it."""
        tables = []
        for run in self._runs.runs[start:stop]:
            rows = self._runs.read(run)
            if self._time in self._identity and run.live_from is not None:
                # older rows of these identities have the same time, and are gone as well
                rows = rows.filter(pc.greater_equal(rows.column(self._time), run.live_from))
            tables.append(self._judged(run, rows))
        table = pa.concat_tables(tables)
        if len(tables) > 1:
            table = table.take(pa.array(self._newest_of(table)))
        if start or pc.all(table.column(LIVES)).as_py():
            return table
        return table.filter(table.column(LIVES))

    def _newest_of(self, table: pa.Table) -> Positions:
        hashes = sort_values(table, HASH)
        order = np.argsort(hashes, kind="stable")
        return newest_rows(order, hashes, self._sort_marks(table), table, self._identity)

    def _judged(self, run: Run, rows: pa.Table) -> pa.Table:
        """Rows of a run with those that have expired as deleted ones."""
        if run.live_from is None:
            return rows
        lives = pc.and_(rows.column(LIVES), pc.greater_equal(rows.column(self._time), run.live_from))
        return rows.set_column(rows.column_names.index(LIVES), LIVES, lives)

    def _hashes(self, rows: pa.Table) -> Values:
        return hash_rows(rows, self._key) if self._key else np.zeros(rows.num_rows, np.uint64)

    def _marks(self, rows: pa.Table) -> Values:
        """What the rows of a key are sorted by: the first column of ``within`` if it is an integer, or a hash."""
        first = plain(rows.column(self._within[0]))
        if not pa.types.is_integer(first.type):
            return hash_rows(rows, self._within)
        wide = first.cast(pa.uint64() if pa.types.is_uint64(first.type) else pa.int64())
        least = int(np.iinfo(wide.type.to_pandas_dtype()).min)
        marks: Values = wide.fill_null(least).to_numpy()
        return marks

    def _sort_marks(self, rows: pa.Table) -> list[Values]:
        """The marks by which equal identities of one hash come to stand together."""
        if not self._within:
            return []
        hashed = not pa.types.is_integer(plain(rows.slice(0, 0).column(self._within[0])).type)
        rest = () if hashed else self._within[1:]
        return [sort_values(rows, MARK), *([hash_rows(rows, rest)] if rest else [])]

    def _times(self, run: Run) -> tuple[int, int]:
        if self._time is None or run.time_low is None or run.time_high is None:
            raise ValueError(f"{run.place}: this keyed table was written without a time")
        return run.time_low, run.time_high

    def _bare(self, table: pa.Table) -> pa.Table:
        own = [HASH, LIVES, MARK] if self._within else [HASH, LIVES]
        return table.drop_columns(own).replace_schema_metadata(None)

    def _empty(self, keys: pa.Table | None) -> pa.Table:
        if self._runs.runs:
            return self._bare(self._runs.read(self._runs.runs[-1]).slice(0, 0))
        if self._schema is not None:
            return self._schema.empty_table()
        return keys.select(self._key).slice(0, 0) if keys is not None else pa.table({})


def layout(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """How to open the keyed table that a run with this metadata belongs to."""
    key, within = (tuple(text.decode().split("\0")) if text else () for text in (metadata[KEY], metadata.get(WITHIN)))
    time = metadata.get(TIME)
    return {"key": key, "within": within, "time": time.decode() if time else None}
