"""Joins in time: each as a job of ours, as PySpark says it where it can, and in Flink SQL."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import LATENESS, Case, Cut, Input
from benchmarks.data import Events, distinct, events, scaled, schema
from penstock.stream import Stream
from penstock.table import Table

FULL = 5_000_000
PROFILE = ("key", "score", "since")
VERSION = ("key", "rate", "since")
ROW = ("key", "score")


def interval_inputs(key: str) -> tuple[Input, Input]:
    """5M bids and 1M profiles of 500,000 keys, over the same hour."""
    bids = Events(500_000, key, of=FULL)
    profiles = Events(500_000, key, of=FULL, names=PROFILE, seed=100)
    return Input("bids", schema(key), bids), Input("profiles", schema(key, PROFILE), profiles, 0.2, time="since")


def ours_interval(bids: Stream, profiles: Stream) -> Stream:
    """Bids with the profiles of their key from 5 minutes before them to 5 minutes after."""
    return bids.join(profiles, on="key", within="5 minutes")


def theirs_interval(bids: DataFrame, profiles: DataFrame) -> DataFrame:
    """The same by hand."""
    right = profiles.withWatermark("since", LATENESS).withColumnRenamed("key", "whose")
    near = F.expr("key = whose and since between at - interval 5 minutes and at + interval 5 minutes")
    return bids.withWatermark("at", LATENESS).join(right, near).drop("whose")


# a result may have one event time only: the other is a plain timestamp
FLINK_INTERVAL = """
select b.key, b.price, b.`at`, p.score, cast(p.since as timestamp(3)) as since from bids b, profiles p
where b.key = p.key and p.since between b.`at` - interval '5' minute and b.`at` + interval '5' minute
"""


@dataclass(frozen=True)
class Versions:
    """Rates that hold from their time on; a key has no two of one millisecond, of which neither side need win."""

    keys: int
    of: int

    def __call__(self, cut: Cut) -> pa.Table:
        keys = scaled(self.keys, self.of, cut)
        made = events(cut.rows, keys, "long", cut.begin_us, cut.span_us, 100 + cut.number)
        times_ms = made["at"].cast(pa.int64()).to_numpy() // 1_000
        _, first = np.unique(made["key"].to_numpy() * 2**42 + times_ms, return_index=True)
        return made.take(pa.array(np.sort(first))).rename_columns(list(VERSION))


def ours_asof(orders: Stream, rates: Table) -> Stream:
    """Orders with the rate that held at their time."""
    return orders.asof(rates)


FLINK_ASOF = """
select o.key, o.price, o.`at`, r.rate, cast(r.since as timestamp(3)) as since
from orders o left join rates for system_time as of o.`at` as r on o.key = r.key
"""


@dataclass(frozen=True)
class Rows:
    """A table of the keys from 0 on."""

    def __call__(self, cut: Cut) -> pa.Table:
        return distinct(cut.rows, cut.begin_us).select(["key", "price"]).rename_columns(list(ROW))


def ours_lookup(rows: Stream, scores: Table) -> Stream:
    """Events with the table's row."""
    return rows.lookup(scores)


def theirs_lookup(rows: DataFrame, scores: DataFrame) -> DataFrame:
    """The join of a stream with a frame that is read as it is; so small a one is broadcast."""
    return rows.join(scores, "key", "left")


INTERVALS = tuple(
    Case(
        f"interval_500k_{key}",
        interval_inputs(key),
        ours_interval,
        theirs_interval,
        # as it comes Spark's join keeps 800 stores, four for each of 200 partitions: minutes for a few thousand rows
        sides=("tuned", "heap"),
        goal=2.5,
        flink=FLINK_INTERVAL,
    )
    for key in ("long", "string")
)
ASOF = Case(
    "asof_10k",
    (
        Input("orders", schema("long"), Events(10_000, of=FULL)),
        Input("rates", schema("long", VERSION), Versions(10_000, of=FULL), 0.2, time="since", key="key"),
    ),
    ours_asof,
    flink=FLINK_ASOF,
)
LOOKUP = Case(
    "lookup_100k",
    (
        # a key in eleven is not in the table
        Input("events", schema("long"), Events(110_000, of=FULL)),
        Input("scores", "key long, score long", Rows(), 0.02, files=1, time=None, key="key", static=True),
    ),
    ours_lookup,
    theirs_lookup,
)
