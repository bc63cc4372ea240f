"""A time buffer against a list of rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.bucket import BucketState
from penstock.state.buffer import TimeBuffer
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.runs import RunFiles


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table(
        {
            "at_us": pa.array([at for at, _ in pairs], pa.int64()),
            "name": pa.array([name for _, name in pairs]),
        }
    )


def pairs(table: pa.Table | None) -> list[tuple[int, str]]:
    return [] if table is None else [(row["at_us"], row["name"]) for row in table.to_pylist()]


@pytest.fixture
def state(tmp_path: Path) -> BucketState:
    return BucketState(RunFiles.at(tmp_path), "step", 3, 0, {})


@pytest.fixture
def buffer(state: BucketState) -> TimeBuffer:
    return state.buffer("rows", time="at_us")


def test_a_range_takes_in_its_low_bound_and_not_its_high_one(buffer: TimeBuffer) -> None:
    buffer.add(rows((10, "a"), (20, "b"), (30, "c")))
    assert pairs(buffer.read(10, 30)) == [(10, "a"), (20, "b")]
    assert pairs(buffer.read(None, 20)) == [(10, "a")]
    assert pairs(buffer.read(20, None)) == [(20, "b"), (30, "c")]
    assert buffer.read(21, 30) is None
    assert pairs(buffer.read(-(2**70), 2**70)) == [(10, "a"), (20, "b"), (30, "c")]


def test_rows_come_run_by_run_and_equal_times_keep_their_order(buffer: TimeBuffer) -> None:
    buffer.add(rows((20, "a"), (10, "b"), (20, "c"), (10, "d")))
    buffer.add(rows((15, "e")))
    assert pairs(buffer.read(None, None)) == [(10, "b"), (10, "d"), (20, "a"), (20, "c"), (15, "e")]


def test_a_run_that_time_has_passed_leaves_and_one_half_passed_moves_its_cursor(
    state: BucketState, buffer: TimeBuffer
) -> None:
    buffer.add(rows((1, "a"), (2, "b")))
    buffer.add(rows((2, "c"), (9, "d")))
    buffer.drop_before(3)
    (left,) = state.sets()["rows"]
    assert (left.rows, left.first, left.low, left.live_low, left.high) == (2, 1, 2, 9, 9)
    assert buffer.first_us == 9
    assert pairs(buffer.read(None, None)) == [(9, "d")]
    assert state.rows == 1


def test_first_us_opens_no_file(state: BucketState, buffer: TimeBuffer, tmp_path: Path) -> None:
    buffer.add(rows((5, "a"), (7, "b")))
    buffer.drop_before(6)
    for run in state.sets()["rows"]:
        (tmp_path / run.path).unlink()
    again = BucketState(RunFiles.at(tmp_path), "step", 3, 1, state.sets())
    assert again.buffer("rows", time="at_us").first_us == 7


def test_an_empty_buffer_has_nothing_and_an_empty_table_adds_nothing(state: BucketState, buffer: TimeBuffer) -> None:
    buffer.add(rows())
    buffer.drop_before(5)
    assert buffer.first_us is None
    assert buffer.read(None, None) is None
    assert state.sets() == {}
    assert (state.rows, state.bytes) == (0, 0)


def test_a_time_that_is_null_or_no_integer_is_refused(buffer: TimeBuffer) -> None:
    with pytest.raises(ValueError, match="'at_us' is int64 with 1 nulls"):
        buffer.add(pa.table({"at_us": pa.array([1, None])}))
    with pytest.raises(ValueError, match="'at_us' is double"):
        buffer.add(pa.table({"at_us": [1.5]}))


def test_a_set_has_one_order(state: BucketState, buffer: TimeBuffer) -> None:
    with pytest.raises(ValueError, match="sorted by 'at_us'"):
        state.table("rows", key=["name"])


def test_partial_aggregates_are_combined_when_runs_merge(state: BucketState, buffer: TimeBuffer) -> None:
    def total(table: pa.Table) -> pa.Table:
        summed = table.group_by(["slice_us"], use_threads=False).aggregate([("n", "sum")])
        return summed.rename_columns(["slice_us", "n"])

    counts = state.buffer("counts", time="slice_us")
    for at in range(64):
        counts.add(pa.table({"slice_us": [at % 2 * 10], "n": [1]}))
        counts.merge_small(total)
    found = counts.read(None, None)
    assert pc.sum(found.column("n")).as_py() == 64
    assert found.num_rows < 10


def test_three_thousand_small_adds_leave_few_runs(state: BucketState, buffer: TimeBuffer) -> None:
    most = 0
    for at in range(3000):
        buffer.add(rows((at, "a"), (at + 3, "b")))
        buffer.merge_small()
        most = max(most, len(state.sets()["rows"]))
    assert most <= 48
    assert state.rows == 6000
    names = [name for _, name in pairs(buffer.read(100, 103))]
    assert sorted(names) == ["a", "a", "a", "b", "b", "b"]


class Naive:
    """The buffer as a list of adds, each a list of rows in order of arrival."""

    def __init__(self) -> None:
        self.adds: list[list[tuple[int, str]]] = []

    def read(self, low: int, high: int) -> list[tuple[int, str]]:
        return sorted((row for one in self.adds for row in one if low <= row[0] < high), key=lambda row: row[0])

    def drop_before(self, us: int) -> None:
        self.adds = [[row for row in one if row[0] >= us] for one in self.adds]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_a_history_of_operations_equals_a_list(tmp_path_factory: Any, seed: int) -> None:
    chance = random.Random(seed)
    checkpoint = Checkpoint.open(tmp_path_factory.mktemp("history"))
    epoch = checkpoint.take_epoch()
    naive, sets, batch, clock, serial = Naive(), {}, 0, 0, 0
    state = BucketState(checkpoint.files, "step", 0, batch, sets)
    for _ in range(150):
        buffer = state.buffer("rows", time="at_us")
        action = chance.random()
        if action < 0.45:
            new = []
            for _ in range(chance.choice([0, 1, 1, 3, 40])):
                new.append((clock + chance.randrange(30), str(serial)))
                serial += 1
            naive.adds.append(new)
            buffer.add(rows(*new))
        elif action < 0.6:
            clock += chance.randrange(8)
            naive.drop_before(clock)
            buffer.drop_before(clock)
        elif action < 0.8:
            buffer.merge_small()
        elif action < 0.9:
            checkpoint.commit(Manifest(batch, epoch, {"step": {0: state.sets()}}))
            if chance.random() < 0.3:
                checkpoint.sweep(keep=1)
            latest = checkpoint.latest()
            assert latest is not None
            batch += 1
            state = BucketState(checkpoint.files, "step", 0, batch, latest.steps["step"][0])
        low = clock + chance.randrange(-5, 30)
        high = low + chance.randrange(20)
        # a stable sort by time makes the order of arrival visible, which merges must keep
        found = state.buffer("rows", time="at_us").read(low, high)
        assert sorted(pairs(found), key=lambda row: row[0]) == naive.read(low, high)
        everything = naive.read(-1, 2**60)
        assert state.buffer("rows", time="at_us").first_us == (everything[0][0] if everything else None)
        assert state.rows == len(everything)
