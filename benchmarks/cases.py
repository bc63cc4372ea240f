"""The queries: each as a job of ours and as it is written by hand in PySpark."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.case import LATENESS, Case
from benchmarks.data import Events, one_stream
from penstock.stream import Stream
from penstock.windows import hopping, session, tumbling

TIMES = ("window_start", "window_end")


def windowed(size: str, every: str | None) -> tuple[Callable[[Stream], Stream], Callable[[DataFrame], DataFrame]]:
    """``count(*)`` and ``max(price)`` per key and window, both ways."""

    def ours(rows: Stream) -> Stream:
        shape = tumbling(size) if every is None else hopping(size, every)
        return rows.by("key").window(shape).agg(n="count(*)", highest="max(price)")

    def theirs(rows: DataFrame) -> DataFrame:
        window = F.window("at", size, every)
        found = rows.withWatermark("at", LATENESS).groupBy(window, "key")
        counted = found.agg(F.count("*").alias("n"), F.max("price").alias("highest"))
        return counted.select(
            F.col("window.start").alias(TIMES[0]), F.col("window.end").alias(TIMES[1]), "key", "n", "highest"
        )

    return ours, theirs


def ours_sessions(rows: Stream) -> Stream:
    """Until a key is silent for 10 seconds."""
    return rows.by("key").window(session("10 seconds")).agg(n="count(*)", highest="max(price)")


def theirs_sessions(rows: DataFrame) -> DataFrame:
    """The same by hand."""
    found = rows.withWatermark("at", LATENESS).groupBy(F.session_window("at", "10 seconds").alias("window"), "key")
    counted = found.agg(F.count("*").alias("n"), F.max("price").alias("highest"))
    return counted.select(
        F.col("window.start").alias(TIMES[0]), F.col("window.end").alias(TIMES[1]), "key", "n", "highest"
    )


def ours_stateless(rows: Stream) -> Stream:
    """A filter and a projection."""
    return rows.where("price % 10 < 9").select("key", "price * 0.908 as euro", "at")


def theirs_stateless(rows: DataFrame) -> DataFrame:
    """The same by hand."""
    return rows.where("price % 10 < 9").selectExpr("key", "price * 0.908 as euro", "at")


TUMBLING = windowed("10 seconds", None)
HOPPING = windowed("10 minutes", "10 seconds")

FEW = one_stream(Events(2_000))
MANY = one_stream(Events(200_000))
FEW_NAMES = one_stream(Events(2_000, "string"))
MANY_NAMES = one_stream(Events(200_000, "string"))

CASES = (
    Case("tumbling_2k_long", FEW, *TUMBLING, goal=1.5),
    Case("tumbling_2k_string", FEW_NAMES, *TUMBLING, goal=1.5),
    Case("tumbling_200k_long", MANY, *TUMBLING, goal=3.0),
    Case("tumbling_200k_string", MANY_NAMES, *TUMBLING, goal=3.0),
    Case("hopping_2k_long", FEW, *HOPPING, goal=1.5),
    Case("session_2k_long", FEW, ours_sessions, theirs_sessions, goal=1.2),
    Case("stateless", FEW, ours_stateless, theirs_stateless, goal=0.97),
)
