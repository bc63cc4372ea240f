"""A query that waits for files: the time from a file's appearance to the commit of its batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from benchmarks.data import move_in
from benchmarks.sides import Side

GIVE_UP_SECONDS = 300.0


class Live:
    """A running query and the folder in which its inputs' folders are."""

    def __init__(self, side: Side, source: Path, checkpoint: Path, failed: Callable[[], bool]) -> None:
        self._side = side
        self._source = source
        self.checkpoint = checkpoint
        self._failed = failed
        self._files = 0
        self._batch = -1

    def push(self, table: pa.Table, into: str | None = None) -> float:
        """Move a file into an input, the first unless named, and wait for its commit; the seconds between the two."""
        batch = self._newest() + 1
        aside = move_in(table, self._source, f"{self._files}.parquet")
        began = time.monotonic()
        aside.rename(self._source / (into or self._side.case.inputs[0].name) / f"{self._files}.parquet")
        self._files += 1
        done = self._side.committed(self.checkpoint, batch)
        while not done.exists():
            if self._failed() or time.monotonic() - began > GIVE_UP_SECONDS:
                raise RuntimeError(f"{self._side.name}: batch {batch} was not committed")
            time.sleep(0.001)
        took = time.monotonic() - began
        self._settle(batch)
        return took

    def _newest(self) -> int:
        # counted on from the last one seen: those of old batches are swept away
        while self._side.committed(self.checkpoint, self._batch + 1).exists():
            self._batch += 1
        return self._batch

    def _settle(self, batch: int) -> None:
        """Let a batch without rows pass, with which Spark's own windows close: it is not the next file's."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < self._side.pause:
            if self._newest() > batch:
                batch, quiet_since = self._newest(), time.monotonic()
            time.sleep(0.01)


@contextmanager
def live(side: Side, folder: Path) -> Iterator[Live]:
    """Start a query on empty inputs; it is stopped at the end."""
    source, checkpoint = folder / "arriving", folder / "checkpoint"
    for given in side.case.inputs:
        (source / given.name).mkdir(parents=True)
    running = side.start(source, checkpoint, None, once=False)
    try:
        yield Live(side, source, checkpoint, lambda: not side.is_active(running))
    finally:
        running.stop()
