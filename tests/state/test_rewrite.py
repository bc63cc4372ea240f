"""State that is split anew between any two batches: every kernel goes on as if there had always been one bucket."""

from __future__ import annotations

import tempfile
from collections import Counter
from datetime import timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.joins.asof_kernel import AsOfKernel
from penstock.joins.interval_kernel import IntervalJoinKernel, Side
from penstock.joins.latest_kernel import LatestKernel
from penstock.joins.lookup_kernel import LookupKernel
from penstock.joins.renumbered import Renumbered
from penstock.joins.table_kernel import TableJoinKernel, TableSide
from penstock.operators.deduplicate_kernel import DeduplicateKernel
from penstock.plan.durations import END_US
from penstock.plan.errors import CheckpointError
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, DELETED, PARTITION, POSITION, TIME, WEIGHT, Alone, StepClock
from penstock.state.hashing import hash_rows
from penstock.state.rewrite import Held, Rewrite, Split, rewritten
from penstock.windows.aggregates.registry import make
from penstock.windows.aligned import Aligned
from penstock.windows.firing import Final, Panes, Updates
from penstock.windows.kernel import WindowKernel
from penstock.windows.keyed import KeyedWindowKernel
from penstock.windows.partials import Measure, Partials
from penstock.windows.regrouped import Regrouped
from penstock.windows.sessions import Session
from penstock.windows.sliding import Sliding
from penstock.windows.table_kernel import RegroupingKernel, SubtractingKernel

us = timedelta(microseconds=1)
TYPES = {"k": pa.string(), "v": pa.int64(), "w": pa.int64(), "id": pa.int64(), "n": pa.int64()}
TYPES |= {TIME: pa.int64(), PARTITION: pa.int32(), POSITION: pa.int64(), DELETED: pa.bool_(), WEIGHT: pa.int8()}
EVENT = ("k", "v", TIME, PARTITION, POSITION)
SEQUENCE = "__ps_seq_0"
TYPES[SEQUENCE] = pa.int64()
VERSION = ("k", "w", TIME, PARTITION, POSITION, DELETED, SEQUENCE)
CHANGE = ("k", "id", "v", WEIGHT)
OTHER = ("k", "n", "w", WEIGHT)
SUM = Measure(make("sum", [pa.int64()], False, {}), ("v",), None)
MOST = Measure(make("max", [pa.int64()], False, {}), ("v",), None)
AVERAGE = Measure(make("avg", [pa.int64()], False, {}), ("v",), None)
BOTH = Partials(("k",), (SUM, MOST))


def joined(how):
    left, right = Side(("k",), ("v",), (pa.int64(),)), Side(("k",), ("w",), (pa.int64(),))
    return IntervalJoinKernel(left, right, -5, 9, how)


#: A kernel, the columns of its edges, and what else changes in its state when buckets do.
KERNELS = {
    "tumbling": (Alone(WindowKernel(Aligned(10 * us, 10 * us), BOTH)), [EVENT], Rewrite),
    "sessions": (Alone(KeyedWindowKernel(Session(6 * us), BOTH, Final())), [EVENT], Rewrite),
    "cut sessions": (Alone(KeyedWindowKernel(Session(6 * us, 9 * us), BOTH, Final())), [EVENT], Rewrite),
    "sliding": (Alone(KeyedWindowKernel(Sliding(5 * us), BOTH, Updates())), [EVENT], Rewrite),
    "panes": (Alone(KeyedWindowKernel(Session(6 * us), BOTH, Panes(2 * us, 5 * us))), [EVENT], Rewrite),
    "running": (Alone(KeyedWindowKernel(None, BOTH, Updates())), [EVENT], Rewrite),
    "deduplicate": (Alone(DeduplicateKernel(("k",), ("v",), 7, False)), [EVENT], Rewrite),
    "deduplicate in order": (Alone(DeduplicateKernel(("k",), ("v",), 7, True)), [EVENT], Rewrite),
    **{
        f"{how} join": (joined(how), [EVENT, ("k", "w", *EVENT[2:])], partial(Renumbered, ("k",)))
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    "as of": (
        AsOfKernel(("k",), ("v",), ("w",), "left", None, 4, (SEQUENCE,), False, (pa.int64(),)),
        [EVENT, VERSION],
        Rewrite,
    ),
    "latest": (Alone(LatestKernel(("k",), ("w",), (SEQUENCE,), False, 9, True)), [VERSION], Rewrite),
    "lookup": (LookupKernel(("k",), ("v",), ("w",), "left", (pa.int64(),)), [EVENT, ("k", "w", WEIGHT)], Rewrite),
    "join of tables": (
        TableJoinKernel(
            ("k",),
            (pa.string(),),
            TableSide(("id", "v"), (pa.int64(), pa.int64()), ("id",), True),
            TableSide(("n", "w"), (pa.int64(), pa.int64()), ("n",), True),
        ),
        [CHANGE, OTHER],
        Rewrite,
    ),
    "a table's sums": (Alone(SubtractingKernel(Partials(("k",), (SUM,)))), [CHANGE], Rewrite),
    "a table's greatest": (Alone(RegroupingKernel(BOTH, ("id",))), [CHANGE], Rewrite),
}


def hashes(keys):
    """As Spark's: any number that follows from the key alone."""
    return hash_rows(keys, keys.column_names).view(np.int64)


ROW = st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]), st.integers(0, 15), st.integers(0, 9))


@st.composite
def histories(draw):
    """Batches as (rows of each edge, how far the clock goes): any of a table's rows may leave again, once."""
    found, number = [], 0
    for batch in range(draw(st.integers(1, 6))):
        edges = []
        for _ in range(2):
            rows = []
            for key, time, value in draw(st.lists(ROW, max_size=8)):
                number += 1
                gone = draw(st.booleans())
                rows.append((key, time + 6 * batch, value, number, gone))
            edges.append(rows)
        found.append((edges, draw(st.sampled_from([0, 3, 6, 12]))))
    return found


class Tables:
    """Tables as their changes tell of them, net in each batch: rows that went, and rows that came."""

    def __init__(self):
        self.there = [{}, {}]

    def changes(self, edge, rows, names):
        before = self.there[edge]
        now = dict(before)
        for key, _, value, number, gone in rows:
            if gone and now:
                now.pop(next(iter(now)))
            if len(names) == 3:  # of a lookup: a key's one row
                now[key] = (key, value)
            else:
                now[number] = (key, number, value)
        self.there[edge] = now
        told = [(*row, -1) for identity, row in before.items() if now.get(identity) != row]
        return told + [(*row, 1) for identity, row in now.items() if before.get(identity) != row]


def packed(rows, names, edge, tables):
    """Rows as they come to a kernel, but for their bucket."""
    if WEIGHT in names:
        listed = tables.changes(edge, rows, names)
        columns = {name: [row[i] for row in listed] for i, name in enumerate(names)}
    else:
        columns = {"k": [r[0] for r in rows], names[1]: [r[2] for r in rows], TIME: [r[1] for r in rows]}
        columns |= {PARTITION: [0] * len(rows), POSITION: [r[3] for r in rows]}
        columns |= {DELETED: [r[4] for r in rows], SEQUENCE: [r[3] for r in rows]}
    return pa.table({name: pa.array(columns.get(name, ()), TYPES[name]) for name in names})


def split_of(before, now):
    return Split(("k",), before, now, hashes)


def played(kind, history, folder, buckets, cut=None):
    """What comes out of each batch; ``cut`` is a batch before which the state is split anew, and into how many."""
    kernel, edges, rewrite = KERNELS[kind]
    files, held, tables = Checkpoint.open(folder).files, Held(), Tables()
    previous, out = 0, []
    for number, (rows, step) in enumerate([*history, ([[], []], None)]):
        if cut is not None and number == cut[0]:
            held = rewritten(files, "s", number, held, rewrite(), split_of(buckets, cut[1]))
            buckets = cut[1]
        now = END_US if step is None else previous + step
        clock = StepClock(previous, now, number * 3, number * 3 + 3, 0)
        came = [packed(own, names, edge, tables) for edge, (own, names) in enumerate(zip(rows, edges, strict=False))]
        sets, wakes, told = {}, {}, Counter()
        for bucket in range(buckets):
            own = [_of(table, bucket, buckets, kernel, edge, previous) for edge, table in enumerate(came)]
            kept, wake = held.sets.get(bucket, {}), held.wakes.get(bucket)
            if not any(own) and (wake is None or wake > now) and not kernel.ticks(clock):
                sets[bucket], wakes[bucket] = kept, wake
                continue
            state = BucketState(files, "s", bucket, number, kept)
            outcome = kernel.step(state, own, clock)
            sets[bucket], wakes[bucket] = state.sets(), outcome.wake_us
            if outcome.main is not None:
                told.update(tuple(sorted(row.items(), key=str)) for row in outcome.main.to_pylist())
            told["late"] += outcome.late_count
        held, previous = Held(sets, wakes), now
        out.append({row: n for row, n in told.items() if n})
    return out


def _of(table, bucket, buckets, kernel, edge, previous):
    own = np.mod(hashes(table.select(["k"])), buckets) == bucket
    rows = table.filter(pa.array(own)).append_column(BUCKET, pa.array(np.full(own.sum(), bucket, np.int32)))
    times = rows[TIME].to_numpy() if TIME in rows.column_names else np.full(rows.num_rows, END_US)
    rows = rows.filter(pa.array(times >= kernel.late_before(edge, previous)))
    return [kernel.combine(edge, rows, previous)] if rows.num_rows else []


@pytest.mark.parametrize("kind", KERNELS)
@given(history=histories(), before=st.integers(1, 6), now=st.integers(1, 6), at=st.integers(0, 6))
@settings(max_examples=12)
def test_a_kernel_goes_on_in_any_number_of_buckets(kind, history, before, now, at):
    with tempfile.TemporaryDirectory() as folder:
        calm = played(kind, history, f"{folder}/calm", 1)
        assert played(kind, history, f"{folder}/split", before, cut=(at, now)) == calm


def test_a_late_row_meets_what_is_held_and_not_what_a_bucket_that_slept_has_not_dropped_yet():
    row = ("a", 0, 0, 1, False)
    history = [
        ([[], [("a", t, 0, 1 + n, False) for n, t in enumerate((0, 0, 0, 0, 0, 0, 0, 7))]], 3),
        ([[], [("b", 6, 0, 9, False)]], 12),
        ([[("a", 12, 0, 10, False), row], []], 0),
    ]
    with tempfile.TemporaryDirectory() as folder:
        one = played("left join", history, f"{folder}/1", 1)
        assert [played("left join", history, f"{folder}/{n}", n) for n in (2, 3, 5)] == [one] * 3


@given(history=histories(), at=st.integers(1, 6), now=st.permutations([0, 1, 2]), kept=st.integers(1, 3))
@settings(max_examples=25)
@pytest.mark.parametrize(
    "kernel",
    [
        lambda p: WindowKernel(Aligned(10 * us, 10 * us), p),
        lambda p: KeyedWindowKernel(Session(6 * us), p, Panes(None, 5 * us)),
        lambda p: KeyedWindowKernel(None, p, Updates()),
    ],
    ids=["tumbling", "panes", "running"],
)
def test_what_is_kept_of_an_aggregate_follows_it_to_another_place(kernel, history, at, now, kept):
    """The same values come out under the names that they have, whatever the order, and those that are asked for."""
    measures = {"sum": SUM, "max": MOST, "avg": AVERAGE}
    before = list(measures)
    after = [before[i] for i in now][:kept]

    def values(folder, names, changed):
        files, held, previous, out = Checkpoint.open(folder).files, Held(), 0, []
        for number, (rows, step) in enumerate([*history, ([[], []], None)]):
            if number == at and changed is not None:
                parts = [[(n, len(measures[n].aggregate.state_types())) for n in one] for one in (names, changed)]
                held, names = rewritten(files, "s", number, held, Regrouped(*parts)), changed
            work = kernel(Partials(("k",), tuple(measures[n] for n in names)))
            clock_now = END_US if step is None else previous + step
            state = BucketState(files, "s", 0, number, held.sets.get(0, {}))
            came = packed(rows[0], EVENT, 0, None).append_column(BUCKET, pa.array([0] * len(rows[0]), pa.int32()))
            came = came.filter(pa.array(came[TIME].to_numpy() >= work.late_before(previous)))
            own = [work.combine(came, previous)] if came.num_rows else []
            main = work.step(state, own, StepClock(previous, clock_now)).main
            held, previous = Held({0: state.sets()}), clock_now
            told = [] if main is None else main.to_pylist()
            places = {f"__ps_result_{i}": name for i, name in enumerate(names)}
            out.append([{places.get(c, c): v for c, v in row.items()} for row in told])
        return out

    def seen(batches):
        """Of a table that shows more than is asked for now, a change of something else is none."""
        wanted = [{c: v for c, v in row.items() if c not in measures or c in after} for rows in batches for row in rows]
        return sorted(map(str, (tuple(sorted(row.items(), key=str)) for row in wanted if row.get(WEIGHT, 1) > 0)))

    with tempfile.TemporaryDirectory() as folder:
        calm = values(f"{folder}/calm", before, None)
        changed = values(f"{folder}/changed", before, after)
    assert changed[:at] == calm[:at]
    assert set(seen(changed[at:])) <= set(seen(calm[at:]))
    if kept == 3 or WEIGHT not in {c for rows in calm for row in rows for c in row}:
        assert seen(changed[at:]) == seen(calm[at:])


def test_a_set_that_does_not_hold_its_key_or_another_one_is_refused_by_name(tmp_path):
    files = Checkpoint.open(tmp_path).files
    state = BucketState(files, "s", 0, 0, {})
    state.buffer("marks", "at_us").add(pa.table({"at_us": [1, 2]}))
    with pytest.raises(CheckpointError, match=r"step 's', set 'marks': it does not hold .* Run the job with 2 buckets"):
        rewritten(files, "s", 1, Held({0: state.sets()}), Rewrite(), split_of(2, 3))
    keys = pa.table({"k": ["a", "b", "c", "d"]})
    wrong = int(np.mod(hashes(keys.slice(0, 1)), 2)[0]) ^ 1
    state = BucketState(files, "s", wrong, 0, {})
    state.table("rows", ["k"]).put(keys)
    with pytest.raises(CheckpointError, match="set 'rows'"):
        rewritten(files, "s", 1, Held({wrong: state.sets()}), Rewrite(), split_of(2, 3))
