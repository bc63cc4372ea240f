"""Keys that people ask for: made like those that are stored, and found also where rows are not kept by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.plan.errors import CheckpointError
from penstock.state.buffer import TimeBuffer
from penstock.state.hashing import hash_rows
from penstock.state.keyed import KeyedTable, layout
from penstock.state.lookup import Positions, equal_ranges, spread
from penstock.state.samekeys import same_keys

Keys: TypeAlias = pa.Table | Mapping[str, Any]


def asked(keys: Keys, stored: pa.Schema, place: str) -> pa.Table:
    """Keys with the types that are stored; in a mapping a value is that of one key, or a list of values.

    >>> asked({"id": "7"}, pa.schema({"id": pa.int64(), "name": pa.string()}), "step 'users'").to_pylist()
    [{'id': 7}]
    >>> asked({"ids": 7}, pa.schema({"id": pa.int64(), "name": pa.string()}), "step 'users'")
    Traceback (most recent call last):
    penstock.plan.errors.CheckpointError: step 'users' has no column 'ids'; it has id, name.
    """
    names = keys.column_names if isinstance(keys, pa.Table) else list(keys)
    if not names:
        raise CheckpointError(f"{place}: name the columns of the keys to find; it has {', '.join(stored.names)}.")
    columns = {}
    for name in names:
        if name not in stored.names:
            raise CheckpointError(f"{place} has no column {name!r}; it has {', '.join(stored.names)}.")
        kind = stored.field(name).type
        try:
            columns[name] = keys[name].cast(kind) if isinstance(keys, pa.Table) else _values(keys[name], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            told = keys[name].type if isinstance(keys, pa.Table) else repr(keys[name])
            raise CheckpointError(f"{place}: {name} is {kind}, and {told} is none.") from None
    return pa.table(columns)


def _values(given: Any, kind: pa.DataType) -> pa.Array:
    values = given if isinstance(given, list) else [given]
    if not values or not all(isinstance(value, str) for value in values):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:  # it says no zone: times are UTC here
            return texts.cast(pa.timestamp(kind.unit)).cast(kind)
    return texts.cast(kind)


def find(kept: KeyedTable | TimeBuffer, metadata: Mapping[bytes, bytes], keys: pa.Table) -> tuple[Positions, pa.Table]:
    """The rows that have these keys, and for each the row number in ``keys``.

    A keyed table whose key is asked for is searched; of anything else all rows are read.
    """
    if isinstance(kept, KeyedTable):
        key = layout(metadata)["key"]
        if set(key) <= set(keys.column_names):
            which, rows = kept.find(keys)
            return _same(which, rows, keys, [name for name in keys.column_names if name not in key])
        rows = kept.scan()
    else:
        rows = kept.read(None, None)
    if not rows.num_rows:
        return np.empty(0, np.int64), rows
    hashes = hash_rows(rows, keys.column_names)
    order = np.argsort(hashes, kind="stable")
    hit, starts, stops = equal_ranges(hashes[order], hash_rows(keys, keys.column_names))
    counts = stops - starts
    rows = rows.take(pa.array(order[spread(starts, counts)]))
    return _same(np.repeat(hit, counts), rows, keys, keys.column_names)


def _same(which: Positions, rows: pa.Table, keys: pa.Table, columns: list[str]) -> tuple[Positions, pa.Table]:
    if not columns or not len(which):
        return which, rows
    same = same_keys(rows, keys.take(pa.array(which)), columns)
    return which[same], rows.filter(pa.array(same))
