"""What came of a demo: the tables that the job wrote, and the picture."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.demo import events
from penstock.demo.events import Arrival
from penstock.demo.picture import Picture
from penstock.demo.screen import moment, rows_of
from penstock.jobs import page_views

TOP = 10


def show(console: Console, root: Path, arrived: Sequence[Arrival]) -> None:
    """Print the results and say where they are."""
    database = root / "results.db"
    for title, table in (busiest(database), late(database), dead(database)):
        console.print()
        console.print(title, style="bold", highlight=False)
        console.print(table)
    picture = root / "views.svg"
    picture.write_text(draw(views_by_minute(database), arrived), encoding="utf-8")
    source = os.path.relpath(Path(page_views.__file__).resolve())
    for name, place in (
        ("picture", f"{picture}   the evening by event time, beside what processing time would have drawn"),
        ("results", f"{database}   tables views_by_path, views_by_minute, late_views, dead_letters"),
        ("the job", source),
        ("again", f"penstock run {source} --once   the same files, all in one batch"),
    ):
        console.print(Text.assemble((f"{name:<8}", "dim"), place), soft_wrap=True)


def busiest(database: Path) -> tuple[str, Table]:
    """The top of the windows by path."""
    query = (
        "select window_start, path, views, visitors, p95_load_ms from views_by_path "
        f"order by views desc, window_start, path limit {TOP}"
    )
    ((total,),) = rows_of(database, "select count(*) from views_by_path")
    title = f"Page views per 5 minutes and path: the busiest {TOP} of {total}"
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("window", "path"):
        table.add_column(column)
    for column in ("views", "visitors", "p95 load"):
        table.add_column(column, justify="right")
    for start, path, views, visitors, p95 in rows_of(database, query):
        table.add_row(f"{moment(start):%H:%M}", path, f"{views:,}", f"{visitors:,}", f"{p95:,.0f} ms")
    return title, table


def late(database: Path) -> tuple[str, Table]:
    """The rows that came when their window had closed."""
    rows = rows_of(database, "select at, received, path, visitor from late_views order by received")
    title = f"Too late for their window: {len(rows)} views, kept in late_views"
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("viewed", "received", "behind", "path", "visitor"):
        table.add_column(column)
    for at, received, path, visitor in rows:
        behind = (moment(received) - moment(at)) // events.MINUTE
        table.add_row(f"{moment(at):%H:%M:%S}", f"{moment(received):%H:%M:%S}", f"{behind} min", path, visitor)
    return title, table


def dead(database: Path) -> tuple[str, Table]:
    """The rows that could not be used."""
    rows = rows_of(database, "select reason, place, row from dead_letters order by place, row")
    title = f"Not usable: {len(rows)} dead letters"
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("reason", "file", "row"):
        table.add_column(column, overflow="fold")
    for reason, place, row in rows:
        table.add_row(reason, os.path.basename(place), Text(shortened(row)))
    return title, table


def shortened(row: str) -> str:
    """A dead letter's row in a few words: its visitor and time, or the text when it is no JSON."""
    try:
        values: dict[str, Any] = json.loads(row)
    except ValueError:
        return row
    return f"visitor {values['visitor']}, at {values['at']}"


def views_by_minute(database: Path) -> Mapping[datetime, int]:
    """The curve by event time, as the job has counted it."""
    return {moment(start): n for start, n in rows_of(database, "select window_start, views from views_by_minute")}


def draw(by_event: Mapping[datetime, int], arrived: Sequence[Arrival]) -> str:
    """The picture of the hour."""
    by_arrival = events.received_per_minute(arrived)
    return Picture(by_event, by_arrival, events.START, events.END, (events.DOWN, events.UP)).svg()
