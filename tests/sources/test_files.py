"""Where a source of files looks: in the folder where Python stands, wherever Java stands."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Job, PenstockError, sinks, sources
from penstock.check import held_against
from penstock.run.query import start


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder in which Java does not stand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def written(kind: str, number: int) -> None:
    file = Path("in") / str(number)
    if kind == "parquet":
        pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), file)
    elif kind == "csv":
        file.write_text(f"{number}\n")
    elif kind == "json":
        file.write_text(json.dumps({"n": number}))
    else:
        file.write_text(json.dumps({"key": {"n": number}, "value": {"n": number}}))


def job_of(path: str, kind: str) -> Job:
    job = Job("numbers")
    source = sources.files(path, kind, "n long")
    table = job.table("numbers", source, key="n") if kind == "upsert" else job.stream("numbers", source, time=None)
    table.select("n").to(sinks.sqlite("out.db", "numbers"))
    return job


def once(job: Job, spark) -> list[int]:
    start(job, spark, checkpoint="ck", once=True).wait()
    with sqlite3.connect("out.db") as database:
        return sorted(n for (n,) in database.execute("select n from numbers"))


CASES = [("in", "json"), ("in", "csv"), ("in", "parquet"), ("in", "upsert"), ("./in/../in", "json"), ("in/*", "json")]


@pytest.mark.parametrize(("path", "kind"), CASES)
def test_a_relative_path_is_below_the_folder_of_python(spark, path, kind):
    written(kind, 1)
    assert once(job_of(path, kind), spark) == [1]


def test_the_same_folder_by_another_spelling_goes_on(spark, here):
    written("json", 1)
    assert once(job_of(str(here / "in"), "json"), spark) == [1]
    written("json", 2)
    assert "source was json files in" in held_against(job_of("in", "json"), "ck")
    assert once(job_of("in", "json"), spark) == [1, 2]


@pytest.mark.parametrize("name", ["in", "in ü", "in%20?"])
def test_an_address_means_the_folder_that_it_was_made_from(spark, here, name):
    (here / "in").rename(here / name)
    (here / name / "1").write_text('{"n": 1}')
    source = sources.files((here / name).as_uri(), "json", "n long")
    assert source.folder == str(here / name)
    if "?" not in name:  # which stands for a letter
        assert once(job_of((here / name).as_uri(), "json"), spark) == [1]


def test_what_is_told_of_a_source_stays_as_it_is_written(here):
    source = sources.files("in", "json", "n long")
    assert source.describe() == "json files in in"
    assert (source.folder, source.place) == (str(here / "in"), str(here / "in"))
    assert sources.files("file:///in/a?", "json", "n long").place == "file:///in/a?"
    assert sources.files("file:///in/a?", "json", "n long").folder == "/in/a?"
    far = sources.files("s3a://bucket/in", "json", "n long")
    assert (far.folder, far.place) == (None, "s3a://bucket/in")


def test_a_folder_that_is_not_there_is_named_as_it_was_looked_for(spark, here):
    with pytest.raises(PenstockError, match=f"the folder '{here}/nowhere' does not exist"):
        start(job_of("nowhere", "json"), spark, checkpoint="ck", once=True)
