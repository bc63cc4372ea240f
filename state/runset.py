"""A named set of runs of one bucket in one batch, from the oldest to the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.state import tiers
from penstock.state.runs import Run, RunFiles


class RunSet:
    """The runs that the last manifest named, and the changes that this batch makes.

    Changes replace runs by others; no file is touched, so a batch that fails has changed nothing.
    """

    def __init__(
        self, files: RunFiles, step: str, bucket: int, batch: int, runs: Iterable[Run], sort_column: str
    ) -> None:
        self.runs = tuple(runs)
        self.sort_column = sort_column
        self._files = files
        self._step = step
        self._bucket = bucket
        self._batch = batch
        self._open: dict[str, pa.Table] = {}

    def read(self, run: Run) -> pa.Table:
        """The live rows of a run, as slices of the mapped file."""
        if run.path not in self._open:
            self._open[run.path] = self._files.open(run)
        return self._open[run.path].slice(run.first)

    def write(self, table: pa.Table) -> Run:
        """A new run of this batch, from a sorted table."""
        return self._files.write(self._step, self._bucket, self._batch, table, self.sort_column)

    def append(self, table: pa.Table) -> None:
        """Add a sorted table as the newest run."""
        self.runs = (*self.runs, self.write(table))

    def merge(self, merged: Callable[[int, int], pa.Table]) -> None:
        """Replace runs by merged ones until they are few; ``merged`` gives the sorted rows of a slice."""
        while chosen := tiers.choose([run.live for run in self.runs]):
            start, stop = chosen
            table = merged(start, stop)
            made = (self.write(table),) if table.num_rows else ()
            self.runs = (*self.runs[:start], *made, *self.runs[stop:])
