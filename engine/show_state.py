"""How state is shown: as tables on a terminal, as lines of JSON elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from penstock.look import Found


def show_steps(lines: list[dict[str, Any]]) -> None:
    """The steps that have state."""
    console = Console()
    if not console.is_terminal:
        _print_json(console, lines)
        return
    kept = lines[0]["kept"] if lines else []
    versions = f"; kept are the batches {kept[0]} to {kept[1]}" if kept else ""
    told = f"state after batch {lines[0]['batch']}{versions}" if lines else "no step keeps state"
    console.print(told, highlight=False)
    cells = [
        (n["step"], n["keeps"], ", ".join(n["sets"]), f"{n['rows']:,}", decimal(n["bytes"]), str(n["runs"]))
        for n in lines
    ]
    console.print(_table(("step", "keeps", "sets", "rows", "bytes", "runs"), cells))


def show_rows(found: Found) -> None:
    """Rows, and how many there are."""
    console, rows = Console(), found.rows.to_pylist()
    more = f", here are {len(rows):,}; --limit shows more" if len(rows) < found.count else ""
    told = f"{found.count:,} row{'' if found.count == 1 else 's'} in {found.told}{more}"
    if not console.is_terminal:
        _print_json(console, rows)
        if more:  # beside the rows, whose reader may be a program
            Console(stderr=True).print(told, highlight=False, soft_wrap=True)
        return
    console.print(told, highlight=False)
    if rows:
        console.print(_table(found.rows.column_names, ((_cell(v) for v in row.values()) for row in rows)))


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print_json(console: Console, lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        console.print(json.dumps(line, default=_plain), soft_wrap=True, markup=False, highlight=False)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, default=_plain) if isinstance(value, dict | list) else str(_plain(value))


def _plain(value: Any) -> Any:
    """A value that JSON does not have, as text."""
    return value.hex() if isinstance(value, bytes) else value.isoformat() if hasattr(value, "isoformat") else str(value)
