"""The state of a join of streams when its buckets are split anew: numbers that no two held rows share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.joins.held_side import NUMBER, Numbers
from penstock.state.bucket import BucketState
from penstock.state.rewrite import Ready, Rewrite

NUMBERS = "numbers"
SETTLED = "_settled"


class Renumbered(Rewrite):
    """Buckets of a join, one after the other, with the numbers of each after those of the ones before it.

    Held rows are told apart by their number, which is one of their bucket: where two buckets become one, two rows
    would have the same. That a row has found a partner is noted by its number alone: the row itself says whose it is.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._taken = 0

    def prepare(self, tables: Mapping[str, pa.Table]) -> Mapping[str, Ready]:
        tables = {name: rows for name, rows in tables.items() if name != NUMBERS}
        if not tables:
            return {}
        used = np.concatenate([rows[NUMBER].to_numpy() for rows in tables.values()])
        shift = self._taken - int(used.min())
        self._taken = int(used.max()) + shift + 1
        made = {}
        for name, rows in tables.items():
            owners = None
            if name.endswith(SETTLED):
                rows, owners = self._owned(rows, tables.get(name.removesuffix(SETTLED)))
            numbers = pa.array(rows[NUMBER].to_numpy() + shift)
            made[name] = Ready(rows.set_column(rows.column_names.index(NUMBER), NUMBER, numbers), owners)
        return made

    def finish(self, state: BucketState) -> None:
        numbers = Numbers(state)
        numbers.take(self._taken)
        numbers.save()

    def _owned(self, notes: pa.Table, held: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        """Notes with the keys of the rows that they are of; one whose row is gone says nothing more."""
        if held is None:
            return notes.slice(0, 0), notes.slice(0, 0)
        order = np.argsort(held[NUMBER].to_numpy())
        known, asked = held[NUMBER].to_numpy()[order], notes[NUMBER].to_numpy()
        at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        there = known[at] == asked
        return notes.filter(pa.array(there)), held.select(self._keys).take(pa.array(order[at[there]]))
