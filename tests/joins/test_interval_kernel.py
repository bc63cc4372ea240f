"""The kernel of the join of streams against nested loops in plain Python, over any cut, any clock, any disorder.

The twin holds rows in lists, and in each batch looks at every left row with every right row. After every batch
results and late rows are the twin's; at the end nothing is held.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.joins.interval_kernel import IntervalJoinKernel, Side
from penstock.joins.pairing import has_partner, pairs
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, LATE, PARTITION, POSITION, TIME, StepClock

NAN = float("nan")
FOR_EVER = 10**20  # more microseconds than 64 bits can count
HOW = ["inner", "left", "right", "full", "semi", "anti"]
KEYS = ("__ps_key_0", "__ps_key_1")
KEY_TYPES = (pa.string(), pa.float64())
NESTED = pa.struct([("tag", pa.string()), ("list", pa.list_(pa.int32()))])
LEFT = Side(KEYS, ("__ps_left_0", "__ps_left_1"), (pa.int64(), NESTED))
RIGHT = Side(KEYS, ("__ps_right_0",), (pa.string(),))


class Row(NamedTuple):
    """A row of either side; several may be equal in everything, the order of arrival too."""

    key: tuple[str | None, float | None]
    time: int
    value: int
    partition: int
    position: int


ROWS = st.builds(
    Row,
    st.tuples(st.sampled_from(["a", "b", "b", "b", None]), st.sampled_from([0.0, -0.0, NAN, NAN, None])),
    st.integers(-13, 20),
    st.none() | st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 4),
)
BOUNDS = st.tuples(
    st.integers(-15, 15) | st.sampled_from([0, -FOR_EVER]), st.integers(-15, 15) | st.sampled_from([0, FOR_EVER])
).map(lambda bounds: tuple(sorted(bounds)))


@st.composite
def batches(draw):
    """Batches as (left rows, right rows, how far the clock goes); times drift upwards, so that some are late."""
    found = []
    for number in range(draw(st.integers(0, 7))):
        left, right = (
            [row._replace(time=row.time + 6 * number) for row in draw(st.lists(ROWS, max_size=8))] for _ in range(2)
        )
        found.append((left, right, draw(st.sampled_from([None, 0, 0, 1, 3, 6, 6, 12, 40]))))
    return found


def ticking(cut):
    """Batches with the clock before and after each; None adds nothing to what was known. The last is the end."""
    previous = None
    for left, right, step in [*cut, ([], [], FOR_EVER)]:
        now = previous if step is None else -10 + step if previous is None else previous + step
        yield left, right, *(BEGINNING_US if us is None else us for us in (previous, now))
        previous = now


def plain(key):
    return tuple("nan" if part != part else part for part in key)


def shown(row):
    """The key and what a left row carries, as a result has it."""
    return plain(row.key), row.value, None if row.value is None else ("t", [row.value])


class Twin:
    """What a join means, in lists."""

    def __init__(self, how, low, high):
        self.how, self.low, self.high = how, low, high
        self.left, self.right = [], []  # held rows as [row, has found a partner]

    def meet(self, left, right):
        near = left.time + self.low <= right.time <= left.time + self.high
        return None not in left.key and plain(left.key) == plain(right.key) and near

    def batch(self, left, right, previous, now):
        """What a batch gives, and which rows are late, left and right."""
        fresh_left, fresh_right = ([[row, False] for row in rows] for rows in (left, right))
        out, late = [], ([], [])
        for one in [*self.left, *fresh_left]:
            for other in [*self.right, *fresh_right]:
                came = any(one is new for new in fresh_left) or any(other is new for new in fresh_right)
                if came and self.meet(one[0], other[0]):
                    if (self.how == "semi" and not one[1]) or self.how not in ("semi", "anti"):
                        out.append(self.result(one[0], other[0]))
                    one[1] = other[1] = True
        self.left = self.keep(0, fresh_left, previous, now, out, late[0])
        self.right = self.keep(1, fresh_right, previous, now, out, late[1])
        return out, late

    def keep(self, edge, fresh, previous, now, out, late):
        """What is held of a side after the batch; what has no partner comes out, or is late."""
        outer = self.how in (("left", "full"), ("right", "full"))[edge]
        anti, keep = edge == 0 and self.how == "anti", []
        for row, met in fresh:
            if row.time < previous:
                if anti or (not met and not outer and None not in row.key):
                    late.append(row)
                elif not met and outer:
                    out.append(self.alone(edge, row))
            else:
                keep.append([row, met])
        held, still = [*(self.left, self.right)[edge], *keep], []
        for row, met in held:
            last = row.time + (-self.low if edge else self.high)
            if (now > last or now >= END_US or None in row.key) and not met and (outer or anti):
                out.append(self.alone(edge, row))
            done = met and edge == 0 and self.how in ("semi", "anti")
            if not (now > last or now >= END_US or None in row.key or done):
                still.append([row, met])
        return still

    def result(self, left, right):
        if self.how == "semi":
            return self.alone(0, left)
        later = right if right.time > left.time else left
        return *shown(left), f"r{right.value}", later.time, later.partition, later.position

    def alone(self, edge, row):
        order = row.time, row.partition, row.position
        if self.how in ("semi", "anti"):
            return *shown(row), *order
        return (plain(row.key), None, None, f"r{row.value}", *order) if edge else (*shown(row), None, *order)


def kernel(how, low, high):
    return IntervalJoinKernel(LEFT, RIGHT, low, high, how)


def table(edge, rows, previous=None):
    """The rows of a side as they are packed; with ``previous`` the doubtful ones as they came too."""
    columns = {
        name: pa.array([row.key[i] for row in rows], kind)
        for i, (name, kind) in enumerate(zip(KEYS, KEY_TYPES, strict=True))
    }
    if edge == 0:
        nested = [None if row.value is None else {"tag": "t", "list": [row.value]} for row in rows]
        columns |= {"__ps_left_0": pa.array([row.value for row in rows], pa.int64())}
        columns |= {"__ps_left_1": pa.array(nested, NESTED)}
    else:
        columns |= {"__ps_right_0": pa.array([f"r{row.value}" for row in rows], pa.string())}
    columns |= {
        TIME: pa.array([row.time for row in rows], pa.int64()),
        PARTITION: pa.array([row.partition for row in rows], pa.int32()),
        POSITION: pa.array([row.position for row in rows], pa.int64()),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    if previous is not None:
        structs = [{"side": edge, "value": r.value, "time": r.time} if r.time < previous else None for r in rows]
        kind = pa.struct([("side", pa.int32()), ("value", pa.int64()), ("time", pa.int64())])
        columns[LATE] = pa.array(structs, kind)
    return pa.table(columns)


def run(work, cut, tasks=(0,), keep_late=True, sizes=None):
    """The kernel over real runs in a folder, asleep as the stage lets it; ``tasks`` says by turns where a row is."""
    sets, wake = {}, None
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        for number, (left, right, previous, now) in enumerate(ticking(cut)):
            sent = []
            for edge, rows in enumerate((left, right)):
                by_task = [[r for i, r in enumerate(rows) if tasks[i % len(tasks)] == t] for t in sorted(set(tasks))]
                doubtful = work.doubtful_before(edge, previous) if keep_late else None
                packed = [table(edge, part, doubtful) for part in by_task if part]
                sent.append([one for one in (work.combine(edge, t, previous) for t in packed) if one.num_rows])
            if not any(sent) and (wake is None or wake > now):
                yield None
                continue
            state = BucketState(files, "j", 0, number, sets)
            outcome = work.step(state, sent, StepClock(previous, now))
            sets, wake = state.sets(), outcome.wake_us
            assert wake is None or wake > now, "a bucket that wakes for the past never sleeps"
            if sizes is not None:
                sizes.append((state.rows, sum(len(runs) for runs in sets.values())))
            yield outcome
        assert not sets, sets


def results(outcome, how):
    if outcome is None or outcome.main is None:
        return []
    carried = LEFT.types if how in ("semi", "anti") else (*LEFT.types, *RIGHT.types)
    assert outcome.main.schema.types == [*KEY_TYPES, *carried, pa.int64(), pa.int32(), pa.int64()]
    found = []
    for first, second, number, nested, *rest in zip(*(c.to_pylist() for c in outcome.main.columns), strict=True):
        found.append((plain((first, second)), number, nested and (nested["tag"], nested["list"]), *rest))
    return found


def bag(rows):
    return Counter(map(repr, rows))


def as_it_came(rows, edge):
    return bag((edge, row.value, row.time) for row in rows)


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=100)
@given(batches(), BOUNDS, st.lists(st.integers(0, 2), min_size=1, max_size=5), st.booleans())
def test_every_batch_gives_what_nested_loops_give(how, cut, bounds, tasks, keep_late):
    twin = Twin(how, *bounds)
    expected = [twin.batch(*batch) for batch in ticking(cut)]
    for outcome, (out, late) in zip(run(kernel(how, *bounds), cut, tasks, keep_late), expected, strict=True):
        assert bag(results(outcome, how)) == bag(out)
        assert (0 if outcome is None else outcome.late_count) == len(late[0]) + len(late[1])
        for edge in (0, 1):
            told = None if outcome is None else (outcome.late, outcome.late_right)[edge]
            told = [] if told is None else [tuple(row.values()) for row in told.to_pylist()]
            assert bag(told) == (as_it_came(late[edge], edge) if keep_late else bag([]))


@st.composite
def rows_on_time(draw):
    """A cut of two streams, with a clock that says after each batch what may still come; and all rows of both."""
    rows = [(draw(st.integers(0, 1)), row) for row in draw(st.lists(ROWS, max_size=24))]
    found, start = [], 0
    while start < len(rows):
        stop = start + draw(st.integers(1, 6))
        found.append(([r for edge, r in rows[start:stop] if edge == 0], [r for edge, r in rows[start:stop] if edge]))
        start = stop
    clocks, newest = [], END_US - 1
    for left, right in reversed(found):
        clocks.append(newest)
        newest = min(newest, *(row.time for row in (*left, *right)))
    clocks = [us - draw(st.sampled_from([0, 0, 5])) for us in reversed(clocks)]
    steps = np.diff([-10, *np.maximum.accumulate(clocks)]).tolist() if found else []
    whole = [[r for edge, r in rows if edge == side] for side in (0, 1)]
    return [(*batch, step) for batch, step in zip(found, steps, strict=True)], whole


@pytest.mark.parametrize("how", HOW)
@settings(max_examples=100)
@given(rows_on_time(), BOUNDS)
def test_any_cut_of_rows_on_time_gives_what_one_loop_over_everything_gives(how, cut_and_whole, bounds):
    cut, (left, right) = cut_and_whole
    twin = Twin(how, *bounds)
    met = [[twin.meet(one, other) for other in right] for one in left]
    out = []
    for i, one in enumerate(left):
        if how in ("semi", "anti"):
            out += [twin.alone(0, one)] if any(met[i]) == (how == "semi") else []
            continue
        out += [twin.result(one, other) for j, other in enumerate(right) if met[i][j]]
        if how in ("left", "full") and not any(met[i]):
            out.append(twin.alone(0, one))
    if how in ("right", "full"):
        out += [twin.alone(1, other) for j, other in enumerate(right) if not any(row[j] for row in met)]
    outcomes = [outcome for outcome in run(kernel(how, *bounds), cut) if outcome is not None]
    assert bag(row for outcome in outcomes for row in results(outcome, how)) == bag(out)
    assert sum(outcome.late_count for outcome in outcomes) == 0


def one(time, value=0, key="a"):
    return Row((key, 0.0), time, value, 0, time)


def told(work, cut, **options):
    """For each batch the values of the result rows, and how many rows were late."""
    found = []
    for outcome in run(work, cut, **options):
        rows = results(outcome, work.how)
        found.append((sorted((row[1], row[3], row[-3]) for row in rows), 0 if outcome is None else outcome.late_count))
    return found


def test_both_ends_of_the_bounds_are_in_and_the_later_time_stays():
    cut = [([one(10, 1)], [one(t, t) for t in (7, 8, 9, 12, 13)], None)]
    assert told(kernel("inner", -2, 2), cut)[0] == ([(1, "r12", 12), (1, "r8", 10), (1, "r9", 10)], 0)


def test_a_left_row_is_padded_once_the_watermark_is_past_its_last_partner():
    # the row at 10 has partners up to 15: at a watermark of 15 one may still come, at 16 none
    cut = [([one(10, 1)], [], 20), ([], [], 5), ([], [], 1)]
    assert told(kernel("left", 0, 5), cut) == [([], 0), ([], 0), ([(1, None, 10)], 0), ([], 0)]


@pytest.mark.parametrize(("how", "pairs"), [("left", [(1, "r2", 15)]), ("full", [(1, "r2", 15)]), ("anti", [])])
def test_a_partner_at_the_last_instant_is_not_forgotten(how, pairs):
    # after the pair the watermark is at 15, where the row at 10 is still held, and then at 16
    cut = [([one(10, 1)], [], 24), ([], [one(15, 2)], 1), ([], [], 1)]
    found = [
        sorted((row[1], row[3], row[-3]) for row in results(outcome, how)) for outcome in run(kernel(how, 0, 5), cut)
    ]
    assert found == [[], pairs, [], []]


def test_a_late_row_meets_what_is_held_and_is_not_held_itself():
    late = ([], [one(12, 2)], 0)  # the watermark is at 14
    cut = [([one(10, 1)], [], 24), late, ([one(14, 3)], [], 0)]
    assert told(kernel("inner", 0, 5), cut)[1:3] == [([(1, "r2", 12)], 0), ([], 0)]


def test_thousands_of_rows_in_small_batches_leave_few_runs_and_no_rows_that_time_has_passed():
    sizes = []
    cut = [
        ([one(2 * i, i, f"{i % 7}"), one(2 * i, i)], [one(2 * i + 1, i, f"{i % 5}")], 12 if not i else 2)
        for i in range(400)
    ]
    found = sum(len(results(outcome, "full")) for outcome in run(kernel("full", -20, 30), cut, sizes=sizes))
    assert found > 1200
    # 30 and 20 microseconds are needed, twice where a row waits; runs that wait for a merge hold some more
    assert max(rows for rows, _ in sizes) < 400, max(sizes)
    assert max(runs for _, runs in sizes) < 60, sizes


def test_a_key_with_many_rows_costs_the_pairs_that_it_makes():
    times = np.arange(200_000)
    group = np.zeros(len(times), np.int64)
    left, right = pairs(group, times, group, times, 0, 1)
    assert len(left) == 2 * len(times) - 1
    assert ((right - left == 0) | (right - left == 1)).all()
    assert has_partner(group, times, group[:1], times[:1], -FOR_EVER // 10**4, 5).all()


def test_the_types_of_what_is_padded_may_be_unknown_until_the_other_side_comes():
    work = IntervalJoinKernel(Side(KEYS, LEFT.carried), Side(KEYS, RIGHT.carried), 0, 0, "full")
    (outcome, *_) = run(work, [([one(1)], [one(2)], 100)])
    assert results(outcome, "full")
    (outcome, *_) = run(work, [([one(1)], [], 100)])
    assert outcome.main["__ps_right_0"].type == pa.null()


@pytest.mark.parametrize("how", HOW)
def test_a_silent_batch_changes_nothing(how):
    work = kernel(how, 0, 5)
    with tempfile.TemporaryDirectory() as folder:
        state = BucketState(Checkpoint.open(folder).files, "j", 0, 0, {})
        outcome = work.step(state, [[], []], StepClock(BEGINNING_US, 7))
    assert outcome.main is None
    assert (outcome.wake_us, outcome.late_count, state.sets()) == (None, 0, {})
