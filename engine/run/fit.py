"""Does the job still fit its checkpoint? Asked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.compile.layout import Layout
from penstock.plan.errors import CheckpointError, PlanChangedError, PlanError
from penstock.run.begun import Begun, begun
from penstock.run.difference import Change, differences
from penstock.run.signature import signature
from penstock.run.spark_log import SparkLog
from penstock.run.step_rules import KEEPS_ROWS
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

DOCUMENT = "job.json"
JOB = "job"  # of a manifest: what the job was that made this state
#: Of a manifest: the calls of each step's aggregates, in the order in which it keeps them; none where it keeps rows.
PARTS = "parts"

__all__ = ["DOCUMENT", "JOB", "PARTS", "Fit", "compared", "fit", "pinned", "signature"]


@dataclass(frozen=True)
class Fit:
    """How a job and its checkpoint agree: the number of buckets, and what is not as it was.

    ``at_hand`` is a batch that outputs may hold and that another job than this one began.
    """

    buckets: int
    changes: tuple[Change, ...] = ()
    at_hand: int | None = None

    @property
    def carried(self) -> tuple[Change, ...]:
        """The changes that are carried over: from here on they make a difference."""
        return tuple(change for change in self.changes if change.verdict == "carried over")

    @property
    def rebuild(self) -> bool:
        """True when the job cannot go on from this checkpoint."""
        return self.at_hand is not None or any(change.verdict == "needs a rebuild" for change in self.changes)


def described(checkpoint: Checkpoint, manifest: Manifest | None) -> dict[str, Any] | None:
    """What the job was that made the state: as the newest batch says, else as the first run wrote it down."""
    found: dict[str, Any] | None = manifest.body.get(JOB) if manifest is not None else None
    if found is None or manifest is None:
        first: dict[str, Any] | None = checkpoint.read_json(DOCUMENT)
        return first
    # only a run knows the types by which it is decided what is kept of an aggregate
    whole = {name for name, parts in manifest.body.get(PARTS, {}).items() if not parts}
    steps = {
        name: {**parts, KEEPS_ROWS: True} if name in whole and "aggregates" in parts else parts
        for name, parts in found["steps"].items()
    }
    return {**found, "steps": steps}


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
    before, last = described(checkpoint, latest), begun(checkpoint)
    if before is None or (last is None and _never_ran(before, checkpoint, layout)):
        return None
    if before["job"] != layout.job.name:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} belongs to the job {before['job']!r}, not to {layout.job.name!r}. "
            "Give this job a checkpoint of its own."
        )
    now = signature(layout, before["buckets"] if asked is None else asked)
    batch = latest.batch + 1 if latest is not None else 0
    if last is not None and last.batch == batch and (others := _other_than_began(last, layout)):
        return Fit(now["buckets"], others, batch)
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
    """What a job is told that cannot go on."""
    file = layout.inputs[0].written_at.rpartition(":")[0] or "FILE"
    if found.at_hand is not None:
        return (
            f"the job {layout.job.name!r} is not as it was when it began batch {found.at_hand}, which outputs of "
            f"{checkpoint.path} may hold:\n  "
            + "\n  ".join(f"{change.of}: {change.said}" for change in found.changes)
            + f"\nRun it once as it was, which ends batch {found.at_hand}; then change it. "
            "Or compute all anew, with another place for each output:"
            f"\n  penstock run {file} --checkpoint {checkpoint.path}-2"
        )
    return (
        f"the job {layout.job.name!r} no longer fits the state in {checkpoint.path}:\n  "
        + "\n  ".join(map(str, found.changes))
        + "\nGo back to the job as it was; or compute all anew, with another place for each output:"
        f"\n  penstock run {file} --checkpoint {checkpoint.path}-2"
        "\nor send old events through the new job into an output of its own:"
        f"\n  penstock replay {file} --from TIME --to-output NAME"
    )


def _never_ran(before: dict[str, Any], checkpoint: Checkpoint, layout: Layout) -> bool:
    """True when nothing is kept and no output was given anything: a first try that failed must not pin its plan.

    What Spark has planned by then pins what it reads: its log says how far each place has been read.
    """
    if checkpoint.batches() or before["job"] != layout.job.name:
        return False
    if not SparkLog(checkpoint.files.store).planned():
        return True
    was, now = before.get("reads", {}), signature(layout, 1)["reads"]
    places = [{name: parts["place"] for name, parts in reads.items()} for reads in (was or now, now)]
    return places[0] == places[1] and before["inputs"] == list(layout.sources)


def _other_than_began(batch: Begun, layout: Layout) -> tuple[Change, ...]:
    """What is not as it was when outputs were given a batch; in how many buckets it is worked on they cannot tell."""
    if batch.job is None:
        return ()
    now = signature(layout, batch.job["buckets"])
    return tuple(c for c in differences(batch.job, now, batch.batch) if c.verdict != "harmless")
