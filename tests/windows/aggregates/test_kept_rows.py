"""Rows that are kept whole come back whole, nulls included."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.windows.aggregates.kept_rows import KeptRows

FIELDS = (("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.int64())), ("d", pa.null()))
KEPT = KeptRows(FIELDS)
rows_of = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 3),
        "b": st.none() | st.sampled_from(["", "x", "yy"]),
        "c": st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
        "d": st.none(),
    }
)


def started(rows: list[dict[str, Any]], mask: list[bool | None] | None = None) -> list[pa.Array]:
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in FIELDS]
    return KEPT.start(columns, None if mask is None else pa.array(mask, pa.bool_()), None, len(rows))


@given(st.lists(rows_of, min_size=1, max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_each_range_has_its_rows_however_they_are_cut(rows: list[dict[str, Any]], draw: st.DataObject) -> None:
    count = len(rows)
    masks = st.lists(st.sampled_from([True, True, False, None]), min_size=count, max_size=count)
    mask = draw.draw(st.none() | masks)
    cuts = np.array(sorted({0, count} | draw.draw(st.sets(st.integers(0, count), max_size=4))))
    begin = draw.draw(st.integers(0, len(cuts) - 2))
    tiling = [(at, at + 1) for at in range(begin, len(cuts) - 1)]
    lows = st.integers(0, len(cuts) - 2)
    some = lows.flatmap(lambda low: st.tuples(st.just(low), st.integers(low + 1, len(cuts) - 1)))
    ranges = draw.draw(st.just(tiling) | st.lists(some, max_size=4))
    lo, hi = (np.array([ends[side] for ends in ranges], np.int64) for side in (0, 1))
    state = started(rows, mask)
    at_once = KEPT.merge(state, cuts[lo], cuts[hi])
    by_tiles = KEPT.merge(KEPT.merge(state, cuts[:-1], cuts[1:]), lo, hi)
    wanted = [[rows[i] for i in range(cuts[low], cuts[high]) if mask is None or mask[i]] for low, high in ranges]
    for merged in (at_once, by_tiles):
        assert tuple(column.type for column in merged) == KEPT.state_types()
        result = KEPT.finish(merged)
        result.validate(full=True)
        assert result.type == KEPT.result_type
        assert result.to_pylist() == wanted


def test_kept_rows_need_no_order_and_travel() -> None:
    assert not KEPT.needs_order
    assert pickle.loads(pickle.dumps(KEPT)) == KEPT
