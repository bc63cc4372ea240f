"""What a job has counted since its checkpoint began; kept in the manifest, so that a replay counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Counters:
    """Rows in by input, refused as late by step, dead letters by reason, rows out by output.

    ``ignored`` are the messages of a changelog that are of no row, by input.
    """

    rows: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    out: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {"rows": self.rows, "late": self.late, "dead": self.dead, "out": self.out, "ignored": self.ignored}

    @classmethod
    def from_json(cls, value: Mapping[str, Mapping[str, int]]) -> Counters:
        """From the manifest."""
        return cls(*(Counter(value.get(name, {})) for name in ("rows", "late", "dead", "out", "ignored")))
