"""Compare real keys, for hashes may collide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.hashing import canonical_floats, plain
from penstock.windows.aggregates.codes import codes

Mask = npt.NDArray[np.bool_]


def same_keys(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Mask:
    """Which rows have the same key as the row at the same place of the other table.

    Two nulls are the same, so are two NaN, and 0.0 and -0.0. The columns have the same types on both sides.
    """
    same: Mask = np.ones(left.num_rows, dtype=np.bool_)
    for name in columns:
        same &= _same_values(plain(left.column(name)), plain(right.column(name)))
    return same


def _same_values(left: pa.Array, right: pa.Array) -> Mask:
    if pa.types.is_null(left.type):
        return np.ones(len(left), np.bool_)
    if pa.types.is_nested(left.type):  # Arrow compares no nested values
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.fromiter((comparable(a) == comparable(b) for a, b in pairs), np.bool_, len(left))
    if pa.types.is_floating(left.type):
        left, right = canonical_floats(left), canonical_floats(right)
    equal = pc.fill_null(pc.equal(left, right), False)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    same: Mask = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same


def comparable(value: Any) -> Any:
    """A Python value as one that can be compared and be a dictionary's key, with every NaN the same.

    >>> comparable([float("nan"), -0.0]) == comparable([float("nan"), 0.0])
    True
    """
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, comparable(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(comparable(one) for one in value)
    return value


def same_values(left: pa.Table, right: pa.Table) -> Mask:
    """Which rows are equal to the row at the same place of the other table, as grouping compares them."""
    same: Mask = np.ones(left.num_rows, np.bool_)
    for name in right.column_names if left.num_rows else ():
        if pa.types.is_nested(right[name].type):
            both = codes([pa.concat_arrays([*left[name].chunks, *right[name].chunks])])
            same &= both[: len(same)] == both[len(same) :]
        else:
            same &= same_keys(left, right, [name])
    return same
