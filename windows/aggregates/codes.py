"""Equal values get equal numbers: rows are grouped by comparing integers, whatever the columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]


def codes(columns: Sequence[pa.Array]) -> Codes:
    """One number per row, equal for two rows exactly when they are equal in every column.

    The numbers are dense and count from 0 in order of first appearance. Equal means what grouping means in
    Spark: null equals null, NaN equals NaN, -0.0 equals 0.0, and a map equals one with its entries in another
    order. At least one column is needed, because the number of rows comes from it.

    >>> codes([pa.array(["b", "a", None, "b"])]).tolist()
    [0, 1, 2, 0]
    >>> codes([pa.array([1, 1, 2, 1]), pa.array([0.0, float("nan"), 0.0, -0.0])]).tolist()
    [0, 1, 2, 0]
    """
    parts = [part for column in columns for part in flat(column)]
    numbered = encode(parts[0])
    for part in parts[1:]:
        numbered = pairs(numbered, encode(part))
    return numbered


def codes_within(owners: Codes, column: pa.Array) -> Codes:
    """The codes of the pairs of an owner and a value; owners are numbered as rows are, from 0.

    >>> codes_within(np.array([0, 0, 1, 1]), pa.array([7, 7, 7, 8])).tolist()
    [0, 0, 1, 2]
    """
    return pairs(owners, codes([column]))


def pairs(numbered: Codes, other: Codes) -> Codes:
    """The codes of two numbers together."""
    width = int(other.max(initial=0)) + 1
    # both count rows, of which a column has fewer than 2**31, so that the product stays within 64 bits
    return encode(pa.array(numbered * width + other))


def first_of_each(numbered: Codes) -> npt.NDArray[np.bool_]:
    """True where a code of ``codes`` appears for the first time.

    >>> first_of_each(np.array([0, 1, 0, 2, 1])).tolist()
    [True, True, False, True, False]
    """
    first = np.ones(len(numbered), np.bool_)
    # codes count up by first appearance, so a new one is greater than all before it
    first[1:] = numbered[1:] > np.maximum.accumulate(numbered)[:-1]
    return first


def flat(column: pa.Array) -> list[pa.Array]:
    """A column as columns without structs; a struct is its fields, and whether it is there at all."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_struct(column.type):
        return [column]
    fields = [part for field in column.flatten() for part in flat(field)]
    return [column.is_valid(), *fields] if column.null_count or not fields else fields


def encode(column: pa.Array) -> Codes:
    """The codes of one column that is not a struct."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_floating(kind):
        column = one_zero_one_nan(column)
    elif pa.types.is_map(kind):
        column = entries_as_bytes(column, pair_codes(column))
    elif pa.types.is_nested(kind):
        column = entries_as_bytes(column, codes([entries(column, column.values)]))
    indices = column.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def one_zero_one_nan(column: pa.Array) -> pa.Array:
    """The floats with -0.0 as 0.0 and each NaN as the same NaN: hashing looks at the bits."""
    nan: Any = pa.scalar(np.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def bounds(column: pa.Array) -> Codes:
    """Where each list begins and the last one ends, counted from the first entry of the column."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return np.asarray(offsets - offsets[0])


def entries(column: pa.Array, child: pa.Array) -> pa.Array:
    """The part of a list's or map's child that this column, perhaps a slice, covers."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return child.slice(first, last - first)


def pair_codes(column: pa.Array) -> Codes:
    """The codes of a map's entries, put in one order within each map."""
    keys = codes([entries(column, column.keys)])
    both = codes_within(keys, entries(column, column.items))
    owner = np.repeat(np.arange(len(column)), np.diff(bounds(column)))
    return both[np.lexsort((keys, owner))]


def entries_as_bytes(column: pa.Array, numbered: Codes) -> pa.Array:
    """Each list as the bytes of its entries' codes: Arrow hashes bytes, and has no hash for lists."""
    parts = [None, pa.py_buffer(bounds(column) * 8), pa.py_buffer(np.ascontiguousarray(numbered))]
    packed = pa.Array.from_buffers(pa.large_binary(), len(column), parts)
    return pc.if_else(column.is_valid(), packed, pa.scalar(None, pa.large_binary()))
