"""A job whose checkpoint is on an object store: killed, and started again as on another machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import penstock.state
from penstock.state import remote
from penstock.state.store import Store
from penstock.testing.servers.s3 import S3

JOB = """
import os, signal, sys
from penstock import Job, sinks, sources
from penstock.run.query import start
from penstock.windows import tumbling

job = Job("views")
views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp", maxFilesPerTrigger=1),
                   time="at", lateness="0 seconds")
views.by("url").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.sqlite("out.db", "hourly"))

def fault(point, batch):
    if sys.argv[2:] == [point, str(batch)]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    start(job, checkpoint=sys.argv[1], once=True, fault=fault).wait()
"""

FILES = 5


def prepare(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "job.py").write_text(JOB)
    for file in range(FILES):
        rows = [{"url": f"/{n % 3}", "at": f"2026-01-01 {10 + file}:{n:02}:00"} for n in range(10 + file)]
        path = folder / "in" / f"{file}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_800_000_000 + file, 1_800_000_000 + file))  # the file source reads the oldest first


def expected() -> list[tuple[str, str, int]]:
    """Every hour but the last, which is open."""
    counts = Counter(
        (f"2026-01-01T{10 + f}:00:00.000000Z", f"/{n % 3}") for f in range(FILES - 1) for n in range(10 + f)
    )
    return sorted((hour, url, n) for (hour, url), n in counts.items())


@pytest.fixture
def s3(monkeypatch):
    with S3() as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        remote.connect.cache_clear()
        yield server


def test_a_job_that_is_killed_goes_on_from_an_object_store_on_any_machine(s3, tmp_path):
    prepare(tmp_path)
    address = f"{s3.url}/checkpoints/views"

    def run(machine: str, *fault: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / machine).mkdir()  # its own temporary files: nothing is left of the machine before
        environment = {**s3.environment, "TMPDIR": str(tmp_path / machine)}
        command = [sys.executable, "job.py", address, *fault]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    assert run("first", "after_sink", "1").returncode == -signal.SIGKILL
    assert penstock.state.open(address).batch == 0
    assert run("second", "during_sink", "3").returncode == -signal.SIGKILL
    ended = run("third")
    assert ended.returncode == 0, ended.stderr
    with sqlite3.connect(tmp_path / "out.db") as database:
        found = database.execute("select window_start, url, n from hourly order by 1, 2").fetchall()
    assert found == expected()
    state = penstock.state.open(address)
    assert state.batch == FILES - 1
    assert state["window_by_url"].num_rows == 3  # the open hour
    there = Store.at(address).names("spark", recursive=True)
    assert {"spark/metadata", "spark/offsets/4", "spark/commits/4"} <= set(there)
    assert not list((tmp_path / "third").glob("penstock-spark-part-*"))  # sent, and gone
