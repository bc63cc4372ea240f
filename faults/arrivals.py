"""Cases 20 to 24: rows that come twice, out of order, too late, from absurd clocks, and walls whose clock jumps."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from random import Random

import duckdb

import penstock.state
from faults import shop
from faults.case import case
from faults.outputs import Tables, tables
from faults.process import CHECKPOINT, Driver, Ended
from faults.room import Room


def ran(
    room: Room, name: str, files: list[list[str]], job: str = shop.JOB, *, quick: bool = True, **env: str
) -> tuple[Path, Ended]:
    """Run a job over files to its end."""
    folder = shop.prepare(room.folder / name, files, job)
    with Driver(folder, env=env, quick=quick) as driver:
        ended = driver.wait()
    room.must(ended.code == 0, f"{name}: exit code {ended.code}: {ended.error}")
    return folder, ended


ONCE = shop.JOB.replace(
    "job.dead_letters(", 'orders = orders.deduplicate("id", within="3 hours", name="once")\njob.dead_letters('
)


@case(
    20, "every record delivered two or three times", passes="with deduplicate equal to the distinct events", fast=True
)
def repeats(room: Room) -> None:
    """Each order stands two or three times in the files, in its own and in later ones; the job has a deduplicate.
    The oracle is plain Python over the distinct orders."""
    rows = shop.orders(room.random, late=0)
    files: list[list[shop.Row]] = [[] for _ in rows]
    for number, here in enumerate(rows):
        for row in here:
            again = [
                min(number + room.random.choice((0, 0, 1, 2)), len(rows) - 1) for _ in range(room.random.choice((1, 2)))
            ]
            for at in (number, *again):
                files[at].append(row)
    for number, here in enumerate(files):
        own = {row["id"] for row in rows[number]}
        # an order is first seen in its own file; where its copies stand does not matter
        files[number] = sorted(here, key=lambda row: (row["id"] not in own, room.random.random()))
    folder, ended = ran(room, "twice", shop.lines_of(files), ONCE)
    distinct = len({row["id"] for here in rows for row in here})
    room.note("delivered", f"{sum(map(len, files))} records of {distinct} orders, batches {ended.batches}")
    room.equals(shop.judged(tables(folder)), shop.expected(rows), "oracle over the distinct orders")


@case(21, "disorder within the lateness; other cuts into batches", passes="equal")
def disorder(room: Room) -> None:
    """The same orders in three orders of arrival, each within the lateness, cut into 1, 4 and 9 batches. The oracle
    is DuckDB over all orders at once."""
    rows = [row for here in shop.orders(room.random, late=0) for row in here]
    first: Tables | None = None
    for cuts in (1, 4, 9):
        came = arrival(room.random, rows)
        marks = [0, *sorted(room.random.sample(range(1, len(came)), cuts - 1)), len(came)]
        files = [came[a:b] for a, b in pairwise(marks)]
        folder, ended = ran(room, f"cut-{cuts}", shop.lines_of(files))
        found = shop.judged(tables(folder))
        room.note("batches", ended.batches)
        room.must(not found["out.late"], f"{len(found['out.late'])} rows were late")
        first = first or found
        room.equals(found, first, "first order of arrival")
    assert first is not None
    room.equals({"sold": first["sold"]}, {"sold": asked_of_duckdb(rows)}, "oracle in DuckDB")


def arrival(random: Random, rows: list[shop.Row]) -> list[shop.Row]:
    """An order of arrival in which nothing is later than the lateness allows."""
    slack = shop.LATENESS.total_seconds() * 0.9
    delayed = [(datetime.fromisoformat(row["at"]).timestamp() + slack * random.random(), row) for row in rows]
    return [row for _, row in sorted(delayed, key=lambda pair: pair[0])]


def asked_of_duckdb(rows: list[shop.Row]) -> list[tuple[object, ...]]:
    """What the windows that are closed must hold, in SQL."""
    newest = max(datetime.fromisoformat(row["at"]) for row in rows)
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute('CREATE TABLE orders (id VARCHAR, shop VARCHAR, amount BIGINT, "at" TIMESTAMPTZ)')
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [tuple(row.values()) for row in rows])
        found = database.execute(
            'SELECT * FROM (SELECT time_bucket(INTERVAL 10 MINUTE, "at") AS start, shop, count(*),'
            " sum(amount)::BIGINT, max(amount) FROM orders GROUP BY 1, 2)"
            " WHERE start + INTERVAL 10 MINUTE <= ?::TIMESTAMPTZ",
            [(newest - shop.LATENESS).isoformat()],
        ).fetchall()
    window = shop.WINDOW
    return [(shop.text(_utc(s)), shop.text(_utc(s) + window), *rest) for s, *rest in found]


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(timezone.utc)


@case(22, "rows beyond the lateness", passes="emitted + late + pending = input, to the row", fast=True)
def beyond(room: Room) -> None:
    """From the third batch on a sixth of the rows is an hour late. Each row must be in a window that came out, among
    the late ones, or in a window that is still open in the state."""
    rows = shop.orders(room.random, late=24)
    folder, ended = ran(room, "late", shop.lines_of(rows))
    found = shop.judged(tables(folder))
    emitted, late = sum(row[3] for row in found["sold"]), len(found["out.late"])
    held = penstock.state.open(folder / CHECKPOINT)["sold"]
    pending = sum(held.column("state_0").to_pylist())  # the partial of count(*), the first of its aggregates
    came = sum(map(len, rows))
    room.note("rows", f"{emitted} emitted + {late} late + {pending} pending = {came}")
    room.must(emitted + late + pending == came, f"{emitted} + {late} + {pending} is not {came}")
    room.must(ended.lines[-1]["late"] == late, f"the status counts {ended.lines[-1]['late']} late rows, not {late}")
    room.equals(found, shop.expected(rows), "oracle in plain Python")


@case(
    23,
    "an event in the year 2100, one without a time, one in 1970",
    passes="the first two dead letters, the third late; nothing else changes",
    fast=True,
)
def absurd_clocks(room: Room) -> None:
    """The three are put into the middle of batch 2; the oracle is plain Python over the others and the old one."""
    rows = shop.orders(room.random, late=0)
    old = shop.order("old", "museum", 7, datetime(1970, 1, 1, tzinfo=timezone.utc))
    ahead = shop.order("ahead", "s1", 7, datetime(2100, 1, 1, tzinfo=timezone.utc))
    timeless = {"id": "timeless", "shop": "s1", "amount": 7, "at": None}
    files = shop.lines_of(rows)
    files[2][60:60] = [json.dumps(row) for row in (old, ahead, timeless)]
    folder, _ = ran(room, "absurd", files)
    found = tables(folder)
    letters = sorted((row[1], json.loads(row[5])["id"]) for row in found["out.dead"])
    room.must(letters == [("bad_time", "ahead"), ("bad_time", "timeless")], f"the dead letters are {letters}")
    room.note("dead letters", letters)
    found["out.dead"] = []
    rows[2].insert(60, old)
    room.equals(shop.judged(found), shop.expected(rows), "oracle in plain Python")
    room.note("late", [row[0] for row in found["out.late"]])


@case(24, "the wall clock jumps an hour, summer time ends", passes="event-time results unchanged")
def jumping_walls(room: Room) -> None:
    """One run whose wall clock (the engine's own, which it has from Spark's log) is set forward by an hour before
    batch 2 and back by two before batch 4. Another over the night in which summer time ends, begun in the time zone
    of Berlin, killed, and ended in that of New York."""
    calm = room.lab.calm
    folder, ended = ran(room, "jumps", calm.files, CLOCK="2:3600 4:-7200")
    room.note("jumps", f"batches {ended.batches}, +1 h at 2, -2 h at 4")
    room.equals_calm(folder)
    begin = datetime(2025, 10, 26, 0, 10, tzinfo=timezone.utc)  # clocks go back at 01:00 UTC
    rows = shop.orders(room.random, begin=begin)
    folder = shop.prepare(room.folder / "summer", shop.lines_of(rows))
    with Driver(folder, fault="kill after_sink 3", env={"TZ": "Europe/Berlin"}) as driver:
        room.must(driver.wait().code == -9, "the run in Berlin was not killed")
    with Driver(folder, env={"TZ": "America/New_York"}) as driver:
        ended = driver.wait()
    room.must(ended.code == 0, f"the run in New York failed: {ended.error}")
    room.note("time zones", f"Berlin up to batch 3, New York {ended.batches}, events to {rows[-1][-1]['at']}")
    room.equals(shop.judged(tables(folder)), shop.expected(rows), "oracle in plain Python")
