"""A keyed table against a dictionary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import hashing, keyed
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.keyed import KeyedTable
from penstock.state.manifest import Manifest
from penstock.state.runs import RunFiles

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.int64())])


def rows(*triples: tuple[int | None, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, triple, strict=True)) for triple in triples], schema=SCHEMA)


def keys(*pairs: tuple[int | None, str | None]) -> pa.Table:
    return rows(*((*pair, 0) for pair in pairs)).select(["id", "name"])


def triples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in SCHEMA.names) for row in table.to_pylist()]


@pytest.fixture
def state(tmp_path: Path) -> BucketState:
    return BucketState(RunFiles.at(tmp_path), "step", 3, 0, {})


@pytest.fixture
def table(state: BucketState) -> KeyedTable:
    return state.table("rows", key=("id", "name"), schema=SCHEMA)


def test_the_newest_row_of_a_key_wins(table: KeyedTable) -> None:
    table.put(rows((1, "a", 10), (2, "b", 20)))
    table.put(rows((1, "a", 11)))
    assert triples(table.get(keys((1, "a"), (2, "b"), (3, "c")))) == [(1, "a", 11), (2, "b", 20)]
    assert sorted(triples(table.scan())) == [(1, "a", 11), (2, "b", 20)]


def test_rows_come_in_the_order_of_asking_and_as_often(table: KeyedTable) -> None:
    table.put(rows((1, "a", 10), (2, "b", 20)))
    table.put(rows((3, "c", 30)))
    where, found = table.find(keys((3, "c"), (9, "z"), (1, "a"), (3, "c")))
    assert where.tolist() == [0, 2, 3]
    assert triples(found) == [(3, "c", 30), (1, "a", 10), (3, "c", 30)]


def test_null_is_a_key(table: KeyedTable) -> None:
    table.put(rows((None, "a", 1), (1, None, 2), (None, None, 3)))
    assert triples(table.get(keys((None, None), (1, None)))) == [(None, None, 3), (1, None, 2)]
    table.delete(keys((None, None)))
    assert sorted(triples(table.scan()), key=str) == [(1, None, 2), (None, "a", 1)]


def test_a_deleted_key_is_gone_until_it_is_put_again(state: BucketState, table: KeyedTable) -> None:
    table.put(rows((1, "a", 10), (2, "b", 20)))
    table.delete(keys((1, "a"), (1, "a"), (7, "z")))
    assert triples(table.get(keys((1, "a"), (2, "b")))) == [(2, "b", 20)]
    before = state.sets()
    table.delete(keys((7, "z"), (1, "a")))
    assert state.sets() == before  # nothing to delete, nothing written
    table.put(rows((1, "a", 12)))
    assert triples(table.get(keys((1, "a")))) == [(1, "a", 12)]


def test_floats_meet_across_signs_of_zero_and_nan(state: BucketState) -> None:
    table = state.table("floats", key=["k"])
    table.put(pa.table({"k": [0.0, float("nan")], "v": [1, 2]}))
    table.put(pa.table({"k": [-0.0], "v": [3]}))
    assert table.get(pa.table({"k": [float("nan"), 0.0]})).column("v").to_pylist() == [2, 3]


def test_nested_keys_are_found(state: BucketState) -> None:
    table = state.table("nested", key=["k"])
    table.put(pa.table({"k": [[1.0, float("nan")], [2.0], None], "v": [1, 2, 3]}))
    assert table.get(pa.table({"k": [[1.0, float("nan")], None]})).column("v").to_pylist() == [1, 3]


def test_keys_of_a_narrower_type_are_cast(table: KeyedTable) -> None:
    table.put(rows((1, "a", 10)))
    asked = pa.table({"id": pa.array([1], pa.int32()), "name": pa.array(["a"], pa.large_string())})
    assert triples(table.get(asked)) == [(1, "a", 10)]


def test_a_key_twice_in_one_put_is_refused(state: BucketState, table: KeyedTable) -> None:
    with pytest.raises(ValueError, match=r"same key \(id, name\) more than once"):
        table.put(rows((1, "a", 10), (2, "b", 20), (1, "a", 11)))
    assert state.sets() == {}


def test_an_empty_table_answers_with_the_schema_it_was_given(table: KeyedTable) -> None:
    assert table.get(keys((1, "a"))).schema == SCHEMA
    assert table.scan().schema == SCHEMA
    table.delete(keys((1, "a")))
    table.put(rows())
    assert table.scan().num_rows == 0


def test_tombstones_vanish_when_the_oldest_run_is_merged(state: BucketState, table: KeyedTable) -> None:
    for number in range(200):
        table.put(rows((number, "a", number)))
        table.delete(keys((number, "a")))
    assert table.scan().num_rows == 0
    assert state.rows < 64


def test_three_thousand_small_puts_leave_few_runs(state: BucketState, table: KeyedTable) -> None:
    for number in range(3000):
        table.put(rows((number % 500, "a", number)))
    assert len(state.sets()["rows"]) <= 48
    assert sorted(triples(table.scan())) == [(i, "a", 2500 + i) for i in range(500)]


def play(root: Any, seed: int, steps: int) -> None:
    """A seeded history, with the dictionary beside it."""
    chance = random.Random(seed)
    checkpoint = Checkpoint.open(root)
    epoch = checkpoint.take_epoch()
    truth: dict[tuple[int | None, str | None], int] = {}
    batch = 0
    state = BucketState(checkpoint.files, "step", 0, batch, {})

    def some(most: int) -> list[tuple[int | None, str | None]]:
        ids, names = [None, *range(12)], [None, "", "a", "b"]
        return list({(chance.choice(ids), chance.choice(names)): 0 for _ in range(chance.randrange(most))})

    for step in range(steps):
        table = state.table("rows", key=("id", "name"), schema=SCHEMA)
        action = chance.random()
        if action < 0.5:
            new = [(*key, step) for key in some(chance.choice([2, 4, 30]))]
            table.put(rows(*new))
            truth.update({(number, name): value for number, name, value in new})
        elif action < 0.7:
            gone = some(6)
            table.delete(keys(*gone))
            for key in gone:
                truth.pop(key, None)
        elif action < 0.8:
            checkpoint.commit(Manifest(batch, epoch, {"step": {0: state.sets()}}))
            if chance.random() < 0.3:
                checkpoint.sweep(keep=1)
            latest = checkpoint.latest()
            assert latest is not None
            batch += 1
            state = BucketState(checkpoint.files, "step", 0, batch, latest.steps["step"][0])
        elif action < 0.85:
            expected = sorted(((*key, value) for key, value in truth.items()), key=str)
            assert sorted(triples(table.scan()), key=str) == expected
        asked = some(10)
        table = state.table("rows", key=("id", "name"), schema=SCHEMA)
        assert triples(table.get(keys(*asked))) == [(*key, truth[key]) for key in asked if key in truth]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_a_history_of_operations_equals_a_dictionary(tmp_path_factory: Any, seed: int) -> None:
    play(tmp_path_factory.mktemp("history"), seed, steps=100)


@pytest.mark.parametrize("seed", range(8))
def test_colliding_hashes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def weak(table: pa.Table, columns: Any) -> Any:
        return hashing.hash_rows(table, columns) % np.uint64(5)

    monkeypatch.setattr(keyed, "hash_rows", weak)
    play(tmp_path, seed, steps=120)
