"""Before the shuffle: judge the rows of a partition, combine them, split them by bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.durations import BEGINNING_US
from penstock.state.edge import BAD, BUCKET, CLOCK, INPUT, KEEP, LATE, TIME, Kernel


@dataclass(frozen=True)
class Facts:
    """What a batch's rows tell besides themselves: how many, how new, how many were late."""

    rows: Mapping[int, int] = field(default_factory=dict)  # input -> rows
    newest: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # input -> source partition -> time
    late: int = 0
    bad: int = 0

    def __add__(self, other: Facts) -> Facts:
        rows = {i: self.rows.get(i, 0) + other.rows.get(i, 0) for i in {*self.rows, *other.rows}}
        newest = {}
        for i in {*self.newest, *other.newest}:
            mine, its = self.newest.get(i, {}), other.newest.get(i, {})
            newest[i] = {p: max(d[p] for d in (mine, its) if p in d) for p in {*mine, *its}}
        return Facts(rows, newest, self.late + other.late, self.bad + other.bad)

    def to_json(self) -> dict[str, Any]:
        """As it rides the shuffle."""
        newest = {str(i): {str(p): t for p, t in ps.items()} for i, ps in self.newest.items()}
        return {
            "rows": {str(i): n for i, n in self.rows.items()},
            "newest": newest,
            "late": self.late,
            "bad": self.bad,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Facts:
        """As it was sent."""
        newest = {int(i): {int(p): t for p, t in ps.items()} for i, ps in value["newest"].items()}
        return cls({int(i): n for i, n in value["rows"].items()}, newest, value["late"], value["bad"])


@dataclass(frozen=True)
class Packed:
    """The rows of one partition, ready for their buckets."""

    facts: Facts
    buckets: Mapping[int, pa.Table]
    late: pa.Table | None
    bad: pa.Array | None


def pack(
    rows: pa.Table, kernel: Kernel, previous_us: int | None, only_input: int | None = None, edge: int = 0
) -> Packed:
    """Judge and combine the rows of a partition.

    Times are those of all rows that have one and are not bad, kept or not: a row that a filter dropped
    has still been seen. A hidden column that is the same for all rows need not be there: without ``INPUT``
    all rows are of ``only_input`` (None: of no input), without ``CLOCK`` they move one clock, without
    ``KEEP`` those that are not bad are kept.
    """
    names = rows.column_names
    good = np.ones(rows.num_rows, dtype=bool)
    bad = None
    if BAD in names and rows[BAD].null_count < rows.num_rows:
        bad = rows[BAD].drop_null().combine_chunks()
        good &= rows[BAD].is_null().to_numpy()
    counts, newest = _newest(rows, good, only_input)
    if KEEP in names:
        good &= rows[KEEP].to_numpy(zero_copy_only=False)
    is_late = good & (_times(rows) < kernel.late_before(edge, previous_us))
    late_count = int(is_late.sum())
    late = None
    if late_count:
        good &= ~is_late
        if LATE in names:
            late = opened(rows.filter(pa.array(is_late))[LATE])
    kept = rows if good.all() else rows.filter(pa.array(good))
    buckets = dict(_split(kernel.combine(edge, kept, previous_us))) if kept.num_rows else {}
    facts = Facts(counts, newest, late_count, 0 if bad is None else len(bad))
    return Packed(facts, buckets, late, bad)


def _times(rows: pa.Table) -> Any:
    """Event times; of a row without one, before all time."""
    times = rows[TIME]
    return (pc.fill_null(times, BEGINNING_US) if times.null_count else times).to_numpy()


def _newest(
    rows: pa.Table, good: np.ndarray[Any, Any], only_input: int | None
) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
    """By input how many rows came, and by input and source partition the newest time."""
    if INPUT not in rows.column_names:
        if only_input is None or not rows.num_rows:
            return {}, {}
        return {only_input: rows.num_rows}, _newest_by_clock(rows, good, only_input)
    inputs = rows[INPUT].to_numpy()
    counts: dict[int, int] = {}
    newest: dict[int, dict[int, int]] = {}
    # what a user's function made of rows belongs to no input: the rows themselves came along and count
    for i in np.unique(inputs[inputs >= 0]):
        own = inputs == i
        counts[int(i)] = int(own.sum())
        newest |= _newest_by_clock(rows, good & own, int(i))
    return counts, newest


def _newest_by_clock(rows: pa.Table, good: np.ndarray[Any, Any], number: int) -> dict[int, dict[int, int]]:
    if not good.any():
        return {}
    times = _times(rows)
    if CLOCK not in rows.column_names:
        return {number: {0: int(times.max(where=good, initial=BEGINNING_US))}}
    clocks = rows[CLOCK].to_numpy()
    return {number: {int(p): int(times[good & (clocks == p)].max()) for p in np.unique(clocks[good])}}


def _split(combined: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    if not combined.num_rows:
        return
    buckets = combined[BUCKET].to_numpy()
    order = np.argsort(buckets, kind="stable")
    by_bucket = combined.take(pa.array(order))
    found, begins = np.unique(buckets[order], return_index=True)
    for bucket, begin, end in zip(found, begins, np.append(begins[1:], len(buckets)), strict=True):
        yield int(bucket), by_bucket.slice(begin, end - begin)


def opened(structs: pa.ChunkedArray) -> pa.Table:
    """The fields of structs as columns."""
    return pa.table(structs.combine_chunks().flatten(), names=[f.name for f in structs.type])


def concat(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    """The rows of all tables that there are, None when there are none."""
    there: Sequence[pa.Table] = [t for t in tables if t is not None and t.num_rows]
    return pa.concat_tables(there) if there else None
