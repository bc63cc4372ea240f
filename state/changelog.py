"""The algebra of changes: a table is what all its changes add up to.

A change is a row with a weight: +1 for a row that is there now, -1 for one that was there before. A table
has one row for each key, so that a key's changes in a batch are at most one row that goes and one that comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.edge import WEIGHT
from penstock.state.samekeys import same_values
from penstock.windows.aggregates.buffers import numbers, whole
from penstock.windows.aggregates.codes import codes
from penstock.windows.shapes import Ints, Mask


def weighted(lost: pa.Table, gained: pa.Table) -> pa.Table:
    """Rows that go and rows that come, as changes.

    >>> weighted(pa.table({"user": ["ann"]}), pa.table({"user": ["bob"]})).to_pylist()
    [{'user': 'ann', '__ps_weight': -1}, {'user': 'bob', '__ps_weight': 1}]
    """
    weights = np.repeat(np.array([-1, 1], np.int8), (lost.num_rows, gained.num_rows))
    return pa.concat_tables([lost, gained.select(lost.column_names)]).append_column(WEIGHT, pa.array(weights))


def net(changes: pa.Table) -> pa.Table:
    """The changes without those that cancel each other: pairs of +1 and -1 that are equal in all columns.

    Equal means what it means in grouping: null equals null. Of equal rows with one sign left over the last
    stay, and all that stay keep their order.

    >>> net(weighted(pa.table({"user": ["ann", "bob"]}), pa.table({"user": ["ann"]}))).to_pylist()
    [{'user': 'bob', '__ps_weight': -1}]
    """
    weights = numbers(whole(changes[WEIGHT])).astype(np.int64)
    if not (weights > 0).any() or not (weights < 0).any():
        return changes
    compared = [changes[name] for name in changes.column_names if name != WEIGHT]
    same = codes(compared) if compared else np.zeros(len(weights), np.int64)
    left = np.bincount(same, weights).astype(np.int64)[same]
    rows = np.flatnonzero(np.sign(left) == np.sign(weights))
    # from the last row to the first, each counts how many equal ones it has met
    grouped = rows[::-1][np.argsort(same[rows[::-1]], kind="stable")]
    first = np.flatnonzero(np.diff(same[grouped], prepend=-1))
    met = np.arange(len(grouped)) - np.repeat(first, np.diff(np.append(first, len(grouped))))
    return changes.take(pa.array(np.sort(grouped[met < np.abs(left[grouped])])))


def difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """The changes that make one table of another.

    >>> difference(pa.table({"id": [1, 2]}), pa.table({"id": [2, 3]})).to_pylist()
    [{'id': 1, '__ps_weight': -1}, {'id': 3, '__ps_weight': 1}]
    """
    return net(weighted(before, after))


def applied(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """The rows after the changes.

    >>> applied(pa.table({"id": [1, 2]}), difference(pa.table({"id": [1]}), pa.table({"id": [3]}))).to_pylist()
    [{'id': 2}, {'id': 3}]
    """
    there = rows.append_column(WEIGHT, pa.array(np.ones(rows.num_rows, np.int8)))
    return net(pa.concat_tables([there, changes.select(there.column_names)])).drop_columns([WEIGHT])


def settled(changes: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """What a reader by key is to be told: the rows that are there now, and those of keys that have none any more.

    >>> now, gone = settled(weighted(pa.table({"id": [1, 2]}), pa.table({"id": [2, 3]})), ["id"])
    >>> now.to_pylist(), gone.to_pylist()
    ([{'id': 2}, {'id': 3}], [{'id': 1}])
    """
    comes = numbers(whole(changes[WEIGHT])) > 0
    rows = changes.drop_columns([WEIGHT])
    now = rows.filter(pa.array(comes))
    if comes.all():
        return now, rows.slice(0, 0)
    same = codes([rows[name] for name in key])
    stays = np.zeros(int(same.max(initial=-1)) + 1, np.bool_)
    stays[same[comes]] = True
    return now, rows.filter(pa.array(~comes & ~stays[same]))


@dataclass(frozen=True)
class Touched:
    """Rows that are held and rows that came, and which of them were there before the batch and are there after it.

    ``group`` is the number that the caller gave each of them; ``ends`` are those that nothing comes in place of.
    """

    rows: pa.Table
    group: Ints
    was: Mask
    now: Mask
    ends: Mask

    @property
    def stays(self) -> Mask:
        """Those that the batch leaves as they are."""
        return self.was & self.now

    @property
    def goes(self) -> Mask:
        """Those that the batch takes away."""
        return self.was & ~self.now

    @property
    def comes(self) -> Mask:
        """Those that the batch brings."""
        return ~self.was & self.now


def touched(held: pa.Table, held_group: Ints, changes: pa.Table, group: Ints, within: Sequence[str]) -> Touched:
    """What changes do to the rows that are held; a change that changes nothing is none.

    A row is told from the others of its group by ``within``. What is held has all rows that the changes are
    about, and may have more.
    """
    bare = changes.drop_columns([WEIGHT])
    rows = pa.concat_tables([held.select(bare.column_names), bare])
    groups, count = np.concatenate((held_group, group)), held.num_rows
    same = codes([pa.array(groups), *(rows[name] for name in within)])
    comes = numbers(whole(changes[WEIGHT])) > 0
    # by identity: the row that is held, whether it is spoken of, and the row that is there then
    was_at, now_at = np.full(int(same.max(initial=-1)) + 1, -1), np.full(int(same.max(initial=-1)) + 1, -1)
    was_at[same[:count]] = np.arange(count)
    spoken = np.zeros(len(was_at), np.bool_)
    spoken[same[count:]] = True
    now_at[same[count:][comes]] = count + np.flatnonzero(comes)
    both = np.flatnonzero((was_at >= 0) & (now_at >= 0))
    if len(both):
        before, after = (rows.take(pa.array(at[both])) for at in (was_at, now_at))
        alike = both[same_values(before, after)]
        now_at[alike], spoken[alike] = -1, False
    was = np.arange(len(groups)) < count
    now = np.zeros(len(groups), np.bool_)
    now[:count] = ~spoken[same[:count]]
    now[now_at[now_at >= 0]] = True
    ends = was & ~now & (now_at[same] < 0)
    return Touched(rows, groups, was, now, ends)
