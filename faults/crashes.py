"""Cases 1 to 9: a driver, or a worker, killed at every moment of a batch that has a name."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from faults.case import CaseFailed, case
from faults.outputs import Reader
from faults.process import CHECKPOINT, Driver, newest, numbers
from faults.room import Room

TRIES = 6  # a moment that is watched from outside may be over before the kill comes
EQUAL = "outputs equal the fault-free run's"


@case(1, "killed before the first batch is planned", passes="same query id after restart")
def before_the_first_batch(room: Room) -> None:
    """Watches the checkpoint: Spark has written its query id and no offsets; SIGKILL."""
    for attempt in range(TRIES):
        folder = room.shop(f"try-{attempt}")
        spark = folder / CHECKPOINT / "spark"
        with Driver(folder) as driver:
            driver.until((spark / "metadata").exists, "a query id")
            driver.kill()
        if numbers(spark / "offsets"):
            continue
        before = json.loads((spark / "metadata").read_text())["id"]
        room.goes_on(folder)
        after = json.loads((spark / "metadata").read_text())["id"]
        room.must(before == after, f"the query id was {before} and is {after}")
        room.note("query id", after)
        return
    raise CaseFailed(f"in {TRIES} tries the first batch was planned before the kill")


@case(2, "killed after offsets/N, before work", passes="batch N runs again with the same offsets")
def after_the_offsets(room: Room) -> None:
    """Watches the checkpoint: offsets/N has appeared, of the batch there is nothing else; SIGKILL."""
    for attempt in range(TRIES):
        folder = room.shop(f"try-{attempt}")
        batch = room.random.randrange(1, 5)
        checkpoint = folder / CHECKPOINT
        offsets = checkpoint / "spark" / "offsets" / str(batch)
        with Driver(folder) as driver:
            driver.until(offsets.exists, f"offsets/{batch}")
            driver.kill()
        if newest(checkpoint) >= batch or list(checkpoint.glob(f"state/*/*/{batch}-*")):
            continue
        before = offsets.read_bytes()
        ended = room.goes_on(folder)
        room.must(offsets.read_bytes() == before, f"offsets/{batch} has changed")
        room.must(ended.batches[0] == batch, f"the restarted run began with batch {ended.batches[0]}, not {batch}")
        room.note("batch run again", f"{batch}, its offsets the same {len(before)} bytes")
        return
    raise CaseFailed(f"in {TRIES} tries the batch had begun before the kill")


@case(3, "killed when some buckets' runs are written", passes="no stale value, orphans swept", fast=True)
def between_buckets(room: Room) -> None:
    """Watches state/: some runs of batch N are written and its manifest is not; SIGKILL."""
    for attempt in range(TRIES):
        folder = room.shop(f"try-{attempt}")
        batch = room.random.randrange(1, 5)
        checkpoint = folder / CHECKPOINT
        with Driver(folder) as driver:
            working_on(driver, batch)
            driver.kill()
        left = orphans(checkpoint, batch)
        if newest(checkpoint) >= batch or not left:
            continue
        room.goes_on(folder)
        stale = [run for run in left if Path(run).exists()]
        room.must(not stale, f"{len(stale)} orphans were not swept, such as {stale[:1]}")
        room.note("orphans", f"{len(left)} runs of batch {batch} without a manifest, all swept")
        return
    raise CaseFailed(f"in {TRIES} tries no batch was caught between its runs and its manifest")


def working_on(driver: Driver, batch: int) -> None:
    """Wait until the first run of a batch is there."""
    driver.until(lambda: newest(driver.checkpoint) >= batch - 1, f"batch {batch - 1}")
    driver.until(lambda: orphans(driver.checkpoint, batch), f"runs of batch {batch}")


def orphans(checkpoint: Path, batch: int) -> list[str]:
    """The runs of a batch that are there."""
    found = []
    for step in _entries(checkpoint / "state"):
        for bucket in _entries(step):
            found += [run.path for run in _entries(bucket) if run.name.startswith(f"{batch}-")]
    return found


def _entries(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def watched(room: Room, folder: Path, *faults: str) -> list[int]:
    """Kill the job at each moment in turn and let it end, while somebody reads; the batches of the last run."""
    with Reader(folder) as reader:
        for fault in faults:
            room.killed(folder, fault)
        ended = room.goes_on(folder)
    if reader.failure is not None:
        raise reader.failure
    half = reader.seen - room.lab.calm.versions
    room.must(not half, f"a reader saw what the fault-free run never showed: {sorted(half)[:3]}")
    room.note("reader", f"{reader.looks} looks, {len(reader.seen)} versions, none of half a batch")
    return ended.batches


@case(4, "killed before the sink's first byte", passes="no reader saw half a batch")
def before_the_sink(room: Room) -> None:
    """The batch writer kills its process before the first sink; a reader looks all the time."""
    batch = room.random.randrange(1, 5)
    batches = watched(room, room.shop(), f"kill before_sink {batch}")
    room.must(batches[0] == batch, f"the restart began with batch {batches[0]}, not {batch}")
    room.note("batches of the restart", batches)


@case(5, "killed half way through the sink", passes="no reader saw half a batch")
def during_the_sink(room: Room) -> None:
    """The batch writer kills its process when Parquet is staged, and in another run when one table of four is
    written; a reader looks all the time."""
    for nth in (1, 2):
        batch = room.random.randrange(1, 5)
        batches = watched(room, room.shop(f"sink-{nth}"), f"kill during_sink {batch} {nth}")
        room.must(batches[0] == batch, f"the restart began with batch {batches[0]}, not {batch}")
        room.note("batches of the restart", batches)


@case(6, "killed after the sink's commit", passes="no reader saw half a batch; one skipped replay is counted")
def after_the_sink(room: Room) -> None:
    """The batch writer kills its process when all sinks have the batch and the manifest does not."""
    batch = room.random.randrange(1, 5)
    folder = room.shop()
    with Reader(folder) as reader:
        room.killed(folder, f"kill after_sink {batch}")
        ended = room.goes_on(folder)
    room.must(not reader.seen - room.lab.calm.versions, "a reader saw half a batch")
    room.must(ended.batches[0] == batch, f"the restart began with batch {ended.batches[0]}, not {batch}")
    repeated = ended.lines[0].get("repeated")
    room.note("skipped replays counted", repeated)
    room.must(repeated, "the batch that the ledger had was not counted as repeated")


@case(7, "killed after commits/N", passes="batch N does not run again")
def after_the_commit(room: Room) -> None:
    """Two runs: killed by the batch writer after our commit and before Spark's, so that Spark asks again and the
    batch is skipped; and killed when commits/N has appeared, so that nobody asks."""
    batch = room.random.randrange(1, 5)
    folder = room.shop("ours")
    room.killed(folder, f"kill after_commit {batch}")
    ended = room.goes_on(folder)
    first = ended.lines[0]
    room.must(first["batch"] == batch and first["skipped"], f"batch {batch} was not skipped: {first}")
    room.note("after our commit", f"batch {batch} asked for again and skipped, 0 rows")
    folder = room.shop("sparks")
    with Driver(folder) as driver:
        driver.until((folder / CHECKPOINT / "spark" / "commits" / str(batch)).exists, f"commits/{batch}")
        driver.kill()
    done = newest(folder / CHECKPOINT)
    ended = room.goes_on(folder)
    room.must(batch not in ended.batches, f"batch {batch} ran again")
    room.note("after Spark's commit", f"killed at {done}, the restart ran {ended.batches}")


@case(8, "two faults in a row: after the sink's commit, then again in the replay", passes=EQUAL)
def twice(room: Room) -> None:
    """Kills after the sinks' commit; in the replay, where the ledgers have the batch, before the sink; in the next
    batch between two sinks; and in its replay half way through the one that was missing."""
    faults = ("kill after_sink 2", "kill before_sink 2", "kill during_sink 3 2", "kill during_sink 3 1")
    batches = watched(room, room.shop(), *faults)
    room.note("batches of the last run", batches)


@case(9, "a Python worker killed inside a kernel", passes="retried or failed by name, state not half applied")
def a_worker(room: Room) -> None:
    """Batches run on the cluster's path; when a bucket's run of batch N appears, the worker that runs kernels gets
    SIGKILL. Locally Spark does not try a task again: the run must fail by name, and the next one go on."""
    for attempt in range(TRIES):
        folder = room.shop(f"try-{attempt}")
        batch = room.random.randrange(1, 4)
        checkpoint = folder / CHECKPOINT
        with Driver(folder, env={"CLUSTER": "1"}) as driver:
            working_on(driver, batch)
            victims = workers(driver.process.pid)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            ended = driver.wait()
        if ended.code == 0:
            continue  # all kernels of the batch had run
        room.note("workers killed", f"{len(victims)} in batch {batch}")
        room.failed(ended, "worker")
        done = newest(checkpoint)
        room.must(done == batch - 1, f"batch {done} is committed")
        room.goes_on(folder)
        return
    raise CaseFailed(f"in {TRIES} tries no worker was killed in time")


def workers(driver: int) -> list[int]:
    """The Python workers of a driver: what the daemon of its Java has forked."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
                names[int(entry)] = Path(f"/proc/{entry}/cmdline").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, stack = [], [driver]
    while stack:
        for child in children.get(stack.pop(), []):
            stack.append(child)
            parent_is_daemon = "pyspark.daemon" in names.get(child, "")
            found += [child] if parent_is_daemon and not children.get(child) else []
    return found
