"""Append a stream's results to a directory of Parquet files, one file a batch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer
from penstock.sinks.local_path import checked_path, local_path
from penstock.sinks.parquet_ledger import ParquetLedger, appear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEXT_MOVE = "See that it is a directory, or can become one, and that this user may write there."
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


def parquet(path: str | os.PathLike[str]) -> ParquetFiles:
    """Append to the Parquet files in a directory on this machine.

    Each batch is one file, ``<output>-<batch>.parquet``, that appears whole by one rename and never
    changes. A batch without rows makes no file, except the first, so that a reader finds the columns
    of an output that is still empty. Names that begin with ``_`` are not for readers.

    >>> parquet("out/ctr").describe()
    'parquet files in out/ctr'
    >>> parquet("out/ctr").name
    'ctr'
    """
    return ParquetFiles(checked_path("sinks.parquet", path))


@dataclass(frozen=True)
class ParquetFiles(Sink):
    """A directory with one Parquet file a batch."""

    path: str

    transactional: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return local_path(self.path).stem

    @property
    def place(self) -> str:
        return str(local_path(self.path))

    def describe(self) -> str:
        return f"parquet files in {self.path}"

    def writer(self, targets: Sequence[Target], owner: Owner) -> ParquetWriter:
        if len(targets) > 1:
            raise refusals.shared(targets, self.place)
        return ParquetWriter(local_path(self.path), targets[0], owner)


class ParquetWriter(Writer):
    """Writes a batch's file aside and then lets it appear."""

    def __init__(self, directory: Path, target: Target, owner: Owner) -> None:
        if not re.fullmatch(r"[^\W_][\w .-]*", target.output):
            raise SinkError(
                f"output {target.output!r}: a file cannot begin with this name. Give another in to(name=...)."
            )
        self.directory = directory
        self.target = target
        self.ledger = ParquetLedger(directory, target, owner)
        with self._environment():
            self.newest = self.ledger.open()
            self.columns = self._columns_there()

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        if batch <= self.newest:
            return False
        rows = changes[self.target.output].rows
        columns = tuple(rows.schema.names)
        if self.columns not in ((), columns):
            raise refusals.other_columns(self.target, str(self.directory), self.columns, columns)
        with self._environment():
            try:
                appeared = self._write(batch, rows)
            except Exception:
                # a newer run clears away what older ones stage; Spark and Arrow have their own words for it
                self.ledger.assert_mine()
                raise
        self.columns = columns
        return appeared

    def _write(self, batch: int, rows: Rows) -> bool:
        aside = self.ledger.staging / str(batch)
        self.ledger.assert_mine()  # before Spark, which would make a removed directory anew
        staged = stage(rows, aside)
        self.worst_moment()
        self.ledger.assert_mine()
        appeared = True
        if self.newest < 0 or pq.read_metadata(staged).num_rows:
            appeared = appear(staged, self.ledger.file(batch))
            self.newest = batch
        shutil.rmtree(aside, ignore_errors=True)
        return appeared

    def _columns_there(self) -> tuple[str, ...]:
        if self.newest < 0:
            return ()
        return tuple(pq.read_schema(self.ledger.file(self.newest)).names)

    def _environment(self) -> AbstractContextManager[None]:
        return refusals.environment([self.target], str(self.directory), NEXT_MOVE)


def stage(rows: Rows, aside: Path) -> Path:
    """Write the rows to one file in a directory of their own; returns the file."""
    if rows.frame is not None:
        return write_in_spark(rows.frame, aside)
    aside.mkdir(exist_ok=True)
    return write_in_process(rows.to_arrow(), aside / "rows.parquet")


def write_in_process(table: pa.Table, file: Path) -> Path:
    """Write a table as Spark would: timestamps in microseconds, and no Arrow schema beside the columns."""
    pq.write_table(table, file, coerce_timestamps="us", store_schema=False)
    return file


def write_in_spark(frame: DataFrame, directory: Path) -> Path:
    """Write a frame to one file; returns where it is."""
    with microseconds(frame.sparkSession):
        # not as_uri(): Hadoop takes the text after file: as it is and does not decode %20
        frame.repartition(1).write.option("maxRecordsPerFile", 0).parquet(f"file:{directory}", mode="overwrite")
    (part,) = directory.glob("part-*.parquet")
    return part


@contextmanager
def microseconds(spark: SparkSession) -> Iterator[None]:
    """Let Spark write timestamps as other writers do; its default, INT96, is read as no instant."""
    before = spark.conf.get(TIMESTAMPS) or "INT96"
    spark.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(TIMESTAMPS, before)
