"""``penstock doctor``: is a job's checkpoint whole, why is nothing coming out, and how much waits.

Nothing here starts Spark, and the job may be running.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.filesize import decimal

from penstock import doctor_load as load
from penstock.compile.layout import Layout
from penstock.doctor_time import Times, instant, length
from penstock.job import Job
from penstock.look import existing
from penstock.plan.errors import CheckpointError
from penstock.run.findings import Fault
from penstock.run.fit import compared
from penstock.run.repair import repair
from penstock.run.spark_log import SparkLog
from penstock.run.wholeness import faults
from penstock.state.checkpoint import Checkpoint
from penstock.state.lock import held_by, last_holder
from penstock.state.manifest import Manifest

SECOND = 1_000_000
LOOKS = 3  # at a job that may run: what is there only once was a batch on its way


@dataclass(frozen=True)
class Diagnosis:
    """What was found, in lines, the worst first; ``needs_a_hand`` when something will not mend itself."""

    lines: tuple[str, ...]
    needs_a_hand: bool


def examine(job: Job, folder: str, file: str = "FILE", now_us: int | None = None) -> Diagnosis:
    """Look at a job and its checkpoint; ``file`` is what the commands in the answer call the job.

    A checkpoint that cannot be opened at all is refused by name.
    """
    checkpoint = _opened(job, folder)
    alive = _alive(checkpoint)
    found = _lasting(lambda: list(faults(checkpoint, each_run=True)), 1 if alive is None else LOOKS)
    lines = [f"  broken  {fault.said.replace('doctor FILE', f'doctor {file}')}" for fault in found]
    newest = _newest(checkpoint)
    head = f"job '{job.name}', checkpoint {folder}, {_when(newest, now_us)}; {alive or 'no run is alive'}"
    if newest is None:
        return Diagnosis((head, *lines), bool(found))
    times = Times(Layout(job), newest, _now(now_us))
    fits = bool(found) or _fits(times.layout, checkpoint)
    lines += [] if fits else [f"  broken  the job no longer fits its state; see the difference: penstock check {file}"]
    stuck = sorted(times.stuck(), reverse=True)
    lines += [f"  {'stuck' if hand else 'waits'}   {said}" for hand, said in stuck]
    looks = [*load.refused(times.layout, newest), *load.skew(newest)]
    lines += [f"  look    {said}" for said in looks]
    lines += [f"  whole   {_looked_at(checkpoint, newest)}"] if not found else []
    parts = {
        "time": times.inputs(),
        "what comes next": times.next(),
        "waiting to be read": load.waiting(times.layout, SparkLog(checkpoint.files.store), newest),
        "state": load.kept(newest),
        "counted since the checkpoint began": load.counted(newest),
    }
    for title, said in parts.items():
        lines += _part(title, said)
    return Diagnosis((head, *lines), bool(found) or not fits or any(hand for hand, _ in stuck))


def mend(job: Job, folder: str) -> list[str]:
    """Do the repairs that are safe, and say what was done; refused while a run lives."""
    checkpoint = _opened(job, folder)
    return repair(checkpoint)


def _opened(job: Job, folder: str) -> Checkpoint:
    checkpoint = existing(folder)
    try:
        known = checkpoint.read_json("job.json")
    except CheckpointError:
        known = None  # damaged: told with the rest
    if known is not None and known.get("job") != job.name:
        raise CheckpointError(f"checkpoint {folder} belongs to the job {known.get('job')!r}, not to {job.name!r}.")
    return checkpoint


def _fits(layout: Layout, checkpoint: Checkpoint) -> bool:
    held = compared(layout, checkpoint, buckets=1)
    return held is None or not held.rebuild


def _lasting(look: Callable[[], list[Fault]], looks: int) -> list[Fault]:
    """What is found in every one of several looks."""
    found = look()
    for _ in range(looks - 1):
        if not found:
            break
        again = look()
        found = [fault for fault in found if fault in again]
    return found


def _newest(checkpoint: Checkpoint) -> Manifest | None:
    """The newest manifest that can be read."""
    for batch in reversed(checkpoint.batches()):
        try:
            return checkpoint.read(batch)
        except CheckpointError:
            continue
    return None


def _alive(checkpoint: Checkpoint) -> str | None:
    """Who runs the job now, or may run it; None when nobody does."""
    if not checkpoint.files.store.local:
        newest = checkpoint.newest_run()
        return f"whether a run is alive cannot be seen on an object store; the newest is {newest}"
    holder = held_by(checkpoint.path)
    if holder is not None:
        return f"{_called(holder)} runs it" if "pid" in holder else "a run is beginning"
    # a folder that machines share may keep locks for each of them alone
    left = last_holder(checkpoint.path)
    return f"{_called(left)} may run it" if left.get("host", socket.gethostname()) != socket.gethostname() else None


def _called(holder: Mapping[str, Any]) -> str:
    host = holder.get("host")
    return f"process {holder.get('pid')}{'' if host == socket.gethostname() else f' on {host}'}"


def _when(newest: Manifest | None, now_us: int | None) -> str:
    if newest is None:
        return "before its first batch"
    wall_us = newest.body["wall_us"]
    return f"after batch {newest.batch} of {instant(wall_us // SECOND * SECOND)}, {length(_now(now_us) - wall_us)} ago"


def _now(now_us: int | None) -> int:
    return time.time_ns() // 1000 if now_us is None else now_us


def _looked_at(checkpoint: Checkpoint, newest: Manifest) -> str:
    runs = list(newest.runs())
    planned = SparkLog(checkpoint.files.store).planned()
    log = f"Spark's log to batch {planned[-1]}" if planned else "no log of Spark's"
    return (
        f"{len(checkpoint.batches())} manifests, {len(runs):,} state files by their checksums "
        f"({decimal(sum(run.bytes for run in runs))}), {log}"
    )


def _part(title: str, said: Iterator[str]) -> list[str]:
    lines = [f"  {line}" for line in said]
    return [title, *lines] if lines else []
