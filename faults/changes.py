"""Cases 28 to 30: a job that was changed, an input that falls silent, and a key that has nearly all rows."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from faults import shop
from faults.arrivals import asked_of_duckdb, ran
from faults.case import case
from faults.outputs import tables
from faults.process import CHECKPOINT, Driver, penstock
from faults.room import Room

REFUSED = {
    "other aggregate": ('dearest="max(amount)"', 'dearest="avg(amount)"'),
    "other key": ('orders.by("shop")\n    .window', 'orders.by("id")\n    .window'),
    "other window": ('tumbling("10 minutes")', 'tumbling("20 minutes")'),
    "other order of steps": ("sold = (\n    orders.by", 'sold = (\n    orders.deduplicate("id", within="1 hour").by'),
}
HARMLESS = {
    "other lateness": ('lateness="10 minutes"', 'lateness="11 minutes"'),
    "a comment": ('job = Job("shop")', 'job = Job("shop")  # of all shops'),
}


@case(
    28,
    "restart with a changed job: other aggregate, key, window, lateness, order of steps, partitions",
    passes="refused before any write, with the difference and the choices; harmless changes go on",
)
def changed_job(room: Room) -> None:
    """A run is killed in batch 3 and started again with an edited job. `penstock check` must say what a run then
    does; what cannot go on is refused with nothing written, other partitions and what is harmless goes on."""
    folder = room.shop()
    room.killed(folder, "kill before_sink 3")
    whole = room.copy(folder, "killed")
    for name, (before, after) in REFUSED.items():
        room.must(before in shop.JOB, f"{name}: the job has no {before!r}")
        (folder / "changed.py").write_text(shop.JOB.replace(before, after))
        said = penstock(folder, "check", "changed.py", "--checkpoint", CHECKPOINT)
        told = " | ".join(line.strip() for line in said.stderr.splitlines() if "rebuild" in line)
        room.note(name, f"check: exit {said.returncode}, {told}")
        room.must(said.returncode == 1, f"{name}: check does not refuse it")
        if name in ("other key", "other window"):
            room.refused(folder, "sold", file="changed.py")
    for name, (before, after) in HARMLESS.items():
        room.must(before in shop.JOB, f"{name}: the job has no {before!r}")
        (folder / "changed.py").write_text(shop.JOB.replace(before, after))
        said = penstock(folder, "check", "changed.py", "--checkpoint", CHECKPOINT)
        room.note(name, f"check: exit {said.returncode}")
        room.must(said.returncode == 0, f"{name}: {said.stdout + said.stderr}")
    room.put_back(whole, folder)
    (folder / "job.py").write_text(shop.JOB.replace(*HARMLESS["a comment"]))
    with Driver(folder, env={"PYSPARK_SUBMIT_ARGS": "--conf spark.default.parallelism=5 pyspark-shell"}) as driver:
        ended = driver.wait()
    room.must(ended.code == 0, f"with other partitions: {ended.error}")
    room.note("other partitions", f"batches {ended.batches}")
    room.equals_calm(folder)


PAIRS = """
from penstock import Job, sinks, sources

job = Job("pairs")
shown = job.stream("shown", sources.files("in/shown", format="json", schema="id string, at timestamp",
                   maxFilesPerTrigger=1), time="at", lateness="1 minute")
clicked = job.stream("clicked", sources.files("in/clicked", format="json", schema="id string, then timestamp",
                     maxFilesPerTrigger=1), time="then", lateness="1 minute", {idle})
pairs = shown.join(clicked, on="id", within=("0 seconds", "5 minutes"), how="left", name="pairs")
pairs.to(sinks.sqlite("out.db", "pairs"))
"""


@case(
    29,
    "one input of a join falls silent",
    passes="time goes on with idle_after; without it, doctor names the input that holds time back",
)
def silent_input(room: Room) -> None:
    """Clicks stop after the first file and what was shown goes on for an hour. With idle_after the padded rows come
    out; without it nothing does, and `penstock doctor` must say why."""
    shown = [
        [{"id": f"{n}-{i}", "at": (shop.BEGIN + timedelta(minutes=10 * n, seconds=i)).isoformat()} for i in range(50)]
        for n in range(6)
    ]
    clicked = [[{"id": f"0-{i}", "then": (shop.BEGIN + timedelta(seconds=i + 1)).isoformat()} for i in range(20)]]
    ready = {row["id"] for here in shown[:5] for row in here}  # the last ones may still meet a click
    for idle in ('idle_after="2 seconds"', "idle_after=None"):
        folder = room.folder / ("with idle_after" if "2" in idle else "without")
        (folder / "in").mkdir(parents=True)
        (folder / "job.py").write_text(PAIRS.replace("{idle}", idle))
        for name, files in (("shown", shown), ("clicked", clicked)):
            for number, here in enumerate(files):
                shop.write(folder, number, [json.dumps(row) for row in here], f"in/{name}")
        with Driver(folder, once=False) as driver:
            driver.until(lambda driver=driver: sum(x["rows"] for x in driver.lines()) >= 320, "all rows")  # type: ignore[misc]
            if "2" in idle:
                driver.until(lambda folder=folder: ready <= out(folder), "the rows that no click can meet")  # type: ignore[misc]
            driver.signal(signal.SIGTERM)
            ended = driver.wait()
        room.must(ended.code == 0, f"{idle}: {ended.error}")
        room.note(idle, f"{len(out(folder))} rows came out, watermark {ended.lines[-1]['watermark']}")
    room.must(not ready <= out(folder), "time went on without idle_after")
    said = penstock(folder, "doctor", "job.py", "--checkpoint", CHECKPOINT)
    room.note("doctor", (said.stdout + said.stderr).strip()[:1500])
    holds = [line for line in said.stdout.splitlines() if "clicked" in line and "back" in line]
    room.must(holds, "doctor does not say that 'clicked' holds time back")


def out(folder: Path) -> set[str]:
    """The ids that have come out."""
    try:
        with closing(sqlite3.connect(folder / "out.db", timeout=30)) as database:
            return {row[0] for row in database.execute("SELECT id FROM pairs")}
    except sqlite3.OperationalError:
        return set()


SKEW_ROWS = 100_000
BOUND = 3.0


@case(30, "one key holds 90 % of the rows", passes="equal; slowdown bounded and reported")
def one_key(room: Room) -> None:
    """The same number of rows over 1,000 shops evenly, and with nine tenths of them in one. The oracle is DuckDB."""
    took = {}
    for name, share in (("even", 0.0), ("one key", 0.9)):
        rows = shop.orders(room.random, files=3, rows=SKEW_ROWS, shops=1000, late=0)
        for here in rows:
            for row in here:
                if room.random.random() < share:
                    row["shop"] = "s0"
        folder, ended = ran(room, name, shop.lines_of(rows), quick=False)
        took[name] = sum(line["seconds"] for line in ended.lines[1:])  # the first pays for Spark's start
        flat = [row for here in rows for row in here]
        most = max(sum(row["shop"] == "s0" for row in here) for here in rows) / SKEW_ROWS
        room.note(name, f"{most:.0%} of the rows in one key, {took[name]:.1f} s for {len(ended.lines) - 1} batches")
        found = shop.judged(tables(folder))
        room.equals({"sold": found["sold"]}, {"sold": asked_of_duckdb(flat)}, "oracle in DuckDB")
    slower = took["one key"] / took["even"]
    room.note("slowdown", f"{slower:.2f} times, bound {BOUND}")
    room.must(slower < BOUND, f"one key makes it {slower:.1f} times slower")
