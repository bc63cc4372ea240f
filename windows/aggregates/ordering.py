"""Orders as integers: where a row stands in time, and how the values of a column compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.windows.aggregates.buffers import column_of, numbers, storage, validity

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """Where each row stands in time: its event time, then its order of arrival."""

    time_us: npt.NDArray[Any]
    partition: npt.NDArray[Any]
    position: npt.NDArray[Any]

    def columns(self) -> list[pa.Array]:
        """The order as state columns of ``ORDER_TYPES``."""
        return [
            column_of(part, kind)
            for part, kind in zip((self.time_us, self.partition, self.position), ORDER_TYPES, strict=True)
        ]


#: The types of the state columns that hold an order.
ORDER_TYPES = (pa.int64(), pa.int64(), pa.int64())


def order_keys(columns: Sequence[pa.Array]) -> list[Keys]:
    """The keys of an order that was kept as state columns, the most telling first."""
    return [numbers(column) for column in columns]


def orderable(kind: pa.DataType) -> bool:
    """True for the types whose values ``sort_keys`` can compare."""
    return storage(kind) is not None or is_text(kind)


def is_text(kind: pa.DataType) -> bool:
    """True for strings and binaries, which compare byte by byte."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )


def sort_keys(column: pa.Array) -> Keys:
    """Numbers that compare as the values do in Spark; a null row's number is left to chance.

    Equal values have equal numbers: -0.0 equals 0.0. NaN is the greatest of all.

    >>> sort_keys(pa.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    if pa.types.is_floating(column.type):
        return float_keys(numbers(column))
    if pa.types.is_decimal(column.type):
        words = numbers(column)
        return words[:, 0] if narrow(words).all() else ranks(column)
    if is_text(column.type):
        return ranks(column)
    return numbers(column).astype(np.int64)


def null_first_keys(column: pa.Array) -> list[Keys]:
    """Numbers that compare as the values do, null before all of them, the most telling first.

    >>> [key.tolist() for key in null_first_keys(pa.array([3, None]))]
    [[1, 0], [3, 0]]
    """
    there, key = validity(column), sort_keys(column)
    # one null is as good as another, whatever number stands there
    return [key] if there is None else [there.astype(np.int64), np.where(there, key, 0)]


def narrow(words: Keys) -> npt.NDArray[np.bool_]:
    """True where a number of two 64-bit words has all its value in the low one."""
    return np.asarray(words[:, 1] == words[:, 0] >> 63)


def float_keys(values: npt.NDArray[Any]) -> Keys:
    """The bits of floats, turned so that they compare as integers."""
    plain = values.astype(np.float64) + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    # a negative float grows in its bits as its value falls
    return np.asarray(bits ^ ((bits >> 63) & np.int64(2**63 - 1)))


def ranks(column: pa.Array) -> Keys:
    """The place of each value among the distinct values, by Arrow's order of bytes or decimals."""
    encoded = column.dictionary_encode()
    by_value = pc.sort_indices(encoded.dictionary).to_numpy()
    place = np.empty(len(by_value) + 1, np.int64)
    place[by_value] = np.arange(len(by_value))
    place[-1] = -1
    return np.asarray(place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
