"""The three ways to run a query: ours, PySpark tuned by hand, PySpark as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.cases import LATENESS
from benchmarks.data import schema
from benchmarks.noop import Noop
from penstock import Job, sinks, sources
from penstock.run.query import Run
from penstock.stream import Stream

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Side(ABC):
    """One way to run a query over the files of a folder, a file a batch."""

    name: str
    pause: float = 0.5  # after this long without a commit a query is idle again

    def run(self, source: Path, key: str, checkpoint: Path, output: Path | None) -> None:
        """All that is there, then stop; into parquet files, or into nothing."""
        self.finish(self.start(source, key, checkpoint, output, once=True))

    @abstractmethod
    def start(self, source: Path, key: str, checkpoint: Path, output: Path | None, once: bool) -> Run | StreamingQuery:
        """Begin to run."""

    @abstractmethod
    def finish(self, running: Run | StreamingQuery) -> None:
        """Wait until it ends by itself."""

    @abstractmethod
    def is_active(self, running: Run | StreamingQuery) -> bool:
        """False once it has ended or failed."""

    @abstractmethod
    def committed(self, checkpoint: Path, batch: int) -> Path:
        """The file that says that a batch is done."""


class Ours(Side):
    """The job, in this process's Spark."""

    name = "ours"

    def __init__(self, spark: SparkSession, query: Callable[[Stream], Stream], columns: str | None = None) -> None:
        self._spark = spark
        self._query = query
        self._columns = columns

    def start(self, source: Path, key: str, checkpoint: Path, output: Path | None, once: bool) -> Run:
        job = Job("benchmark")
        columns = self._columns or schema(key)
        files = sources.files(str(source), format="parquet", schema=columns, maxFilesPerTrigger=1)
        rows = job.stream("events", files, time="at", lateness=LATENESS)
        self._query(rows).to(Noop() if output is None else sinks.parquet(str(output)), name="results")
        return job.start(self._spark, checkpoint=str(checkpoint), once=once)

    def finish(self, running: Run) -> None:
        running.wait()

    def is_active(self, running: Run) -> bool:
        return bool(running.status()["running"])

    def committed(self, checkpoint: Path, batch: int) -> Path:
        return checkpoint / "manifest" / f"{batch}.json"


class ByHand(Side):
    """Spark's own streaming operators."""

    pause = 1.5  # its windows close in a batch of their own, without rows

    def __init__(self, name: str, spark: SparkSession, query: Callable[[DataFrame], DataFrame]) -> None:
        self.name = name
        self._spark = spark
        self._query = query

    def start(self, source: Path, key: str, checkpoint: Path, output: Path | None, once: bool) -> StreamingQuery:
        files = self._spark.readStream.schema(schema(key)).option("maxFilesPerTrigger", 1)
        writer = self._query(files.parquet(str(source))).writeStream.option("checkpointLocation", str(checkpoint))
        writer = writer.format("noop") if output is None else writer.format("parquet").option("path", str(output))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def finish(self, running: StreamingQuery) -> None:
        running.awaitTermination()

    def is_active(self, running: StreamingQuery) -> bool:
        return bool(running.isActive)

    def committed(self, checkpoint: Path, batch: int) -> Path:
        return checkpoint / "commits" / str(batch)


def tuned(spark: SparkSession, query: Callable[[DataFrame], DataFrame]) -> ByHand:
    """What somebody sets who knows Structured Streaming well."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    own.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    own.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    return ByHand("tuned", own, query)


def defaults(spark: SparkSession, query: Callable[[DataFrame], DataFrame]) -> ByHand:
    """Nothing set."""
    return ByHand("defaults", spark.newSession(), query)
