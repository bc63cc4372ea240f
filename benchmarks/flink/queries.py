"""The queries: each as a job of ours and as it is written in Flink SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock import windows
from penstock.stream import Stream

COLUMNS = "key long, price long, at timestamp, bidder long"
LATENESS_SECONDS = 10


@dataclass(frozen=True)
class Query:
    """One query over the generated rows, for so many keys; both ways name their columns alike."""

    name: str
    keys: int
    ours: Callable[[Stream], Stream]
    flink: str


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


QUERIES = (
    Query("tumbling_2k", 2_000, tumbling, TUMBLE),
    Query("tumbling_200k", 200_000, tumbling, TUMBLE),
    Query("hopping_2k", 2_000, hopping, HOP),
    Query("sliding_200k", 200_000, sliding, OVER),
    Query("session_2k", 2_000, session, SESSION),
    Query("session_200k", 200_000, session, SESSION),
    Query("cumulating_2k", 2_000, cumulating, CUMULATE),
    Query("distinct_2k", 2_000, distinct, DISTINCT),
)
