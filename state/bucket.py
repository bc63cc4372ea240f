"""What a kernel sees of its state: one bucket of one step in one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.state.buffer import TimeBuffer
from penstock.state.keyed import HASH, KeyedTable
from penstock.state.runs import Run, RunFiles
from penstock.state.runset import RunSet


class BucketState:
    """The named sets of runs of a bucket, read as time buffers and keyed tables.

    It starts from the sets that the last manifest names; ``sets`` gives those that the next one shall name.
    Until that manifest is there, nothing has changed: a batch that runs again starts from the same sets.
    """

    def __init__(
        self, files: RunFiles, step: str, bucket: int, batch: int, sets: Mapping[str, tuple[Run, ...]]
    ) -> None:
        self._files = files
        self._step = step
        self._bucket = bucket
        self._batch = batch
        self._kept = dict(sets)
        self._used: dict[str, RunSet] = {}

    def buffer(self, name: str, time: str) -> TimeBuffer:
        """The set as rows by the int64 column ``time``, in microseconds."""
        return TimeBuffer(self._set(name, time))

    def table(
        self,
        name: str,
        key: Sequence[str],
        *,
        within: Sequence[str] = (),
        time: str | None = None,
        schema: pa.Schema | None = None,
    ) -> KeyedTable:
        """The set as rows by key; ``schema`` is that of results as long as there are no rows.

        A key has one row, or with ``within`` one for each value of these columns. With the int64 column ``time``,
        in microseconds, rows can be dropped by time.
        """
        return KeyedTable(self._set(name, HASH), key, within, time, schema)

    def sets(self) -> Mapping[str, tuple[Run, ...]]:
        """The sets after the changes made so far; a set without runs is left out."""
        now = {**self._kept, **{name: used.runs for name, used in self._used.items()}}
        return {name: runs for name, runs in now.items() if runs}

    @property
    def rows(self) -> int:
        """The rows that the sets hold, with those that wait for a merge to vanish."""
        return sum(run.live for runs in self.sets().values() for run in runs)

    @property
    def bytes(self) -> int:
        """The bytes of the files of the sets."""
        return sum(run.bytes for runs in self.sets().values() for run in runs)

    def _set(self, name: str, sort_column: str) -> RunSet:
        if name not in self._used:
            runs = self._kept.get(name, ())
            self._used[name] = RunSet(self._files, self._step, self._bucket, self._batch, runs, sort_column)
        if self._used[name].sort_column != sort_column:
            raise ValueError(f"set {name!r} is sorted by {self._used[name].sort_column!r}, not by {sort_column!r}")
        return self._used[name]
