"""Jobs as real processes: killed with SIGKILL, stopped by a signal, started twice, started on the wrong thing."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import penstock.state

JOB = """
import os, signal, sys
from penstock import Job, sinks, sources
from penstock.run.query import start
from penstock.windows import tumbling

job = Job("views")
schema = "url string, n int, at timestamp"
views = job.stream("views", sources.files("in", format="json", schema=schema, maxFilesPerTrigger=1),
                   time="at", lateness="20 minutes")
job.dead_letters(sinks.sqlite("out.db", "dead"))
hourly = views.where("n > 0").by("url").window(tumbling("1 hour"), late="capture")
hourly = hourly.agg(n="count(*)", total="sum(n)", first="first(n)")
hourly.to(sinks.parquet("hourly"))
hourly.to(sinks.sqlite("out.db", "hourly"), name="hourly_db")
hourly.late.to(sinks.sqlite("out.db", "late"))

def fault(point, batch):
    if len(sys.argv) > 1 and sys.argv[1:] == [point, str(batch)]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    start(job, checkpoint="checkpoint", once=True, fault=fault).wait()
"""


def prepare(folder: Path) -> Path:
    """The job, and five files of events: hours that close, a late row, a broken line."""
    (folder / "in").mkdir(parents=True)
    (folder / "job.py").write_text(JOB)
    for i in range(5):
        rows = [{"url": f"/{k}", "n": i + k, "at": f"2026-01-01 {10 + i}:{m:02}:00"} for k in range(3) for m in (5, 40)]
        lines = [json.dumps(r) for r in rows]
        if i == 3:
            lines += ['{"url": "/late", "n": 1, "at": "2026-01-01 10:00:00"}', "{broken"]
        path = folder / "in" / f"{i}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_800_000_000 + i, 1_800_000_000 + i))  # the file source reads the oldest first
    return folder


def run(folder: Path, *arguments: str, file: str = "job.py") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, file, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)


def outputs(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Everything that a reader of the outputs sees."""
    found = {"hourly": duckdb.sql(f"select * from '{folder}/hourly/*.parquet' order by all").fetchall()}
    with sqlite3.connect(folder / "out.db") as database:
        for table in ("hourly", "late", "dead"):
            found[f"db {table}"] = sorted(database.execute(f"select * from {table}").fetchall(), key=repr)
    return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The run without a fault."""
    folder = prepare(tmp_path_factory.mktemp("calm"))
    ended = run(folder)
    assert ended.returncode == 0, ended.stderr
    return folder


def replaced(found, folder):
    return {name: [tuple(str(v).replace(str(folder), "") for v in row) for row in rows] for name, rows in found.items()}


def test_a_real_run_over_files(calm):
    found = outputs(calm)
    assert [(str(r[0].hour), r[2], r[3], r[4]) for r in found["hourly"]][:3] == [
        ("10", "/1", 2, 2), ("10", "/2", 2, 4), ("11", "/0", 2, 2)
    ]  # fmt: skip
    assert len(found["hourly"]) == 11  # 3 urls in 4 closed hours, but n > 0 drops one
    assert [row[0] for row in found["db late"]] == ["/late"]
    assert [row[1] for row in found["db dead"]] == ["malformed"]
    assert (calm / "checkpoint").stat().st_mode & 0o777 == 0o700


def test_the_state_can_be_read_from_outside(calm):
    state = penstock.state.open(calm / "checkpoint")
    assert state.batch == 4
    rows = state["window_by_url"]
    assert rows.num_rows == 3  # the open hour
    assert duckdb.sql("select count(*) from rows").fetchall() == [(3,)]


@pytest.mark.parametrize("point", ["before_sink", "during_sink", "after_sink", "after_commit"])
def test_a_killed_run_goes_on_to_the_same_output(calm, tmp_path, point):
    folder = prepare(tmp_path / "killed")
    killed = run(folder, point, "3")
    assert killed.returncode == -signal.SIGKILL
    again = run(folder)
    assert again.returncode == 0, again.stderr
    assert replaced(outputs(folder), folder) == replaced(outputs(calm), calm)


TABLES = """
import os, signal, sys
from penstock import Job, sinks, sources
from penstock.run.query import start
from penstock.windows import panes, session, sliding, tumbling

job = Job("tables")
schema = "url string, n int, at timestamp"
views = job.stream("views", sources.files("in", format="json", schema=schema, maxFilesPerTrigger=1),
                   time="at", lateness="20 minutes")
job.dead_letters(sinks.sqlite("out.db", "dead"))
some = views.where("n > 0")
some.by("url").window(session("30 minutes"), emit="updates").agg(n="count(*)").to(sinks.sqlite("out.db", "visits"))
some.by("url").window(session("26 minutes")).agg(n="count(*)").named("closed").to(sinks.sqlite("out.db", "closed"))
fires = panes(allowed_lateness="5 hours")
hourly = some.by("url").window(tumbling("1 hour"), emit=fires).agg(total="sum(n)").named("hourly")
hourly.to(sinks.sqlite("out.db", "hourly"))
some.by("url").window(sliding("1 hour")).top(2, by="n desc").to(sinks.sqlite("out.db", "best"))
some.by("url").agg(n="count(*)").to(sinks.sqlite("out.db", "so_far"))
some.deduplicate("n", within="1 hour").to(sinks.sqlite("out.db", "distinct"))
later = some.select("url", "n as next", "at as then")
some.join(later, on="url", within=("1 minute", "40 minutes"), how="left").to(sinks.sqlite("out.db", "pairs"))
last = some.to_table("url")
last.to(sinks.sqlite("out.db", "latest"))
some.asof(last.rename(n="known", at="since")).to(sinks.sqlite("out.db", "known"))
so_far = some.by("url").agg(n="count(*)", most="max(n)").named("so_far_too")
both = last.rename(n="latest").join(so_far, on="url", how="full", name="both")
both.to(sinks.sqlite("out.db", "both"))
both.by("latest").agg(urls="count(*)", most="max(most)").to(sinks.sqlite("out.db", "by_latest"))
both.changes().to(sinks.sqlite("out.db", "changes"))

def fault(point, batch):
    if len(sys.argv) > 1 and sys.argv[1:] == [point, str(batch)]:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    start(job, checkpoint="checkpoint", once=True, fault=fault).wait()
"""


def tables(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    names = ("visits", "closed", "hourly", "best", "so_far", "distinct", "pairs", "latest", "known", "dead")
    names += ("both", "by_latest", "changes")
    with sqlite3.connect(folder / "out.db") as database:
        return {n: sorted(database.execute(f'select * from "{n}"').fetchall(), key=repr) for n in names}


@pytest.fixture(scope="module")
def calm_tables(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("calm_tables"))
    (folder / "job.py").write_text(TABLES)
    ended = run(folder)
    assert ended.returncode == 0, ended.stderr
    return folder


def test_a_real_run_with_sessions_panes_and_running_values(calm_tables):
    found = tables(calm_tables)
    assert len(found["visits"]) == 17  # 6 of each url, less one that n > 0 drops; the late row is in none
    assert {row[-1] for row in found["hourly"]} == {"on_time", "late"}  # the open hour shows nothing yet
    assert len(found["latest"]) == 4
    assert len(found["pairs"]) == 9 + 9 + 7 + 1  # each with the next; the last still wait, the late one found nobody
    assert [(row[0], row[3]) for row in found["both"]] == sorted(row[:2] for row in found["so_far"])
    assert sum(row[1] for row in found["by_latest"]) == 4
    assert Counter(row[1] for row in found["changes"] if row[0] == "insert") == dict.fromkeys(
        ("/0", "/1", "/2", "/late"), 1
    )
    assert sorted(row[:2] for row in found["so_far"]) == [("/0", 8), ("/1", 10), ("/2", 10), ("/late", 1)]


@pytest.mark.parametrize(("point", "batch"), [("during_sink", "2"), ("after_commit", "3")])
def test_a_killed_run_with_sessions_and_panes_open_goes_on_to_the_same_output(calm_tables, tmp_path, point, batch):
    folder = prepare(tmp_path / "killed")
    (folder / "job.py").write_text(TABLES)
    assert run(folder, point, batch).returncode == -signal.SIGKILL
    again = run(folder)
    assert again.returncode == 0, again.stderr
    assert replaced(tables(folder), folder) == replaced(tables(calm_tables), calm_tables)


def test_a_second_run_goes_on_where_the_first_ended_and_a_changed_job_is_refused(calm, tmp_path):
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-r", calm, folder], check=True)
    (folder / "in" / "9.json").write_text('{"url": "/1", "n": 1, "at": "2026-01-01 15:30:00"}\n')
    # the copy is another place, which Spark's log does not know: its files are read again, and every row is late
    changed = folder / "changed.py"
    changed.write_text(JOB.replace('total="sum(n)"', 'total="max(n)"'))
    refused = run(folder, file="changed.py")
    assert refused.returncode == 1
    assert "no longer fits the state" in refused.stderr
    assert "total = sum(n)" in refused.stderr
    assert "java" not in refused.stderr.lower().replace("jdk.incubator", "")
    other = folder / "other.py"
    other.write_text(JOB.replace('Job("views")', 'Job("others")'))
    refused = run(folder, file="other.py")
    assert refused.returncode == 1
    assert "belongs to the job 'views', not to 'others'" in refused.stderr


FOREVER = JOB.replace("once=True, fault=fault).wait()", "fault=fault)").replace(
    'start(job, checkpoint="checkpoint", fault=fault)', 'job.run(checkpoint="checkpoint")'
)


def test_sigterm_ends_a_run_cleanly_and_two_at_once_are_refused(tmp_path):
    folder = prepare(tmp_path / "forever")
    (folder / "job.py").write_text(FOREVER)
    first = subprocess.Popen(
        [sys.executable, "job.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        lines = [json.loads(first.stdout.readline()) for _ in range(5)]
        assert [line["batch"] for line in lines] == [0, 1, 2, 3, 4]
        assert lines[-1]["watermark"] == "2026-01-01T14:20:00Z"
        assert lines[-1]["late"] == 1
        second = run(folder)
        assert second.returncode == 1
        assert f"in use by process {first.pid}" in second.stderr
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=60)
        assert time.monotonic() - began < 30
        assert first.returncode == 0, said
        assert "Traceback" not in said
        assert "StackOverflow" not in said
    finally:
        first.kill()


WRONG = {
    "no such folder": ('files("in"', 'files("no-such-folder"', "does not exist"),
    "not a checkpoint": ('checkpoint="checkpoint"', 'checkpoint="in"', "is no checkpoint"),
    "a sink that cannot be written": ('sinks.parquet("hourly")', 'sinks.parquet("job.py/hourly")', "job.py/hourly"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_place_is_named_and_nothing_is_damaged(tmp_path, case):
    folder = prepare(tmp_path / "wrong")
    before, after, message = WRONG[case]
    text = (
        JOB.replace('files("in"', 'files("no-such-folder"') if case == "no such folder" else JOB.replace(before, after)
    )
    (folder / "job.py").write_text(text)
    inputs = {p.name: p.read_bytes() for p in (folder / "in").iterdir()}
    ended = run(folder)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "org.apache" not in ended.stderr
    assert {p.name: p.read_bytes() for p in (folder / "in").iterdir()} == inputs
