"""Dead letters: rows that cannot be used, with the reason, where they came from, and what they held."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

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


def from_bad(bad: pa.Table, batch: int, inputs: tuple[str, ...]) -> pa.Table:
    """Rows that were refused where they came in."""
    names = pa.array([inputs[i] for i in bad["input"].to_pylist()], pa.string())
    rows = bad.num_rows
    columns = [
        pa.repeat(batch, rows),
        bad["reason"],
        names,
        pa.nulls(rows, pa.string()),
        bad["place"],
        bad["row"],
    ]
    return pa.table([c.cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


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
    first = letters.slice(0, 1).to_pylist()[0]
    where = f"the step {first['step']!r}" if first["reason"] == "late" else f"the input {first['input']!r}"
    more = f" ({letters.num_rows - 1} more in this batch)" if letters.num_rows > 1 else ""
    return BadRowError(
        f"{where} has a row that cannot be used ({first['reason']}), from {first['place'] or 'an unknown place'}: "
        f"{first['row']}{more}. Correct it, or send such rows somewhere with job.dead_letters(...)."
    )
