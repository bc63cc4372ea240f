"""A keyed table: one row per key, the newest wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.hashing import hash_rows
from penstock.state.newest import newest_rows
from penstock.state.runs import Run, sort_values
from penstock.state.runset import RunSet
from penstock.state.samekeys import same_keys

HASH = "_penstock_hash"
LIVES = "_penstock_lives"
KEY = b"penstock.key"

Positions = npt.NDArray[np.int64]


class KeyedTable:
    """Rows by key: put, deleted, and found at a cost that follows the keys asked for and not the table.

    Runs are sorted by the hash of the key. A newer run hides the rows of an older one; a deleted key is a row
    that says so, until a merge reaches the oldest run. Null is a key like any other.
    """

    def __init__(self, runs: RunSet, key: Sequence[str], schema: pa.Schema | None = None) -> None:
        self._runs = runs
        self._key = tuple(key)
        self._schema = schema

    def put(self, rows: pa.Table) -> None:
        """Set the rows of their keys; a key that comes twice in one call is refused."""
        self._write(rows, lives=True)

    def delete(self, keys: pa.Table) -> None:
        """Remove the rows of these keys; keys that have none are passed over."""
        found = self.get(keys)
        if found.num_rows:
            distinct = newest_rows(self._hashed(found, lives=False), HASH, self._key)
            self._write(distinct.drop_columns([HASH, LIVES]), lives=False)

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows of these keys, in the order of asking; keys without a row are left out."""
        return self.find(keys)[1]

    def find(self, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """The row numbers in ``keys`` of the keys that have a row, and these rows in the same order."""
        asked = keys.select(self._key)
        if self._runs.runs:
            stored = self._runs.read(self._runs.runs[-1]).schema
            asked = asked.cast(pa.schema([stored.field(name) for name in self._key]))
        hashes = hash_rows(asked, self._key)
        open_keys = np.argsort(hashes, kind="stable")  # in the order of the file, neighbours share pages
        found, tables = [], []
        for run in reversed(self._runs.runs):
            if not len(open_keys):
                break
            rows = self._runs.read(run)
            which, where = self._matches(rows, asked, hashes, open_keys)
            if not len(which):
                continue
            lives = rows.column(LIVES).take(pa.array(where)).to_numpy().astype(bool)
            found.append(which[lives])
            tables.append(rows.take(pa.array(where[lives])))
            open_keys = open_keys[~np.isin(open_keys, which)]
        if not tables:
            return np.empty(0, np.int64), self._empty(keys)  # no run holds any of the keys
        positions = np.concatenate(found)
        order = np.argsort(positions, kind="stable")
        return positions[order], self._bare(pa.concat_tables(tables).take(pa.array(order)))

    def scan(self) -> pa.Table:
        """All rows, one per key."""
        if not self._runs.runs:
            return self._empty(None)
        return self._bare(self._newest(self._runs.runs, drop_deleted=True))

    def _write(self, rows: pa.Table, lives: bool) -> None:
        if not rows.num_rows:
            return
        table = self._hashed(rows, lives)
        if newest_rows(table, HASH, self._key).num_rows < table.num_rows:
            raise ValueError(f"rows to put have the same key ({', '.join(self._key)}) more than once")
        self._runs.append(table)
        self._runs.merge(
            # a deleted key may be forgotten only when no older run could still hold its row
            lambda start, stop: self._newest(self._runs.runs[start:stop], drop_deleted=start == 0)
        )

    def _hashed(self, rows: pa.Table, lives: bool) -> pa.Table:
        """The rows as a run holds them, sorted by hash."""
        hashes = hash_rows(rows, self._key)
        order = np.argsort(hashes, kind="stable")
        table = rows.take(pa.array(order))
        columns = [pa.array(hashes[order]), pa.array(np.full(len(order), lives)), *table.columns]
        names = [HASH, LIVES, *table.column_names]
        return pa.table(columns, names=names, metadata={KEY: "\0".join(self._key).encode()})

    def _matches(
        self, rows: pa.Table, asked: pa.Table, hashes: npt.NDArray[np.uint64], open_keys: Positions
    ) -> tuple[Positions, Positions]:
        """Pairs of a row number in ``asked`` and one in ``rows`` that have the same key."""
        stored = sort_values(rows, HASH)
        wanted = hashes[open_keys]
        start = np.searchsorted(stored, wanted)
        hit = np.flatnonzero((start < len(stored)) & (stored[np.minimum(start, len(stored) - 1)] == wanted))
        if not len(hit):
            return hit, hit
        start, which = start[hit], open_keys[hit]
        count = np.searchsorted(stored, wanted[hit], side="right") - start
        # different keys may share a hash: look at every row that has it
        which, begin = np.repeat(which, count), np.repeat(start - (np.cumsum(count) - count), count)
        where = begin + np.arange(len(begin))
        same = same_keys(rows.select(self._key).take(pa.array(where)), asked.take(pa.array(which)), self._key)
        return which[same], where[same]

    def _newest(self, runs: Sequence[Run], drop_deleted: bool) -> pa.Table:
        tables = [self._runs.read(run) for run in reversed(runs)]
        table = newest_rows(pa.concat_tables(tables), HASH, self._key) if len(tables) > 1 else tables[0]
        return table.filter(table.column(LIVES)) if drop_deleted else table

    def _bare(self, table: pa.Table) -> pa.Table:
        return table.drop_columns([HASH, LIVES]).replace_schema_metadata(None)

    def _empty(self, keys: Any) -> pa.Table:
        if self._runs.runs:
            return self._bare(self._runs.read(self._runs.runs[-1]).slice(0, 0))
        if self._schema is not None:
            return self._schema.empty_table()
        return keys.select(self._key).slice(0, 0) if keys is not None else pa.table({})
