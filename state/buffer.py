"""A time buffer: rows kept until time has passed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.state.runs import Run, sort_values
from penstock.state.runset import RunSet


class TimeBuffer:
    """Rows by time, in microseconds: added in any order, read by range, dropped from the old end.

    A range takes in its low bound and not its high one. Rows come back run by run in the order in which
    they were added, each run by time; equal times keep the order of arrival.
    """

    def __init__(self, runs: RunSet) -> None:
        self._runs = runs
        self._time = runs.sort_column

    @property
    def first_us(self) -> int | None:
        """The smallest time in the buffer, known without opening a file; None when it is empty."""
        return min((run.live_low for run in self._runs.runs), default=None)

    def add(self, table: pa.Table) -> None:
        """Add rows as one run; an empty table adds nothing."""
        if table.num_rows:
            self._runs.append(self._by_time(table.replace_schema_metadata(None)))

    def read(self, low_us: int | None, high_us: int | None) -> pa.Table | None:
        """The rows with ``low_us <= time < high_us``, a bound of None being open; None when there is none."""
        found = []
        for run in self._runs.runs:
            if (high_us is not None and run.live_low >= high_us) or (low_us is not None and run.high < low_us):
                continue
            rows = self._runs.read(run)
            start = 0 if low_us is None else self._position(run, low_us)
            stop = run.live if high_us is None else self._position(run, high_us)
            if start < stop:
                found.append(rows.slice(start, stop - start))
        return pa.concat_tables(found).replace_schema_metadata(None) if found else None

    def drop_before(self, us: int) -> None:
        """Forget the rows before a time: cursors move on, and runs that are wholly passed leave."""
        kept = []
        for run in self._runs.runs:
            if run.live_low >= us:
                kept.append(run)
            elif run.high >= us:
                passed = self._position(run, us)
                live_low = int(sort_values(self._runs.read(run), self._time)[passed])
                kept.append(dataclasses.replace(run, first=run.first + passed, live_low=live_low))
        self._runs.runs = tuple(kept)

    def released(
        self, came: pa.Table | None, us: int, merge: Callable[[pa.Table], pa.Table] | None = None
    ) -> pa.Table | None:
        """The rows before a time, of those that waited here and of those that came; the others wait from now on.

        None when there is none. ``merge`` makes the rows that wait fewer, as in ``merge_small``.
        """
        found = [self.read(None, us)]
        self.drop_before(us)
        if came is not None:
            passed = sort_values(came, self._time) < us
            found.append(came.filter(pa.array(passed)))
            later = came.filter(pa.array(~passed))
            self.add(merge(later) if merge else later)
        self.merge_small(merge)
        there = [rows for rows in found if rows is not None and rows.num_rows]
        return pa.concat_tables(there) if there else None

    def merge_small(self, merge: Callable[[pa.Table], pa.Table] | None = None) -> None:
        """Merge runs of like size, so that thousands of small batches leave few of them.

        ``merge`` combines the rows of neighbouring runs, given in the order in which they were added, for
        example partial aggregates of one key and slice; without it they are kept as they are. Rows that were
        dropped are left behind.
        """

        def merged(start: int, stop: int) -> pa.Table:
            rows = pa.concat_tables([self._runs.read(run) for run in self._runs.runs[start:stop]])
            rows = rows.replace_schema_metadata(None)
            return self._by_time(merge(rows) if merge else rows)

        self._runs.merge(merged)

    def _position(self, run: Run, us: int) -> int:
        """How many live rows of a run are before a time."""
        if us > run.high:  # also keeps a clock at the end of time out of NumPy, which would compare as floats
            return run.live
        if us <= run.live_low:
            return 0
        return int(np.searchsorted(sort_values(self._runs.read(run), self._time), us))

    def _by_time(self, table: pa.Table) -> pa.Table:
        times = sort_values(table, self._time)
        if (times[1:] >= times[:-1]).all():
            return table
        return table.take(pa.array(np.argsort(times, kind="stable")))
