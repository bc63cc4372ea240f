"""What waits to be read is what Spark will take: folders are listed as Spark lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, sinks, sources
from penstock.compile.layout import Layout
from penstock.run.spark_log import SparkLog
from penstock.run.unread import FolderWatch, file_inputs, unread
from penstock.state.store import Store

PLAIN = ["1.json", "2 ü%20.csv", "sub/3.json", "_x/4.json", ".h/5.json", "6.json._COPYING_", "_7.json", "_k=8.json"]
DATED = ["d=1/1.json", "d=1/plain/2.json", "d=3/_aside/4.json", "d=4/.5.json"]
DEEP = ["x=1/1.json", "x=2/2.json", "x=2/sub/3.json", ".h/4.json", "_h/5.json", "6.json", "_7.json", "y/z/8.json"]

LAYOUTS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "what is in it": (PLAIN, "", {}),
    "what is below it too": (PLAIN, "", {"RecursiveFileLookup": True}),
    "some names": (PLAIN, "", {"pathGlobFilter": "*.{json,txt}"}),
    "other names": (PLAIN, "", {"pathGlobFilter": "[^1]*"}),
    "folders of values": (DATED, "", {}),
    "folders of hidden values": (["_d=1/1.json", "_d=2/2.json", "_e/3.json"], "", {}),
    "folders of values below another": (["a/d=1/1.json", "a/d=2/2.json"], "", {}),
    "each folder": (DEEP, "/*", {}),
    "some folders": (DEEP, "/{x=1,y/z}", {}),
    "another folder": (DEEP, "/x=[!2]", {}),
    "a folder whose name has a star": (["a*/1.json", "ab/2.json"], "/a\\*", {}),
}


def written(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"key": "a"}\n')
        os.utime(file, (1_800_000_000 + number, 1_800_000_000 + number))


def reading(path: str, **options: Any) -> Layout:
    job = Job("waits")
    source = sources.files(path, "json", "key string, at timestamp", **options)
    job.stream("views", source, time="at", lateness="0 seconds").to(sinks.memory("waits"))
    return Layout(job)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_waits_is_what_spark_takes(spark, tmp_path, layout):
    names, below, options = LAYOUTS[layout]
    written(tmp_path / "in", names)
    plan, log = reading(f"{tmp_path}/in{below}", **options), SparkLog(Store.at(tmp_path))
    place = file_inputs(plan)["views"]
    waits = unread(log, place)
    assert len(waits) == FolderWatch(plan, log).waiting()["views"]
    frame = spark.readStream.schema("key string").options(**options).json(f"{tmp_path}/in{below}")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "spark"))
    writer.trigger(availableNow=True).start().awaitTermination()
    noted = log.source_lines("spark/sources/0/0")
    assert (len(noted), unread(log, place)) == (len(waits), [])


def test_a_folder_that_is_a_link_or_not_there_is_no_trouble(tmp_path):
    written(tmp_path / "in", ["1.json"])
    (tmp_path / "link").symlink_to(tmp_path / "in")
    log = SparkLog(Store.at(tmp_path))
    assert unread(log, file_inputs(reading(str(tmp_path / "link")))["views"]) == [str(tmp_path / "link/1.json")]
    assert unread(log, file_inputs(reading(str(tmp_path / "none")))["views"]) == []
    assert unread(log, file_inputs(reading(f"{tmp_path}/none/*/x"))["views"]) == []
    (tmp_path / "in/day=1").symlink_to(tmp_path / "in")
    (tmp_path / "in/day=2").symlink_to(tmp_path / "more")
    written(tmp_path / "more", ["2.json"])
    waits = unread(log, file_inputs(reading(str(tmp_path / "in")))["views"])
    assert waits == [str(tmp_path / "in/1.json"), str(tmp_path / "in/day=2/2.json")]


def test_a_relative_path_is_below_the_folder_where_the_job_was_started(tmp_path, monkeypatch):
    written(tmp_path / "in", ["1.json"])
    monkeypatch.chdir(tmp_path)
    plan, log = reading("in"), SparkLog(Store.at(tmp_path))
    watch = FolderWatch(plan, log)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert watch.waiting() == {"views": 1}


@pytest.mark.parametrize("address", ["s3a://bucket/in", "hdfs://name/in"])
def test_what_is_elsewhere_is_not_counted(address):
    assert file_inputs(reading(address)) == {}
