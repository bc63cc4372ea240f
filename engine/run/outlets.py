"""The outputs of a job while it runs: one writer for each place, all of a batch or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.job import Job
from penstock.plan.errors import SinkError
from penstock.run import dead_letters
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer
from penstock.state.checkpoint import Checkpoint


def targets_of(job: Job) -> list[Target]:
    """What the job writes, its dead letters last."""
    targets = [Target(o.name, o.sink, o.key) for o in job.outputs]
    if job.dead_letter_sink is not None:
        targets.append(Target(dead_letters.OUTPUT, job.dead_letter_sink))
    return targets


def owner_of(job: Job, checkpoint: Checkpoint, epoch: int) -> Owner:
    """Who writes in this run; an output that the newest batch did not know begins with this run."""
    latest = checkpoint.latest()
    if latest is None:
        return Owner(job.name, checkpoint.id, epoch, -1)
    new = {t.output for t in targets_of(job)} - {*latest.body["outputs"]}
    return Owner(job.name, checkpoint.id, epoch, latest.batch, frozenset(new))


class Outlets:
    """The open writers of a run."""

    def __init__(self, targets: Sequence[Target], owner: Owner) -> None:
        places: dict[tuple[type[Sink], str], list[Target]] = {}
        for target in targets:
            places.setdefault((type(target.sink), target.sink.place), []).append(target)
        self._writers: list[tuple[Writer, list[str]]] = []
        for group in places.values():
            self._writers.append((group[0].sink.writer(group, owner), [t.output for t in group]))

    def write(self, batch: int, changes: Mapping[str, Changes], during: Callable[[], None]) -> None:
        """Write a batch everywhere; a place that has it from an earlier try skips it."""
        for writer, outputs in self._writers:
            writer.during = during
            writer.write(batch, {name: changes[name] for name in outputs})

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
