"""What a batch is made from, kept beside the state before the batch is written anywhere.

Spark's own file of it, ``offsets/N``, can be torn by a loss of power when an output holds batch N already.
Planned anew, N could hold other rows, and the output would skip them. So the plan is kept twice: in
``begun.json`` while the batch runs, and in its manifest.
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


@dataclass(frozen=True)
class Begun:
    """A batch, the plan that Spark's log has of it, and Spark's id of the query."""

    batch: int
    offsets: str
    query: str

    def to_body(self) -> Mapping[str, Any]:
        """For the manifest's body."""
        return {BODY: {"offsets": self.offsets, "query": self.query}}


def begun(checkpoint: Checkpoint) -> Begun | None:
    """The newest batch that was begun, None before the first."""
    said = checkpoint.read_json(DOCUMENT)
    return None if said is None else Begun(said["batch"], said["offsets"], said["query"])


def kept(manifest: Manifest) -> Begun | None:
    """What a committed batch was made from, None where nobody said it."""
    said = manifest.body.get(BODY)
    return None if said is None else Begun(manifest.batch, said["offsets"], said["query"])


def begin(checkpoint: Checkpoint, batch: Begun) -> None:
    """Keep what a batch is made from; one that was begun from another plan is refused."""
    before = begun(checkpoint)
    if before == batch:
        return
    if before is not None and before.batch == batch.batch:
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: batch {batch.batch} was begun before, by another plan than "
            f"spark/offsets/{batch.batch} has now, and outputs may hold it. Restore the whole checkpoint from one copy."
        )
    checkpoint.write_json(DOCUMENT, {"batch": batch.batch, "offsets": batch.offsets, "query": batch.query})
