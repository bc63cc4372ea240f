"""What a running job says: a live line on a terminal, a JSON line per batch elsewhere."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.run.batch import BatchReport


class Progress(Protocol):
    """Somebody who is told of each batch."""

    def show(self, report: BatchReport) -> None:
        """A batch is done."""

    def close(self) -> None:
        """No batch comes any more."""


def facts(job: str, report: BatchReport) -> dict[str, Any]:
    """A batch in plain values, for people and programs."""
    counters = report.counters
    return {
        "job": job,
        "batch": report.batch,
        "rows": report.rows,
        "rows_per_second": round(report.rows / report.seconds) if report.seconds else 0,
        "seconds": round(report.seconds, 3),
        "watermark": as_text(report.watermark_us),
        "late": sum(counters.late.values()),
        "dead_letters": sum(counters.dead.values()),
        "ignored": sum(counters.ignored.values()),
        "retries": sum(counters.retries.values()),
        "repeated": sum(counters.repeated.values()),
        "state_rows": report.state_rows,
        "state_bytes": report.state_bytes,
        "skipped": report.skipped,
        **({"inputs": report.inputs} if report.inputs else {}),
        "alarms": list(report.alarms),
    }


def as_text(us: int | None) -> str | None:
    """A time in microseconds as ISO 8601, UTC; None for none or one beyond the calendar."""
    if us is None:
        return None
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, timezone.utc).replace(microsecond=us % 1_000_000)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


class JsonLines:
    """A JSON line per batch."""

    def __init__(self, job: str, stream: TextIO) -> None:
        self._job = job
        self._stream = stream

    def show(self, report: BatchReport) -> None:
        """Write the line, whole."""
        self._stream.write(json.dumps(facts(self._job, report)) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing is held."""


class LiveLine:
    """One line on a terminal, always the newest batch."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._live = Live(Text(f"{job}: waiting for rows"), console=Console(), refresh_per_second=8)
        self._live.start()

    def show(self, report: BatchReport) -> None:
        """Draw the line anew."""
        said = facts(self._job, report)
        size = said["state_bytes"] / 1_000_000
        alarms = "".join(f"\n  {alarm}" for alarm in said["alarms"])
        self._live.update(
            Text(
                f"{said['job']}: batch {said['batch']}  {said['rows_per_second']:,} rows/s  "
                f"watermark {said['watermark'] or '-'}  late {said['late']:,}  dead {said['dead_letters']:,}  "
                f"state {said['state_rows']:,} rows, {size:.1f} MB{alarms}"
            )
        )

    def close(self) -> None:
        """Leave the last line standing."""
        self._live.stop()


def progress(job: str) -> Progress:
    """What fits the place where the job runs."""
    return LiveLine(job) if sys.stdout.isatty() else JsonLines(job, sys.stdout)
