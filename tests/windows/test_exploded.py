"""Lists of rows become rows, whatever they hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.windows.exploded import exploded

BEST = pa.list_(pa.field("element", pa.struct([("who", pa.string()), ("rank", pa.int32())]), nullable=False))
SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), ("best", BEST), ("size", pa.float64())])
structs = st.fixed_dictionaries({"who": st.none() | st.sampled_from("ab"), "rank": st.integers(1, 3)})
results_of = st.fixed_dictionaries(
    {"key": st.integers(0, 3), "best": st.none() | st.lists(structs, max_size=3), "size": st.none() | st.just(0.5)}
)


def in_pieces(rows: list[dict[str, Any]], schema: pa.Schema, cut: int) -> pa.Table:
    """The rows as a table of one or two chunks, the first of them a slice with rows before and behind it."""
    first = pa.Table.from_pylist([*rows[:1], *rows, *rows[:1]], schema).slice(min(1, len(rows)), cut)
    return pa.concat_tables([first, pa.Table.from_pylist(rows[cut:], schema)]) if cut < len(rows) else first


@given(st.lists(results_of, max_size=6), st.integers(0, 6))
def test_a_list_of_rows_becomes_rows(rows: list[dict[str, Any]], cut: int) -> None:
    got = exploded(in_pieces(rows, SCHEMA, min(cut, len(rows))), "best")
    got.validate(full=True)
    assert got.schema == pa.schema([SCHEMA.field("key"), SCHEMA.field("size"), *BEST.value_type])
    assert got.to_pylist() == [
        {"key": row["key"], "size": row["size"], **entry} for row in rows for entry in row["best"] or ()
    ]
