"""The queries: each as a job of ours and as it is written in Flink SQL."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.case import Case, Cut, Input
from benchmarks.data import events
from benchmarks.joins import ASOF, INTERVALS
from benchmarks.table_join import TABLE_JOINS
from penstock import windows
from penstock.stream import Stream

BIDDERS = 100


@dataclass(frozen=True)
class Bids:
    """Events with a bidder."""

    keys: int

    def __call__(self, cut: Cut) -> pa.Table:
        made = events(cut.rows, self.keys, "long", cut.begin_us, cut.span_us, cut.number)
        bidders = np.random.default_rng(cut.rows + cut.number).integers(0, BIDDERS, cut.rows)
        return made.append_column("bidder", pa.array(bidders))


def windowed(shape: str, aggregates: str = "count(*) as n, max(price) as highest") -> str:
    """Flink's aggregation per key over one of its window functions.

    >>> windowed("tumble(table events, descriptor(`at`), interval '10' second)", "count(*) as n")[:57]
    'select window_start, window_end, key, count(*) as n from '
    """
    return (
        f"select window_start, window_end, key, {aggregates} from table({shape}) group by window_start, window_end, key"
    )


# Flink gives a row for each row and ours one for each time of a key: those of one time are the same
OVER = """
select cast(`at` as timestamp(3)) - interval '5' minute as window_start, cast(`at` as timestamp(3)) as window_end, key,
  count(*) over w as n, max(price) over w as highest from events
window w as (partition by key order by `at` range between interval '5' minute preceding and current row)
"""
TUMBLE = windowed("tumble(table events, descriptor(`at`), interval '10' second)")
HOP = windowed("hop(table events, descriptor(`at`), interval '10' second, interval '10' minute)")
SESSION = windowed("session(table events partition by key, descriptor(`at`), interval '10' second)")
CUMULATE = windowed("cumulate(table events, descriptor(`at`), interval '2' minute, interval '10' minute)")
DISTINCT = windowed(
    "tumble(table events, descriptor(`at`), interval '1' minute)", "count(distinct bidder) as bidders"
)  # fmt: skip


def tumbling(rows: Stream) -> Stream:
    """10 seconds."""
    return rows.by("key").window(windows.tumbling("10 seconds")).agg(n="count(*)", highest="max(price)")


def hopping(rows: Stream) -> Stream:
    """10 minutes every 10 seconds: a row is in 60 windows."""
    return rows.by("key").window(windows.hopping("10 minutes", "10 seconds")).agg(n="count(*)", highest="max(price)")


def sliding(rows: Stream) -> Stream:
    """At each event the last 5 minutes of its key."""
    return rows.by("key").window(windows.sliding("5 minutes")).agg(n="count(*)", highest="max(price)")


def session(rows: Stream) -> Stream:
    """Until a key is silent for 10 seconds."""
    return rows.by("key").window(windows.session("10 seconds")).agg(n="count(*)", highest="max(price)")


def cumulating(rows: Stream) -> Stream:
    """10 minutes, told every 2."""
    shape = windows.cumulating("2 minutes", "10 minutes")
    return rows.by("key").window(shape).agg(n="count(*)", highest="max(price)")


def distinct(rows: Stream) -> Stream:
    """The bidders of a minute, exactly."""
    return rows.by("key").window(windows.tumbling("1 minute")).agg(bidders="count(distinct bidder)")


COLUMNS = "key long, price long, at timestamp, bidder long"
FEW = (Input("events", COLUMNS, Bids(2_000)),)
MANY = (Input("events", COLUMNS, Bids(200_000)),)

QUERIES = (
    Case("tumbling_2k", FEW, tumbling, flink=TUMBLE),
    Case("tumbling_200k", MANY, tumbling, flink=TUMBLE),
    Case("hopping_2k", FEW, hopping, flink=HOP),
    Case("sliding_200k", MANY, sliding, flink=OVER, repeats=True),
    Case("session_2k", FEW, session, flink=SESSION),
    Case("session_200k", MANY, session, flink=SESSION),
    Case("cumulating_2k", FEW, cumulating, flink=CUMULATE),
    Case("distinct_2k", FEW, distinct, flink=DISTINCT),
    *INTERVALS,
    ASOF,
    *TABLE_JOINS,
)
