"""Killed between any two writes: the state is that before the batch or that after it, never between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.plan.errors import CheckpointError
from penstock.state import store as store_module
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.rewrite import Held, Rewrite, Split, rewritten

MERGES = (7, 9)  # batches that leave fewer runs: the first merges buffers, the second tables

Content = dict[int, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


class DyingOs:
    """The ``os`` module of a process that is killed at its n-th change; a killed write leaves half.

    All writes to one file count as one change: wherever it is cut, it is a torn file.
    """

    CHANGES = ("open", "write", "link", "replace", "unlink", "mkdir")

    def __init__(self, dies_at: int | None) -> None:
        self._dies_at = dies_at
        self._last: tuple[str, Any] | None = None
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CHANGES:
            return real

        def change(*arguments: Any, **options: Any) -> Any:
            this = (name, arguments[0])
            if name != "write" or this != self._last:
                self.changes += 1
            first_cut, self._last = this != self._last, this
            if self._dies_at is not None and self.changes >= self._dies_at:
                if name == "write" and self.changes == self._dies_at and first_cut:
                    os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Killed
            return real(*arguments, **options)

        return change


def work(checkpoint: Checkpoint, batch: int, epoch: int) -> None:
    """A batch over two buckets, each with a table and a buffer."""
    latest = checkpoint.latest()
    before = latest.steps["step"] if latest else {}
    after = {}
    for bucket in (0, 1):
        state = BucketState(checkpoint.files, "step", bucket, batch, before.get(bucket, {}))
        table = state.table("table", key=["k"])
        table.put(pa.table({"k": [batch % 4, 10 + bucket], "v": [batch, batch * 10]}))
        table.delete(pa.table({"k": [(batch + 1) % 4]}))
        buffer = state.buffer("buffer", time="at_us")
        buffer.add(pa.table({"at_us": [batch + 2, batch, batch + 1]}))
        buffer.drop_before(batch - 9)
        buffer.merge_small()
        after[bucket] = state.sets()
    checkpoint.commit(Manifest(batch, epoch, {"step": after}, {"batch": batch}))
    checkpoint.sweep(keep=2)


def content(checkpoint: Checkpoint) -> Content:
    """All rows of the newest version."""
    found: Content = {}
    latest = checkpoint.latest()
    for bucket, sets in (latest.steps["step"] if latest else {}).items():
        state = BucketState(checkpoint.files, "step", bucket, 10**6, sets)
        rows = state.table("table", key=["k"]).scan().to_pylist()
        times = state.buffer("buffer", time="at_us").read(None, None)
        found[bucket] = (
            sorted(tuple(row.values()) for row in rows),
            sorted(tuple(row.values()) for row in (times.to_pylist() if times is not None else [])),
        )
    return found


def number_of_runs(checkpoint: Checkpoint) -> int:
    latest = checkpoint.latest()
    return len(list(latest.runs())) if latest else 0


def killed(action: Callable[[], object], dies_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Act in a process that is killed at a change."""
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "os", DyingOs(dies_at))
        with pytest.raises(Killed):
            action()


# batch 0 makes every folder, the others merge runs and sweep versions
@pytest.mark.parametrize("batch", [0, *MERGES])
def test_a_batch_killed_at_any_write_is_there_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    calm = Checkpoint.open(tmp_path / "calm")
    epoch = calm.take_epoch()
    for earlier in range(batch):
        work(calm, earlier, epoch)
    shutil.copytree(calm.path, tmp_path / "before")
    before, runs_before = content(calm), number_of_runs(calm)
    alive = DyingOs(None)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "os", alive)
        work(calm, batch, epoch)
    after = content(calm)
    assert before != after
    assert (number_of_runs(calm) < runs_before) == (batch in MERGES)
    assert alive.changes >= 12  # at the least four runs and a manifest
    outcomes = []
    for dies_at in range(1, alive.changes + 1):
        root = shutil.copytree(tmp_path / "before", tmp_path / f"killed-{dies_at}")
        killed(partial(work, Checkpoint.open(root), batch, epoch), dies_at, monkeypatch)
        again = Checkpoint.open(root)
        again.verify()
        for version in again.batches():
            assert all(Path(root, run.path).exists() for run in again.read(version).runs())
        committed = batch in again.batches()
        assert content(again) == (after if committed else before), f"killed at write {dies_at}"
        outcomes.append(committed)
        again.sweep_orphans()
        if not committed:
            work(again, batch, again.take_epoch())
        again.sweep(keep=2)
        again.verify()
        assert content(again) == after, f"run again after a kill at write {dies_at}"
        kept = {run.path for one in again.batches() for run in again.read(one).runs()}
        files = {str(path.relative_to(again.path)) for path in Path(again.path, "state").rglob("*.arrow")}
        assert files == kept
        assert not list(Path(again.path).rglob(".aside-*"))
    assert outcomes == sorted(outcomes)  # one moment decides
    assert {False, True} == set(outcomes)


def test_a_start_killed_at_any_write_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(root: Path) -> None:
        checkpoint = Checkpoint.open(root)
        checkpoint.take_epoch()
        checkpoint.write_json("job.json", {"steps": []})
        checkpoint.write_json("job.json", {"steps": ["step"]})

    alive = DyingOs(None)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "os", alive)
        start(tmp_path / "calm")
    for dies_at in range(1, alive.changes + 1):
        root = tmp_path / str(dies_at)
        killed(partial(start, root), dies_at, monkeypatch)
        again = Checkpoint.open(root)
        assert again.read_json("job.json") in (None, {"steps": []}, {"steps": ["step"]})
        again.sweep_orphans()
        start(root)
        assert Checkpoint.open(root).id == again.id
        assert not list(root.rglob(".aside-*"))


def test_a_full_disk_is_an_error_by_name_and_leaves_no_half_run(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(DyingOs):
        def __getattr__(self, name: str) -> Any:
            if name != "write":
                return getattr(os, name)

            def full(*_: Any) -> int:
                raise OSError(28, "No space left on device")

            return full

    monkeypatch.setattr(store_module, "os", FullDisk(None))
    with pytest.raises(CheckpointError, match=r"step 'step', bucket 2, file .*No space left"):
        checkpoint.files.write("step", 2, 0, pa.table({"at_us": [1]}), "at_us")
    assert not list(Path(checkpoint.path).rglob("*.arrow"))
    with pytest.raises(CheckpointError, match=r"checkpoint .*: cannot write job\.json: No space left"):
        checkpoint.write_json("job.json", {})
    assert not list(Path(checkpoint.path).rglob(".aside-*"))


def hashes(keys: pa.Table) -> Any:
    """Any number that follows from the key alone."""
    return keys["k"].to_numpy() * 7


def split_anew(checkpoint: Checkpoint, epoch: int) -> None:
    """The state of three buckets in five, as the first batch of a run with more of them commits it."""
    latest = checkpoint.latest()
    assert latest is not None
    split = Split(("k",), 3, 5, hashes)
    held = rewritten(checkpoint.files, "step", latest.batch + 1, Held(latest.steps["step"]), Rewrite(), split)
    checkpoint.commit(Manifest(latest.batch + 1, epoch, {"step": held.sets}, {"buckets": 5}))


def test_a_split_into_other_buckets_killed_at_any_write_is_there_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = Checkpoint.open(tmp_path / "calm")
    rows = pa.table({"k": list(range(12)), "v": list(range(12))})
    sets = {}
    for bucket in range(3):
        state = BucketState(calm.files, "step", bucket, 0, {})
        state.table("table", key=["k"]).put(rows.filter(pa.array(hashes(rows) % 3 == bucket)))
        sets[bucket] = state.sets()
    calm.commit(Manifest(0, calm.take_epoch(), {"step": sets}, {"buckets": 3}))

    def seen(checkpoint: Checkpoint) -> tuple[int, dict[int, list[int]]]:
        latest = checkpoint.latest()
        assert latest is not None
        states = {b: BucketState(checkpoint.files, "step", b, 9, sets) for b, sets in latest.steps["step"].items()}
        keys = {b: sorted(s.table("table", key=["k"]).scan()["k"].to_pylist()) for b, s in states.items()}
        return latest.body["buckets"], keys

    shutil.copytree(calm.path, tmp_path / "alive")
    alive = DyingOs(None)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "os", alive)
        split_anew(Checkpoint.open(tmp_path / "alive"), 1)
    after = 5, {b: [k for k in range(12) if k * 7 % 5 == b] for b in range(5)}
    assert seen(Checkpoint.open(tmp_path / "alive")) == after
    outcomes = []
    for dies_at in range(1, alive.changes + 1):
        root = shutil.copytree(calm.path, tmp_path / f"killed-{dies_at}")
        killed(partial(split_anew, Checkpoint.open(root), 1), dies_at, monkeypatch)
        again = Checkpoint.open(root)
        again.verify()
        outcomes.append(seen(again)[0])
        assert seen(again) == (after if outcomes[-1] == 5 else seen(calm)), f"killed at write {dies_at}"
        with again.lock():
            again.sweep_orphans()
        if outcomes[-1] == 3:
            split_anew(again, again.take_epoch())
        assert seen(again) == after
        kept = {run.path for one in again.batches() for run in again.read(one).runs()}
        assert {str(path.relative_to(again.path)) for path in Path(again.path, "state").rglob("*.arrow")} == kept
    assert outcomes == sorted(outcomes)
    assert {3, 5} == set(outcomes)
