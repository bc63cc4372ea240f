"""Results that are rows themselves: lists taken apart into rows, and rows that cancel each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import numbers, whole
from penstock.windows.aggregates.codes import bounds, codes, entries


def exploded(results: pa.Table, column: str) -> pa.Table:
    """One row for each entry of a column of lists of structs, whose fields become the last columns.

    The other columns are repeated. A row whose list is empty or null gives none.

    >>> best = [[{"user": "ann", "rank": 1}, {"user": "bob", "rank": 2}], []]
    >>> exploded(pa.table({"top": best, "key": ["a", "b"]}), "top").to_pylist()
    [{'key': 'a', 'user': 'ann', 'rank': 1}, {'key': 'a', 'user': 'bob', 'rank': 2}]
    """
    if results[column].null_count:
        results = results.filter(results[column].is_valid())
    lists = whole(results[column])
    owner = np.repeat(np.arange(len(lists)), np.diff(bounds(lists)))
    rows = results.drop_columns([column]).take(pa.array(owner))
    structs = entries(lists, lists.values)
    names = [*rows.schema, *structs.type]
    return pa.Table.from_arrays([*rows.columns, *structs.flatten()], schema=pa.schema(names, rows.schema.metadata))


def cancelled(table: pa.Table, weight: str, by: Sequence[str] | None = None) -> pa.Table:
    """The table without the pairs of a row of weight +1 and one of -1 that are equal in ``by``.

    Without ``by`` they are equal in all other columns. Equal means what it means in grouping: null equals
    null. Of equal rows with one sign left over the last stay, and all that stay keep their order.

    >>> changes = pa.table({"user": ["ann", "bob", "ann"], "w": pa.array([-1, 1, 1], pa.int8())})
    >>> cancelled(changes, "w").to_pylist()
    [{'user': 'bob', 'w': 1}]
    """
    weights = numbers(whole(table[weight])).astype(np.int64)
    if not (weights > 0).any() or not (weights < 0).any():
        return table
    compared = [name for name in table.column_names if name != weight] if by is None else by
    same = codes([table[name] for name in compared]) if compared else np.zeros(len(weights), np.int64)
    left = np.bincount(same, weights).astype(np.int64)[same]
    rows = np.flatnonzero(np.sign(left) == np.sign(weights))
    # from the last row to the first, each counts how many equal ones it has met
    grouped = rows[::-1][np.argsort(same[rows[::-1]], kind="stable")]
    first = np.flatnonzero(np.diff(same[grouped], prepend=-1))
    met = np.arange(len(grouped)) - np.repeat(first, np.diff(np.append(first, len(grouped))))
    return table.take(pa.array(np.sort(grouped[met < np.abs(left[grouped])])))
