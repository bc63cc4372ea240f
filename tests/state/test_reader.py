"""A person, or another job, looks into the state while the job runs."""

from __future__ import annotations

import ast
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import penstock.state
from penstock.plan.errors import CheckpointError
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest


def commit(checkpoint: Checkpoint, batch: int, epoch: int) -> None:
    """Two buckets of visits; all rows of a version carry its batch. One step has two sets."""
    steps: dict[str, dict[int, dict[str, tuple[penstock.state.runs.Run, ...]]]] = {"visits": {}, "shop": {}}
    latest = checkpoint.latest()
    for bucket in (0, 1):
        before = latest.steps["visits"][bucket] if latest else {}
        state = BucketState(checkpoint.files, "visits", bucket, batch, before)
        users = [f"user{bucket}{number}" for number in range(3)]
        state.table("rows", key=["user"]).put(pa.table({"user": users, "batch": [batch] * 3}))
        state.table("rows", key=["user"]).delete(pa.table({"user": users[:1]}))
        steps["visits"][bucket] = dict(state.sets())
    shop = BucketState(checkpoint.files, "shop", 1, batch, {})
    shop.buffer("clicks", time="at_us").add(pa.table({"at_us": [1, 2]}))
    shop.buffer("clicks", time="at_us").drop_before(2)
    shop.buffer("orders", time="at_us").add(pa.table({"at_us": [7]}))
    steps["shop"][1] = dict(shop.sets())
    checkpoint.commit(Manifest(batch, epoch, steps))


@pytest.fixture
def epoch(checkpoint: Checkpoint) -> int:
    epoch = checkpoint.take_epoch()
    commit(checkpoint, 0, epoch)
    return epoch


def test_a_step_is_a_table_of_its_live_rows_with_their_bucket(checkpoint: Checkpoint, epoch: int) -> None:
    commit(checkpoint, 1, epoch)
    state = penstock.state.open(checkpoint.path)
    assert (state.batch, state.batches, state.steps) == (1, [0, 1], ["visits", "shop"])
    table = state["visits"]
    assert table.column_names == ["bucket", "user", "batch"]
    assert sorted(table.column("user").to_pylist()) == ["user01", "user02", "user11", "user12"]
    assert set(table.column("batch").to_pylist()) == {1}
    old = penstock.state.open(checkpoint.path, batch=0)
    assert set(old["visits"].column("batch").to_pylist()) == {0}


def test_duckdb_asks_the_table(checkpoint: Checkpoint, epoch: int) -> None:
    visits = penstock.state.open(checkpoint.path)["visits"]
    with duckdb.connect() as connection:
        connection.register("visits", visits)
        found = connection.execute("select bucket, count(*), max(user) from visits group by all order by all")
        assert found.fetchall() == [(0, 2, "user02"), (1, 2, "user12")]


def test_a_step_with_several_sets_is_asked_by_name(checkpoint: Checkpoint, epoch: int) -> None:
    state = penstock.state.open(checkpoint.path)
    assert state.table("shop", "clicks").to_pylist() == [{"bucket": 1, "at_us": 2}]
    assert state.table("shop", name="orders").to_pylist() == [{"bucket": 1, "at_us": 7}]
    with pytest.raises(CheckpointError, match="has the sets clicks, orders; ask for table"):
        state["shop"]
    with pytest.raises(CheckpointError, match="no set 'refunds'; it has clicks, orders"):
        state.table("shop", "refunds")
    with pytest.raises(CheckpointError, match="no state of step 'nothing'"):
        state["nothing"]


def test_a_reader_overtaken_by_a_sweep_goes_over_to_the_newest_version(checkpoint: Checkpoint, epoch: int) -> None:
    newest, pinned = penstock.state.open(checkpoint.path), penstock.state.open(checkpoint.path, batch=0)
    for batch in range(1, 30):
        commit(checkpoint, batch, epoch)
    checkpoint.sweep(keep=1)
    assert set(newest["visits"].column("batch").to_pylist()) == {29}
    assert newest.batch == 29
    with pytest.raises(CheckpointError, match="is missing"):
        pinned["visits"]


def test_a_missing_run_of_a_kept_version_is_damage(checkpoint: Checkpoint, epoch: int) -> None:
    state = penstock.state.open(checkpoint.path)
    for run in checkpoint.read(0).runs():
        (Path(checkpoint.path) / run.path).unlink()
    with pytest.raises(CheckpointError, match=r"step 'visits', bucket 0, file .* is missing"):
        state["visits"]


def test_there_is_nothing_to_see_before_the_first_commit(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no batch was committed"):
        penstock.state.open(checkpoint.path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        penstock.state.open(tmp_path / "nowhere")


def test_the_state_package_does_not_import_spark() -> None:
    for path in Path(penstock.state.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "pyspark" for name in names), path.name
