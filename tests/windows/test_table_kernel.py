"""Aggregates over a table against the same over its rows in plain Python, after every batch of changes."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from statistics import median

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.errors import RunError
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, WEIGHT, StepClock
from penstock.windows.aggregates.registry import make
from penstock.windows.aggregates.top import make_top
from penstock.windows.partials import Measure, Partials
from penstock.windows.table_kernel import RegroupingKernel, SubtractingKernel

TYPES = {
    "group": pa.string(),
    "id": pa.int64(),
    "x": pa.int64(),
    "d": pa.decimal128(6, 2),
    "f": pa.float64(),
    "ok": pa.bool_(),
}


def measure(name, *arguments, mask=None, distinct=False, **options):
    made = make(name, [TYPES[a] for a in arguments], distinct, options)
    assert made is not None
    return Measure(made, arguments, mask)


def there(rows, name):
    return [r[name] for r in rows if r[name] is not None]


def mean(values):
    return sum(values) / len(values) if values else None


SUBTRACTED = {
    measure("count"): len,
    measure("count", "x"): lambda rows: len(there(rows, "x")),
    measure("sum", "x"): lambda rows: sum(there(rows, "x")) if there(rows, "x") else None,
    measure("sum", "d"): lambda rows: sum(there(rows, "d")) if there(rows, "d") else None,
    measure("avg", "x"): lambda rows: mean(there(rows, "x")),
    measure("sum", "x", mask="ok"): lambda rows: (lambda v: sum(v) if v else None)(
        [r["x"] for r in rows if r["ok"] and r["x"] is not None]
    ),
}
REGROUPED = {
    **SUBTRACTED,
    measure("min", "x"): lambda rows: min(there(rows, "x"), default=None),
    measure("max", "x"): lambda rows: max(there(rows, "x"), default=None),
    measure("count", "x", distinct=True): lambda rows: len(set(there(rows, "x"))),
    measure("median", "x", percentages=(0.5,)): lambda rows: (
        float(median(there(rows, "x"))) if there(rows, "x") else None
    ),
    measure("collect_list", "x"): lambda rows: there(sorted(rows, key=lambda r: r["id"]), "x"),
    measure("first", "x"): lambda rows: min(rows, key=lambda r: r["id"])["x"],
    measure("sum", "f"): lambda rows: sum(there(rows, "f")) if there(rows, "f") else None,
}


class Play:
    """A kernel over real runs in a folder, and the table whose changes it gets."""

    def __init__(self, folder, kernel, tasks=1):
        self.work, self.tasks = kernel, tasks
        self.files = Checkpoint.open(folder).files
        self.sets, self.number, self.rows = {}, 0, {}
        self.view = []

    def batch(self, wanted):
        """Let the table become what is wanted; the changes of the view, which are checked and applied."""
        changes = [{**r, WEIGHT: -1} for key, r in self.rows.items() if wanted.get(key) != r]
        changes += [{**r, WEIGHT: 1} for key, r in wanted.items() if self.rows.get(key) != r]
        self.rows = dict(wanted)
        schema = pa.schema([*TYPES.items(), (WEIGHT, pa.int8()), (BUCKET, pa.int32())])
        parts = [
            pa.Table.from_pylist([{**r, BUCKET: 0} for r in changes[i :: self.tasks]], schema)
            for i in range(self.tasks)
        ]
        self.number += 1
        state = BucketState(self.files, "a", 0, self.number, self.sets)
        came = [self.work.combine(p, None) for p in parts if p.num_rows]
        outcome = self.work.step(state, came, StepClock(0, 0))
        self.sets = state.sets()
        if outcome.main is None:
            return []
        told = outcome.main.to_pylist()
        for row in sorted(told, key=lambda r: r[WEIGHT]):
            plain = {k: v for k, v in row.items() if k != WEIGHT}
            self.view.append(plain) if row[WEIGHT] > 0 else self.view.remove(plain)
        return told


numbers = st.none() | st.integers(-2, 2)
row_of = st.fixed_dictionaries(
    {
        "group": st.none() | st.sampled_from("ab"),
        "x": numbers,
        "d": st.none() | st.sampled_from([Decimal("1.25"), Decimal("-0.50")]),
        "f": st.none() | st.sampled_from([0.5, -1.0]),
        "ok": st.none() | st.booleans(),
    }
)
tables = st.dictionaries(st.integers(0, 4), row_of, max_size=5).map(
    lambda rows: {key: {**row, "id": key} for key, row in rows.items()}
)


def expected(rows, measures, names):
    groups = {}
    for row in rows.values():
        groups.setdefault(row["group"], []).append(row)
    return [
        {"group": group, **{name: work(of) for name, work in zip(names, measures.values(), strict=True)}}
        for group, of in groups.items()
    ]


def by_group(rows):
    return sorted(map(str, rows))


@given(st.lists(tables, max_size=5), st.integers(1, 2))
def test_what_left_is_subtracted_and_what_came_is_added(batches, tasks):
    partials = Partials(("group",), tuple(SUBTRACTED))
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, SubtractingKernel(partials), tasks)
        for table in batches:
            told = play.batch(table)
            assert by_group(play.view) == by_group(expected(table, SUBTRACTED, partials.names()))
            assert len({str({**r, WEIGHT: 0}) for r in told}) == len(told), "no change changes nothing"
        if not play.rows:
            held = BucketState(play.files, "a", 0, play.number + 1, play.sets).table("parts", ("group",))
            assert held.scan().num_rows == 0


@given(st.lists(tables, max_size=5), st.integers(1, 2))
def test_other_aggregates_stay_right_when_their_row_leaves(batches, tasks):
    ordered = any(m.aggregate.needs_order for m in REGROUPED)
    partials = Partials(("group",), tuple(REGROUPED), ordered)
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, RegroupingKernel(partials, ("id",)), tasks)
        for table in batches:
            told = play.batch(table)
            assert by_group(play.view) == by_group(expected(table, REGROUPED, partials.names()))
            assert len({str({**r, WEIGHT: 0}) for r in told}) == len(told), "no change changes nothing"


@given(st.lists(tables, max_size=5))
def test_the_first_rows_let_the_next_one_in_when_one_leaves(batches):
    first = make_top(2, (("id", pa.int64()), ("x", pa.int64())), ((pa.int64(), True, False),), False)
    partials = Partials(("group",), (Measure(first, ("id", "x", "x"), None),), True)
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, RegroupingKernel(partials, ("id",), explode=True))
        for table in batches:
            play.batch(table)
            groups = {}
            for row in sorted(table.values(), key=lambda r: (r["x"] is None, -(r["x"] or 0), r["id"])):
                groups.setdefault(row["group"], []).append(row)
            best = [
                {"group": g, "id": r["id"], "x": r["x"], "rank": n}
                for g, of in groups.items()
                for n, r in enumerate(of[:2], 1)
            ]
            assert by_group(play.view) == by_group(best)


def row(key, x):
    return {key: {"group": "a", "id": key, "x": x, "d": None, "f": None, "ok": None}}


def test_a_sum_may_pass_the_greatest_long_on_the_way_and_not_at_the_end():
    most = 2**63 - 1
    partials = Partials(("group",), (measure("sum", "x"),))
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, SubtractingKernel(partials))
        play.batch(row(1, most) | row(2, -(2**63)))
        assert [r["__ps_result_0"] for r in play.view] == [-1]
        play.batch(row(1, most))
        assert [r["__ps_result_0"] for r in play.view] == [most]
        with pytest.raises(RunError, match="sum overflowed bigint"):
            play.batch(row(1, most) | row(2, 1))
