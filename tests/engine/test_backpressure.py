"""A backlog comes in bounded batches, what waits is counted, and falling behind is said once and for long."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Job, sinks, sources
from penstock.compile.layout import Layout
from penstock.run.alarms import STRETCH, Alarms
from penstock.run.spark_log import SparkLog
from penstock.run.unread import FolderWatch, file_inputs, unread
from penstock.state.store import Store

SCHEMA = "key string, at timestamp"


def said(lags: list[int]) -> list[bool]:
    """After each lag: does the alarm stand?"""
    alarms = Alarms()
    return [bool(alarms.after(1.0, {"views": {"lag": lag}})) for lag in lags]


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "maxBytesPerTrigger", "maxfilespertrigger"])
def test_a_bound_of_the_users_own_stands_alone(name):
    assert sources.files("in", "json", SCHEMA, **{name: 7}).bounded == {name: "7"}
    assert sources.files("in", "json", SCHEMA).bounded == {"maxBytesPerTrigger": "268435456"}


@given(st.lists(st.integers(0, 1000)))
def test_a_lag_that_shrinks_or_stands_is_never_alarming(lags):
    assert not any(said(sorted(lags, reverse=True)))


@given(st.lists(st.integers(0, 1000), max_size=2 * STRETCH - 1))
def test_a_few_batches_are_no_reason(lags):
    assert not any(said(lags))


@given(st.lists(st.integers(1, 50), min_size=2 * STRETCH), st.integers(0, 5))
def test_a_lag_that_grows_is_said_and_stays_said(steps, first):
    lags = [first + sum(steps[: i + 1]) for i in range(len(steps))]
    found = said(lags)
    assert found.index(True) == 2 * STRETCH - 1
    assert all(found[2 * STRETCH - 1 :])


@given(st.lists(st.integers(0, 30), max_size=200))
def test_an_alarm_does_not_flicker(lags):
    found = said(lags)
    for at in range(1, len(found)):
        if found[at - 1] and not found[at]:
            assert not any(found[at : at + 2 * STRETCH - 1])  # it takes as long as the first time
            assert lags[at] <= max(lags[:at]) // 2


def test_batches_that_take_longer_than_the_trigger_are_said_until_they_do_not():
    alarms = Alarms(trigger_s=10)
    seconds = [12.0] * STRETCH + [9.0, 12.0] * 4 + [9.0] * STRETCH
    found = [bool(alarms.after(s, {})) for s in seconds]
    assert found == [False] * (STRETCH - 1) + [True] * (len(seconds) - 2 * STRETCH + 1) + [True] * (STRETCH - 1) + [
        False
    ]
    assert Alarms().after(100.0, {"rate": {"lag": None}}) == ()


def files_job(folder: Path, **options) -> Job:
    job = Job("backlog")
    source = sources.files(str(folder), "json", SCHEMA, **options)
    job.stream("views", source, time="at", lateness="0 seconds").to(sinks.memory("backlog"))
    return job


def arrives(folder: Path, name: str, second: int) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": name, "at": "2026-01-01 10:00:00"}) + "\n")
    os.utime(path, (1_800_000_000 + second, 1_800_000_000 + second))
    return path


def noted(root: Path, number: int, *paths: Path, compact: bool = False) -> None:
    log = root / f"spark/sources/0/{number}{'.compact' if compact else ''}"
    log.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"path": p.as_uri(), "timestamp": p.stat().st_mtime_ns // 1_000_000, "batchId": number} for p in paths]
    log.write_text("\n".join(["v1", *map(json.dumps, entries)]))


def test_files_that_wait_are_those_that_no_batch_has_taken(tmp_path):
    folder, root = tmp_path / "in", tmp_path / "ck"
    there = [
        arrives(folder, name, i) for i, name in enumerate(["a.json", "b c.json", "d=1/e.json", "ü.json", "f.json"])
    ]
    for name in ("_new.json", ".hidden", "_aside/x.json"):
        arrives(folder, name, 9)
    layout, log = Layout(files_job(folder)), SparkLog(Store.at(root))
    place = file_inputs(layout)["views"]
    assert (place.number, place.path) == (0, str(folder))
    assert len(unread(log, place)) == FolderWatch(layout, log).waiting()["views"] == 5
    noted(root, 0, there[0])
    noted(root, 1, there[1])
    assert unread(log, place) == sorted(map(str, there[2:]))
    noted(root, 2, *there[:4], compact=True)
    (root / "spark/sources/0/0").unlink()
    assert unread(log, place) == [str(there[4])]
    watch = FolderWatch(layout, log)
    assert watch.waiting() == {"views": 1}
    arrives(folder, "g.json", 99)
    assert watch.waiting() == {"views": 1}  # not looked at again so soon
    assert FolderWatch(layout, log).waiting() == {"views": 2}
    assert FolderWatch(Layout(files_job(folder, latestFirst=True)), log).waiting() == {}


def test_a_backlog_of_files_comes_in_bounded_batches_and_the_status_says_what_waits(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("penstock.sources.files"), "BATCH_BYTES", 60
    )  # a line has more than half of that
    for i in range(3):
        arrives(tmp_path / "in", f"{i}.json", i)
    run = files_job(tmp_path / "in").start(spark, checkpoint=str(tmp_path / "ck"), once=True)
    run.wait()
    status = run.status()
    assert status["batch"] >= 1
    assert status["inputs"] == {"views": {"files": 0, "lag": 0}}
    assert status["alarms"] == []
