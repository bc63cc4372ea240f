"""Arrow columns of fixed width as NumPy arrays and back, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def taking_part(column: pa.Array, mask: pa.Array | None) -> pa.Array:
    """The column in one piece, null in the rows that a mask, false or null, keeps out."""
    column = whole(column)
    if mask is None or pa.types.is_null(column.type):
        return column
    return pc.if_else(whole(mask), column, pa.scalar(None, column.type))


def storage(kind: pa.DataType) -> np.dtype[Any] | None:
    """How NumPy sees the values of a fixed-width type; None for any other type.

    A decimal is seen as two 64-bit words, the low one first.
    """
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_floating(kind):
        return np.dtype(f"f{kind.bit_width // 8}")
    if pa.types.is_signed_integer(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind)):
        return np.dtype(f"i{kind.bit_width // 8}")
    if pa.types.is_decimal128(kind):
        return np.dtype(("i8", 2))
    return None


def numbers(column: pa.Array) -> Numbers:
    """The values of a fixed-width column; what stands in a null row is left to chance."""
    if pa.types.is_boolean(column.type):
        return flags(column)
    dtype = storage(column.type)
    assert dtype is not None, f"{column.type} has no fixed width"
    if not len(column):
        return np.empty(0, dtype)
    start = column.offset * dtype.itemsize
    return np.frombuffer(column.buffers()[1], dtype, count=len(column), offset=start)


def flags(column: pa.Array) -> Flags:
    """A boolean column, null as false."""
    filled = column.fill_null(False) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)


def validity(column: pa.Array) -> Flags | None:
    """True where a value stands; None when it stands everywhere."""
    return flags(column.is_valid()) if column.null_count else None


def filled(column: pa.Array, filler: Any) -> Numbers:
    """The values with ``filler`` in the null rows."""
    there = validity(column)
    values = numbers(column)
    if there is None:
        return values
    if values.ndim > 1:
        there = there[:, None]
    return np.where(there, values, np.asarray(filler, values.dtype))


def column_of(values: Numbers, kind: pa.DataType, there: Flags | None = None) -> pa.Array:
    """A column over the values, null where ``there`` is false."""
    rows, dtype = len(values), storage(kind)
    assert dtype is not None, f"{kind} has no fixed width"
    values = packed(values) if dtype == np.bool_ else np.ascontiguousarray(values, dtype.base)
    bitmap = None if there is None or there.all() else pa.py_buffer(packed(there))
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(values)])


def packed(values: Numbers) -> npt.NDArray[np.uint8]:
    """Flags as Arrow keeps them, eight to a byte."""
    return np.packbits(values.astype(np.bool_), bitorder="little")


def relabelled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bytes under another type of the same width."""
    return pa.Array.from_buffers(
        kind, len(column), column.buffers(), null_count=column.null_count, offset=column.offset
    )
