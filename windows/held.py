"""What a kernel sees of the keys that a batch touches: their parts, and the windows that these make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.plan.durations import END_US
from penstock.state.bucket import BucketState
from penstock.state.edge import LATE, StepClock
from penstock.windows.shapes import Ints, Mask

TIMER = "timer_us"  # of a part: a time at which its key will be looked at


@dataclass(frozen=True)
class Windows:
    """Windows over sorted parts: rows ``low`` to ``high`` make ``start`` to ``end``, which closes at ``close``.

    They are sorted by group and end, and no two of a group have the same end. Of windows with one number in
    ``chain`` a row may move from one to the other.
    """

    group: Ints
    low: Ints
    high: Ints
    start_us: Ints
    end_us: Ints
    close_us: Ints
    chain: Ints


@dataclass(frozen=True)
class Touched:
    """The keys that a batch looks at, each once, and what came for them; ``group`` is the row number of its key."""

    names: tuple[str, ...]
    keys: pa.Table
    came: pa.Table | None
    group: Ints

    def named(self, group: Ints, columns: pa.Table) -> pa.Table:
        """Columns with those of the keys before them."""
        own = self.keys.select(list(self.names)).take(pa.array(group))
        return pa.table([*own.columns, *columns.columns], names=[*self.names, *columns.column_names])


@dataclass(frozen=True)
class Seen:
    """The parts of touched keys with what came, sorted by group and merged, and the windows that can still change.

    ``fresh`` are the parts with something of this batch; ``held_group`` and ``held_us`` say for which keys and
    times the state has a part, ``timer_us`` when each key will be looked at anyway, ``END_US`` for never.
    ``late`` are rows, as they came, that no window takes.
    """

    parts: pa.Table
    group: Ints
    fresh: Mask
    windows: Windows
    held_group: Ints
    held_us: Ints
    timer_us: Ints
    late: pa.Table | None
    late_count: int

    def rows(self, touched: Touched, chosen: Mask) -> pa.Table:
        """Parts as they are held."""
        parts, group = self.parts.filter(pa.array(chosen)), self.group[chosen]
        return touched.named(group, parts.append_column(TIMER, pa.array(self.timer_us[group])))

    def fresh_windows(self) -> Mask:
        """The windows that this batch may have changed: it has something for them, or for their chain."""
        count, windows = np.concatenate(([0], np.cumsum(self.fresh))), self.windows
        chains = np.zeros(int(windows.chain.max(initial=0)) + 1, np.bool_)
        chains[windows.chain[count[windows.high] > count[windows.low]]] = True
        return chains[windows.chain]


class Held(Protocol):
    """How one kind of window is held between batches, for as long as a row that is not late can change it.

    A window is *sealed* when it has closed and the time in which it is corrected has passed too.
    """

    def late_before(self, watermark_us: int) -> int:
        """A row before this time is late."""

    def doubtful_before(self, watermark_us: int) -> int:
        """A row before this time may be late."""

    def combine(self, rows: pa.Table, watermark_us: int) -> pa.Table:
        """Rows as parts, with the bucket column."""

    def see(self, state: BucketState, touched: Touched, clock: StepClock) -> Seen | None:
        """What is held of the keys with what came for them; None when there is nothing."""

    def keep(self, state: BucketState, touched: Touched, seen: Seen, now_us: int) -> None:
        """Put what this batch has changed and a later one may need."""

    def drop(self, state: BucketState, now_us: int) -> None:
        """Forget what time has passed."""

    def due(self, windows: Windows, now_us: int) -> Ints:
        """When, after ``now``, something is to be done about each window; a time up to ``now`` says never."""

    def look_again(self, now_us: int) -> int:
        """When, after ``now``, to look whether time has passed what is held."""


@dataclass(frozen=True)
class Together:
    """What is held of the touched keys and what came for them, in one table without the keys.

    ``origin`` is a row's number in what came, or -1 of what is held.
    """

    parts: pa.Table
    group: Ints
    origin: Ints
    timer_us: Ints

    @classmethod
    def of(cls, owner: Ints, held: pa.Table, touched: Touched, now_us: int) -> Together | None:
        """None when there is nothing."""
        came = touched.came
        tables = [t for t in (held, came) if t is not None and t.num_rows]
        if not tables:
            return None
        # how a row that may be late looked is told, and never held
        apart = {*touched.names, LATE, TIMER}
        names = [name for name in tables[0].column_names if name not in apart]
        timer_us = np.full(touched.keys.num_rows, END_US)
        if TIMER in held.column_names:
            waiting = held[TIMER].to_numpy() > now_us
            np.minimum.at(timer_us, owner[waiting], held[TIMER].to_numpy()[waiting])
        origin = np.concatenate((np.full(len(owner), -1), np.arange(0 if came is None else came.num_rows)))
        parts = pa.concat_tables([t.select(names) for t in tables])
        return cls(parts, np.concatenate((owner, touched.group)), origin, timer_us)
