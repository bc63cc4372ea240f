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
from penstock.state.reader import Size


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
    with pytest.raises(CheckpointError, match="batch 0 was swept; kept are the batches 29 to 29"):
        pinned["visits"]
    with pytest.raises(CheckpointError, match="batch 3 is not kept; kept are the batches 29 to 29"):
        penstock.state.open(checkpoint.path, batch=3)


def test_keys_and_several_sets_are_of_one_version_too(checkpoint: Checkpoint, epoch: int) -> None:
    state, other = penstock.state.open(checkpoint.path), penstock.state.open(checkpoint.path)
    commit(checkpoint, 1, epoch)
    assert state.find("visits", {"user": "user11"})["batch"].to_pylist() == [0]
    for batch in range(2, 30):
        commit(checkpoint, batch, epoch)
    checkpoint.sweep(keep=1)
    assert state.find("visits", {"user": ["user11", "nobody", "user02"]}).to_pylist() == [
        {"bucket": 1, "user": "user11", "batch": 29},
        {"bucket": 0, "user": "user02", "batch": 29},
    ]
    assert {name: rows["at_us"].to_pylist() for name, rows in other.tables("shop").items()} == {
        "clicks": [2],
        "orders": [7],
    }
    assert (state.batch, other.batch) == (29, 29)


def test_a_version_that_goes_while_its_buckets_are_read_is_begun_anew(checkpoint: Checkpoint, epoch: int) -> None:
    state, seen = penstock.state.open(checkpoint.path), []

    def work(rows: pa.Table) -> int:
        seen.append(rows["batch"][0].as_py())
        if len(seen) == 1:  # between the first bucket and the second
            for batch in range(1, 30):
                commit(checkpoint, batch, epoch)
            checkpoint.sweep(keep=1)
        return rows.num_rows

    assert state.each("visits", work) == [2, 2]
    assert seen == [0, 29, 29]


def test_the_sizes_and_columns_of_sets(checkpoint: Checkpoint, epoch: int) -> None:
    state = penstock.state.open(checkpoint.path)
    files = [run for run in checkpoint.read(0).runs() if "/visits/" in run.path]
    assert state.sets("visits") == {"rows": Size(sum(r.live for r in files), sum(r.bytes for r in files), len(files))}
    assert state.schema("visits") == pa.schema([("user", pa.string()), ("batch", pa.int64())])
    assert list(state.sets("shop")) == ["clicks", "orders"]
    with pytest.raises(CheckpointError, match="no state of step 'nothing'"):
        state.sets("nothing")


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
