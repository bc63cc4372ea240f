"""Look into a checkpoint's state as Arrow tables, also while its job runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.plan.errors import CheckpointError
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.keyed import KEY, layout
from penstock.state.manifest import Manifest
from penstock.state.runs import SORT_KEY, Run

BUCKET = pa.field("bucket", pa.int32())

Sets = Mapping[str, tuple[Run, ...]]


class StateReader:
    """One version of the state; every table is whole and of that version.

    A reader of the newest version whose files are swept while it works goes over to the version that is
    newest then; ``batch`` says which one it holds.
    """

    def __init__(self, checkpoint: Checkpoint, batch: int | None) -> None:
        self._checkpoint = checkpoint
        self._pinned = batch is not None
        self._manifest = self._newest() if batch is None else checkpoint.read(batch)

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
        while True:
            try:
                return self._read(step, name)
            except CheckpointError:
                # a sweep takes the manifest before its runs: only then is a missing run no damage
                if self._pinned or self.batch in self._checkpoint.batches():
                    raise
            self._manifest = self._newest()

    def _read(self, step: str, name: str | None) -> pa.Table:
        if step not in self._manifest.steps:
            raise CheckpointError(f"batch {self.batch} has no state of step {step!r}; there is {self.steps}.")
        buckets = self._manifest.steps[step]
        names = sorted({one for sets in buckets.values() for one in sets})
        if name is None and len(names) > 1:
            raise CheckpointError(f"step {step!r} has the sets {', '.join(names)}; ask for table(step, name).")
        if name is not None and name not in names:
            raise CheckpointError(f"step {step!r} has no set {name!r}; it has {', '.join(names) or 'none'}.")
        wanted = name or (names[0] if names else "")
        tables = [
            self._bucket(step, bucket, sets, wanted) for bucket, sets in sorted(buckets.items()) if wanted in sets
        ]
        return pa.concat_tables(tables) if tables else pa.schema([BUCKET]).empty_table()

    def _bucket(self, step: str, bucket: int, sets: Sets, name: str) -> pa.Table:
        """The live rows of one bucket; each file says whether it belongs to a keyed table."""
        files = self._checkpoint.files
        metadata = files.open(sets[name][-1]).schema.metadata
        state = BucketState(files, step, bucket, self.batch, sets)
        if KEY in metadata:
            rows = state.table(name, **layout(metadata)).scan()
        else:
            rows = state.buffer(name, time=metadata[SORT_KEY].decode()).read(None, None)
        return rows.add_column(0, BUCKET, pa.array(np.full(rows.num_rows, bucket, np.int32)))

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
