"""The join of two tables against a nested loop over their rows, after every batch of changes."""

from __future__ import annotations

import tempfile
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.joins.table_kernel import TableJoinKernel, TableSide
from penstock.plan.durations import BEGINNING_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, WEIGHT, StepClock

LEFT = {"__ps_key_0": pa.int64(), "id": pa.int64(), "x": pa.list_(pa.int64())}
RIGHT = {"__ps_key_0": pa.int64(), "no": pa.string(), "y": pa.float64()}


def side(types, within, pads):
    carried = [name for name in types if name != "__ps_key_0"]
    return TableSide(tuple(carried), tuple(types[c] for c in carried), within, pads)


class Play:
    """A kernel over real runs in a folder, and the tables that it joins."""

    def __init__(self, folder, how, left_within, right_within, tasks):
        self.how, self.tasks = how, tasks
        pads = how in ("left", "full"), how in ("right", "full")
        left, right = side(LEFT, left_within, pads[0]), side(RIGHT, right_within, pads[1])
        self.work = TableJoinKernel(("__ps_key_0",), (pa.int64(),), left, right)
        self.files = Checkpoint.open(folder).files
        self.sets, self.number, self.view = {}, 0, Counter()
        self.tables = ({}, {})

    def batch(self, new):
        """Let both tables become what is said, and give the net changes of the view."""
        rows = []
        for edge, (types, wanted) in enumerate(zip((LEFT, RIGHT), new, strict=True)):
            before = self.tables[edge]
            changes = [(*row, -1) for key, row in before.items() if wanted.get(key) != row]
            changes += [(*row, 1) for key, row in wanted.items() if before.get(key) != row]
            before.clear()
            before.update(wanted)
            cuts = [changes[i :: self.tasks] for i in range(self.tasks)]
            rows.append([self.work.combine(edge, packed(part, types), None) for part in cuts if part])
        self.number += 1
        assert {self.work.late_before(edge, 7) for edge in (0, 1)} == {BEGINNING_US}
        state = BucketState(self.files, "j", 0, self.number, self.sets)
        outcome = self.work.step(state, rows, StepClock(5, 9))
        self.sets = state.sets()
        if outcome.main is None:
            return []
        names = ["__ps_key_0", "id", "x", "no", "y"]
        assert outcome.main.column_names == [*names, WEIGHT]
        assert outcome.main.schema.types[:-1] == [pa.int64(), *list(LEFT.values())[1:], *list(RIGHT.values())[1:]]
        told = [(*(str(r[n]) for n in names), r[WEIGHT]) for r in outcome.main.to_pylist()]
        for *row, weight in told:
            self.view[tuple(row)] += weight
        return told

    def expected(self):
        """The join by a nested loop."""
        left, right = (list(table.values()) for table in self.tables)
        found = [(k, i, x, n, y) for k, i, x in left for other, n, y in right if k is not None and k == other]
        if self.how in ("left", "full"):
            keys = {k for k, *_ in right}
            found += [(k, i, x, None, None) for k, i, x in left if k is None or k not in keys]
        if self.how in ("right", "full"):
            keys = {k for k, *_ in left}
            found += [(k, None, None, n, y) for k, n, y in right if k is None or k not in keys]
        return Counter(tuple(map(str, row)) for row in found)


def packed(rows, types):
    columns = {name: pa.array([r[i] for r in rows], kind) for i, (name, kind) in enumerate(types.items())}
    columns[WEIGHT] = pa.array([r[-1] for r in rows], pa.int8())
    return pa.table({**columns, BUCKET: pa.array([0] * len(rows), pa.int32())})


keys = st.none() | st.integers(0, 2)
lists = st.lists(st.integers(0, 1), max_size=1)
many = st.dictionaries(st.integers(0, 5), st.tuples(keys, lists), max_size=6).map(
    lambda rows: {i: (k, i, x) for i, (k, x) in rows.items()}
)
several = st.dictionaries(st.sampled_from("abc"), st.tuples(keys, st.none() | st.just(0.5)), max_size=3).map(
    lambda rows: {n: (k, n, y) for n, (k, y) in rows.items()}
)
own_key = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 1), lists), max_size=4).map(
    lambda rows: {k: (k, i, x) for k, (i, x) in rows.items()}
)
one_each = st.dictionaries(st.integers(0, 3), st.tuples(st.sampled_from("ab"), st.just(0.5)), max_size=4).map(
    lambda rows: {k: (k, n, y) for k, (n, y) in rows.items()}
)


def check(how, left_within, right_within, batches, tasks=1):
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, how, left_within, right_within, tasks)
        for new in batches:
            told = play.batch(new)
            assert +play.view == play.expected(), (new, told)
            assert not any(count < 0 for count in play.view.values())
            assert len({row[:-1] for row in told}) == len(told), "no change is taken back in the same batch"
        return play


@given(st.lists(st.tuples(many, several), max_size=5), st.integers(1, 2))
def test_rows_that_meet_by_no_key_give_every_pair(batches, tasks):
    check("inner", ("id",), ("no",), batches, tasks)


@given(st.sampled_from(["inner", "left"]), st.lists(st.tuples(many, one_each), max_size=5), st.integers(1, 2))
def test_a_reference_meets_the_row_that_it_names_and_may_move(how, batches, tasks):
    check(how, ("id",), (), batches, tasks)


@given(
    st.sampled_from(["inner", "left", "right", "full"]),
    st.lists(st.tuples(own_key, one_each), max_size=5),
    st.integers(1, 2),
)
def test_tables_of_one_key_meet_row_by_row(how, batches, tasks):
    check(how, (), (), batches, tasks)


def test_the_published_truth_table():
    left = [{0: (0, 1, [1])}, {0: (0, 1, [1])}, {0: (0, 2, [2])}, {}, {}, {0: (0, 3, [3])}]
    right = [{}, {0: (0, "a", 0.5)}, {0: (0, "a", 0.5)}, {0: (0, "a", 0.5)}, {}, {}]
    a1, a2, a3 = ("0", "1", "[1]"), ("0", "2", "[2]"), ("0", "3", "[3]")
    none, a = ("None", "None"), ("a", "0.5")
    told = {
        "inner": [[], [(*a1, *a, 1)], [(*a1, *a, -1), (*a2, *a, 1)], [(*a2, *a, -1)], [], []],
        "left": [
            [(*a1, *none, 1)],
            [(*a1, *a, 1), (*a1, *none, -1)],
            [(*a1, *a, -1), (*a2, *a, 1)],
            [(*a2, *a, -1)],
            [],
            [(*a3, *none, 1)],
        ],
        "full": [
            [(*a1, *none, 1)],
            [(*a1, *a, 1), (*a1, *none, -1)],
            [(*a1, *a, -1), (*a2, *a, 1)],
            [(*a2, *a, -1), ("0", *none, *a, 1)],
            [("0", *none, *a, -1)],
            [(*a3, *none, 1)],
        ],
    }
    for how, steps in told.items():
        with tempfile.TemporaryDirectory() as folder:
            play = Play(folder, how, (), (), 1)
            got = [sorted(play.batch(new)) for new in zip(left, right, strict=True)]
        assert got == [sorted(step) for step in steps], how


def test_in_a_full_join_a_null_is_a_key_like_any_other():
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, "full", (), (), 1)
        play.batch(({None: (None, 1, [])}, {None: (None, "a", 0.5)}))
        assert +play.view == Counter({("None", "1", "[]", "a", "0.5"): 1})
        play.batch(({None: (None, 1, [])}, {}))
        assert +play.view == Counter({("None", "1", "[]", "None", "None"): 1})


def test_a_change_of_one_row_does_not_read_the_rows_that_share_its_key(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, "left", ("id",), (), 1)
        rows = {i: (0, i, []) for i in range(1000)}
        play.batch((rows, {0: (0, "a", 0.5)}))
        read = []
        found = BucketState.table

        def watched(self, *args, **options):
            table = found(self, *args, **options)
            find = table._find
            table._find = lambda *a: (lambda got: (read.append(got[1].num_rows), got)[1])(find(*a))
            return table

        monkeypatch.setattr(BucketState, "table", watched)
        assert len(play.batch(({**rows, 7: (0, 7, [1])}, {0: (0, "a", 0.5)}))) == 2
        assert sum(read) < 10
