"""The manifest of a batch: every run of the state after it, and what the engine wants to remember."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.plan.errors import CheckpointError
from penstock.state.document import seal, unseal
from penstock.state.runs import Run

VERSION = 1

Steps = Mapping[str, Mapping[int, Mapping[str, tuple[Run, ...]]]]


@dataclass(frozen=True)
class Manifest:
    """One whole version of the state: step -> bucket -> set -> runs, oldest first.

    ``epoch`` is the run of the job that committed it; ``body`` is JSON that belongs to the engine.
    """

    batch: int
    epoch: int
    steps: Steps = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file that holds it, relative to the checkpoint."""
        return name_of(self.batch)

    def runs(self) -> Iterator[Run]:
        """All runs of this version."""
        for buckets in self.steps.values():
            for sets in buckets.values():
                for runs in sets.values():
                    yield from runs

    def to_bytes(self) -> bytes:
        """The content of its file, which carries its own checksum."""
        steps = {
            step: {
                str(bucket): {name: [run.to_json() for run in runs] for name, runs in sets.items()}
                for bucket, sets in buckets.items()
            }
            for step, buckets in self.steps.items()
        }
        return seal({"version": VERSION, "batch": self.batch, "epoch": self.epoch, "steps": steps, "body": self.body})

    @classmethod
    def from_bytes(cls, content: bytes, batch: int) -> Manifest:
        """The manifest of a batch; damaged content, or that of another batch or version, is refused."""
        name = name_of(batch)
        value = unseal(content, name)
        if value["version"] != VERSION:
            raise CheckpointError(
                f"{name} has version {value['version']}, this Penstock reads version {VERSION}. "
                "Run the job with the Penstock that wrote it."
            )
        if value["batch"] != batch:
            raise CheckpointError(f"{name} is the manifest of batch {value['batch']}; the file was renamed.")
        steps = {
            step: {
                int(bucket): {name: tuple(map(Run.from_json, runs)) for name, runs in sets.items()}
                for bucket, sets in buckets.items()
            }
            for step, buckets in value["steps"].items()
        }
        return cls(batch, value["epoch"], steps, value["body"])


def name_of(batch: int) -> str:
    """The file of a batch's manifest.

    >>> name_of(12)
    'manifest/12.json'
    """
    return f"manifest/{batch}.json"
