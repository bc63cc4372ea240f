"""``top``: the best ``n`` rows of a range, each with its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import Flags, column_of, flags, numbers, validity, whole
from penstock.windows.aggregates.codes import bounds
from penstock.windows.aggregates.lists import (
    Fields,
    flat_values,
    joined,
    list_column,
    list_of_rows,
    list_rows_result,
    owners,
    singletons,
)
from penstock.windows.aggregates.ordering import ORDER_TYPES, Keys, Order, orderable, sort_keys
from penstock.windows.aggregates.reduction import Bounds

RANK = ("rank", pa.int32())

# with at least this many times the wanted entries, it pays to look for the hopeless ones before sorting
CROWDED = 2


@dataclass(frozen=True)
class Top:
    """The first ``n`` rows by ``by``, one after the other in the list, with their ``rank`` from 1.

    ``by`` has a type, whether it is descending, and whether nulls come first, for each column. Rows that are
    equal in it stand in order of arrival. With ``ties`` they share a rank, as in SQL's ``rank()``, and all
    that are equal to the n-th stay.
    """

    n: int
    fields: Fields
    by: tuple[tuple[pa.DataType, bool, bool], ...]
    ties: bool
    needs_order: bool = True

    @property
    def result_type(self) -> pa.DataType:
        """A list of structs: the fields, then the rank."""
        return list_of_rows((*self.fields, RANK))

    def state_types(self) -> tuple[pa.DataType, ...]:
        """The fields of the rows, what they are ordered by, and their order of arrival, one beside the other."""
        by = (kind for kind, _, _ in self.by)
        return tuple(pa.list_(kind) for kind in (*(kind for _, kind in self.fields), *by, *ORDER_TYPES[1:]))

    def start(self, args: Sequence[pa.Array], mask: pa.Array | None, order: Order | None, rows: int) -> list[pa.Array]:
        """Each row as the best of its own."""
        assert order is not None, "a top needs the order of arrival"
        present = np.ones(rows, np.bool_) if mask is None else flags(whole(mask))
        return [singletons(whole(column), present) for column in (*args, *order.columns()[1:])]

    def merge(self, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
        """The best rows of each range, the best first."""
        columns = [whole(column) for column in state]
        flat = [flat_values(column) for column in columns]
        rows, ends = joined(columns[-1], lo, hi)
        # a list alone in its range is sorted and cut already
        if (hi - lo > 1).any():
            rows, ends = self.best(flat, rows, ends)
        return [list_column(part.take(pa.array(rows)), ends) for part in flat]

    def finish(self, state: Sequence[pa.Array]) -> pa.Array:
        """The rows with their ranks."""
        columns = [whole(column) for column in state]
        flat, ends = [flat_values(column) for column in columns], bounds(columns[-1])
        rank = column_of(self.better(self.keys(flat), ends) + 1, pa.int32())
        return list_rows_result((*self.fields, RANK), [*flat[: len(self.fields)], rank], ends)

    def keys(self, flat: Sequence[pa.Array]) -> list[Keys]:
        """What rows are ordered by, least first and the most telling key first."""
        keys = []
        first = len(self.fields)
        for column, (_, descending, nulls_first) in zip(flat[first:], self.by, strict=False):
            key, there = sort_keys(column), validity(column)
            key = ~key if descending else key
            if there is None:
                keys.append(key)
                continue
            # one null is as good as another, whatever number stands there
            keys += [(there if nulls_first else ~there).astype(np.int64), np.where(there, key, 0)]
        return keys

    def best(self, flat: Sequence[pa.Array], rows: Bounds, ends: Bounds) -> tuple[Bounds, Bounds]:
        """Of the entries of each list those that stay, sorted, and where the lists then end."""
        keys = self.keys(flat)
        if keys and len(rows) > CROWDED * self.n * (len(ends) - 1):
            nulls = validity(flat[len(self.fields)]) is not None
            hopeful = contenders([key[rows] for key in keys[: 1 + nulls]], ends, self.n)
            rows, ends = rows[hopeful], ends_of(hopeful, ends)
        arrival = [numbers(part)[rows] for part in flat[-2:]]
        compared = [key[rows] for key in keys]
        sorting = np.lexsort([*reversed([*compared, *arrival]), owners(ends)])
        stays = self.better([key[sorting] for key in compared], ends) < self.n
        return rows[sorting][stays], ends_of(stays, ends)

    def better(self, keys: Sequence[Keys], ends: Bounds) -> Bounds:
        """How many rows of its list rank before each row, in lists that are sorted."""
        here = np.arange(ends[-1])
        begins = np.repeat(ends[:-1], np.diff(ends))
        if not self.ties:
            return np.asarray(here - begins)
        new = here == begins
        for key in keys:
            new[1:] |= key[1:] != key[:-1]
        return np.asarray(np.maximum.accumulate(np.where(new, here, 0)) - begins)


def ends_of(kept: Flags, ends: Bounds) -> Bounds:
    """Where the lists end when only some entries are kept."""
    return np.asarray(np.concatenate(([0], np.cumsum(kept)))[ends])


def contenders(leading: Sequence[Keys], ends: Bounds, n: int) -> Flags:
    """The entries that may be among the first ``n`` of their list; few others are let through.

    ``leading`` is the first key, or a flag and the key that decides between equal flags. It is cut to its
    upper bits, so that list and key fit one number, which NumPy sorts fastest: an entry with ``n`` others
    before it in that order has them before it in the full order too.
    """
    *flag, key = leading
    room = 62 - max(1, len(ends) - 1).bit_length()
    # differences of 64-bit numbers fit 64 bits without a sign
    above = key.view(np.uint64) - key.min().view(np.uint64)
    above >>= np.uint64(max(0, int(above.max()).bit_length() - room))
    packed = (owners(ends) << (room + 1)) | above.astype(np.int64)
    for part in flag:
        packed |= part << room
    counts = np.diff(ends)
    some = counts > 0
    last = (ends[:-1] + np.minimum(counts, n) - 1)[some]
    return np.asarray(packed <= np.repeat(np.sort(packed)[last], counts[some]))


def make_top(n: int, fields: Fields, by: tuple[tuple[pa.DataType, bool, bool], ...], ties: bool) -> Top | None:
    """The best ``n`` >= 1 rows, or None where a column of ``by`` is of a type that has no order here."""
    return Top(n, fields, by, ties) if all(orderable(kind) for kind, _, _ in by) else None
