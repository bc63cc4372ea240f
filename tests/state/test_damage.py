"""A file that was flipped, cut or deleted is refused by its name; never a wrong number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.plan.errors import CheckpointError
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

Damage = Callable[[Path], None]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


DAMAGES = [flip, cut, empty, delete]


@pytest.fixture
def committed(checkpoint: Checkpoint) -> Checkpoint:
    state = BucketState(checkpoint.files, "clicks", 5, 0, {})
    state.buffer("rows", time="at_us").add(pa.table({"at_us": list(range(100))}))
    checkpoint.commit(Manifest(0, checkpoint.take_epoch(), {"clicks": {5: state.sets()}}))
    return checkpoint


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read_before", [False, True], ids=["unread", "read before"])
def test_a_damaged_run_is_refused_with_step_bucket_and_file(
    committed: Checkpoint, damage: Damage, read_before: bool
) -> None:
    manifest = committed.read(0)
    (run,) = manifest.runs()
    if read_before:
        committed.files.open(run)
    damage(Path(committed.path) / run.path)
    state = BucketState(committed.files, "clicks", 5, 1, manifest.steps["clicks"][5])
    with pytest.raises(CheckpointError, match=f"step 'clicks', bucket 5, file {run.path} is (damaged|missing)"):
        state.buffer("rows", time="at_us").read(None, None)


@pytest.mark.parametrize("damage", [cut, empty, delete])
def test_the_look_at_the_start_finds_runs_that_are_short_or_gone(committed: Checkpoint, damage: Damage) -> None:
    (run,) = committed.read(0).runs()
    committed.verify()
    damage(Path(committed.path) / run.path)
    with pytest.raises(CheckpointError, match=f"step 'clicks', bucket 5, file {run.path} is (damaged|missing)"):
        committed.verify()


@pytest.mark.parametrize("damage", [flip, cut, empty])
def test_a_damaged_manifest_is_refused_and_no_older_one_takes_its_place(committed: Checkpoint, damage: Damage) -> None:
    committed.commit(Manifest(1, 1, committed.read(0).steps))
    damage(Path(committed.path) / "manifest/1.json")
    with pytest.raises(CheckpointError, match=r"manifest/1.json is damaged"):
        committed.latest()
    with pytest.raises(CheckpointError, match=r"manifest/1.json is damaged"):
        Checkpoint.open(committed.path).sweep()


def test_a_deleted_manifest_is_named(committed: Checkpoint) -> None:
    delete(Path(committed.path) / "manifest/0.json")
    with pytest.raises(CheckpointError, match=r"manifest/0.json is missing"):
        committed.read(0)


def test_a_manifest_under_another_number_is_refused(committed: Checkpoint) -> None:
    folder = Path(committed.path) / "manifest"
    (folder / "0.json").rename(folder / "4.json")
    with pytest.raises(CheckpointError, match=r"manifest/4.json is the manifest of batch 0"):
        committed.latest()


def test_every_single_byte_of_a_manifest_is_protected(committed: Checkpoint) -> None:
    path = Path(committed.path) / "manifest/0.json"
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x01
        with pytest.raises(CheckpointError, match=r"manifest/0.json is damaged"):
            Manifest.from_bytes(bytes(damaged), 0)


def test_every_single_byte_of_a_run_is_protected(committed: Checkpoint) -> None:
    (run,) = committed.read(0).runs()
    path = Path(committed.path) / run.path
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 0x80
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError, match="its checksum is not"):
            committed.files.open(run)


@pytest.mark.parametrize("damage", [flip, cut, empty])
def test_a_damaged_document_is_refused_by_name(committed: Checkpoint, damage: Damage) -> None:
    committed.write_json("job.json", {"steps": ["clicks"]})
    damage(Path(committed.path) / "job.json")
    damage(Path(committed.path) / "checkpoint.json")
    with pytest.raises(CheckpointError, match=r"job.json is damaged"):
        committed.read_json("job.json")
    with pytest.raises(CheckpointError, match=r"checkpoint.json is damaged"):
        Checkpoint.open(committed.path)
