"""The ways to run a query: ours, PySpark tuned by hand, the same with its state in the heap, PySpark as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.case import LATENESS, Case, Input
from benchmarks.noop import Noop
from benchmarks.outputs import DATABASE
from penstock import Job, sinks, sources
from penstock.run.query import Run
from penstock.sinks.base import Sink
from penstock.stream import Stream
from penstock.table import Table

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Side(ABC):
    """One way to run a case over a folder that has a folder for each input, a file of each a batch."""

    name: str
    pause: float = 0.5  # after this long without a commit a query is idle again

    def __init__(self, spark: SparkSession, case: Case) -> None:
        self.case = case
        self._spark = spark

    def run(self, source: Path, checkpoint: Path, output: Path | None) -> None:
        """All that is there, then stop; into files, or into nothing."""
        self.finish(self.start(source, checkpoint, output, once=True))

    @abstractmethod
    def start(self, source: Path, checkpoint: Path, output: Path | None, once: bool) -> Run | StreamingQuery:
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

    def start(self, source: Path, checkpoint: Path, output: Path | None, once: bool) -> Run:
        job = Job("benchmark")
        result = self.case.ours(*(_read(job, given, source / given.name) for given in self.case.inputs))
        result.to(self._sink(output), name="results")
        return job.start(self._spark, checkpoint=str(checkpoint), once=once)

    def _sink(self, output: Path | None) -> Sink:
        if output is None:
            return Noop()
        if not self.case.changes:
            return sinks.parquet(str(output))
        output.mkdir(parents=True)
        return sinks.sqlite(str(output / DATABASE), "results")

    def finish(self, running: Run) -> None:
        running.wait()

    def is_active(self, running: Run) -> bool:
        return bool(running.status()["running"])

    def committed(self, checkpoint: Path, batch: int) -> Path:
        return checkpoint / "manifest" / f"{batch}.json"


class ByHand(Side):
    """Spark's own streaming operators."""

    pause = 1.5  # its windows close in a batch of their own, without rows

    def __init__(self, name: str, spark: SparkSession, case: Case) -> None:
        super().__init__(spark, case)
        self.name = name

    def set(self, setting: str, value: str) -> None:
        """Change a setting of its session."""
        self._spark.conf.set(setting, value)

    def start(self, source: Path, checkpoint: Path, output: Path | None, once: bool) -> StreamingQuery:
        assert self.case.theirs is not None, f"{self.case.name} is not written by hand"
        found = self.case.theirs(*(self._read(given, source / given.name) for given in self.case.inputs))
        writer = found.writeStream.option("checkpointLocation", str(checkpoint))
        writer = writer.format("noop") if output is None else writer.format("parquet").option("path", str(output))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _read(self, given: Input, place: Path) -> DataFrame:
        if given.static:
            return self._spark.read.schema(given.columns).parquet(str(place))
        return self._spark.readStream.schema(given.columns).option("maxFilesPerTrigger", 1).parquet(str(place))

    def finish(self, running: StreamingQuery) -> None:
        running.awaitTermination()

    def is_active(self, running: StreamingQuery) -> bool:
        return bool(running.isActive)

    def committed(self, checkpoint: Path, batch: int) -> Path:
        return checkpoint / "commits" / str(batch)


def _read(job: Job, given: Input, place: Path) -> Stream | Table:
    """An input as our job reads it."""
    files = sources.files(str(place), format="parquet", schema=given.columns, maxFilesPerTrigger=1)
    lateness = None if given.time is None else LATENESS
    if given.key is None:
        return job.stream(given.name, files, time=given.time, lateness=lateness)
    return job.table(
        given.name, files,
        key=given.key, sequence=given.sequence, time=given.time, lateness=lateness, delete_when=given.delete_when,
    )  # fmt: skip


def tuned(spark: SparkSession, case: Case) -> ByHand:
    """What somebody sets who knows Structured Streaming well."""
    side = heap(spark, case, "tuned")
    side.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    side.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    return side


def heap(spark: SparkSession, case: Case, name: str = "heap") -> ByHand:
    """As many partitions as cores; the state is where Spark keeps it by itself, in the heap."""
    side = ByHand(name, spark.newSession(), case)
    side.set("spark.sql.session.timeZone", "UTC")
    side.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return side


def defaults(spark: SparkSession, case: Case) -> ByHand:
    """Nothing set."""
    return ByHand("defaults", spark.newSession(), case)


BY_HAND = {"tuned": tuned, "heap": heap, "defaults": defaults}
