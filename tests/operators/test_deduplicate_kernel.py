"""The kernel of deduplicate against ten lines of plain Python, over any cut into batches and tasks."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.deduplicate_kernel import DeduplicateKernel, first_taken
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, StepClock

NAN = float("nan")
ORDER = [TIME, PARTITION, POSITION]
FOR_EVER = 10**20  # more microseconds than 64 bits can count
WITHIN = st.integers(0, 12) | st.just(FOR_EVER)
KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, -0.0, NAN, None]))
ROWS = st.lists(st.tuples(KEYS, st.integers(-30, 60), st.integers(0, 2)), max_size=20)  # key, time, partition


def numbered(batches):
    """Rows as (key, time, partition, position), each partition counting on from batch to batch."""
    count = defaultdict(int)
    for batch in batches:
        rows = []
        for key, time, partition in batch:
            rows.append((key, time, partition, count[partition]))
            count[partition] += 1
        yield rows


def after(previous, rows, lateness):
    return max([r[1] - lateness for r in rows] + ([] if previous is None else [previous]), default=None)


def plain(key):
    return (key[0], "nan" if key[1] != key[1] else key[1])


def naive(batches, within, ordered, lateness):
    """What comes out of each batch, row by row; what was kept is never forgotten."""
    kept, waiting, watermark = defaultdict(list), [], None
    for rows in [*numbered(batches), None]:
        waiting += [r for r in rows or [] if watermark is None or r[1] >= watermark]
        watermark = END_US if rows is None else after(watermark, rows, lateness)
        due = [r for r in waiting if not ordered or (watermark is not None and r[1] < watermark)]
        waiting = [r for r in waiting if r not in due]
        out = []
        for key, time, *arrival in sorted(due, key=lambda r: (r[1], *r[2:]) if ordered else r[2:]):
            if all(abs(time - k) > within for k in kept[plain(key)]):
                kept[plain(key)].append(time)
                out.append((time, *arrival))
        yield out


def table(rows):
    columns = {
        "k": pa.array([r[0][0] for r in rows], pa.string()),
        "f": pa.array([r[0][1] for r in rows], pa.float64()),
        "tag": pa.array([f"{r[2]}/{r[3]}" for r in rows], pa.string()),
        "other": pa.array([0] * len(rows), pa.int32()),
        TIME: pa.array([r[1] for r in rows], pa.int64()),
        PARTITION: pa.array([r[2] for r in rows], pa.int32()),
        POSITION: pa.array([r[3] for r in rows], pa.int64()),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    return pa.table(columns)


def kernel(within, ordered):
    return DeduplicateKernel(("k", "f"), ("tag",), within, ordered)


def run(work, batches, lateness, tasks, sizes=None):
    """The kernel over real runs in a folder; ``tasks`` says by turns which task a row is in."""
    sets, previous = {}, None
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        for number, rows in enumerate([*numbered(batches), None]):
            now = END_US if rows is None else after(previous, rows, lateness)
            rows = [r for r in rows or [] if r[1] >= work.late_before(previous)]
            parts = [[r for i, r in enumerate(rows) if tasks[i % len(tasks)] == task] for task in sorted(set(tasks))]
            state = BucketState(files, "d", 0, number, sets)
            clock = StepClock(*(BEGINNING_US if us is None else us for us in (previous, now)))
            sent = [work.combine(table(part), previous) for part in parts if part]
            outcome = work.step(state, sent, clock)
            if outcome.wake_us is not None:
                assert outcome.wake_us > clock.now_us, "a bucket that wakes for the past never sleeps"
            yield outcome.main
            sets, previous = state.sets(), now
            if sizes is not None:
                sizes.append(state.rows)


def arrivals(results):
    return [[] if r is None else [tuple(row.values()) for row in r.select(ORDER).to_pylist()] for r in results]


@given(st.lists(ROWS, max_size=5), WITHIN, st.booleans(), st.integers(0, 25), st.lists(st.integers(0, 2), min_size=1))
def test_the_kernel_keeps_what_plain_python_keeps(batches, within, ordered, lateness, tasks):
    expected = list(naive(batches, within, ordered, lateness))
    assert arrivals(run(kernel(within, ordered), batches, lateness, tasks)) == expected


@given(ROWS, WITHIN, st.integers(1, 6))
def test_taken_by_time_any_cut_into_batches_keeps_the_same(rows, within, size):
    cut = [rows[i : i + size] for i in range(0, len(rows), size)]
    newest = list(accumulate((r[1] for r in rows), max))
    lateness = max((high - r[1] for high, r in zip(newest, rows, strict=True)), default=0)  # just enough for all
    whole = arrivals(run(kernel(within, True), [rows], lateness, [0]))
    pieces = arrivals(run(kernel(within, True), cut, lateness, [0, 1]))
    assert list(chain.from_iterable(pieces)) == list(chain.from_iterable(whole))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-40, 160)), max_size=60),
    WITHIN,
    st.sampled_from([None, 1, -1]),
    st.integers(0, 10),
)
def test_the_chains_keep_what_taking_one_by_one_keeps(rows, within, direction, jitter):
    # by chance, rising or falling in time: the last two have the longest chains
    if direction:
        rows = sorted(rows, key=lambda r: direction * r[1] + hash(r) % (jitter + 1))
    kept, expected = defaultdict(list), []
    for group, time in rows:
        expected.append(all(abs(time - k) > within for k in kept[group]))
        if expected[-1]:
            kept[group].append(time)
    group, time = (np.array([r[i] for r in rows], np.int64) for i in (0, 1))
    assert first_taken(group, time, within).tolist() == expected


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dropped_row_does_not_prolong_what_a_kept_row_stands_for(ordered):
    rows = [(("a", 0.0), time, 0) for time in (0, 6, 10, 11, 12, 21, 22)]  # ends in: 10 and 21 are duplicates
    results = arrivals(run(kernel(10, ordered), [rows], 100, [0]))
    assert [time for batch in results for time, *_ in batch] == [0, 11, 22]


def test_at_once_a_kept_row_stands_for_rows_before_it_and_the_first_to_arrive_stays():
    rows = [(("a", 0.0), time, 0) for time in (10, 0, 20, -1)]
    assert arrivals(run(kernel(10, False), [rows], 100, [0])) == [[(10, 0, 0), (-1, 0, 3)], []]


def test_by_time_rows_wait_until_the_clock_is_past_them():
    batches = [[(("a", 0.0), 10, 0)], [(("a", 0.0), 9, 0), (("a", 0.0), 15, 0)], [(("a", 0.0), 16, 0)]]
    # the watermark is at 5, 10 and 11: only then is 10 passed, and 9, which came later, stands for it
    assert arrivals(run(kernel(3, True), batches, 5, [0])) == [[], [(9, 0, 1)], [], [(15, 0, 2)]]


def test_a_task_sends_one_row_for_each_key_and_time_and_the_first_to_arrive():
    rows = [(("a", NAN), 5, 1, 0), (("a", NAN), 5, 0, 7), (("a", NAN), 6, 0, 8), ((None, NAN), 5, 2, 0)]
    sent = kernel(10, False).combine(table(rows), None)
    assert sent.column_names == ["k", "f", "tag", TIME, PARTITION, POSITION, BUCKET]
    assert sent["tag"].to_pylist() == ["0/7", "0/8", "2/0"]


def test_a_result_has_the_columns_of_its_row():
    (main, _) = run(kernel(10, False), [[(("a", None), 5, 1)]], 0, [0])
    assert main.to_pylist() == [{"k": "a", "f": None, "tag": "1/0", TIME: 5, PARTITION: 1, POSITION: 0}]


@pytest.mark.parametrize("ordered", [False, True])
def test_kept_rows_leave_when_no_row_on_time_can_be_their_duplicate(ordered):
    sizes = []
    batches = [[((f"{time}", 0.0), time, 0) for time in range(10 * i, 10 * i + 10)] for i in range(40)]
    results = arrivals(run(kernel(20, ordered), batches, 5, [0, 1], sizes))
    assert sum(len(batch) for batch in results) == 400
    assert max(sizes) < 80, sizes  # 26 microseconds are needed; runs that wait for a merge hold some more
    assert sizes[-1] == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_silent_batch_changes_nothing(ordered):
    assert list(run(kernel(5, ordered), [[], []], 0, [0])) == [None, None, None]
