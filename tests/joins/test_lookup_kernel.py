"""The lookup kernel against a dictionary, over any changes and any cut into tasks."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.joins.lookup_kernel import LookupKernel
from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, WEIGHT, StepClock

KEYS = ("__ps_key_0", "__ps_key_1")
TYPES = {"x": pa.int64(), "y": pa.string(), "tags": pa.list_(pa.int64())}
KEY_TYPES = (pa.string(), pa.int32())


def packed(rows, names, more):
    """Rows of keys and values, with more columns."""
    columns = {name: pa.array([r[i] for r in rows], KEY_TYPES[i]) for i, name in enumerate(KEYS)}
    columns |= {name: pa.array([r[2 + i] for r in rows], TYPES[name]) for i, name in enumerate(names)}
    for i, (name, kind) in enumerate(more.items()):
        columns[name] = pa.array([r[2 + len(names) + i] for r in rows], kind)
    columns[BUCKET] = pa.array([0] * len(rows), pa.int32())
    table = pa.table(columns)
    return table.cast(pa.schema([f.with_nullable(f.name not in (*more, BUCKET)) for f in table.schema]))


class Play:
    """A kernel over real runs in a folder, batch after batch."""

    def __init__(self, folder, how="left", tasks=1):
        types = (TYPES["y"], TYPES["tags"])
        self.work, self.tasks = LookupKernel(KEYS, ("x",), ("y", "tags"), how, types), tasks
        self.files = Checkpoint.open(folder).files
        self.sets, self.number, self.state, self.clock = {}, 0, None, StepClock(5, 9)

    def batch(self, events, changes, wakes=None):
        """The results for events (k, j, x, time, partition, position) and changes (k, j, y, tags, weight)."""
        self.number += 1
        arrival = {TIME: pa.int64(), PARTITION: pa.int32(), POSITION: pa.int64()}
        came = [
            [packed(part, ["x"], arrival) for part in self.parts(events)],
            [packed(part, ["y", "tags"], {WEIGHT: pa.int8()}) for part in self.parts(changes)],
        ]
        assert {self.work.late_before(edge, 7) for edge in (0, 1)} == {BEGINNING_US}
        self.state = BucketState(self.files, "l", 0, self.number, self.sets)
        rows = [[self.work.combine(edge, t, None) for t in tables] for edge, tables in enumerate(came)]
        outcome = self.work.step(self.state, rows, self.clock)
        self.sets = self.state.sets()
        assert (outcome.wake_us, outcome.late, outcome.late_right, outcome.late_count) == (wakes, None, None, 0)
        if outcome.main is None:
            return []
        assert outcome.main.num_rows, "no results is None"
        assert outcome.main.column_names == [*KEYS, "x", "y", "tags", *arrival]
        assert outcome.main.schema.field("tags").type == TYPES["tags"]
        return [tuple(r.values()) for r in outcome.main.to_pylist()]

    def parts(self, rows):
        return [rows[i :: self.tasks] for i in range(self.tasks) if rows[i :: self.tasks]][::-1]

    def held(self):
        return {tuple(r.values())[:2]: tuple(r.values())[2:] for r in self.state.table("rows", KEYS).scan().to_pylist()}


keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3))
asked = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, 3, None]))
values = st.tuples(st.none() | st.sampled_from(["p", "q"]), st.sampled_from([None, [], [1]]))
some_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(asked, st.integers(0, 2)), max_size=10),
        st.dictionaries(keys, st.none() | values, max_size=5),  # None deletes
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(batches=some_batches, how=st.sampled_from(["left", "inner"]), tasks=st.integers(1, 3))
def test_an_event_gets_the_row_of_its_key_as_the_batch_leaves_it(batches, how, tasks):
    table, position = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, how, tasks)
        for asks, writes, gained_first in batches:
            changes = [(*key, *table[key], -1) for key in writes if key in table]
            changes += [(*key, *value, 1) for key, value in writes.items() if value is not None]
            for key, value in writes.items():
                table.pop(key, None)
                table |= {key: value} if value is not None else {}
            events = [(*key, i, 50 - i, partition, position + i) for i, (key, partition) in enumerate(asks)]
            position += len(events)
            expected = [(*e[:3], *table.get(e[:2], (None, None)), *e[3:]) for e in events]
            if how == "inner":
                expected = [r for r in expected if r[:2] in table]
            got = play.batch(events, changes[::-1] if gained_first else changes)
            assert got == sorted(expected, key=lambda r: r[-2:])
            assert play.held() == table


@pytest.fixture
def play(tmp_path):
    return lambda **options: Play(str(tmp_path), **options)


def test_changes_of_a_batch_apply_before_its_events(play):
    assert play().batch([("a", 1, 7, 0, 0, 0)], [("a", 1, "p", None, 1)]) == [("a", 1, 7, "p", None, 0, 0, 0)]


def test_a_null_in_a_key_meets_nothing_even_if_the_table_has_it(play):
    p = play()
    assert p.batch([(None, 1, 7, 0, 0, 0)], [(None, 1, "p", None, 1)]) == [(None, 1, 7, None, None, 0, 0, 0)]


def test_a_miss_of_an_inner_lookup_gives_nothing(play):
    assert play(how="inner").batch([("a", 1, 7, 0, 0, 0)], []) == []


def test_a_key_with_two_rows_is_refused(play):
    with pytest.raises(ValueError, match="more than once"):
        play().batch([], [("a", 1, "p", None, 1), ("a", 1, "q", None, 1)])


def test_after_load_events_wait_and_then_meet_the_whole_table(tmp_path):
    p = Play(str(tmp_path))
    p.work = replace(p.work, after_load=True)
    p.clock, wakes = StepClock(5, 9, loaded=False), BEGINNING_US
    assert p.batch([("a", 1, 7, 30, 0, 0)], [("b", 2, "q", None, 1)], wakes) == []
    assert p.batch([("b", 2, 8, 20, 0, 1)], [("a", 1, "p", None, 1)], wakes) == []
    p.clock = StepClock(5, 9)
    assert p.batch([], []) == [("a", 1, 7, "p", None, 30, 0, 0), ("b", 2, 8, "q", None, 20, 0, 1)]
    assert p.batch([("c", 1, 9, 40, 0, 2)], []) == [("c", 1, 9, None, None, 40, 0, 2)]
