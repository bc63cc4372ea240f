"""Which keys to look at though nothing came for them: when their time has come, or wall time ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.state.buffer import TimeBuffer
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.held import Seen, Touched
from penstock.windows.partials import Partials
from penstock.windows.shapes import Ints


@dataclass(frozen=True)
class Timers:
    """When to look at a key next; one that no longer matters finds nothing to do."""

    TIME: ClassVar[str] = "due_us"
    buffer: TimeBuffer
    partials: Partials

    @property
    def first_us(self) -> int | None:
        """When to look next."""
        return self.buffer.first_us

    def fallen_due(self, now_us: int) -> pa.Table | None:
        """The keys to look at now; their timers are over."""
        keys = self.buffer.read(None, now_us + 1)
        self.buffer.drop_before(now_us + 1)
        return keys

    def set(self, touched: Touched, seen: Seen, due_us: Ints, now_us: int) -> Seen:
        """Look at each key at the first time after ``now`` that one of its windows asks for, if not before.

        A key that comes again and again has few timers: what is seen with the new ones is to be kept.
        """
        timer_us, later = seen.timer_us.copy(), due_us > now_us
        np.minimum.at(timer_us, seen.windows.group[later], due_us[later])
        sooner = np.flatnonzero(timer_us < seen.timer_us)
        self.buffer.add(touched.named(sooner, pa.table({self.TIME: timer_us[sooner]})))
        self.buffer.merge_small(lambda timers: _distinct(timers, [self.TIME, *self.partials.keys]))
        return replace(seen, timer_us=timer_us)


@dataclass(frozen=True)
class Untold:
    """The keys of which something came since wall time ticked last."""

    TIME: ClassVar[str] = "wall_us"
    buffer: TimeBuffer
    partials: Partials

    def all(self) -> pa.Table | None:
        """These keys."""
        return self.buffer.read(None, None)

    def add(self, came: pa.Table | None, wall_us: int) -> None:
        """Remember the keys of what came."""
        if came is not None and came.num_rows:
            wall = pa.array(np.full(came.num_rows, wall_us))
            names = [*self.partials.keys, self.TIME]
            keys = pa.table([*(came[k] for k in self.partials.keys), wall], names=names)
            self.buffer.add(_distinct(keys, self.partials.keys))
            self.buffer.merge_small(lambda told: _distinct(told, self.partials.keys))

    def forget(self) -> None:
        """All have been told."""
        if self.buffer.first_us is not None:
            self.buffer.drop_before(2**63 - 1)


def _distinct(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """The first of rows that are equal in ``by``."""
    if not by:
        return rows.slice(0, 1)
    return rows.filter(pa.array(first_of_each(codes([rows[name] for name in by]))))
