"""State that is a list for each row: how lists are begun, joined over ranges, and read flat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.windows.aggregates.buffers import Flags
from penstock.windows.aggregates.codes import bounds, entries
from penstock.windows.aggregates.reduction import Bounds, gather, tiles

Owners = npt.NDArray[np.int64]
Fields = tuple[tuple[str, pa.DataType], ...]


def list_column(values: pa.Array, ends: Bounds) -> pa.Array:
    """The values as lists; ``ends`` begins with 0 and then tells where each list ends."""
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)


def list_of(kind: pa.DataType) -> pa.DataType:
    """The type of a result that is a list; as in Spark, none of its values is null."""
    # Arrow has no void field without nulls
    return pa.list_(pa.field("element", kind, nullable=pa.types.is_null(kind)))


def list_result(values: pa.Array, ends: Bounds, there: Flags | None = None) -> pa.Array:
    """The values as lists of ``list_of`` their type, null where ``there`` is false."""
    missing = None if there is None else pa.array(~there)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, list_of(values.type), mask=missing)


def list_of_rows(fields: Fields) -> pa.DataType:
    """The type of a result that is a list of whole rows."""
    return list_of(pa.struct(fields))


def list_rows_result(fields: Fields, columns: Sequence[pa.Array], ends: Bounds) -> pa.Array:
    """Flat columns side by side as lists of ``list_of_rows``."""
    return list_result(pa.StructArray.from_arrays(columns, fields=list(pa.struct(fields))), ends)


def singletons(values: pa.Array, present: Flags) -> pa.Array:
    """A list of one value for each row, or of none where the row is not present."""
    ends = np.zeros(len(present) + 1, np.int64)
    np.cumsum(present, out=ends[1:])
    return list_column(values if ends[-1] == len(values) else values.filter(pa.array(present)), ends)


def flat_values(column: pa.Array) -> pa.Array:
    """The values of all lists of a state column, which has no null lists."""
    return entries(column, column.values)


def owners(ends: Bounds) -> Owners:
    """For each value the number of its list."""
    return np.repeat(np.arange(len(ends) - 1), np.diff(ends))


def joined(column: pa.Array, lo: Bounds, hi: Bounds) -> tuple[Bounds, Bounds]:
    """The flat values of each range, as their places in ``flat_values``, and where each range's end.

    The lists of a range stand side by side, so that their values are a range too.
    """
    at = bounds(column)
    first, last = at[lo], at[hi]
    ends = np.zeros(len(lo) + 1, np.int64)
    np.cumsum(last - first, out=ends[1:])
    return gather(first, last), ends


def joined_columns(columns: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
    """The lists of each range as one list, in columns whose lists are equally long."""
    if len(lo) and tiles(lo, hi):
        # the values stand as they are to stand: only the ends of the lists change
        at = bounds(columns[0])
        first, ends = at[lo[0]], np.append(at[lo], at[hi[-1]])
        return [list_column(flat_values(c).slice(first, ends[-1] - first), ends - first) for c in columns]
    rows, ends = joined(columns[0], lo, hi)
    return [list_column(flat_values(column).take(pa.array(rows)), ends) for column in columns]
