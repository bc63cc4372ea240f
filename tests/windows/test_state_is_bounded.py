"""A long run of many small batches: the state's rows and bytes follow what is open, not what has been."""

from __future__ import annotations

import random
import tempfile

import pyarrow as pa
import pytest

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, StepClock
from penstock.windows import calendar, cumulating, hopping, panes, session, sliding, tumbling
from penstock.windows.aggregates.registry import make
from penstock.windows.firing import Final, Updates
from penstock.windows.kernel import WindowKernel
from penstock.windows.keyed import KeyedWindowKernel
from penstock.windows.partials import Measure, Partials

SECOND = 1_000_000
LATENESS = 5 * SECOND
ROWS_A_BATCH, BATCHES, WARM = 20, 300, 60  # a batch is a second of event time
PARTIALS = Partials(("k",), (Measure(make("sum", [pa.int64()], False, {}), ("x",), None),))


def keyed(shape, firing=None):
    return KeyedWindowKernel(shape, PARTIALS, firing or Final())


# how many seconds of rows may be held: the open windows and the lateness, and for what waits to be merged away
KERNELS = {
    "tumbling": (WindowKernel(tumbling("10 seconds"), PARTIALS), 10 + 5),
    "hopping": (WindowKernel(hopping("20 seconds", "5 seconds"), PARTIALS), 20 + 5 + 5),
    "cumulating": (WindowKernel(cumulating("5 seconds", "20 seconds"), PARTIALS), 20 + 5),
    "calendar": (WindowKernel(calendar("day", "UTC"), PARTIALS), BATCHES),
    "sliding": (keyed(sliding("10 seconds")), 10 + 5),
    "session": (keyed(session("2 seconds")), 2 + 5),
    "cut session": (keyed(session("2 seconds", max_duration="10 seconds")), 10 + 2 + 5),
    "tumbling updates": (keyed(tumbling("10 seconds"), Updates()), 10 + 5),
    "sliding updates": (keyed(sliding("10 seconds"), Updates()), 10 + 5),
    "session panes": (keyed(session("2 seconds"), panes("1 second", "10 seconds")), 2 + 5 + 10),
    "hopping panes": (keyed(hopping("10 seconds", "5 seconds"), panes(None, "10 seconds")), 10 + 5 + 10),
}


@pytest.mark.parametrize("name", KERNELS)
def test_state_does_not_grow_with_the_length_of_the_run(name):
    kernel, seconds = KERNELS[name]
    chance = random.Random(name)
    sets, rows, sizes, runs = {}, [], [], []
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        previous = BEGINNING_US
        for batch in range(BATCHES):
            came = [
                (chance.randrange(50), batch * SECOND + chance.randrange(-4 * SECOND, SECOND))
                for _ in range(ROWS_A_BATCH)
            ]
            now = max(previous, max(t for _, t in came) - LATENESS)
            state = BucketState(files, "w", 0, batch, sets)
            wall = batch * SECOND
            clock = StepClock(previous, now, wall - SECOND, wall, 0)
            kernel.step(state, [kernel.combine(table(came), previous)], clock)
            sets, previous = state.sets(), now
            rows.append(state.rows)
            sizes.append(state.bytes)
            runs.append(max(len(r) for r in sets.values()))
        state = BucketState(files, "w", 0, BATCHES, sets)
        kernel.step(state, [], StepClock(previous, END_US, wall, wall, 0))
        assert state.rows == 0
    early, late = max(rows[WARM : BATCHES // 2]), max(rows[BATCHES // 2 :])
    if name != "calendar":  # whose day is not over
        assert late < 1.5 * early, (early, late)
        assert max(sizes[BATCHES // 2 :]) < 1.5 * max(sizes[WARM : BATCHES // 2])
        # parts, timers, and what is shown: each at most the rows of that time, twice over until a merge
        assert late < 6 * seconds * ROWS_A_BATCH
    assert max(runs) < 40


def table(rows):
    return pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.int64()),
            "x": pa.array([1] * len(rows), pa.int64()),
            TIME: pa.array([t for _, t in rows], pa.int64()),
            PARTITION: pa.array([0] * len(rows), pa.int32()),
            POSITION: pa.array(range(len(rows)), pa.int64()),
            BUCKET: pa.array([0] * len(rows), pa.int32()),
        }
    )
