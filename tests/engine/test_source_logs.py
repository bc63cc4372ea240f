"""What a file source notes of its files: every note that Spark reads again is whole, or the run is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from penstock import CheckpointError, Job, sinks, sources
from penstock.doctor import examine
from penstock.run.findings import Fault
from penstock.run.query import start
from penstock.run.repair import repair
from penstock.run.source_logs import source_faults
from penstock.run.spark_log import SparkLog
from penstock.state.checkpoint import Checkpoint
from penstock.state.store import Store

NOTES = "spark/sources/0"


def note(folder: Path, number: int, *of: int, compact: bool = False) -> Path:
    """A note of a file for each number, its own when none is given."""
    file = folder / NOTES / f"{number}{'.compact' if compact else ''}"
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = [json.dumps({"path": f"file:///in/{n}", "timestamp": n, "batchId": n}) for n in of or (number,)]
    file.write_text("\n".join(["v1", *entries]))
    return file


def found(folder: Path, end: int) -> list[Fault]:
    return list(source_faults(SparkLog(Store.at(folder)), f'v1\n{{"batchTimestampMs":1}}\n{{"logOffset":{end}}}'))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Notes up to 7, the newest two of which no plan names; Spark has put those up to 3 together."""
    for number in (1, 2, 4, 5, 6, 7):
        note(tmp_path, number)
    note(tmp_path, 3, 0, 1, 2, 3, compact=True)
    return tmp_path


def test_notes_that_have_been_put_together_may_be_gone(notes):
    assert found(notes, 5) == []
    (notes / NOTES / "2").unlink()
    assert found(notes, 5) == found(notes, 3) == found(notes, 2) == []


@pytest.mark.parametrize("number", [4, 5])
def test_a_gap_is_named_and_not_mended(notes, number):
    (notes / NOTES / str(number)).unlink()
    (fault,) = found(notes, 5)
    assert fault.said.startswith(f"{NOTES}/{number} is missing: it says which files have been read")
    assert fault.repair is None


def test_without_what_was_put_together_there_is_a_gap(notes):
    (notes / NOTES / "3.compact").unlink()
    assert [fault.file for fault in found(notes, 5)] == [f"{NOTES}/0", f"{NOTES}/3"]


@pytest.mark.parametrize("text", ["v1", "v1\n", 'v1\n{"path":"file:///in/0","timestamp":0,"batchId":0}'])
@pytest.mark.parametrize("name", ["3.compact", "4", "5"])
def test_a_note_that_was_cut_at_the_end_of_a_line_is_named(notes, name, text):
    (notes / NOTES / name).write_text(text)
    (fault,) = found(notes, 5)
    assert fault.said.startswith(f"{NOTES}/{name} is cut")
    assert fault.repair is None


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("v1")], ids=["gone", "cut"])
def test_of_notes_that_no_plan_names_spark_needs_all_too_or_none(notes, damage):
    damage(notes / NOTES / "6")
    (fault,) = found(notes, 5)
    assert fault.file == f"{NOTES}/6"
    assert fault.repair is not None
    aside = {Path(name).name for name in fault.repair.aside}
    assert {"7", ".7.crc"} <= aside <= {"6", ".6.crc", "7", ".7.crc"}
    for name in fault.repair.aside:
        (notes / name).unlink(missing_ok=True)
    assert found(notes, 5) == []


SHOP = "n long, at timestamp"


def shop(folder: Path) -> Job:
    job = Job("shop")
    source = sources.files(folder / "in", "json", SHOP, maxFilesPerTrigger=1)
    views = job.stream("views", source, time="at", lateness="1 day")
    views.select("n").to(sinks.sqlite(str(folder / "out.db"), "rows"))
    return job


def arrives(folder: Path, number: int, text: str | None = None) -> None:
    file = folder / "in" / f"{number}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"n": number, "at": "2026-01-01 10:00:00"}) + "\n" if text is None else text)
    os.utime(file, (1_800_000_000 + number, 1_800_000_000 + number))


def once(folder: Path, spark) -> None:
    start(shop(folder), spark, checkpoint=str(folder / "ck"), once=True).wait()


def test_what_spark_notes_is_whole_and_what_it_reads_again_is_asked_for(spark, tmp_path):
    for number in range(11):
        arrives(tmp_path, number, "" if number == 7 else None)  # a file of nothing is noted too
    once(tmp_path, spark)
    ck = tmp_path / "ck"
    assert {"9.compact", "10"} <= {file.name for file in (ck / NOTES).iterdir()}
    for number in range(9):
        for name in (f"{number}", f".{number}.crc"):
            (ck / NOTES / name).unlink()
    assert examine(shop(tmp_path), str(ck)).needs_a_hand is False
    for name in ("9.compact", "10"):
        for lost in (True, False):
            copy = shutil.copytree(ck, tmp_path / "copy", ignore=shutil.ignore_patterns(".*"))
            if lost:
                (copy / NOTES / name).unlink()
            else:
                (copy / NOTES / name).write_text("v1")
            told = examine(shop(tmp_path), str(copy))
            assert told.needs_a_hand
            gap = f"{NOTES}/0 is missing, and so are those up to 9" if name == "9.compact" else f"{NOTES}/10 is missing"
            said = gap if lost else f"{NOTES}/{name} is cut"
            assert said in "\n".join(told.lines)
            assert repair(Checkpoint.open(copy)) == []
            with pytest.raises(CheckpointError, match=said):
                start(shop(tmp_path), spark, checkpoint=str(copy), once=True).wait()
            shutil.rmtree(copy)
