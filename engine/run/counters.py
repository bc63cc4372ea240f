"""What a job has counted since its checkpoint began; kept in the manifest, so that a replay counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class Counters:
    """Rows in by input, refused as late by step, dead letters by reason, rows out by output.

    ``ignored`` are the messages of a changelog that are of no row, by input. By output: ``retries`` are the tries
    that failed and were followed by another, ``repeated`` the batches that an output had already.
    """

    rows: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    out: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {kind.name: getattr(self, kind.name) for kind in fields(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, int]]) -> Counters:
        """From the manifest; what an older one did not count is none."""
        return cls(*(Counter(value.get(kind.name, {})) for kind in fields(cls)))
