"""The window kernel against ten lines of plain Python, over any cut into batches and tasks."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, StepClock
from penstock.windows.aggregates.registry import make
from penstock.windows.kernel import WINDOW_END, WINDOW_START, Measure, WindowKernel
from penstock.windows.shapes import Aligned

us = timedelta(microseconds=1)
TIMES = st.integers(-40, 60)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), TIMES, st.none() | st.integers(-5, 5)), max_size=25)


@st.composite
def shapes(draw):
    size = draw(st.integers(1, 20))
    every = draw(st.integers(1, size))
    return Aligned(size * us, every * us, draw(st.integers(-5, 5)) * us)


def windows_of(shape, time):
    """Every window that holds a time, the slow way."""
    size, every, offset = shape.size // us, shape.every // us, shape.offset // us
    return [
        (start, start + size)
        for start in range(time - size - every - 50, time + 1)
        if (start - offset) % every == 0 and start <= time < start + size
    ]


def naive(shape, batches, lateness):
    """What comes out and what is late, row by row: judge by the clock before, add, then close by the clock after."""
    open_windows, out, late = defaultdict(list), [], []
    watermark = None
    arrival = 0
    for batch in batches:
        for key, time, value in batch:
            alive = [w for w in windows_of(shape, time) if watermark is None or w[1] > watermark]
            if not alive:
                late.append((key, time, value))
            for window in alive:
                open_windows[key, window].append((time, arrival, value))
            arrival += 1
        if batch:
            newest = max(time for _, time, _ in batch) - lateness
            watermark = newest if watermark is None else max(watermark, newest)
        for key, window in [w for w in open_windows if watermark is not None and w[1][1] <= watermark]:
            out.append((key, window, open_windows.pop((key, window))))
    for (key, window), rows in open_windows.items():
        out.append((key, window, rows))
    return [(*window, key, *summary(rows)) for key, window, rows in out], late


def summary(rows):
    values = [v for _, _, v in sorted(rows, key=lambda r: r[:2])]
    present = [v for v in values if v is not None]
    return len(values), (sum(present) if present else None), (max(present) if present else None), values[0], present


def kernel(shape):
    long = pa.int64()
    measures = (
        Measure(make("count", [], False, {}), (), None),
        Measure(make("sum", [long], False, {}), ("x",), None),
        Measure(make("max", [long], False, {}), ("x",), None),
        Measure(make("first", [long], False, {}), ("x",), None),
        Measure(make("collect_list", [long], False, {}), ("x",), None),
    )
    return WindowKernel(shape, ("k",), measures, ordered=True)


def table(rows, first):
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.string()),
            "x": pa.array([r[2] for r in rows], pa.int64()),
            TIME: pa.array([r[1] for r in rows], pa.int64()),
            PARTITION: pa.array([0] * len(rows), pa.int32()),
            POSITION: pa.array(range(first, first + len(rows)), pa.int64()),
            BUCKET: pa.array([0] * len(rows), pa.int32()),
        }
    )


def run(work, batches, lateness, tasks, step=None):
    """The kernel over real runs in a folder, one manifest's worth of state handed from batch to batch."""
    out, late, sets = [], [], {}
    previous, position = None, 0
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        for number, rows in enumerate([*batches, None]):
            now = previous
            if rows is None:
                now, rows = END_US, []
            elif rows:
                newest = max(r[1] for r in rows) - lateness
                now = newest if previous is None else max(previous, newest)
            bound = work.late_before(previous)
            late += [r for r in rows if r[1] < bound]
            whole = table(rows, position).filter(pa.array([r[1] >= bound for r in rows], pa.bool_()))
            position += len(rows)
            parts = [
                whole.slice(i, 1 + whole.num_rows // tasks)
                for i in range(0, whole.num_rows, 1 + whole.num_rows // tasks)
            ]
            state = BucketState(files, "w", 0, number, sets)
            clock = StepClock(BEGINNING_US if previous is None else previous, BEGINNING_US if now is None else now)
            outcome = work.step(state, [work.combine(p) for p in parts], clock)
            if outcome.main is not None:
                out.append(outcome.main)
            if outcome.wake_us is not None:
                assert outcome.wake_us > clock.now_us, "a bucket that wakes for the past never sleeps"
            sets, previous = state.sets(), now
    assert not sets, "state is left after the end of time"
    return out, late


def plain(out):
    rows = []
    for result in out:
        whole = result.set_column(0, "start", result[WINDOW_START].cast(pa.int64()))
        whole = whole.set_column(1, "end", result[WINDOW_END].cast(pa.int64()))
        rows += [tuple(r.values()) for r in whole.to_pylist()]
    return sorted(rows, key=repr)


@given(shapes(), st.lists(ROWS, max_size=5), st.integers(0, 15), st.integers(1, 3))
def test_the_kernel_gives_what_plain_python_gives(shape, batches, lateness, tasks):
    expected, expected_late = naive(shape, batches, lateness)
    out, late = run(kernel(shape), batches, lateness, tasks)
    assert plain(out) == sorted(expected, key=repr)
    assert late == expected_late


@given(shapes(), ROWS, st.integers(1, 6))
def test_any_cut_into_batches_gives_the_same_when_nothing_is_late(shape, rows, size):
    cut = [rows[i : i + size] for i in range(0, len(rows), size)]
    whole, _ = run(kernel(shape), [rows], 1000, 1)
    pieces, _ = run(kernel(shape), cut, 1000, 2)
    assert plain(pieces) == plain(whole)


@given(shapes(), st.lists(ROWS, max_size=4), st.integers(0, 15))
def test_rows_that_are_kept_whole_come_out_once_for_each_of_their_windows(shape, batches, lateness):
    work = WindowKernel(shape, ("k",), carried=("x", TIME))
    out, _ = run(work, batches, lateness, 2)
    expected, _ = naive(shape, batches, lateness)
    counts = defaultdict(int)
    for start, end, key, *_ in plain(out):
        counts[start, end, key] += 1
    assert dict(counts) == {(start, end, key): n for start, end, key, n, *_ in expected}


def test_the_published_hop_example():
    """Hop 10 s every 5 s over times 5 7 9 11 13 17 with prices 4 2 5 3 1 6."""
    second = timedelta(seconds=1)
    rows = [(None, t * 1_000_000, p) for t, p in zip([5, 7, 9, 11, 13, 17], [4, 2, 5, 3, 1, 6], strict=True)]
    out, _ = run(kernel(Aligned(10 * second, 5 * second)), [rows], 0, 1)
    sums = [(start // 1_000_000, end // 1_000_000, total) for start, end, _, _, total, *_ in plain(out)]
    assert sorted(sums) == [(0, 10, 11), (5, 15, 15), (10, 20, 10), (15, 25, 6)]


@pytest.mark.parametrize("time", [-1, 0, 9, 10, -10, -11])
def test_a_row_on_a_boundary_begins_the_next_window_also_before_1970(time):
    out, _ = run(kernel(Aligned(10 * us, 10 * us)), [[("a", time, 1)]], 0, 1)
    start = time // 10 * 10
    assert [row[:2] for row in plain(out)] == [(start, start + 10)]
