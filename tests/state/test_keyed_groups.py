"""A keyed table whose keys hold several rows, and whose rows expire by time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.state
from penstock.state import hashing, keyed
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.keyed import KeyedTable
from penstock.state.manifest import Manifest
from penstock.state.runs import Run, RunFiles

SCHEMA = pa.schema(
    [("user", pa.int64()), ("at", pa.int64()), ("seq", pa.int32()), ("page", pa.string()), ("v", pa.int64())]
)

Row = dict[str, Any]


def rows(*values: Sequence[Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], schema=SCHEMA)


def users(*numbers: int | None) -> pa.Table:
    return pa.table({"user": pa.array(numbers, pa.int64())})


def values(table: pa.Table) -> list[int]:
    return list(table.column("v").to_pylist())


@pytest.fixture
def state(tmp_path: Path) -> BucketState:
    return BucketState(RunFiles.at(tmp_path), "step", 3, 0, {})


def clicks(state: BucketState) -> KeyedTable:
    """Clicks of a user, told apart by their time, which is also what they expire by."""
    return state.table("rows", ["user"], within=["at"], time="at", schema=SCHEMA)


def visits(state: BucketState) -> KeyedTable:
    """One row for each user and page, whose time may change."""
    return state.table("rows", ["user"], within=["page"], time="at", schema=SCHEMA)


def test_all_rows_of_a_key_are_found_by_the_first_column_of_within(state: BucketState) -> None:
    table = clicks(state)
    table.put(rows((1, 30, 0, "a", 13), (2, 10, 0, "a", 21), (1, 10, 0, "a", 11)))
    table.put(rows((1, 20, 0, "a", 12)))
    where, found = table.find(users(2, 9, 1, 2))
    assert where.tolist() == [0, 2, 2, 2, 3]
    assert values(found) == [21, 11, 12, 13, 21]
    assert values(table.get(users(1))) == [11, 12, 13]


def test_the_newest_row_of_an_identity_wins_and_a_delete_removes_only_it(state: BucketState) -> None:
    table = clicks(state)
    table.put(rows((1, 10, 0, "a", 11), (1, 20, 0, "a", 12)))
    table.put(rows((1, 10, 0, "b", 19), (None, 10, 0, "a", 5)))
    assert values(table.get(users(1, None))) == [19, 12, 5]
    table.delete(rows((1, 10, 0, "any", 0), (1, 11, 0, "a", 0), (1, 10, 0, "any", 0)).select(["at", "user"]))
    assert values(table.get(users(1, None))) == [12, 5]
    before = state.sets()
    table.delete(rows((1, 10, 0, "any", 0)))
    assert state.sets() == before


def test_an_identity_twice_in_one_put_is_refused(state: BucketState) -> None:
    with pytest.raises(ValueError, match=r"same key \(user, at\) more than once"):
        clicks(state).put(rows((1, 10, 0, "a", 1), (1, 20, 0, "a", 2), (1, 10, 1, "b", 3)))
    assert state.sets() == {}


def test_null_in_within_is_a_value_and_not_the_smallest_number(state: BucketState) -> None:
    table = state.table("rows", ["user"], within=["at", "page"])
    least = -(2**63)
    table.put(rows((1, least, 0, "a", 1), (1, None, 0, "a", 2), (1, None, 0, None, 3), (1, 0, 0, "a", 4)))
    table.put(rows((1, None, 0, "a", 5)))
    table.delete(rows((1, least, 0, "a", 0)))
    assert sorted(values(table.get(users(1)))) == [3, 4, 5]


def test_an_empty_key_holds_all_rows(state: BucketState) -> None:
    table = state.table("rows", (), within=["at"], time="at", schema=SCHEMA)
    assert values(table.scan()) == []
    table.put(rows((1, 30, 0, "a", 3), (2, 10, 0, "a", 1)))
    table.put(rows((3, 20, 0, "a", 2), (2, 10, 0, "a", 7)))
    assert values(table.scan()) == [7, 2, 3]
    where, found = table.find(users(5, 6))
    assert (where.tolist(), values(found)) == ([0, 0, 0], [7, 2, 3])
    table.delete(rows((0, 20, 0, "", 0)).select(["at"]))
    table.drop_before(11)
    assert values(table.scan()) == [3]


def test_rows_before_the_bound_are_gone_for_find_scan_and_delete(state: BucketState) -> None:
    table = clicks(state)
    table.put(rows((1, 10, 0, "a", 11), (1, 20, 0, "a", 12), (2, 10, 0, "a", 21)))
    table.drop_before(20)
    assert values(table.get(users(1, 2))) == [12]
    assert values(table.scan()) == [12]
    before = state.sets()
    table.delete(rows((1, 10, 0, "a", 0)))
    table.drop_before(15)
    assert state.sets() == before
    table.put(rows((2, 10, 0, "a", 22)))  # what is put after the drop has not been dropped
    assert values(table.get(users(1, 2))) == [12, 22]


def test_a_run_that_is_passed_leaves_without_being_opened(
    state: BucketState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = clicks(state)
    table.put(rows((1, 50, 0, "a", 1)))
    table.put(rows((1, 10, 0, "a", 2), (2, 20, 0, "a", 3)))
    table.put(rows((1, 60, 0, "a", 4)))
    again = BucketState(RunFiles.at(tmp_path), "step", 3, 1, state.sets())
    opened: list[Run] = []
    monkeypatch.setattr(RunFiles, "open", lambda _, run: opened.append(run))
    clicks(again).drop_before(21)
    assert not opened
    assert [run.time_low for run in again.sets()["rows"]] == [50, 60]
    clicks(again).drop_before(2**70)
    assert again.sets() == {}


def test_an_expired_row_does_not_bring_an_older_one_back(state: BucketState) -> None:
    table = visits(state)
    table.put(rows((1, 100, 0, "a", 1), (1, 100, 0, "b", 2)))
    table.put(rows((1, 10, 0, "a", 3)))
    table.drop_before(50)
    assert values(table.get(users(1))) == [2]
    assert values(table.scan()) == [2]
    assert len(state.sets()["rows"]) == 2  # the passed run still hides a row of the older one
    table.put(rows(*((9, 100, 0, str(number), number) for number in range(100, 300))))
    for number in range(9):
        table.put(rows((7, 60, 0, str(number), number)))  # merges of the newer runs alone
    assert values(table.get(users(1))) == [2]
    table.drop_before(101)
    assert state.sets() == {}


def test_a_row_that_moves_to_a_later_time_outlives_its_old_one(state: BucketState) -> None:
    table = visits(state)
    table.put(rows((1, 10, 0, "a", 1)))
    table.put(rows((1, 90, 0, "a", 2)))
    table.drop_before(50)
    assert values(table.scan()) == [2]
    assert len(state.sets()["rows"]) == 1


def test_a_deleted_row_leaves_together_with_what_says_so(state: BucketState) -> None:
    table = clicks(state)
    table.put(rows((1, 10, 0, "a", 1), (1, 90, 0, "a", 2)))
    table.delete(rows((1, 10, 0, "a", 0)))
    table.drop_before(11)
    assert [(run.rows, run.live_from) for run in state.sets()["rows"]] == [(2, 11)]
    assert values(table.scan()) == [2]


def test_merges_leave_expired_rows_behind(state: BucketState) -> None:
    table = clicks(state)
    for number in range(500):
        table.put(rows((number % 7, number, 0, "a", number)))
        table.drop_before(number - 20)
    assert sorted(values(table.scan())) == list(range(479, 500))
    assert state.rows < 64


def test_the_first_time_is_known_from_the_manifest_alone(state: BucketState, tmp_path: Path) -> None:
    table = clicks(state)
    assert table.first_us is None
    table.put(rows((1, 10, 0, "a", 1), (1, 90, 0, "a", 2)))
    table.put(rows((1, 30, 0, "a", 1)))
    assert table.first_us == 10
    table.drop_before(20)
    assert table.first_us == 20
    moved = clicks(BucketState(RunFiles.at(tmp_path / "not there"), "step", 3, 1, state.sets()))
    assert moved.first_us == 20
    moved.drop_before(95)
    assert moved.first_us is None


def test_time_must_be_a_number_that_is_there(state: BucketState) -> None:
    with pytest.raises(ValueError, match="time 'at' is int64 with 1 nulls"):
        clicks(state).put(rows((1, None, 0, "a", 1)))
    with pytest.raises(ValueError, match="time 'page' is string"):
        state.table("rows", ["user"], time="page").put(rows((1, 1, 0, "a", 1)))
    assert state.sets() == {}
    state.table("rows", ["user"]).put(rows((1, 1, 0, "a", 1)))
    with pytest.raises(ValueError, match=r"bucket 3, .* was written without a time"):
        clicks(state).drop_before(3)


def test_a_run_without_time_is_written_as_it_always_was() -> None:
    run = Run("state/a/0/0-ab.arrow", 1, 0, 1, 1, 1, 1, 1)
    assert list(run.to_json()) == ["path", "rows", "first", "low", "high", "live_low", "bytes", "crc32"]
    assert Run.from_json(run.to_json()) == run


@dataclass(frozen=True)
class Shape:
    """What a table is made of; ``at`` is its time."""

    key: tuple[str, ...]
    within: tuple[str, ...]

    def table(self, state: BucketState) -> KeyedTable:
        return state.table("rows", self.key, within=self.within, time="at", schema=SCHEMA)

    def identity(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in (*self.key, *self.within))

    def order(self, row: Row) -> float:
        """Rows of a key rise by this, if the first column of within is an integer."""
        first = row[self.within[0]] if self.within and self.within[0] != "page" else 0
        return -math.inf if first is None else first


SHAPES = {
    "one row a key": Shape(("user", "page"), ()),
    "one key for all": Shape((), ("at", "seq")),
    "one row for all": Shape((), ()),
    "rows of a key by time": Shape(("user",), ("at",)),
    "rows of a key by time and number": Shape(("page",), ("at", "seq")),
    "rows of a key by number": Shape(("user",), ("seq",)),
    "rows of a key by number and text": Shape(("user",), ("seq", "page")),
    "rows of a key by text": Shape(("user",), ("page",)),
    "rows of two columns by number": Shape(("user", "page"), ("seq",)),
    "time in the key": Shape(("at", "user"), ("page", "seq")),
}


class History:
    """A seeded history of a table, with the dictionary beside it."""

    def __init__(self, root: Any, shape: Shape, seed: int) -> None:
        self.chance = random.Random(seed)
        self.shape = shape
        self.checkpoint = Checkpoint.open(root)
        self.epoch = self.checkpoint.take_epoch()
        self.truth: dict[tuple[Any, ...], Row] = {}
        self.clock = 0
        self.batch = 0
        self.state = BucketState(self.checkpoint.files, "step", 0, 0, {})

    def some(self, most: int) -> list[Row]:
        """Random rows, each identity once; their times lie around the clock."""
        made = {}
        for _ in range(self.chance.randrange(most)):
            row = {
                "user": self.chance.choice([None, *range(5)]),
                "at": self.clock + self.chance.choice([-20, -1, 0, 0, 1, 2, 5, 40]),
                "seq": self.chance.choice([None, *range(3)]),
                "page": self.chance.choice([None, "", "a", "b" * 300]),
                "v": self.chance.randrange(10**6),
            }
            made[self.shape.identity(row)] = row
        return list(made.values())

    def known(self, many: int) -> list[Row]:
        """Rows that are in the table, some of them twice."""
        return self.chance.choices(list(self.truth.values()), k=many) if self.truth else []

    def play(self, steps: int) -> None:
        for _ in range(steps):
            table = self.shape.table(self.state)
            action = self.chance.random()
            if action < 0.5:
                new = self.some(self.chance.choice([2, 4, 40]))
                table.put(self.arrow(new))
                self.truth.update({self.shape.identity(row): row for row in new})
            elif action < 0.7:
                gone = [*self.some(4), *self.known(3)]
                table.delete(self.arrow(gone).select([*self.shape.key, *self.shape.within] or ["v"]))
                for row in gone:
                    self.truth.pop(self.shape.identity(row), None)
            elif action < 0.8:
                self.clock += self.chance.choice([0, 1, 3, 30])
                bound = self.clock - self.chance.choice([0, 5])
                table.drop_before(bound)
                self.truth = {identity: row for identity, row in self.truth.items() if row["at"] >= bound}
            elif action < 0.87:
                self.commit()
            self.check_find()
            if action > 0.8:
                self.check_scan()

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=SCHEMA)

    def commit(self) -> None:
        self.checkpoint.commit(Manifest(self.batch, self.epoch, {"step": {0: self.state.sets()}}))
        self.checkpoint.sweep(keep=1)
        latest = self.checkpoint.latest()
        assert latest is not None
        self.batch += 1
        self.state = BucketState(self.checkpoint.files, "step", 0, self.batch, latest.steps["step"][0])
        seen = penstock.state.open(self.checkpoint.path)["step"]
        assert self.sorted(seen.drop_columns(["bucket"]).to_pylist()) == self.sorted(self.truth.values())

    def check_find(self) -> None:
        table = self.shape.table(self.state)
        asked = [*self.some(8), *self.known(2)]
        where, found = table.find(self.arrow(asked))
        assert (np.diff(where) >= 0).all()
        assert found.schema == SCHEMA
        answers: list[list[Row]] = [[] for _ in asked]
        for position, row in zip(where.tolist(), found.to_pylist(), strict=True):
            answers[position].append(row)
        for number, (row, answer) in enumerate(zip(asked, answers, strict=True)):
            same = [one for one in self.truth.values() if all(one[name] == row[name] for name in self.shape.key)]
            expected = same if self.shape.key or number == 0 else []
            assert self.sorted(answer) == self.sorted(expected)
            marks = [self.shape.order(one) for one in answer]
            assert marks == sorted(marks)

    def check_scan(self) -> None:
        table = self.shape.table(self.state)
        assert self.sorted(table.scan().to_pylist()) == self.sorted(self.truth.values())
        first = table.first_us
        assert all(first is not None and first <= row["at"] for row in self.truth.values())

    def sorted(self, some: Iterable[Row]) -> list[Row]:
        return sorted(some, key=str)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_history_of_operations_equals_a_dictionary(tmp_path_factory: Any, shape: Shape, seed: int) -> None:
    History(tmp_path_factory.mktemp("history"), shape, seed).play(60)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_colliding_hashes_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape, seed: int
) -> None:
    def weak(table: pa.Table, columns: Any) -> Any:
        return hashing.hash_rows(table, columns) % np.uint64(1 + 2 * seed)

    monkeypatch.setattr(keyed, "hash_rows", weak)
    History(tmp_path, shape, seed).play(60)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_many_small_runs_are_merged_and_equal_a_dictionary(tmp_path: Path, shape: Shape) -> None:
    history = History(tmp_path, shape, seed=1)
    for _ in range(200):
        table = shape.table(history.state)
        new = history.some(4)
        table.put(history.arrow(new))
        history.truth.update({shape.identity(row): row for row in new})
        history.clock += history.chance.choice([0, 0, 1])
        table.drop_before(history.clock - 15)
        history.truth = {identity: row for identity, row in history.truth.items() if row["at"] >= history.clock - 15}
    history.check_find()
    history.check_scan()
    assert len(history.state.sets()["rows"]) <= 40
