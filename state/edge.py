"""What travels along an edge to a stateful step, and what a kernel gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.sources.base import CLOCK, PARTITION, POSITION
from penstock.state.bucket import BucketState

# Hidden columns of a row on its way; the source's own are named in sources.base.
TIME = "__ps_time"  # event time in microseconds
INPUT = "__ps_input"  # the number of the input that it came from
KEEP = "__ps_keep"  # false: a step before dropped it, but it has been seen and moves time
BAD = "__ps_bad"  # struct(reason, place, row) of a row that cannot be used, else null
LATE = "__ps_late"  # the row as it came, when it is late, else null
BUCKET = "__ps_bucket"

__all__ = [
    "BAD", "BUCKET", "CLOCK", "INPUT", "KEEP", "LATE", "PARTITION", "POSITION", "TIME",
    "Kernel", "Outcome", "StepClock",
]  # fmt: skip


@dataclass(frozen=True)
class StepClock:
    """A step's time before the batch, by which lateness is judged, and after it, by which windows close."""

    previous_us: int
    now_us: int


@dataclass(frozen=True)
class Outcome:
    """What a kernel gives: results, and the next time at which the bucket has something to do."""

    main: pa.Table | None
    wake_us: int | None


class Kernel(Protocol):
    """The work of a stateful step on one bucket: a pure function of columns."""

    def late_before(self, previous_us: int | None) -> int:
        """A row before this time is late."""

    def combine(self, rows: pa.Table) -> pa.Table:
        """Rows before the shuffle, made fewer where the step allows it; the bucket column stays."""

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """What the rows and the clock do to a bucket."""
