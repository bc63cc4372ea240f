"""Does the job still fit its checkpoint? Asked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.compile.layout import Layout
from penstock.plan.errors import CheckpointError, PlanChangedError, PlanError
from penstock.run.difference import Change, differences
from penstock.run.signature import signature
from penstock.run.spark_log import SparkLog
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

DOCUMENT = "job.json"
JOB = "job"  # of a manifest: what the job was that made this state

__all__ = ["DOCUMENT", "JOB", "Fit", "compared", "fit", "pinned", "signature"]


@dataclass(frozen=True)
class Fit:
    """How a job and its checkpoint agree: the number of buckets, and what is not as it was."""

    buckets: int
    changes: tuple[Change, ...] = ()

    @property
    def carried(self) -> tuple[Change, ...]:
        """The changes that are carried over: from here on they make a difference."""
        return tuple(change for change in self.changes if change.verdict == "carried over")

    @property
    def rebuild(self) -> bool:
        """True when the job cannot go on from this checkpoint."""
        return any(change.verdict == "needs a rebuild" for change in self.changes)


def described(checkpoint: Checkpoint, manifest: Manifest | None) -> dict[str, Any] | None:
    """What the job was that made the state: as the newest batch says, else as the first run wrote it down."""
    found: dict[str, Any] | None = manifest.body.get(JOB) if manifest is not None else None
    return checkpoint.read_json(DOCUMENT) if found is None else found


def pinned(checkpoint: Checkpoint, manifest: Manifest | None) -> int | None:
    """The number of buckets that the state is split into, None when there is none."""
    before = described(checkpoint, manifest)
    return None if before is None or manifest is None else int(before["buckets"])


def compared(layout: Layout, checkpoint: Checkpoint, buckets: int, asked: int | None = None) -> Fit | None:
    """The job held against its checkpoint, None when nothing is there yet that it would have to fit.

    ``buckets`` is the number for a new checkpoint; with ``asked`` it is that one in any case.
    """
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        raise PlanError(f"buckets={asked!r}: a number of buckets is a whole number from 1 on.")
    latest = checkpoint.latest()
    if latest is not None and checkpoint.read_json(DOCUMENT) is None:
        raise CheckpointError(f"checkpoint {checkpoint.path} has lost its {DOCUMENT}. Restore it from a copy.")
    before = described(checkpoint, latest)
    if before is None or _never_ran(before, checkpoint, layout):
        return None
    if before["job"] != layout.job.name:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} belongs to the job {before['job']!r}, not to {layout.job.name!r}. "
            "Give this job a checkpoint of its own."
        )
    now = signature(layout, before["buckets"] if asked is None else asked)
    batch = latest.batch + 1 if latest is not None else 0
    return Fit(now["buckets"], tuple(differences(before, now, batch)))


def fit(layout: Layout, checkpoint: Checkpoint, buckets: int, asked: int | None = None) -> Fit:
    """Hold the job against its checkpoint and note what it is; one that needs a rebuild is refused with the choices."""
    found = compared(layout, checkpoint, buckets, asked)
    if found is None:
        found = Fit(buckets if asked is None else asked)
        checkpoint.write_json(DOCUMENT, signature(layout, found.buckets))
    elif found.rebuild:
        raise PlanChangedError(refusal(layout, checkpoint, found))
    return found


def refusal(layout: Layout, checkpoint: Checkpoint, found: Fit) -> str:
    """What a job is told that needs a rebuild."""
    file = layout.inputs[0].written_at.rpartition(":")[0] or "FILE"
    return (
        f"the job {layout.job.name!r} no longer fits the state in {checkpoint.path}:\n  "
        + "\n  ".join(map(str, found.changes))
        + "\nGo back to the job as it was; or compute all anew, with another place for each output:"
        f"\n  penstock run {file} --checkpoint {checkpoint.path}-2"
        "\nor send old events through the new job into an output of its own:"
        f"\n  penstock replay {file} --from TIME --to-output NAME"
    )


def _never_ran(before: dict[str, Any], checkpoint: Checkpoint, layout: Layout) -> bool:
    """True when nothing has been committed: a first try that failed must not pin its plan."""
    if checkpoint.batches() or before["job"] != layout.job.name:
        return False
    read = SparkLog(checkpoint.files.store).planned()
    return not read or before["inputs"] == list(layout.sources)
