"""The job that most cases break: orders of shops, with windows, a table, late rows and dead letters; and its oracle."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from faults.outputs import Tables

JOB = '''
"""Orders of shops: what each has sold every ten minutes, and so far."""

from penstock import Job, sinks, sources
from penstock.windows import tumbling

SCHEMA = "id string, shop string, amount long, at timestamp"

job = Job("shop")
orders = job.stream(
    "orders",
    sources.files("in", format="json", schema=SCHEMA, maxFilesPerTrigger=1),
    time="at",
    lateness="10 minutes",
)
job.dead_letters(sinks.sqlite("out.db", "dead"))
sold = (
    orders.by("shop")
    .window(tumbling("10 minutes"), late="capture")
    .agg(n="count(*)", total="sum(amount)", dearest="max(amount)")
    .named("sold")
)
sold.to(sinks.parquet("sold"))
sold.to(sinks.sqlite("out.db", "sold"), name="sold_db")
sold.late.to(sinks.sqlite("out.db", "late"))
orders.by("shop").agg(n="count(*)", total="sum(amount)").named("so_far").to(sinks.sqlite("out.db", "so_far"))
'''

BEGIN = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)
SPAN = timedelta(minutes=15)  # of a file
LATENESS = timedelta(minutes=10)
WINDOW = timedelta(minutes=10)
FILES = 6
Row = dict[str, Any]


def orders(
    random: Random, files: int = FILES, rows: int = 120, shops: int = 12, late: int = 1, begin: datetime = BEGIN
) -> list[list[Row]]:
    """Orders by file: out of order within the lateness, and from the third file on some that come too late."""
    made = []
    for number in range(files):
        here = []
        for i in range(rows):
            newest = begin + SPAN * number + SPAN * i / rows
            at = newest - LATENESS * random.random() * 0.9
            here.append(order(f"o{number}-{i}", f"s{random.randrange(shops)}", random.randrange(1000), at))
        for i in range(late if number >= 2 else 0):
            at = begin - timedelta(minutes=60 + i)
            here.insert(random.randrange(rows), order(f"late{number}-{i}", "s0", 1, at))
        made.append(here)
    return made


def order(name: str, shop: str, amount: int, at: datetime) -> Row:
    """One order."""
    return {"id": name, "shop": shop, "amount": amount, "at": at.isoformat(timespec="milliseconds")}


def lines_of(files: Sequence[Sequence[Row]]) -> list[list[str]]:
    """The rows as lines of JSON."""
    return [[json.dumps(row) for row in rows] for rows in files]


def with_a_broken_line(files: list[list[str]]) -> list[list[str]]:
    """The same with half a line in the fourth file."""
    files[3].insert(len(files[3]) // 2, '{"id": "broken", ')
    return files


def write(folder: Path, number: int, lines: Sequence[str], inbox: str = "in") -> Path:
    """A file of the inbox: written aside and moved in, each younger than the one before it."""
    home = folder / inbox
    home.mkdir(parents=True, exist_ok=True)
    aside, path = home.parent / f".{home.name}-{number}", home / f"{number:03}.json"
    aside.write_text("".join(f"{line}\n" for line in lines))
    os.utime(aside, (1_790_000_000 + number, 1_790_000_000 + number))  # the source reads the oldest first
    aside.rename(path)
    return path


def prepare(folder: Path, files: Sequence[Sequence[str]], job: str = JOB) -> Path:
    """A folder with the job and its input."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.py").write_text(job)
    (folder / "in").mkdir(exist_ok=True)
    for number, lines in enumerate(files):
        write(folder, number, lines)
    return folder


def text(at: datetime) -> str:
    """A time as SQLite is given it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def expected(files: Sequence[Sequence[Row]], *, dead: int = 0) -> Tables:
    """The oracle: what the job must give when each file is a batch, in plain Python.

    ``dead`` is how many dead letters there must be; their text is not judged here.
    """
    watermark: datetime | None = None
    windows: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    so_far: dict[str, list[int]] = defaultdict(list)
    sold, late = [], []
    newest = datetime.min.replace(tzinfo=timezone.utc)
    for rows in files:
        for row in rows:
            at = datetime.fromisoformat(row["at"])
            newest = max(newest, at)
            so_far[row["shop"]].append(row["amount"])
            start = at - (at - BEGIN) % WINDOW
            if watermark is not None and start + WINDOW <= watermark:
                late.append((row["id"], row["shop"], row["amount"], text(at)))
            else:
                windows[start, row["shop"]].append(row["amount"])
        watermark = newest - LATENESS
        for start, shop in sorted(w for w in windows if w[0] + WINDOW <= watermark):
            amounts = windows.pop((start, shop))
            sold.append((text(start), text(start + WINDOW), shop, len(amounts), sum(amounts), max(amounts)))
    return {
        "out.sold": sold,
        "out.late": late,
        "out.so_far": [(shop, len(amounts), sum(amounts)) for shop, amounts in so_far.items()],
        "out.dead": [("malformed",)] * dead,
        "sold": sold,
    }


def judged(found: Tables) -> Tables:
    """Tables as the oracle has them: of dead letters the reason, of Parquet files the times as text."""
    made = dict(found)
    made["out.dead"] = [(row[1],) for row in found.get("out.dead", [])]
    made["sold"] = [tuple(text(v) if isinstance(v, datetime) else v for v in row) for row in found.get("sold", [])]
    return made
