"""What is seen while a demo plays: the batch, time, the counters, and each window as it closes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from penstock.run.batch import BatchReport

WINDOW = timedelta(minutes=5)
STEP = "window_by_path"
BAR = 44
FULL = 700  # views in a window whose bar is as long as it gets


class Screen:
    """A live chart on a terminal; elsewhere a line whenever windows have closed.

    It is told of every batch by the thread that runs them, so that none is missed.
    """

    def __init__(self, console: Console, database: Path, start: datetime, end: datetime) -> None:
        self._console = console
        self._database = database
        self._windows = [start + i * WINDOW for i in range((end - start) // WINDOW)]
        self._closed: Mapping[datetime, int] = {}
        self.received = ""
        self.report: BatchReport | None = None
        self._live = Live(self._chart(), console=console, refresh_per_second=8)

    def open(self) -> None:
        """Begin to draw; not before Spark has started, which has things of its own to say on the terminal."""
        if self._console.is_terminal:
            self._live.start()

    @property
    def rows(self) -> int:
        """How many rows the job has read so far."""
        return 0 if self.report is None else sum(self.report.counters.rows.values())

    def show(self, report: BatchReport) -> None:
        """A batch is done."""
        self.report = report
        closed = closed_windows(self._database)
        news = len(closed) > len(self._closed)
        self._closed = closed
        if self._console.is_terminal:
            self._live.update(self._chart())
        elif news:
            self._console.print(self._line(report), soft_wrap=True)

    def close(self) -> None:
        """Leave the last picture standing."""
        self._live.stop()

    def _line(self, report: BatchReport) -> Text:
        told = (
            ("batch", f"{report.batch:>3}"),
            ("received until", self.received or "-"),
            ("final until", clock(report.watermark_us)),
            ("rows", f"{self.rows:>5,}"),
            ("late", str(report.counters.late[STEP])),
            ("dead letters", str(report.counters.dead.total())),
            ("windows closed", str(sum(1 for w in self._windows if w in self._closed))),
        )
        return Text("   ").join(Text.assemble((f"{name} ", "dim"), (value, "bold")) for name, value in told)

    def _chart(self) -> Group:
        lines = [Text("waiting for the first batch", "dim") if self.report is None else self._line(self.report)]
        lines.append(Text())
        for window in self._windows:
            label = f"{window:%H:%M} to {window + WINDOW:%H:%M}  "
            views = self._closed.get(window)
            if views is None:
                lines.append(Text.assemble((label, "dim"), ("open", "dim")))
            else:
                bar = "█" * round(BAR * min(views / FULL, 1))
                lines.append(Text.assemble(label, (bar, "cyan"), f" {views:,}"))
        return Group(*lines)


def clock(watermark_us: int | None) -> str:
    """The time of day up to which results are final."""
    return "-" if watermark_us is None else f"{datetime.fromtimestamp(watermark_us / 1e6, timezone.utc):%H:%M:%S}"


def closed_windows(database: Path) -> Mapping[datetime, int]:
    """The windows that have come out, with their views: read from the output, as any reader would."""
    query = "select window_start, sum(views) from views_by_path group by 1"
    return {moment(start): views for start, views in rows_of(database, query)}


def moment(text: str) -> datetime:
    """A timestamp as the SQLite sink writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def rows_of(database: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, read from outside the job."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()
