"""A batch that outputs may hold, kept beside the state before the first of them is given it.

What is written there under its number is skipped when it is run again. So it must be the same batch then: made from
the same plan, of the same files as they were, by the same job. Spark's own file of the plan, ``offsets/N``, can be
torn by a loss of power; so the plan is kept twice, here and in the manifest of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.plan.errors import CheckpointError
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

DOCUMENT = "begun.json"
BODY = "spark"  # in a manifest's body

Look = tuple[int, int]  # a file's time in nanoseconds and its size


@dataclass(frozen=True)
class Begun:
    """A batch: the plan that Spark's log has of it, Spark's id of the query, its files in the plan's order, the job.

    Where nobody said what the job was, as an older Penstock did not, it is None.
    """

    batch: int
    offsets: str
    query: str
    files: tuple[Look, ...] = ()
    job: Mapping[str, Any] | None = None

    def to_body(self) -> Mapping[str, Any]:
        """For the manifest's body."""
        return {BODY: {"offsets": self.offsets, "query": self.query}}

    def same_plan(self, other: Begun) -> bool:
        """True when both are made from one plan."""
        return (self.offsets, self.query) == (other.offsets, other.query)


def begun(checkpoint: Checkpoint) -> Begun | None:
    """The newest batch that outputs may hold, None before the first."""
    said = checkpoint.read_json(DOCUMENT)
    if said is None:
        return None
    files = tuple((changed_ns, size) for changed_ns, size in said.get("files", []))
    return Begun(said["batch"], said["offsets"], said["query"], files, said.get("job"))


def kept(manifest: Manifest) -> Begun | None:
    """What a committed batch was made from, None where nobody said it."""
    said = manifest.body.get(BODY)
    return None if said is None else Begun(manifest.batch, said["offsets"], said["query"])


def before(checkpoint: Checkpoint, batch: Begun) -> Begun | None:
    """The batch as outputs may hold it, None when none can; one that was begun from another plan is refused."""
    found = begun(checkpoint)
    if found is None or found.batch != batch.batch:
        return None
    if not found.same_plan(batch):
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: batch {batch.batch} was begun before, by another plan than "
            f"spark/offsets/{batch.batch} has now, and outputs may hold it. Restore the whole checkpoint from one copy."
        )
    return found


def begin(checkpoint: Checkpoint, batch: Begun) -> None:
    """Keep what a batch is, before it is written anywhere; one that was begun from another plan is refused."""
    if before(checkpoint, batch) != batch:
        files = [list(look) for look in batch.files]
        said = {"batch": batch.batch, "offsets": batch.offsets, "query": batch.query, "files": files, "job": batch.job}
        checkpoint.write_json(DOCUMENT, said)
