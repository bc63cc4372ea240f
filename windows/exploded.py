"""Results that are rows themselves: lists taken apart into rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.buffers import whole
from penstock.windows.aggregates.codes import bounds, entries


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
