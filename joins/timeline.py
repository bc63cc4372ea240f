"""The versions of keys side by side, as a line of time for each key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.joins.precedence import Precedence
from penstock.state.edge import DELETED, TIME
from penstock.windows.aggregates.buffers import flags, whole
from penstock.windows.pairs import first_pair, pair_order
from penstock.windows.shapes import Ints, Mask, begins


@dataclass(frozen=True)
class Timeline:
    """Versions sorted by group and time, one for each time of a group: the one that counts.

    ``row`` is a version's number among the rows that the line was made of, ``deleted`` says that nothing holds
    from its time on, and ``held`` that there was a version of its group and time before, this or another.
    """

    group: Ints
    time_us: Ints
    row: Ints
    deleted: Mask
    held: Mask

    @classmethod
    def of(cls, rows: pa.Table, group: Ints, held: int, precedence: Precedence) -> Timeline:
        """The line of rows, the first of which were ``held``; there is at least one."""
        time_us = rows[TIME].to_numpy()
        order = pair_order(group, time_us)
        first = begins(group[order], time_us[order])
        number = np.empty(len(order), np.int64)
        number[order] = np.repeat(np.arange(len(first)), np.diff(first, append=len(order)))
        row = precedence.winners(rows, number)
        was_held = np.zeros(len(row), np.bool_)
        was_held[number[:held]] = True
        return cls(group[row], time_us[row], row, flags(whole(rows[DELETED]))[row], was_held)

    def at(self, group: Ints, time_us: Ints, tolerance_us: int | None) -> Ints:
        """The row of the version that holds at a time of a group, or -1.

        It is the one with the greatest time that is not after it, unless that is a delete, or older than the
        tolerance.
        """
        place = first_pair(self.group, self.time_us, group, time_us + 1) - 1
        holds = (place >= 0) & (self.group[place] == group) & ~self.deleted[place]
        if tolerance_us is not None:
            holds &= time_us - self.time_us[place] <= tolerance_us
        return np.where(holds, self.row[place], -1)

    def unneeded(self, needed_us: int) -> Mask:
        """The versions that hold at no time from ``needed_us`` on.

        A later one has taken their place by then, or they are deletes: without anything older, a delete and
        nothing are the same.
        """
        before = self.time_us < needed_us
        replaced = np.append(before[1:] & (self.group[1:] == self.group[:-1]), False)
        return before & (replaced | self.deleted)
