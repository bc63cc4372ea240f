"""Keep the newest row of every key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.state.runs import sort_values
from penstock.state.samekeys import comparable, same_keys


def newest_rows(table: pa.Table, hash_column: str, key: Sequence[str]) -> pa.Table:
    """The first row of every key, sorted by hash; the table has the newest rows first."""
    hashes = sort_values(table, hash_column)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    repeats = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    if not len(repeats):
        return table.take(pa.array(order)) if (order[1:] < order[:-1]).any() else table
    keys = table.select(key)
    same = same_keys(keys.take(pa.array(order[repeats])), keys.take(pa.array(order[repeats - 1])), key)
    keep = np.ones(len(order), dtype=bool)
    keep[repeats[same]] = False
    for shared in np.unique(hashes[repeats[~same]]):
        # different keys under one hash may alternate: look at these few rows one by one
        start, stop = np.searchsorted(hashes, shared), np.searchsorted(hashes, shared, side="right")
        seen = set()
        for at, row in enumerate(keys.take(pa.array(order[start:stop])).to_pylist(), start=start):
            value = comparable(row)
            keep[at] = value not in seen
            seen.add(value)
    return table.take(pa.array(order[keep]))
