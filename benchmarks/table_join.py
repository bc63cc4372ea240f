"""A join of two tables that change: orders, each with the customer that it refers to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.case import Case, Cut, Input
from benchmarks.data import scaled
from penstock.table import Table

FULL = 5_000_000
ORDERS = 1_000_000
CUSTOMERS = 100_000


@dataclass(frozen=True)
class Changes:
    """Changes of rows whose keys are drawn at random, one in twenty a delete; ``seq`` is their order.

    With ``refers`` each names one of so many others, and a change may move it.
    """

    names: tuple[str, ...]
    keys: int
    refers: int | None = None

    def __call__(self, cut: Cut) -> pa.Table:
        random = np.random.default_rng(cut.number + self.keys)
        columns: list[np.ndarray] = [random.integers(0, scaled(self.keys, FULL, cut), cut.rows)]
        if self.refers is not None:
            columns.append(random.integers(0, scaled(self.refers, FULL, cut), cut.rows))
        columns.append(random.integers(1, 100_000, cut.rows))
        columns.append(cut.number * cut.rows + np.arange(cut.rows))
        columns.append(random.random(cut.rows) < 0.05)
        return pa.table(dict(zip(self.names, columns, strict=True)))


def log(name: str, columns: str, make: Changes, share: float) -> Input:
    """A changelog of plain rows, read as a table."""
    return Input(
        name, columns, make, share, time=None, key=make.names[0], sequence="seq", delete_when="gone"
    )  # fmt: skip


INPUTS = (
    log(
        "orders",
        "id long, customer long, amount long, seq long, gone boolean",
        Changes(("id", "customer", "amount", "seq", "gone"), ORDERS, CUSTOMERS),
        1.0,
    ),
    log(
        "customers",
        "no long, score long, seq long, gone boolean",
        Changes(("no", "score", "seq", "gone"), CUSTOMERS),
        0.1,
    ),
)


def ours(orders: Table, customers: Table) -> Table:
    """Every order with its customer, or without."""
    left, right = orders.drop("seq", "gone"), customers.drop("seq", "gone")
    return left.join(right, on={"customer": "no"}, how="left")


# the files are logs of plain rows: the newest row of each key makes upserts of them
FLINK = """
with latest_orders as (
  select id, customer, amount from (
    select *, row_number() over (partition by id order by seq desc) as place from orders
  ) where place = 1 and not gone
), latest_customers as (
  select `no`, score from (
    select *, row_number() over (partition by `no` order by seq desc) as place from customers
  ) where place = 1 and not gone
)
select o.id, o.customer, o.amount, c.score from latest_orders o left join latest_customers c on o.customer = c.`no`
"""
MINI_BATCHES = (
    ("table.exec.mini-batch.enabled", "true"),
    ("table.exec.mini-batch.allow-latency", "1 s"),
    ("table.exec.mini-batch.size", "100000"),
)

TABLE_JOINS = (
    Case("table_join", INPUTS, ours, flink=FLINK, changes=True),
    Case("table_join_mini", INPUTS, ours, flink=FLINK, settings=MINI_BATCHES, changes=True),
)
