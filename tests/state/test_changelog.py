"""The laws of changes: what they add up to is the table, however they were cut and cancelled."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.changelog import applied, difference, net, settled, touched
from penstock.state.edge import WEIGHT

ROWS = pa.schema([("a", pa.string()), ("b", pa.float64()), ("c", pa.list_(pa.int64()))])
CHANGES = ROWS.append(pa.field(WEIGHT, pa.int8()))
row_of = st.fixed_dictionaries(
    {
        "a": st.none() | st.sampled_from("xy"),
        "b": st.none() | st.sampled_from([0.0, -0.0, math.nan]),
        "c": st.none() | st.lists(st.integers(0, 1), max_size=1),
    }
)
change_of = st.builds(lambda row, weight: {**row, WEIGHT: weight}, row_of, st.sampled_from([1, -1]))
rows_of, changes_of = st.lists(row_of, max_size=8), st.lists(change_of, max_size=12)


def content(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name] + 0.0 if isinstance(row[name], float) else row[name]) for name in ROWS.names)


def total(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], int]:
    """How often each content is there, rows without a weight once."""
    found: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        found[content(row)] += row.get(WEIGHT, 1)
    return {key: count for key, count in found.items() if count}


def table(rows: list[dict[str, Any]], schema: pa.Schema = ROWS) -> pa.Table:
    """The rows as a table of two chunks, the first of them a slice."""
    first = pa.Table.from_pylist([*rows[:1], *rows], schema).slice(min(1, len(rows)), len(rows) // 2)
    return pa.concat_tables([first, pa.Table.from_pylist(rows[len(rows) // 2 :], schema)])


@given(changes_of)
def test_net_changes_add_up_to_the_same_and_hold_no_pair_that_cancels(changes: list[dict[str, Any]]) -> None:
    got = net(table(changes, CHANGES))
    assert got.schema == CHANGES
    assert total(got.to_pylist()) == total(changes)
    signs = {(content(row), row[WEIGHT]) for row in got.to_pylist()}
    assert not any((key, -weight) in signs for key, weight in signs)


@given(changes_of)
def test_what_is_net_stays_as_it_is(changes: list[dict[str, Any]]) -> None:
    once = net(table(changes, CHANGES))
    assert str(net(once).to_pylist()) == str(once.to_pylist())


def naive(rows: list[dict[str, Any]]) -> list[int]:
    """The rows that stay: from the last to the first, as many of a content as its weights leave over."""
    left: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        left[content(row)] += row[WEIGHT]
    stay = []
    for at in reversed(range(len(rows))):
        if left[content(rows[at])] * rows[at][WEIGHT] > 0:
            left[content(rows[at])] -= rows[at][WEIGHT]
            stay.append(at)
    return stay[::-1]


@given(changes_of)
def test_of_equal_rows_the_last_stay(changes: list[dict[str, Any]]) -> None:
    came = table(changes, CHANGES)
    assert str(net(came).to_pylist()) == str(came.take(pa.array(naive(changes), pa.int64())).to_pylist())


def test_weights_alone_cancel_too() -> None:
    assert net(pa.table({WEIGHT: pa.array([1, -1, -1], pa.int8())})).to_pylist() == [{WEIGHT: -1}]


@given(rows_of, rows_of)
def test_a_difference_applied_gives_the_other_table(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    got = applied(table(before), difference(table(before), table(after)))
    assert got.schema == ROWS
    assert total(got.to_pylist()) == total(after)


@given(rows_of, changes_of, changes_of)
def test_changes_may_be_applied_in_any_order(
    rows: list[dict[str, Any]], first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    one, other = table(first, CHANGES), table(second, CHANGES)
    whole = applied(table([]), difference(table([]), table(rows)))
    both = net(pa.concat_tables([difference(table([]), whole), one, other]))
    turned = net(pa.concat_tables([other, one, difference(table([]), whole)]))
    assert total(both.to_pylist()) == total(turned.to_pylist())


KEYED = pa.schema([("id", pa.int64()), ("v", pa.string())])
tables_of = st.dictionaries(st.integers(0, 4), st.sampled_from("pqr"), max_size=5)


def keyed(rows: dict[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "v": value} for key, value in rows.items()], KEYED)


@given(tables_of, tables_of)
def test_a_reader_by_key_gets_what_is_there_and_what_is_gone(before: dict[int, str], after: dict[int, str]) -> None:
    now, gone = settled(difference(keyed(before), keyed(after)), ["id"])
    assert {r["id"]: r["v"] for r in now.to_pylist()} == {k: v for k, v in after.items() if before.get(k) != v}
    assert {r["id"]: r["v"] for r in gone.to_pylist()} == {k: v for k, v in before.items() if k not in after}


@given(tables_of, tables_of, st.randoms())
def test_touched_rows_know_what_was_and_what_is(before: dict[int, str], after: dict[int, str], random: Any) -> None:
    changes = pa.concat_tables(
        [
            keyed(before).append_column(WEIGHT, pa.array(np.full(len(before), -1, np.int8))),
            keyed(after).append_column(WEIGHT, pa.array(np.ones(len(after), np.int8))),
        ]
    )
    order = list(range(changes.num_rows))
    random.shuffle(order)
    changes = changes.take(pa.array(order, pa.int64()))
    more = keyed({**before, 9: "r"})  # a row that nobody speaks of
    groups = (np.zeros(more.num_rows, np.int64), np.zeros(changes.num_rows, np.int64))
    got = touched(more, groups[0], changes, groups[1], ["id"])

    def read(mask: Any) -> dict[int, str]:
        return {r["id"]: r["v"] for r in got.rows.filter(pa.array(mask)).to_pylist()}

    assert read(got.was) == {**before, 9: "r"}
    assert read(got.now) == {**after, 9: "r"}
    assert read(got.stays) == {k: v for k, v in before.items() if after.get(k) == v} | {9: "r"}
