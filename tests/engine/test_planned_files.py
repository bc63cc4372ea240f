"""The files of a batch: gone, changed while they are read, changed when an output may hold them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.plan.errors import RunError
from penstock.run.begun import Begun, before, begin, begun
from penstock.run.planned_files import PlannedFiles, planned
from penstock.run.spark_log import SparkLog
from penstock.state.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(tmp_path / "checkpoint")


def log(checkpoint: Checkpoint) -> SparkLog:
    return SparkLog(checkpoint.files.store)


def file(tmp_path: Path, name: str, content: str = "one\ntwo\n") -> Path:
    path = tmp_path / "in put" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def note(checkpoint: Checkpoint, number: int, *paths: Path, compact: dict[int, Path] | None = None) -> str:
    """What Spark writes when a file source takes files into a batch; the text of its offsets."""
    folder = Path(checkpoint.path) / "spark" / "sources" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    entries = [(p, number) for p in paths] + [(p, n) for n, p in (compact or {}).items()]
    lines = [json.dumps({"path": p.as_uri(), "timestamp": 1, "batchId": n}) for p, n in entries]
    (folder / (f"{number}.compact" if compact else str(number))).write_text("\n".join(["v1", *lines]))
    offsets = f'v1\n{{"batchTimestampMs":12}}\n{{"logOffset":{number}}}'
    place = Path(checkpoint.path) / "spark" / "offsets" / str(number)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(offsets)
    return offsets


def files_of(checkpoint: Checkpoint, batch: int, offsets: str) -> PlannedFiles:
    """As a batch takes them, when it is run or run again."""
    plan = made_from(batch, offsets)
    return PlannedFiles(log(checkpoint), plan, before(checkpoint, plan))


def made_from(batch: int, offsets: str) -> Begun:
    return Begun(batch, offsets, "0f0e")


def to_outputs(checkpoint: Checkpoint, batch: int, offsets: str, files: PlannedFiles) -> None:
    """What is done before a batch is written anywhere."""
    begin(checkpoint, replace(made_from(batch, offsets), files=files.settled()))


def test_a_batch_has_the_files_that_were_noted_since_the_one_before(checkpoint: Checkpoint, tmp_path: Path) -> None:
    one, two, three = (file(tmp_path, name) for name in ("1 %.json", "2.json", "3.json"))
    first = note(checkpoint, 0, one)
    second = note(checkpoint, 1, two, three)
    assert list(planned(log(checkpoint), 0, first)) == [one]
    assert list(planned(log(checkpoint), 1, second)) == [two, three]


def test_a_compacted_note_also_has_older_files_which_are_not_of_the_batch(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    one, two = file(tmp_path, "1.json"), file(tmp_path, "2.json")
    note(checkpoint, 0, one)
    second = note(checkpoint, 1, two, compact={0: one})
    assert list(planned(log(checkpoint), 1, second)) == [two]


def test_files_elsewhere_and_other_sources_are_left_alone(checkpoint: Checkpoint) -> None:
    folder = Path(checkpoint.path) / "spark" / "sources" / "1"
    folder.mkdir(parents=True)
    (folder / "0").write_text('v1\n{"path":"s3a://bucket/1.json","timestamp":1,"batchId":0}')
    offsets = 'v1\n{"batchTimestampMs":12}\n{"clicks":{"0":17}}\n{"logOffset":0}\n-'
    assert list(planned(log(checkpoint), 0, offsets)) == []
    files = files_of(checkpoint, 0, offsets)
    files.check()
    assert files.settled() == ()


def test_a_file_that_has_gone_is_refused_by_name(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = file(tmp_path, "1.json")
    offsets = note(checkpoint, 0, path)
    path.unlink()
    with pytest.raises(RunError, match=r"1\.json has gone; batch 0 .*empty file in its place"):
        files_of(checkpoint, 0, offsets).check()


@pytest.mark.parametrize("content", ["other\n  \n", "shorter\n"], ids=["rewritten", "shortened"])
def test_a_file_may_be_corrected_until_an_output_may_hold_its_batch(
    checkpoint: Checkpoint, tmp_path: Path, content: str
) -> None:
    path = file(tmp_path, "1.json", "first\n  \n")
    offsets = note(checkpoint, 0, path)
    files_of(checkpoint, 0, offsets).check()
    path.write_text("corrected\n")
    files = files_of(checkpoint, 0, offsets)
    files.check()
    to_outputs(checkpoint, 0, offsets, files)
    as_read = path.stat()
    path.write_text(content)
    os.utime(path, ns=(as_read.st_atime_ns, as_read.st_mtime_ns + 1))
    again = files_of(checkpoint, 0, offsets)
    with pytest.raises(RunError, match=r"1\.json was changed after batch 0 .*touch -d @\d+\.\d{9} .*1\.json"):
        again.check()
    path.write_text("corrected\n")
    os.utime(path, ns=(as_read.st_atime_ns, as_read.st_mtime_ns))
    again.check()


def test_the_command_that_the_refusal_gives_is_enough(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = file(tmp_path, "1.json")
    offsets = note(checkpoint, 0, path)
    files = files_of(checkpoint, 0, offsets)
    files.check()
    to_outputs(checkpoint, 0, offsets, files)
    files = files_of(checkpoint, 0, offsets)
    path.touch()
    with pytest.raises(RunError) as caught:
        files.check()
    seconds, _, fraction = str(caught.value).partition("@")[2].split(" ")[0].partition(".")
    os.utime(path, ns=(0, int(seconds) * 10**9 + int(fraction)))
    files.check()


def test_a_file_that_changes_while_it_is_read_stops_the_batch_before_the_outputs(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path = file(tmp_path, "1.json")
    files = files_of(checkpoint, 0, note(checkpoint, 0, path))
    files.check()
    path.write_text("one\n")
    with pytest.raises(RunError, match=r"1\.json was changed while batch 0 read it; nothing was written"):
        files.settled()


def test_a_file_of_a_batch_that_is_done_may_go(checkpoint: Checkpoint, tmp_path: Path) -> None:
    one, two = file(tmp_path, "1.json"), file(tmp_path, "2.json")
    offsets = note(checkpoint, 0, one)
    first = files_of(checkpoint, 0, offsets)
    first.check()
    to_outputs(checkpoint, 0, offsets, first)
    one.unlink()
    offsets = note(checkpoint, 1, two)
    second = files_of(checkpoint, 1, offsets)
    second.check()
    to_outputs(checkpoint, 1, offsets, second)
    latest = begun(checkpoint)
    assert latest is not None
    assert (latest.batch, latest.files) == (1, second.settled())


def test_a_batch_that_an_older_penstock_began_says_nothing_of_its_files(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = file(tmp_path, "1.json")
    offsets = note(checkpoint, 0, path)
    checkpoint.write_json("begun.json", {"batch": 0, "offsets": offsets, "query": "0f0e"})
    files_of(checkpoint, 0, offsets).check()
