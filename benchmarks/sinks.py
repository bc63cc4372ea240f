"""What a sink costs: ours beside a plain ``foreachBatch`` that writes the same rows to the same kind of place.

``python -m benchmarks.sinks`` starts PostgreSQL and Kafka of its own. A file is a batch; a batch lasts from Spark's
commit of the one before to its own, and the first of a run is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.data import BEGIN_US, SECOND_US
from benchmarks.machine import described, open_spark
from benchmarks.noop import Noop
from benchmarks.table import print_table, spread
from penstock import Job, sinks, sources
from penstock.plan.needs import Need
from penstock.sinks.base import Sink
from penstock.sinks.delta_table import DELTA
from penstock.sources.kafka_connection import kafka_need
from penstock.testing.servers.kafka import Kafka
from penstock.testing.servers.postgres import Postgres

JDBC = Need("PostgreSQL", "org.postgresql:postgresql:42.7.7", "org.postgresql.Driver")
COLUMNS = "id long, url string, price double, at timestamp"
HEADER = ("sink", "rows a batch", "ours, s", "plain foreachBatch, s", "ours / plain")
NUMBERS = count()
Write = Callable[[DataFrame], None]


@dataclass(frozen=True)
class Compared:
    """A sink of ours, and what people write by hand; each is made anew for a run, with a place of its own."""

    name: str
    ours: Callable[[str], Sink]
    plain: Callable[[str], Write]


def compared(folder: Path, database: Postgres, broker: Kafka) -> Iterator[Compared]:
    """The sinks, and nothing at all for what a batch costs without one."""
    jdbc = f"jdbc:{database.url.replace('postgres@', '')}?user=postgres"

    def topic(name: str) -> str:
        broker.create_topic(name, partitions=2)
        return name

    def to_sqlite(name: str) -> Write:
        def write(frame: DataFrame) -> None:
            rows = [tuple(row) for row in frame.withColumn("at", frame["at"].cast("string")).collect()]
            with closing(sqlite3.connect(folder / f"{name}.db")) as connection, connection:
                connection.execute("create table if not exists t (id integer, url text, price real, at text)")
                connection.executemany("insert into t values (?, ?, ?, ?)", rows)

        return write

    def to_kafka(name: str) -> Write:
        options = {"kafka.bootstrap.servers": broker.servers, "topic": topic(name)}
        return lambda frame: (
            frame.selectExpr("to_json(struct(*)) AS value").write.format("kafka").options(**options).save()
        )

    def saved(kind: str, **options: str) -> Callable[[str], Write]:
        def made(name: str) -> Write:
            place = {"path": str(folder / name)} if kind in ("parquet", "delta") else {}
            place |= {"dbtable": name} if kind == "jdbc" else {}
            return lambda frame: frame.write.format(kind).mode("append").options(**options, **place).save()

        return made

    yield Compared("nothing", lambda name: Noop(), saved("noop"))
    yield Compared("parquet", lambda name: sinks.parquet(folder / name), saved("parquet"))
    yield Compared("sqlite", lambda name: sinks.sqlite(folder / f"{name}.db", "t"), to_sqlite)
    yield Compared(
        "postgres", lambda name: sinks.postgres(name, url=database.url), saved("jdbc", url=jdbc, driver=JDBC.probe)
    )
    yield Compared("delta", lambda name: sinks.delta(folder / name), saved("delta"))
    yield Compared("kafka", lambda name: sinks.kafka(topic(name), broker.servers), to_kafka)
    yield Compared("call", lambda name: sinks.call(lambda frame, batch: saved("noop")(name)(frame)), saved("noop"))


def make_rows(folder: Path, files: int, rows: int) -> None:
    """A file for each batch."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(files):
        made = pa.table({
            "id": np.arange(rows) + number * rows,
            "url": pa.array([f"/page/{n}" for n in random.integers(0, 10_000, rows)]),
            "price": random.random(rows),
            "at": pa.array(BEGIN_US + random.integers(0, 3600 * SECOND_US, rows), pa.timestamp("us", "UTC")),
        })  # fmt: skip
        pq.write_table(made, folder / f"{number:03}.parquet")


def ours(spark: SparkSession, sink: Sink, source: Path, checkpoint: Path) -> list[float]:
    """The seconds of each batch of a job that only writes."""
    job = Job("writes")
    files = sources.files(source, format="parquet", schema=COLUMNS, maxFilesPerTrigger=1)
    job.stream("rows", files, time="at", lateness="1 hour").to(sink, name="out")
    job.start(spark, checkpoint=str(checkpoint), once=True).wait()
    return between(checkpoint / "spark" / "commits")


def plain(spark: SparkSession, write: Write, source: Path, checkpoint: Path) -> list[float]:
    """The seconds of each batch of ``foreachBatch``."""
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = frame.writeStream.foreachBatch(lambda rows, _: write(rows)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return between(checkpoint / "commits")


def between(commits: Path) -> list[float]:
    """Seconds from each commit to the next."""
    times = [path.stat().st_mtime for path in sorted(commits.glob("[0-9]*"), key=lambda path: int(path.name))]
    return [later - earlier for earlier, later in pairwise(times)]


def measure(spark: SparkSession, one: Compared, folder: Path, source: Path, rows: int, runs: int) -> list[str]:
    """Both sides in turns, after a run of each that is not counted."""
    took: dict[str, list[float]] = {"ours": [], "plain": []}
    for run in range(runs + 1):
        checkpoint, name = folder / "checkpoint", f"{one.name}_{next(NUMBERS)}"
        mine = ours(spark, one.ours(f"{name}_ours"), source, checkpoint)
        shutil.rmtree(checkpoint)
        theirs = plain(spark, one.plain(f"{name}_plain"), source, checkpoint)
        shutil.rmtree(checkpoint)
        if run:
            took["ours"] += mine
            took["plain"] += theirs
    ratio = median(took["ours"]) / median(took["plain"])
    return [one.name, f"{rows:,}", spread(took["ours"]), spread(took["plain"]), f"{ratio:.2f}"]


def main() -> None:
    """Measure the sinks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sinks", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=6, help="batches of a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side that are counted")
    parser.add_argument("--only", action="append", metavar="SINK")
    asked = parser.parse_args()
    print(described(), flush=True)
    spark = open_spark(needs=(kafka_need(), DELTA, JDBC))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place, Postgres() as database, Kafka() as broker:
        folder = Path(place)
        make_rows(folder / "rows", asked.batches, asked.rows)
        chosen = [one for one in compared(folder, database, broker) if not asked.only or one.name in asked.only]
        lines = [measure(spark, one, folder, folder / "rows", asked.rows, asked.runs) for one in chosen]
    print_table("a batch into a sink", HEADER, lines)


if __name__ == "__main__":
    main()
