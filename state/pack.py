"""Before the shuffle: judge the rows of a partition, combine them, split them by bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    bad: pa.Table | None


def pack(rows: pa.Table, kernel: Kernel, previous_us: int | None) -> Packed:
    """Judge and combine the rows of a partition.

    Times are those of all rows that have one and are not bad, kept or not: a row that a filter dropped
    has still been seen.
    """
    names = rows.column_names
    good = np.ones(rows.num_rows, dtype=bool)
    bad = None
    counts: dict[int, int] = {}
    newest: dict[int, dict[int, int]] = {}
    if BAD in names:
        is_bad = pc.is_valid(rows[BAD]).to_numpy()
        if is_bad.any():
            refused = rows.filter(pa.array(is_bad))
            bad = pa.table([refused[INPUT], *_fields(refused[BAD])], names=["input", "reason", "place", "row"])
            good &= ~is_bad
    if INPUT in names:
        counts, newest = _newest(rows, good)
    if KEEP in names:
        good &= rows[KEEP].to_numpy(zero_copy_only=False)
    is_late = good & (pc.fill_null(rows[TIME], 2**62).to_numpy() < kernel.late_before(previous_us))
    late_count = int(is_late.sum())
    late = None
    if late_count:
        good &= ~is_late
        if LATE in names:
            late = _opened(rows.filter(pa.array(is_late))[LATE])
    kept = rows if good.all() else rows.filter(pa.array(good))
    buckets = dict(_split(kernel.combine(kept))) if kept.num_rows else {}
    facts = Facts(counts, newest, late_count, 0 if bad is None else bad.num_rows)
    return Packed(facts, buckets, late, bad)


def _newest(rows: pa.Table, good: np.ndarray[Any, Any]) -> tuple[dict[int, int], dict[int, dict[int, int]]]:
    inputs = rows[INPUT].to_numpy()
    clocks = rows[CLOCK].to_numpy()
    times = pc.fill_null(rows[TIME], -(2**62)).to_numpy()
    # what a user's function made of rows belongs to no input: the rows themselves came along and count
    counts = {int(i): int(n) for i, n in zip(*np.unique(inputs, return_counts=True), strict=True) if i >= 0}
    newest: dict[int, dict[int, int]] = {}
    for i in np.unique(inputs[good & (inputs >= 0)]):
        own = good & (inputs == i)
        newest[int(i)] = {int(p): int(times[own & (clocks == p)].max()) for p in np.unique(clocks[own])}
    return counts, newest


def _split(combined: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    buckets = combined[BUCKET].to_numpy()
    order = np.argsort(buckets, kind="stable")
    by_bucket = combined.take(pa.array(order))
    found, begins = np.unique(buckets[order], return_index=True)
    for bucket, begin, end in zip(found, begins, np.append(begins[1:], len(buckets)), strict=True):
        yield int(bucket), by_bucket.slice(begin, end - begin)


def _fields(structs: pa.ChunkedArray) -> list[pa.Array]:
    return list(structs.combine_chunks().flatten())


def _opened(structs: pa.ChunkedArray) -> pa.Table:
    return pa.table(_fields(structs), names=[f.name for f in structs.type])


def concat(tables: Iterable[pa.Table | None]) -> pa.Table | None:
    """The rows of all tables that there are, None when there are none."""
    there: Sequence[pa.Table] = [t for t in tables if t is not None and t.num_rows]
    return pa.concat_tables(there) if there else None
