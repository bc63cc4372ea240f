"""A batch against what is held already: the rows of a table, and the rows of a join. Ours only, and SQLite by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import table_join
from benchmarks.case import Case, Input
from benchmarks.data import BEGIN_US, SECOND_US, distinct, events, generate, schema
from benchmarks.joins import PROFILE, ours_interval
from benchmarks.live import Live, live
from benchmarks.outputs import compare, output
from benchmarks.sides import Ours
from benchmarks.table import spread
from benchmarks.throughput import written
from benchmarks.upserts import COLUMNS, HandWritten, Upserts, upserts
from penstock.table import Table

KEYS = (100_000, 1_000_000, 10_000_000)
CHANGES = (1_000, 100_000)
FEW_HELD = 100_000
PIECE = 1_000_000  # rows are brought in by batches of a usual size
GOAL = 2.0
TABLE_HEADER = ("keys", "changes", "ours s", "ours KB written", "sqlite s", "sqlite KB written", "sqlite s / ours")
JOIN_HEADER = ("1,000 rows into", "rows held", "s", "rows held", "s", "ratio", "goal", "")


def as_it_is(rows: Table) -> Table:
    """The table itself."""
    return rows


CHANGELOG = Input("rows", COLUMNS, Upserts(1_000), time=None, key="key", sequence="seq")
TABLE = Case("table", (CHANGELOG,), as_it_is, changes=True)
INTERVAL = Case(
    "interval",
    (Input("bids", schema("long")), Input("profiles", schema("long", PROFILE), time="since")),
    ours_interval,
)
JOIN = Case("join", table_join.INPUTS, table_join.ours, changes=True)


def by_keys(spark: SparkSession, folder: Path, runs: int, most: int) -> Iterator[list[str]]:
    """Batches of changes to tables of ever more keys: their seconds, and the bytes of state that they write."""
    _compare(spark, folder)
    for keys in [size for size in KEYS if size <= most] or [most]:
        place = folder / "table"
        batches = {n: list(_changes(keys, n, runs + 1)) for n in CHANGES if n <= keys}
        with live(Ours(spark, TABLE), place) as query:
            for piece in _pieces(keys):
                query.push(upserts(piece, seq=0))
            ours = {n: [_push(query, rows) for rows in made][1:] for n, made in batches.items()}
        with HandWritten(place) as database:
            for piece in _pieces(keys):
                database.push(upserts(piece, seq=0))
            theirs = {n: [database.push(rows) for rows in made][1:] for n, made in batches.items()}
        shutil.rmtree(place)
        for changes in batches:
            seconds, wrote = zip(*ours[changes], strict=True)
            by_hand, logged = zip(*theirs[changes], strict=True)
            yield [
                f"{keys:,}", f"{changes:,}", spread(seconds), spread(wrote, 0), spread(by_hand), spread(logged, 0),
                f"{median(by_hand) / median(seconds):.2f}",
            ]  # fmt: skip


def _compare(spark: SparkSession, folder: Path) -> None:
    """Few changes, out of order: both must have the same table in the end."""
    source, place = generate(TABLE, folder, 10_000), folder / "by_hand"
    with HandWritten(place) as database:
        for file in sorted((source / CHANGELOG.name).iterdir()):
            database.push(pq.read_table(file))
    compare(TABLE.name, {"ours": written(Ours(spark, TABLE), source, folder), "sqlite": output(place)})
    shutil.rmtree(place)


def _changes(keys: int, changes: int, batches: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(changes)
    for number in range(batches):
        # newer than what is there, and than the smaller batches before
        yield upserts(random.integers(0, keys, changes), seq=(changes + number) * 1_000_000)


def _pieces(rows: int) -> Iterator[np.ndarray]:
    for first in range(0, rows, PIECE):
        yield np.arange(first, min(first + PIECE, rows))


def _push(query: Live, rows: pa.Table) -> tuple[float, float]:
    """The seconds of a batch, and the kilobytes of the state files that it left."""
    before = _state_files(query.checkpoint)
    took = query.push(rows)
    after = _state_files(query.checkpoint)
    return took, sum(after[path] for path in after.keys() - before.keys()) / 1000


def _state_files(checkpoint: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in (checkpoint / "state").rglob("*.arrow")}


def by_join(spark: SparkSession, folder: Path, runs: int, most: int) -> Iterator[list[str]]:
    """The same 1,000 rows against few rows held and many; for the interval join, and both sides of a table join."""
    sizes = (min(FEW_HELD, max(most // 100, 1)), most)
    for name, case, pushed in (
        ("interval join, bids", INTERVAL, _interval_batches),
        ("table join, orders", JOIN, _order_batches),
        ("table join, customers", JOIN, _customer_batches),
    ):
        few, many = (_seconds(spark, case, folder / "held", pushed, rows, runs) for rows in sizes)
        ratio = median(many) / median(few)
        reached = "met" if ratio <= GOAL else "MISSED"
        yield [
            name, f"{sizes[0]:,}", spread(few), f"{sizes[1]:,}", spread(many), f"{ratio:.2f}", f"<= {GOAL}", reached
        ]  # fmt: skip


Pushed = Callable[[Live, int, int], list[float]]


def _seconds(spark: SparkSession, case: Case, place: Path, pushed: Pushed, rows: int, runs: int) -> list[float]:
    with live(Ours(spark, case), place) as query:
        took = pushed(query, rows, runs + 1)
    shutil.rmtree(place)
    return took[1:]


def _interval_batches(query: Live, rows: int, batches: int) -> list[float]:
    """Profiles of as many keys, all of one time, so that none ends; a bid meets one of them."""
    for piece in _pieces(rows):
        query.push(distinct(len(piece), BEGIN_US, int(piece[0])).rename_columns(list(PROFILE)), "profiles")
    return [query.push(events(1_000, rows, "long", BEGIN_US, SECOND_US, seed), "bids") for seed in range(batches)]


def _order_batches(query: Live, rows: int, batches: int) -> list[float]:
    """Orders that change and move to other customers."""
    customers = _fill(query, rows)
    random = np.random.default_rng(0)
    made = (_orders(random.integers(0, rows, 1_000), customers, seq) for seq in range(1, batches + 1))
    return [query.push(table, "orders") for table in made]


def _customer_batches(query: Live, rows: int, batches: int) -> list[float]:
    """Customers that change, each with ten orders."""
    customers = _fill(query, rows)
    random = np.random.default_rng(0)
    made = (_customers(random.integers(0, customers, 1_000), seq) for seq in range(1, batches + 1))
    return [query.push(table, "customers") for table in made]


def _fill(query: Live, rows: int) -> int:
    """As many orders, and a customer for each ten; how many customers."""
    customers = max(rows // 10, 1)
    for piece in _pieces(customers):
        query.push(_customers(piece, 0), "customers")
    for piece in _pieces(rows):
        query.push(_orders(piece, customers, 0), "orders")
    return customers


def _orders(ids: np.ndarray, customers: int, seq: int) -> pa.Table:
    moved = (ids + 7 * seq) % customers
    return pa.table({"id": ids, "customer": moved, "amount": ids % 1_000 + seq, **_marks(len(ids), seq)})


def _customers(numbers: np.ndarray, seq: int) -> pa.Table:
    return pa.table({"no": numbers, "score": numbers % 1_000 + seq, **_marks(len(numbers), seq)})


def _marks(rows: int, seq: int) -> dict[str, np.ndarray]:
    return {"seq": np.full(rows, seq), "gone": np.zeros(rows, dtype=bool)}
