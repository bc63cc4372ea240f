"""Keep the newest row of every identity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.state.lookup import Positions
from penstock.state.runs import Values
from penstock.state.samekeys import Mask, comparable, same_keys


def newest_rows(
    order: Positions, groups: Values, marks: Sequence[Values], rows: pa.Table, columns: Sequence[str]
) -> Positions:
    """The row numbers of the newest row of every identity, sorted by group and then by marks.

    ``order`` has the row numbers sorted by group, the older rows of a group first. Rows of one identity have the
    same group and marks; of rows that have them, ``columns`` tell which are the same.

    >>> order, groups, times = np.array([0, 2, 1, 3]), np.array([5, 6, 5, 6]), np.array([20, 30, 10, 30])
    >>> newest_rows(order, groups, [times], pa.table({"time": times}), ["time"]).tolist()
    [2, 0, 3]
    """
    order, alike = _by_marks(order, groups, marks)
    older = np.flatnonzero(alike)
    if not len(older):
        return order
    identities = rows.select(columns)
    same = np.ones(len(older), dtype=np.bool_)
    if columns:
        before, after = (identities.take(pa.array(order[older + step])) for step in (0, 1))
        same = same_keys(before, after, columns)
    keep = np.ones(len(order), dtype=np.bool_)
    keep[older[same]] = False
    if not same.all():
        stretch = np.concatenate([[0], np.cumsum(~alike)])
        for shared in np.unique(stretch[older[~same]]):
            # identities that share a hash may alternate: look at these few rows one by one
            start, stop = np.searchsorted(stretch, shared), np.searchsorted(stretch, shared, side="right")
            keep[start:stop] = _last_of_each(identities.take(pa.array(order[start:stop])))
    return order[keep]


def _by_marks(order: Positions, groups: Values, marks: Sequence[Values]) -> tuple[Positions, Mask]:
    """The order with the rows of each group sorted by marks, and which rows equal the next in group and marks."""
    grouped = groups[order]
    together = grouped[1:] == grouped[:-1]
    falls, alike = _compared(order, together, marks)
    if not falls.any():
        return order, alike  # what came in the order of time stays so: most often there is nothing to sort
    number = np.concatenate([[0], np.cumsum(~together)])
    unsorted = np.zeros(number[-1] + 1, dtype=np.bool_)
    unsorted[number[1:][falls]] = True
    at = np.flatnonzero(unsorted[number])
    rows = order[at]
    order = order.copy()
    order[at] = rows[_sorted_within(number[at], [mark[rows] for mark in marks])]
    return order, _compared(order, together, marks)[1]


def _compared(order: Positions, together: Mask, marks: Sequence[Values]) -> tuple[Mask, Mask]:
    """Which rows of a group have a smaller row next to them, and which an equal one."""
    falls, alike = np.zeros_like(together), together
    for mark in marks:
        values = mark[order]
        falls |= alike & (values[1:] < values[:-1])
        alike = alike & (values[1:] == values[:-1])
    return falls, alike


def _sorted_within(number: Positions, marks: Sequence[Values]) -> Positions:
    """The stable order by number, which rises already, and then by marks."""
    least, most = int(marks[0].min()), int(marks[0].max())
    width = most - least + 1
    if len(marks) == 1 and (int(number[-1]) + 1) * width < 2**63:
        # one sort of numbers that are nearly sorted, instead of two of numbers that are not
        return np.argsort(number * width + (marks[0] - marks[0].dtype.type(least)).astype(np.int64), kind="stable")
    return np.lexsort([*reversed(marks), number])


def _last_of_each(identities: pa.Table) -> list[bool]:
    seen = set()
    keep = []
    for row in reversed(identities.to_pylist()):
        value = comparable(row)
        keep.append(value not in seen)
        seen.add(value)
    return keep[::-1]
