"""``penstock replay``: old events, new code, another output, and the running job is not touched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from penstock.doctor_time import instant
from penstock.job import Job
from penstock.plan.durations import spoken
from penstock.plan.errors import CheckpointError, PlanError
from penstock.plan.node import walk
from penstock.plan.output import Output
from penstock.replay_plan import as_they_are, read_whole, replayed, warm_up
from penstock.sinks.base import Sink
from penstock.sinks.memory_rows import memory
from penstock.state.checkpoint import Checkpoint

DOCUMENT = "replay.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Replay:
    """What is asked for: events from a time on, and up to another, into an output of a new name."""

    from_us: int
    to_us: int | None
    name: str
    output: str

    def told(self) -> str:
        """The span and the output in words."""
        end = "" if self.to_us is None else f" to {instant(self.to_us)}"
        return f"output {self.output!r} from {instant(self.from_us)}{end}"


def prepared(job: Job, begin: str, name: str, end: str | None = None, output: str | None = None) -> tuple[Job, Replay]:
    """The job of a replay, refused when it would write where the running job does.

    >>> from penstock import Job, sinks, sources
    >>> job = Job("shop")
    >>> source = sources.files("in", format="json", schema="url string, at timestamp")
    >>> _ = job.stream("views", source, time="at", lateness="1 hour").to(sinks.sqlite("out.db", "views"))
    >>> again, _ = prepared(job, "2026-01-01", "views_again")
    >>> [(o.name, o.sink.describe()) for o in again.outputs]
    [('views_again', 'table views_again in out.db')]
    """
    chosen = _chosen(job, output)
    asked = Replay(_time(begin, "--from"), None if end is None else _time(end, "--to"), name, chosen.name)
    if asked.to_us is not None and asked.to_us <= asked.from_us:
        raise PlanError(f"replay: --to {end} is not after --from {begin}.")
    if not NAME.fullmatch(name):
        raise PlanError(f"replay: {name!r} cannot be the name of an output; use letters, digits, '_', '.' and '-'.")
    if name in (*(o.name for o in job.outputs), "dead_letters"):
        raise PlanError(f"replay: the job writes an output {name!r} itself; give another name with --to-output.")
    sink = beside(chosen.sink, name)
    if sink is None:
        raise PlanError(
            f"replay: output {chosen.name!r} goes to {chosen.sink.describe()}, and there is no place beside that. "
            "Give it another sink for the replay."
        )
    live = [o.sink for o in job.outputs] + [job.dead_letter_sink]
    if sink in live:
        raise PlanError(f"replay: {sink.describe()} is written by the job itself; give another name with --to-output.")
    again = replayed(job, chosen.name, asked.from_us, asked.to_us)
    again._outputs = {name: replace(again.outputs[0], name=name, sink=sink)}
    if job.dead_letter_sink is not None:
        again.dead_letters(beside(job.dead_letter_sink, f"{name}_dead_letters") or memory(f"{name}_dead_letters"))
    return again, asked


def beside(sink: Sink, name: str) -> Sink | None:
    """The same kind of sink at a place of another name beside this one; None where there are no places.

    >>> from penstock import sinks
    >>> beside(sinks.parquet("out/ctr"), "ctr_2").describe()
    'parquet files in out/ctr_2'
    """
    parts = {field.name for field in fields(sink)}
    told: dict[str, Any] = {}
    if "table" in parts:
        told = {"table": name}
    elif "topic" in parts:
        told = {"topic": name}
    elif "path" in parts:
        folder, slash, _ = str(sink.path).rstrip("/").rpartition("/")  # type: ignore[attr-defined]  # it has the part
        told = {"path": f"{folder}{slash}{name}"}
    return replace(sink, **told) if told else None


def own_checkpoint(asked: Replay, folder: str, live: str) -> str:
    """The checkpoint of a replay: a new one, or that of the same replay, which then goes on where it was."""
    if os.path.realpath(folder) == os.path.realpath(live):
        raise CheckpointError(f"replay: {folder} is the checkpoint of the job itself; give the replay one of its own.")
    checkpoint = Checkpoint.open(folder)
    wanted = {"from_us": asked.from_us, "to_us": asked.to_us, "name": asked.name, "output": asked.output}
    known = checkpoint.read_json(DOCUMENT)
    if known is None and (checkpoint.batches() or checkpoint.read_json("job.json") is not None):
        raise CheckpointError(f"replay: {folder} is the checkpoint of a running job, and not of a replay.")
    if known is None:
        checkpoint.write_json(DOCUMENT, wanted)
    elif known != wanted:
        before = Replay(known["from_us"], known["to_us"], known["name"], known["output"])
        raise CheckpointError(
            f"replay: {folder} holds the replay of {before.told()} into {before.name!r}, and this is {asked.told()} "
            f"into {asked.name!r}. Give another name with --to-output, or another place with --checkpoint."
        )
    return folder


def replay(job: Job, asked: Replay, checkpoint: str, live: str) -> list[str]:
    """Run a replay to the end of what is there, and say what it did; ``job`` is what ``prepared`` gave."""
    folder = own_checkpoint(asked, checkpoint, live)
    node = job.outputs[0].node
    job.run(checkpoint=folder, once=True)
    newest = Checkpoint.open(folder, create=False).latest()
    said = [f"replayed {asked.told()} into {job.outputs[0].sink.describe()}; its checkpoint is {folder}"]
    whole, warm = read_whole(node), warm_up(node)
    if warm and len(whole) < len(job.inputs):
        said.append(f"events were read from {spoken(warm)} before that on, for results that reach back")
    if whole:
        said.append(f"read from the beginning, for what reaches back without a bound: {', '.join(whole)}")
    if asked.to_us is not None and (untold := as_they_are(*walk(node))):
        said.append(f"tables without a time of their own are as they are now: {', '.join(untold)}")
    if newest is None:
        return [*said, "nothing was there to read"]
    counters = newest.body["counters"]
    rows, late, dead = (sum(counters[name].values()) for name in ("rows", "late", "dead"))
    mark = newest.body["clock"]["watermark_us"]
    said.append(f"{rows:,} rows read, {late:,} late, {dead:,} dead letters; time has come to {instant(mark)}")
    if asked.to_us is not None and (mark is None or mark < asked.to_us):
        said.append(f"what ends between there and {instant(asked.to_us)} has not come out: no later event is there yet")
    return said


def _chosen(job: Job, output: str | None) -> Output:
    names = [o.name for o in job.outputs]
    if output is None and len(names) == 1:
        return job.outputs[0]
    if output not in names:
        there = ", ".join(names) or "none"
        fault = f"there is no output {output!r}" if output else "the job has several outputs"
        raise PlanError(f"replay: {fault}; name one with --output: {there}.")
    return next(o for o in job.outputs if o.name == output)


def _time(text: str, what: str) -> int:
    """A time as microseconds since 1970, UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise PlanError(f"replay: {what} {text!r} is no time; write it as '2026-01-01 10:00:00'.") from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1)
