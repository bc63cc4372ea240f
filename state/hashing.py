"""A 64-bit hash of Arrow columns that is the same on every machine, in every process, for ever.

Equal keys have equal hashes: 0.0 and -0.0 are one key, so are all NaN, and so are all nulls. Integers hash by
value whatever their width, and text by its bytes. The state on disk is sorted by these numbers: they must
never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.errors import PlanError

Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6A09E667F3BCC909)
_LONG = 256  # bytes; the loop over words would crawl on longer values
_MASKS = np.array([(1 << 8 * left) - 1 for left in range(9)], dtype=np.uint64)


def hash_rows(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One hash per row over the named columns, whose order counts."""
    return _combine([hash_column(table.column(name)) for name in columns], table.num_rows)


def hash_column(column: pa.ChunkedArray | pa.Array) -> Hashes:
    """One hash per value of a column of any type that can be a key."""
    values = plain(column)
    hashes = _hash_values(values)
    if values.null_count:
        hashes[pc.is_null(values).to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array without encodings: dictionaries, run ends and extensions undone."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):  # more text than 32-bit offsets can reach
            column = column.cast(_wide(column.type)).combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column))
    return column


def canonical_floats(values: pa.Array) -> pa.Array:
    """The bits of floats as int64, with one zero and one NaN, so that equal keys have equal bits."""
    floats = np.array(values.cast(pa.float64()).fill_null(0.0).to_numpy())
    floats[np.isnan(floats)] = np.nan
    floats[floats == 0.0] = 0.0
    return pa.array(floats.view(np.int64), mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def _hash_values(values: pa.Array) -> Hashes:
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL)
    if pa.types.is_floating(kind):
        return _hash_integers(canonical_floats(values))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _hash_integers(values)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _hash_integers(values.cast(pa.int32()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return _hash_integers(values.cast(pa.int64()))
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_fixed(values, kind.bit_width // 8)
    if _is_text(kind):
        return _hash_text(values.cast(pa.large_binary()))
    if pa.types.is_struct(kind):
        return _combine([hash_column(field) for field in values.flatten()], len(values))
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        starts = (np.arange(len(values)) + values.offset) * size
        return _hash_lists(values.values, starts, np.full(len(values), size))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = values.offsets.to_numpy().astype(np.int64)
        return _hash_lists(values.values, offsets[:-1], np.diff(offsets))
    raise PlanError(f"a column of type {kind} cannot be a key; cast it to a number, a time, text or binary.")


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )


def _wide(kind: Any) -> Any:
    return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()


def _mix(numbers: Hashes) -> Hashes:
    """Spread every input bit over all output bits (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _combine(hashes: Sequence[Hashes], rows: int) -> Hashes:
    combined = np.full(rows, _SEED)
    for one in hashes:
        combined = _mix(combined + one)
    return combined


def _hash_integers(values: pa.Array) -> Hashes:
    numbers = values.fill_null(False if pa.types.is_boolean(values.type) else 0).cast(pa.int64(), safe=False)
    return _mix(numbers.to_numpy().view(np.uint64) + _SEED)


def _hash_fixed(values: pa.Array, width: int) -> Hashes:
    content = np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8)
    starts = (np.arange(len(values)) + values.offset) * width
    return _hash_bytes(content, starts, np.full(len(values), width))


def _hash_text(values: pa.Array) -> Hashes:
    _, ends, content = values.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    return _hash_bytes(np.frombuffer(content or b"", dtype=np.uint8), offsets[:-1], np.diff(offsets))


def _hash_lists(items: pa.Array, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Hashes:
    # a list is hashed as the text that the hashes of its items spell
    return _hash_bytes(hash_column(items).view(np.uint8), starts * 8, sizes * 8)


def _hash_bytes(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Hashes:
    """Hash stretches of a buffer, all rows at once and eight bytes at a time."""
    hashes = _mix(sizes.astype(np.uint64) + _SEED)
    if not sizes.any():
        return hashes
    base, end = int(starts.min()), int((starts + sizes).max())  # a slice must not cost its whole buffer
    content = np.concatenate([content[base:end], np.zeros(8, np.uint8)])
    starts = starts - base
    words: Any = np.ndarray(len(content) - 7, dtype="<u8", buffer=content.data, strides=(1,))
    short = np.where(sizes > _LONG, 0, sizes)
    for at in range(0, int(short.max()), 8):
        rows = np.flatnonzero(short > at)
        word = words[starts[rows] + at] & _MASKS[np.minimum(short[rows] - at, 8)]
        hashes[rows] = _mix(hashes[rows] ^ word)
    for row in np.flatnonzero(sizes > _LONG):
        stretch = content[starts[row] : starts[row] + sizes[row]]
        digest = hashlib.blake2b(stretch.data, digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes
