"""Dead letters: rows that cannot be used, with the reason, where they came from, and what they held."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.compile.failures import refusal
from penstock.plan.errors import BadRowError
from penstock.sources.base import PLACE
from penstock.state.edge import INPUT, TIME

OUTPUT = "dead_letters"
SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("reason", pa.string()),
        ("input", pa.string()),
        ("step", pa.string()),
        ("place", pa.string()),
        ("row", pa.string()),
    ]
)


def from_bad(bad: pa.Array, batch: int) -> pa.Table:
    """Rows that were refused where they came in, each as the JSON that says why."""
    letters = [{"batch": batch, **json.loads(text)} for text in bad.to_pylist()]
    return pa.Table.from_pylist(letters, schema=SCHEMA)


def from_late(late: pa.Table, batch: int, step: str, inputs: tuple[str, ...]) -> pa.Table:
    """Rows that a step refused as late."""
    shown = late.select([c for c in late.column_names if c not in (TIME, PLACE, INPUT)])
    rows = late.num_rows
    names: list[str | None] = [None] * rows
    if INPUT in late.column_names:
        names = [inputs[i] if i is not None and i >= 0 else None for i in late[INPUT].to_pylist()]
    place = late[PLACE] if PLACE in late.column_names else pa.nulls(rows, pa.string())
    texts = [json.dumps(row, default=_told) for row in shown.to_pylist()]
    columns = [
        pa.repeat(batch, rows), pa.repeat("late", rows), pa.array(names, pa.string()),
        pa.repeat(step, rows), place, pa.array(texts, pa.string()),
    ]  # fmt: skip
    return pa.table([c.cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _told(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def stop(letters: pa.Table) -> BadRowError:
    """The error for a job that has nowhere to send its dead letters."""
    return BadRowError(refusal(letters.slice(0, 1).to_pylist()[0], letters.num_rows - 1))
