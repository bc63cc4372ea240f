"""Look into a checkpoint's state as Arrow tables, also while its job runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.plan.errors import CheckpointError
from penstock.state import asked
from penstock.state.asked import Keys
from penstock.state.bucket import BucketState
from penstock.state.buffer import TimeBuffer
from penstock.state.checkpoint import Checkpoint
from penstock.state.keyed import KEY, KeyedTable, layout
from penstock.state.manifest import Manifest
from penstock.state.runs import SORT_KEY, Run, RunFiles

BUCKET = pa.field("bucket", pa.int32())
OURS = "_penstock_"  # begins the columns of a run that are not its rows'

Sets = Mapping[str, tuple[Run, ...]]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Size:
    """How large a set is: its rows, with those that wait for a merge to vanish, and its files."""

    rows: int
    bytes: int
    runs: int


class StateReader:
    """One version of the state; every table is whole and of that version.

    A reader of the newest version whose files are swept while it works goes over to the version that is
    newest then; ``batch`` says which one it holds.
    """

    def __init__(self, checkpoint: Checkpoint, batch: int | None) -> None:
        self._checkpoint = checkpoint
        self._pinned = batch is not None
        self._manifest = self._newest() if batch is None else self._kept(batch)

    @property
    def batch(self) -> int:
        """The batch after which the state was as it is here."""
        return self._manifest.batch

    @property
    def batches(self) -> list[int]:
        """The batches that can be opened."""
        return self._checkpoint.batches()

    @property
    def steps(self) -> list[str]:
        """The names of the steps that have state."""
        return list(self._manifest.steps)

    def __getitem__(self, step: str) -> pa.Table:
        """All live rows of a step that has one set, with the bucket as the first column."""
        return self.table(step)

    def table(self, step: str, name: str | None = None) -> pa.Table:
        """All live rows of a set of a step, with the bucket as the first column."""
        return _together(self.each(step, lambda rows: rows, name))

    def tables(self, step: str, names: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """Several sets of a step, or all, as tables of one version."""
        return self._whole(
            lambda: {
                name: _together(self._each(step, lambda rows: rows, name))
                for name in (self.sets(step) if names is None else names)
            }
        )

    def each(self, step: str, work: Callable[[pa.Table], Made], name: str | None = None) -> list[Made]:
        """What ``work`` makes of the live rows of each bucket: a large set need not be in memory at once.

        It may be called again for a bucket, when a sweep makes the reader start again with a newer version.
        """
        return self._whole(lambda: self._each(step, work, name))

    def find(self, step: str, keys: Keys, name: str | None = None) -> pa.Table:
        """The live rows of some keys, in the order of asking, with the bucket as the first column.

        ``keys`` is a table, or a dict of columns: a value is that of one key, or a list of values. What is kept
        by these columns is searched, so that it takes milliseconds however many rows there are; files are then
        known by their sizes, since their checksums would read them whole. Of other sets all rows are read.

        >>> import tempfile
        >>> from penstock.state.bucket import BucketState
        >>> from penstock.state.checkpoint import Checkpoint
        >>> from penstock.state.manifest import Manifest
        >>> checkpoint = Checkpoint.open(tempfile.mkdtemp())
        >>> bucket = BucketState(checkpoint.files, "visits", bucket=0, batch=0, sets={})
        >>> bucket.table("rows", key=["user"]).put(pa.table({"user": ["ann", "bob"], "visits": [3, 5]}))
        >>> steps = {"visits": {0: bucket.sets()}}
        >>> checkpoint.commit(Manifest(batch=0, epoch=checkpoint.take_epoch(), steps=steps))

        >>> open_state(checkpoint.path).find("visits", {"user": "bob"}).to_pylist()
        [{'bucket': 0, 'user': 'bob', 'visits': 5}]
        """
        return self._whole(lambda: self._find(step, keys, name))

    def sets(self, step: str) -> dict[str, Size]:
        """The sets of a step that hold rows, and how large they are; opens no file."""
        found: dict[str, list[Run]] = {}
        for sets in self._buckets(step).values():
            for name, runs in sets.items():
                found.setdefault(name, []).extend(runs)
        return {
            name: Size(sum(r.live for r in runs), sum(r.bytes for r in runs), len(runs))
            for name, runs in sorted(found.items())
        }

    def schema(self, step: str, name: str | None = None) -> pa.Schema:
        """The columns of a set as they are stored."""
        return self._whole(lambda: self._schema(step, self._chosen(step, name)))

    def _schema(self, step: str, name: str) -> pa.Schema:
        runs = next((sets[name] for sets in self._buckets(step).values() if name in sets), ())
        stored = self._unchecked.open(runs[-1]).schema if runs else ()
        return pa.schema([field for field in stored if not field.name.startswith(OURS)])

    def _each(self, step: str, work: Callable[[pa.Table], Made], name: str | None) -> list[Made]:
        made, wanted = [], self._chosen(step, name)
        for bucket, sets in sorted(self._buckets(step).items()):
            if wanted in sets:
                kept = self._opened(self._checkpoint.files, step, bucket, sets, wanted)[0]
                rows = kept.scan() if isinstance(kept, KeyedTable) else kept.read(None, None)
                made.append(work(_with_bucket(rows, bucket)))
        return made

    def _find(self, step: str, keys: Keys, name: str | None) -> pa.Table:
        wanted = self._chosen(step, name)
        if not wanted:  # no row has come yet, and nobody knows the types of keys
            return _together([])
        keys = asked.asked(keys, self._schema(step, wanted), f"step {step!r}, set {wanted!r}")
        asks, found = [], []
        for bucket, sets in sorted(self._buckets(step).items()):
            if wanted in sets:
                kept, metadata = self._opened(self._unchecked, step, bucket, sets, wanted)
                which, rows = asked.find(kept, metadata, keys)
                asks.append(which)
                found.append(_with_bucket(rows, bucket))
        return _together(found).take(pa.array(np.argsort(np.concatenate(asks), kind="stable")))

    def _buckets(self, step: str) -> Mapping[int, Sets]:
        if step not in self._manifest.steps:
            raise CheckpointError(f"batch {self.batch} has no state of step {step!r}; there is {self.steps}.")
        return self._manifest.steps[step]

    def _chosen(self, step: str, name: str | None) -> str:
        """The set that is asked for; without a name the only one."""
        names = list(self.sets(step))
        if name is None and len(names) > 1:
            raise CheckpointError(f"step {step!r} has the sets {', '.join(names)}; ask for table(step, name).")
        if name is not None and name not in names:
            raise CheckpointError(f"step {step!r} has no set {name!r}; it has {', '.join(names) or 'none'}.")
        return name or (names[0] if names else "")

    def _opened(
        self, files: RunFiles, step: str, bucket: int, sets: Sets, name: str
    ) -> tuple[KeyedTable | TimeBuffer, Mapping[bytes, bytes]]:
        """A set of one bucket; each file says whether it belongs to a keyed table."""
        metadata = files.open(sets[name][-1]).schema.metadata
        state = BucketState(files, step, bucket, self.batch, sets)
        if KEY in metadata:
            return state.table(name, **layout(metadata)), metadata
        return state.buffer(name, time=metadata[SORT_KEY].decode()), metadata

    @property
    def _unchecked(self) -> RunFiles:
        return RunFiles(self._checkpoint.files.store, checked=False)

    def _whole(self, read: Callable[[], Made]) -> Made:
        """What is read of one version; when that is swept in the meantime, of the one that is newest then."""
        while True:
            try:
                return read()
            except CheckpointError as error:
                # a sweep takes the manifest before its runs: only then is a missing run no damage
                if self.batch in self.batches:
                    raise
                if self._pinned:
                    raise CheckpointError(f"batch {self.batch} was swept; {self._told()}.") from error
            self._manifest = self._newest()

    def _kept(self, batch: int) -> Manifest:
        try:
            return self._checkpoint.read(batch)
        except CheckpointError as error:
            if batch in self.batches:
                raise
            raise CheckpointError(f"batch {batch} is not kept; {self._told()}.") from error

    def _told(self) -> str:
        batches = self.batches
        return f"kept are the batches {batches[0]} to {batches[-1]}" if batches else "no batch was committed yet"

    def _newest(self) -> Manifest:
        while True:
            batches = self._checkpoint.batches()
            if not batches:
                raise CheckpointError(f"{self._checkpoint.path} has no state yet: no batch was committed.")
            try:
                return self._checkpoint.read(batches[-1])
            except CheckpointError:
                if batches[-1] in self._checkpoint.batches():
                    raise  # damaged, and not swept between the look and the read


def open_state(checkpoint: str | os.PathLike[str], batch: int | None = None) -> StateReader:
    """The state in a checkpoint after a batch, or after the newest one; its job may be running.

    ``[step]`` is an Arrow table of all live rows, for DuckDB, pandas or Polars.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> import penstock.state
    >>> from penstock.state.bucket import BucketState
    >>> from penstock.state.checkpoint import Checkpoint
    >>> from penstock.state.manifest import Manifest
    >>> checkpoint = Checkpoint.open(tempfile.mkdtemp())
    >>> bucket = BucketState(checkpoint.files, "visits", bucket=0, batch=0, sets={})
    >>> bucket.table("rows", key=["user"]).put(pa.table({"user": ["ann"], "visits": [3]}))
    >>> steps = {"visits": {0: bucket.sets()}}
    >>> checkpoint.commit(Manifest(batch=0, epoch=checkpoint.take_epoch(), steps=steps))

    >>> state = penstock.state.open(checkpoint.path)
    >>> state.batch, state.steps
    (0, ['visits'])
    >>> state["visits"].to_pylist()
    [{'bucket': 0, 'user': 'ann', 'visits': 3}]
    """
    return StateReader(Checkpoint.open(checkpoint, create=False), batch)


def _together(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.schema([BUCKET]).empty_table()


def _with_bucket(rows: pa.Table, bucket: int) -> pa.Table:
    return rows.add_column(0, BUCKET, pa.array(np.full(rows.num_rows, bucket, np.int32)))
