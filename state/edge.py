"""What travels along an edge to a stateful step, and what a kernel gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.sources.base import CLOCK, DELETED, PARTITION, POSITION, SEQUENCE
from penstock.state.bucket import BucketState

# Hidden columns of a row on its way; the source's own are named in sources.base.
TIME = "__ps_time"  # event time in microseconds
INPUT = "__ps_input"  # the number of the input that it came from
KEEP = "__ps_keep"  # false: a step before dropped it, but it has been seen and moves time
BAD = "__ps_bad"  # struct(reason, place, row) of a row that cannot be used, else null
LATE = "__ps_late"  # the row as it came, when it is late or may be, else null
WEIGHT = "__ps_weight"  # of a table's change: 1 for a row that is there now, -1 for one that was there before
BUCKET = "__ps_bucket"

__all__ = [
    "BAD", "BUCKET", "CLOCK", "DELETED", "INPUT", "KEEP", "LATE", "PARTITION", "POSITION", "SEQUENCE", "TIME", "WEIGHT",
    "Alone", "Kernel", "OneEdged", "Outcome", "StepClock", "Timeless", "TimelessJoin",
]  # fmt: skip


@dataclass(frozen=True)
class StepClock:
    """A step's time before the batch, by which lateness is judged, and after it, by which windows close.

    Wall time is the batch's own, that of the batch before it, and that of the first batch of all. ``loaded`` is
    false while a table is still read for the first time for whose end the step waits.
    """

    previous_us: int
    now_us: int
    previous_wall_us: int = 0
    wall_us: int = 0
    since_us: int = 0
    loaded: bool = True


@dataclass(frozen=True)
class Outcome:
    """What a kernel gives: results, the next time at which the bucket has something to do, and what was late after all.

    ``late`` are rows as they came, where somebody wants them, ``late_right`` those of a join's right side;
    ``late_count`` counts all of them in any case.
    """

    main: pa.Table | None
    wake_us: int | None
    late: pa.Table | None = None
    late_count: int = 0
    late_right: pa.Table | None = None


class Kernel(Protocol):
    """The work of a stateful step on one bucket: a pure function of columns.

    Rows come along edges: a step that reads one stream has one, a join has a left one (0) and a right one (1).
    """

    def late_before(self, edge: int, previous_us: int | None) -> int:
        """A row before this time is late."""

    def doubtful_before(self, edge: int, previous_us: int | None) -> int:
        """A row before this time may be late: the step decides, and needs the row as it came."""

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Rows before the shuffle, made fewer where the step allows it; the bucket column stays."""

    def ticks(self, clock: StepClock) -> bool:
        """True when wall time alone gives every bucket something to do."""

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """What the rows of each edge and the clock do to a bucket."""


class OneEdged(Protocol):
    """A kernel whose rows come along one edge."""

    def late_before(self, previous_us: int | None) -> int:
        """A row before this time is late."""

    def doubtful_before(self, previous_us: int | None) -> int:
        """A row before this time may be late."""

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """Rows before the shuffle."""

    def ticks(self, clock: StepClock) -> bool:
        """True when wall time alone gives every bucket something to do."""

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """What the rows and the clock do to a bucket."""


class Timeless:
    """What a kernel of one edge says of time when it has no say: nothing is late, and nothing happens by the wall."""

    def late_before(self, previous_us: int | None) -> int:
        """Nothing is late."""
        return BEGINNING_US

    def doubtful_before(self, previous_us: int | None) -> int:
        """Nothing is late."""
        return BEGINNING_US

    def ticks(self, clock: StepClock) -> bool:
        """Wall time has no say."""
        return False


class TimelessJoin:
    """The same of a kernel with two edges."""

    def late_before(self, edge: int, previous_us: int | None) -> int:
        """Nothing is late."""
        return BEGINNING_US

    def doubtful_before(self, edge: int, previous_us: int | None) -> int:
        """Nothing is late."""
        return BEGINNING_US

    def ticks(self, clock: StepClock) -> bool:
        """Wall time has no say."""
        return False


@dataclass(frozen=True)
class Alone:
    """A kernel of one edge as the stage sees it."""

    kernel: OneEdged

    def late_before(self, edge: int, previous_us: int | None) -> int:
        """As the kernel says."""
        return self.kernel.late_before(previous_us)

    def doubtful_before(self, edge: int, previous_us: int | None) -> int:
        """As the kernel says."""
        return self.kernel.doubtful_before(previous_us)

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """As the kernel does."""
        return self.kernel.combine(rows, previous_us)

    def ticks(self, clock: StepClock) -> bool:
        """As the kernel says."""
        return self.kernel.ticks(clock)

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """As the kernel does."""
        return self.kernel.step(state, rows[0], clock)
