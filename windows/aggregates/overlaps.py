"""Merge ranges that overlap heavily: pieces that many ranges share are merged once.

Level k holds the merges of 2**k neighbouring rows, from each multiple of 2**k on. A range is then a few
pieces, two of a level at most, which stand in order and are merged once. Pieces may reach over the rows
of several groups, but a range uses only those that lie within it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import pyarrow as pa

from penstock.windows.aggregates.averages import Average
from penstock.windows.aggregates.buffers import whole
from penstock.windows.aggregates.moments import Deviation
from penstock.windows.aggregates.reduction import Bounds
from penstock.windows.aggregates.registry import Aggregate
from penstock.windows.aggregates.sums import FloatSum
from penstock.windows.aggregates.top import Top

# state entries that are taken apart and merged at a time, so that they fit the caches
BLOCK = 2**18


def merge_overlapping(aggregate: Aggregate, state: Sequence[pa.Array], lo: Bounds, hi: Bounds) -> list[pa.Array]:
    """A state row for each range ``[lo, hi)``, as ``aggregate.merge`` gives it; none is empty.

    Sums of floats may differ in the last bit, because they are added in another order.
    """
    if not pays(aggregate, lo, hi):
        return aggregate.merge(state, lo, hi)
    base, end = int(lo.min()), int(hi.max())
    rows = [whole(column).slice(base, end - base) for column in state]
    stacked, begins = levels(aggregate, rows, longest=int((hi - lo).max()))
    block = max(1, BLOCK // (len(begins) * entries_per_row(aggregate)))
    merged = []
    for at in range(0, len(lo), block):
        members, ends = pieces(lo[at : at + block] - base, hi[at : at + block] - base, begins)
        taken = pa.array(members)
        merged.append(aggregate.merge([column.take(taken) for column in stacked], ends[:-1], ends[1:]))
    return [pa.concat_arrays(parts) for parts in zip(*merged, strict=True)]


def pays(aggregate: Aggregate, lo: Bounds, hi: Bounds) -> bool:
    """True when levels are cheaper than a merge that goes through all ranges row by row."""
    if not len(lo):
        return False
    rows, total = int(hi.max() - lo.min()), int((hi - lo).sum())
    return total > pays_from(aggregate) * (rows + len(lo))


@singledispatch
def pays_from(aggregate: Aggregate) -> float:
    """How many times as long as rows and ranges are many all ranges must be before levels pay: by measurement.

    Most aggregates need no help. What is counted or exact is the difference of two running sums, an extreme
    or a pick is found by doubling, and a list of all values is as long as its range, whoever merges it.
    """
    return math.inf


@pays_from.register
def float_sum_pays_from(aggregate: FloatSum) -> float:
    """One pass of NumPy over a range is hard to beat."""
    return 64.0


@pays_from.register
def average_pays_from(aggregate: Average) -> float:
    """What its sum costs."""
    return pays_from(aggregate.total)


@pays_from.register
def deviation_pays_from(aggregate: Deviation) -> float:
    """Several passes over copies of each range."""
    return 4.0


@pays_from.register
def top_pays_from(aggregate: Top) -> float:
    """Pieces that are no longer than the result save no time, but blocks still save memory."""
    return min(4.0 + 2.0 * aggregate.n, 64.0)


def entries_per_row(aggregate: Aggregate) -> int:
    """How long a state row may be."""
    return aggregate.n if isinstance(aggregate, Top) else 1


def levels(aggregate: Aggregate, rows: list[pa.Array], longest: int) -> tuple[list[pa.Array], Bounds]:
    """The state rows of all levels up to the ``longest`` range, one level after the other, and where each begins."""
    each = [rows]
    while 2 ** len(each) <= longest:
        low = np.arange(0, len(each[-1][0]) - 1, 2)
        each.append(aggregate.merge(each[-1], low, low + 2))
    counts = np.array([len(level[0]) for level in each])
    return [pa.concat_arrays(parts) for parts in zip(*each, strict=True)], np.cumsum(counts) - counts


def pieces(lo: Bounds, hi: Bounds, begins: Bounds) -> tuple[Bounds, Bounds]:
    """The pieces of each range from left to right, as rows of the stacked levels, and where each range's end.

    >>> rows, ends = pieces(np.array([1]), np.array([8]), begins=np.array([0, 8, 12]))
    >>> rows.tolist(), ends.tolist()
    ([1, 9, 13], [0, 3])
    """
    low, high = lo, hi
    found = []
    for begin in begins:
        # an odd place is the right half of its parent: what begins there, or ends behind it, has no larger piece
        inside = low < high
        left, right = inside & (low & 1 == 1), inside & (high & 1 == 1)
        found.append((np.flatnonzero(left), (low + begin)[left], np.flatnonzero(right), (high - 1 + begin)[right]))
        low, high = (low + 1) >> 1, high >> 1
    counts = np.zeros(len(lo), np.int64)
    for left_ranges, _, right_ranges, _ in found:
        counts[left_ranges] += 1
        counts[right_ranges] += 1
    ends = np.concatenate(([0], np.cumsum(counts)))
    # pieces grow from both sides to the middle
    rows = np.empty(ends[-1], np.int64)
    front, back = ends[:-1].copy(), ends[1:] - 1
    for left_ranges, left_rows, right_ranges, right_rows in found:
        rows[front[left_ranges]] = left_rows
        front[left_ranges] += 1
        rows[back[right_ranges]] = right_rows
        back[right_ranges] -= 1
    return rows, ends
