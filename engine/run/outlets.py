"""The outputs of a job while it runs: one writer for each place, all of a batch or nothing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.job import Job
from penstock.plan.errors import PlanError, SinkError
from penstock.plan.secrets import shown
from penstock.run import dead_letters
from penstock.run.begun import begun as begun_in
from penstock.run.fit import JOB
from penstock.run.retries import Retries
from penstock.run.signature import place_of
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer
from penstock.state.checkpoint import Checkpoint


def targets_of(job: Job) -> list[Target]:
    """What the job writes, its dead letters last."""
    targets = [Target(o.name, o.sink, o.key) for o in job.outputs]
    if job.dead_letter_sink is not None:
        targets.append(Target(dead_letters.OUTPUT, job.dead_letter_sink))
    return targets


def taken_over(job: Job, asked: Iterable[str]) -> frozenset[str]:
    """The outputs whose places a run takes over, refused when the job has none of that name."""
    known = [target.output for target in targets_of(job)]
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    for name in names:
        if name not in known:
            raise PlanError(
                f"take over {name!r}: the job {job.name!r} has no such output; it has {', '.join(known)}. "
                "Give the name of one of these."
            )
    return frozenset(names)


def owner_of(job: Job, checkpoint: Checkpoint, epoch: int, take_over: frozenset[str] = frozenset()) -> Owner:
    """Who writes in this run; an output that the newest batch did not know, or elsewhere, begins with this run."""
    begun = begun_in(checkpoint)
    owner = Owner(job.name, checkpoint.id, epoch, -1, -1 if begun is None else begun.batch, take_over=take_over)
    latest = checkpoint.latest()
    if latest is None:
        return owner
    was = latest.body.get(JOB, {"outputs": {}})
    stood = {name: (parts["sink"], parts.get("place")) for name, parts in was["outputs"].items()}
    stood[dead_letters.OUTPUT] = (was.get("dead letters"), was.get("dead letters' place"))
    known = {*latest.body["outputs"]}
    nowhere = (None, None)
    new = {t.output for t in targets_of(job) if t.output not in known or _moved(t.sink, *stood.get(t.output, nowhere))}
    return replace(owner, committed=latest.batch, new=frozenset(new))


def _moved(sink: Sink, spelling: str | None, place: str | None) -> bool:
    """True when an output is elsewhere: one that is spelt as it was, from another folder, has gone from there."""
    return place not in (None, place_of(sink)) and spelling != shown(sink.describe())


class Written(NamedTuple):
    """How a batch was written: tries that failed, by output, and outputs that had the batch already."""

    retries: Counter[str]
    repeated: Counter[str]


class Outlets:
    """The open writers of a run."""

    def __init__(self, targets: Sequence[Target], owner: Owner, retries: Retries | None = None) -> None:
        self._again = retries or Retries()
        self._retries: Counter[str] = Counter()
        self._writers: list[tuple[Writer, list[str]]] = []
        places: dict[tuple[type[Sink], str], list[Target]] = {}
        for target in targets:
            places.setdefault((type(target.sink), target.sink.place), []).append(target)
        try:
            for group in places.values():
                self._open(group, owner)
        except BaseException:
            self.close()
            raise

    def _open(self, group: list[Target], owner: Owner) -> None:
        outputs = [target.output for target in group]
        writer = self._again.run(lambda: group[0].sink.writer(group, owner), lambda: self._retries.update(outputs))
        self._writers.append((writer, outputs))

    def write(self, batch: int, changes: Mapping[str, Changes], during: Callable[[], None]) -> Written:
        """Write a batch everywhere; a place that has it from an earlier try skips it."""
        repeated: Counter[str] = Counter()
        for writer, outputs in self._writers:
            if not self._write(writer, batch, {name: changes[name] for name in outputs}, during):
                repeated.update(outputs)
        # what opening the writers took is counted with the first batch
        retries, self._retries = self._retries, Counter()
        return Written(retries, repeated)

    def _write(self, writer: Writer, batch: int, changes: Mapping[str, Changes], during: Callable[[], None]) -> bool:
        writer.during = during
        return self._again.run(lambda: writer.write(batch, changes), lambda: self._retries.update(changes.keys()))

    def close(self) -> None:
        """Close every writer, also when one of them fails."""
        failed: SinkError | None = None
        for writer, _ in self._writers:
            try:
                writer.close()
            except SinkError as error:
                failed = error
        if failed is not None:
            raise failed
