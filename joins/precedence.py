"""Which of several rows of a changelog counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.edge import DELETED, PARTITION, POSITION
from penstock.windows.aggregates.buffers import flags, whole
from penstock.windows.aggregates.ordering import Keys, null_first_keys
from penstock.windows.shapes import Ints


@dataclass(frozen=True)
class Precedence:
    """The row with the greatest sequence counts: columns compared one after the other, null first.

    Of equal sequences a delete counts before an upsert, then what arrived later; with ``arrival_wins`` only
    what arrived later.
    """

    sequences: tuple[str, ...]
    arrival_wins: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """What rows must bring to be compared."""
        return (*self.sequences, DELETED, PARTITION, POSITION)

    def winners(self, rows: pa.Table, group: Ints) -> Ints:
        """The number of the row that counts in each group; of rows that are equal in everything, the last.

        Groups are numbered from 0, and each has a row.
        """
        counts = np.bincount(group)
        found = np.empty(len(counts), np.int64)
        found[group] = np.arange(len(group))
        contested = np.flatnonzero(counts[group] > 1)
        if len(contested):
            keys = self._keys(rows.select(self.columns).take(pa.array(contested)))
            order = contested[np.lexsort([*reversed(keys), group[contested]])]
            # sorted by group: a group's last row is the one before the next group begins
            last = np.append(group[order][1:] != group[order][:-1], True)
            found[group[order[last]]] = order[last]
        return found

    def _keys(self, rows: pa.Table) -> list[Keys]:
        """What rows are compared by, the most telling first."""
        keys: list[Keys] = []
        for name in self.sequences:
            keys += null_first_keys(whole(rows[name]))
        if not self.arrival_wins:
            keys.append(flags(whole(rows[DELETED])).astype(np.int64))
        return [*keys, rows[PARTITION].to_numpy(), rows[POSITION].to_numpy()]
