"""Versions that are committed once, runs of a job that fence each other, and what a sweep may take."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.plan.errors import CheckpointError, CheckpointInUseError, FencedError
from penstock.state import lock
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.lock import held_by
from penstock.state.manifest import Manifest
from penstock.state.runs import Run


def commit(checkpoint: Checkpoint, batch: int, epoch: int, replace: bool = False) -> Manifest:
    """A batch that adds one row to the step's buffer, or puts it in place of all rows."""
    latest = checkpoint.latest()
    sets = latest.steps["step"][0] if latest and not replace else {}
    state = BucketState(checkpoint.files, "step", 0, batch, sets)
    state.buffer("rows", time="at_us").add(pa.table({"at_us": [batch]}))
    manifest = Manifest(batch, epoch, {"step": {0: state.sets()}}, {"clock": {"clicks": batch}})
    checkpoint.commit(manifest)
    return manifest


def runs_in(checkpoint: Checkpoint) -> set[str]:
    root = Path(checkpoint.path)
    return {str(path.relative_to(root)) for path in root.glob("state/*/*/*.arrow")}


def test_a_new_checkpoint_is_private_and_keeps_its_id(tmp_path: Path) -> None:
    first = Checkpoint.open(tmp_path / "deep" / "checkpoint")
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o700
    assert Checkpoint.open(first.path).id == first.id
    assert Checkpoint.open(f"file://{first.path}", create=False).id == first.id
    assert Checkpoint.open(tmp_path / "other").id != first.id
    assert first.latest() is None
    first.verify()


def test_a_directory_with_other_files_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is no checkpoint: it has no checkpoint.json but holds thesis.txt"):
        Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint.open(tmp_path / "thesis.txt")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.open(tmp_path / "nowhere", create=False)
    assert not (tmp_path / "nowhere").exists()


def test_where_there_is_none_yet_is_told_from_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        assert Checkpoint.find(tmp_path / name) is None
        assert Checkpoint.find(f"file://{tmp_path / name}") is None
    assert not (tmp_path / "nowhere").exists()
    made = Checkpoint.open(tmp_path / "empty")
    found = Checkpoint.find(tmp_path / "empty")
    assert found is not None
    assert found.id == made.id
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is no checkpoint: it has no checkpoint.json but holds empty, thesis"):
        Checkpoint.find(tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint.find(tmp_path / "thesis.txt")


def test_a_checkpoint_that_lost_its_identity_is_refused(checkpoint: Checkpoint) -> None:
    commit(checkpoint, 0, checkpoint.take_epoch())
    (Path(checkpoint.path) / "checkpoint.json").unlink()
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.open(checkpoint.path)


def test_a_manifest_comes_back_as_it_was_committed(checkpoint: Checkpoint) -> None:
    epoch = checkpoint.take_epoch()
    first, second = commit(checkpoint, 0, epoch), commit(checkpoint, 1, epoch)
    assert checkpoint.batches() == [0, 1]
    assert checkpoint.latest() == second
    assert checkpoint.read(0) == first
    with pytest.raises(CheckpointError, match=r"manifest/7.json is missing; kept are batches 0 to 1"):
        checkpoint.read(7)


def test_ten_comes_after_nine(checkpoint: Checkpoint) -> None:
    epoch = checkpoint.take_epoch()
    for batch in range(11):
        commit(checkpoint, batch, epoch)
    latest = checkpoint.latest()
    assert latest is not None
    assert latest.batch == 10


def test_a_second_committer_is_refused(checkpoint: Checkpoint) -> None:
    epoch = checkpoint.take_epoch()
    kept = commit(checkpoint, 0, epoch)
    with pytest.raises(FencedError, match="batch 0 is already committed, by run 1"):
        commit(Checkpoint.open(checkpoint.path), 0, epoch, replace=True)
    assert checkpoint.latest() == kept


def test_a_newer_run_fences_the_older_one_by_name(checkpoint: Checkpoint) -> None:
    old = checkpoint.take_epoch()
    checkpoint.assert_epoch(old)
    new = checkpoint.take_epoch()
    assert new == old + 1
    with pytest.raises(FencedError, match=rf"run {new} \(process {os.getpid()} on .*this is run {old}"):
        commit(checkpoint, 0, old)
    assert checkpoint.latest() is None
    commit(checkpoint, 0, new)


def test_two_runs_that_begin_together_get_different_epochs(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Checkpoint.open(checkpoint.path)
    taken: list[int] = []
    link = os.link

    def late_link(source: str, target: str) -> None:
        if not taken:  # the other run slips in between the look and the creation
            taken.append(0)
            taken.append(other.take_epoch())
        link(source, target)

    monkeypatch.setattr(os, "link", late_link)
    assert checkpoint.take_epoch() == 2
    assert taken == [0, 1]


HOLDER = """
import sys
from penstock.state.checkpoint import Checkpoint
from penstock.state.lock import held_by
lock = Checkpoint.open(sys.argv[1]).lock()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(checkpoint: Checkpoint) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock, until it is killed."""
    command = [sys.executable, "-c", HOLDER, checkpoint.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_live_run_keeps_others_out_until_it_dies(checkpoint: Checkpoint, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(CheckpointInUseError, match=f"process {holder.pid} on "):
        checkpoint.lock()
    holder.kill()
    holder.wait()
    with checkpoint.lock():
        pass


def test_a_stopped_run_is_taken_over_and_a_third_one_is_refused(
    checkpoint: Checkpoint, holder: subprocess.Popen[str]
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)  # returns when it has really stopped
    with checkpoint.lock():
        with pytest.raises(CheckpointInUseError, match=f"process {os.getpid()} on "):
            checkpoint.lock()
        os.kill(holder.pid, signal.SIGCONT)
        with pytest.raises(CheckpointInUseError, match=f"process {os.getpid()} on "):
            checkpoint.lock()


def test_who_holds_the_lock_is_told_by_the_lock_and_not_by_a_number_in_a_file(
    checkpoint: Checkpoint, holder: subprocess.Popen[str]
) -> None:
    assert held_by(checkpoint.path) == {"pid": holder.pid, "host": socket.gethostname()}
    holder.kill()
    holder.wait()
    # what a run that was killed left behind, when its number belongs to a process that has nothing to do with it
    (Path(checkpoint.path) / "run.lock").write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    assert held_by(checkpoint.path) is None
    (Path(checkpoint.path) / "run.lock").unlink()
    assert held_by(checkpoint.path) is None


def test_a_look_at_who_holds_the_lock_keeps_no_run_from_starting(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.lock().release()
    look = os.open(Path(checkpoint.path) / "run.lock", os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    assert held_by(checkpoint.path) is None  # another look is no run
    monkeypatch.setattr(lock.time, "sleep", lambda _: os.close(look))  # it ends while the run waits
    with checkpoint.lock():
        assert held_by(checkpoint.path) == {"pid": os.getpid(), "host": socket.gethostname()}


def test_a_released_lock_names_nobody(checkpoint: Checkpoint) -> None:
    lock = checkpoint.lock()
    assert json.loads((Path(checkpoint.path) / "run.lock").read_text())["pid"] == os.getpid()
    lock.release()
    lock.release()
    assert (Path(checkpoint.path) / "run.lock").read_text() == ""
    with checkpoint.lock():
        pass


def test_a_sweep_keeps_the_newest_versions_whole(checkpoint: Checkpoint) -> None:
    epoch = checkpoint.take_epoch()
    manifests = [commit(checkpoint, batch, epoch, replace=batch % 3 == 0) for batch in range(20)]
    checkpoint.sweep(keep=4)
    assert checkpoint.batches() == [16, 17, 18, 19]
    assert runs_in(checkpoint) == {run.path for manifest in manifests[16:] for run in manifest.runs()}
    assert checkpoint.sweep(keep=4) == 0
    checkpoint.verify()
    with pytest.raises(ValueError, match="would delete the newest"):
        checkpoint.sweep(keep=0)


def at_work(checkpoint: Checkpoint) -> tuple[Manifest, Run, Run]:
    """Batch 0 is committed; a second attempt of a task of it was lost, and batch 1 has written its run."""
    committed = commit(checkpoint, 0, checkpoint.take_epoch())
    lost = checkpoint.files.write("step", 0, 0, pa.table({"at_us": [1]}), "at_us")
    run = checkpoint.files.write("step", 0, 1, pa.table({"at_us": [1]}), "at_us")
    return committed, lost, run


def test_a_sweep_leaves_the_batch_at_work_alone_and_the_next_start_does_not(checkpoint: Checkpoint) -> None:
    _, lost, run = at_work(checkpoint)
    (Path(checkpoint.path) / "manifest" / ".aside-1").write_text("half")
    assert checkpoint.sweep() == 1
    assert lost.path not in runs_in(checkpoint)
    assert run.path in runs_in(checkpoint)
    with checkpoint.lock():
        assert checkpoint.sweep_orphans() == 2
    assert len(runs_in(checkpoint)) == 1
    assert not list(Path(checkpoint.path).rglob(".aside-*"))
    checkpoint.verify()


def test_without_a_lock_of_its_own_a_start_leaves_what_another_run_may_commit(checkpoint: Checkpoint) -> None:
    committed, _, run = at_work(checkpoint)
    other = Checkpoint.open(checkpoint.path)
    assert other.sweep_orphans() == 1
    assert runs_in(checkpoint) == {run.path, *(r.path for r in committed.runs())}
    checkpoint.commit(Manifest(1, 1, {"step": {0: {"rows": (run,)}}}))
    other.verify()
    # once its batch is committed, by whomever, what is left over of it goes with the others
    late = checkpoint.files.write("step", 0, 1, pa.table({"at_us": [1]}), "at_us")
    assert other.sweep(keep=1) >= 1
    assert runs_in(checkpoint) == {run.path}
    assert late.path != run.path


def test_what_a_stopped_run_has_written_stays_when_its_lock_is_taken_over(
    checkpoint: Checkpoint, holder: subprocess.Popen[str]
) -> None:
    _, lost, run = at_work(checkpoint)
    os.kill(holder.pid, signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)
    with checkpoint.lock():
        assert checkpoint.sweep_orphans() == 1  # it may wake between its look at the epoch and its commit
    assert run.path in runs_in(checkpoint)
    assert lost.path not in runs_in(checkpoint)


def test_many_starts_leave_few_epochs(checkpoint: Checkpoint) -> None:
    for _ in range(30):
        newest = checkpoint.take_epoch()
    commit(checkpoint, 0, newest)
    checkpoint.sweep(keep=10)
    assert len(list((Path(checkpoint.path) / "epochs").iterdir())) == 10
    assert checkpoint.take_epoch() == newest + 1


def test_small_documents_are_kept_and_replaced(checkpoint: Checkpoint) -> None:
    assert checkpoint.read_json("job.json") is None
    checkpoint.write_json("job.json", {"steps": ["a"]})
    checkpoint.write_json("job.json", {"steps": ["a", "b"]})
    assert checkpoint.read_json("job.json") == {"steps": ["a", "b"]}
    for name in ("../job.json", "checkpoint.json", ".json", "a/b.json"):
        with pytest.raises(ValueError, match="is no name of a document"):
            checkpoint.write_json(name, {})


@pytest.mark.parametrize("step", ["", "..", "a/b", "../../etc", ".hidden", "nul\0"])
def test_a_step_cannot_leave_the_root(checkpoint: Checkpoint, step: str) -> None:
    with pytest.raises(CheckpointError, match="no path of a run"):
        checkpoint.files.write(step, 0, 0, pa.table({"at_us": [1]}), "at_us")
    assert runs_in(checkpoint) == set()
    with pytest.raises(CheckpointError, match="no path of a run"):
        Run.from_json({**Run("state/a/0/0-ab.arrow", 1, 0, 1, 1, 1, 1, 1).to_json(), "path": f"state/{step}"})


def test_an_unsorted_table_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ValueError, match="sorted by 'at_us'"):
        checkpoint.files.write("step", 0, 0, pa.table({"at_us": [2, 1]}), "at_us")


def test_the_files_travel_as_a_small_value(checkpoint: Checkpoint) -> None:
    run = checkpoint.files.write("step", 0, 0, pa.table({"at_us": [1, 2]}), "at_us")
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run
    sent = pickle.dumps(checkpoint.files)
    assert len(sent) < 400
    assert pickle.loads(sent).open(run).column("at_us").to_pylist() == [1, 2]


def test_dictionaries_of_several_chunks_are_one_run(checkpoint: Checkpoint) -> None:
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    table = pa.table({"at_us": [1, 2, 3, 4], "name": pa.chunked_array(chunks)})
    opened = checkpoint.files.open(checkpoint.files.write("step", 0, 0, table, "at_us"))
    assert opened.column("name").to_pylist() == ["a", "b", "c", "a"]


def test_with_fsync_every_file_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor))
    durable = Checkpoint.open(tmp_path / "durable", fsync=True)
    commit(durable, 0, durable.take_epoch())
    assert len(synced) >= 7  # three documents with their folders, and a run
    synced.clear()
    careless = Checkpoint.open(tmp_path / "careless")
    commit(careless, 0, careless.take_epoch())
    assert synced == []
