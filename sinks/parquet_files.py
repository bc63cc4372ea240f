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

import pyarrow.parquet as pq

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer
from penstock.sinks.ledger import Claim
from penstock.sinks.local_path import checked_path, local_path
from penstock.sinks.parquet_columns import columns_as_written, write_parquet
from penstock.sinks.parquet_ledger import ParquetLedger, appear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEXT_MOVE = "See that it is a directory, or can become one, and that this user may write there."
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


def parquet(path: str | os.PathLike[str]) -> ParquetFiles:
    """Append to the Parquet files in a directory on this machine.

    Each batch is one file, ``<output>-<batch>.parquet``, that appears whole by one rename and never
    changes. A batch without rows makes no file, except the first, so that a reader finds the columns
    of an output that is still empty. Names that begin with ``_`` are not for readers. In a directory that
    was taken over the files are called ``<output>-<n>-<batch>.parquet``, n the times that it was.

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
        self.target = target
        self.claim = Claim(target, owner, str(directory))
        self.ledger = ParquetLedger(directory, target.output, owner.epoch)
        with self._environment():
            self.claim.take(self.ledger)

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        with self._environment():
            if self.claim.recorded(self.ledger) >= batch:
                return False
            rows = changes[self.target.output].rows
            there = self.ledger.columns()
            if there:
                self.claim.check_columns(there, columns_as_written(rows.schema))
                rows = rows.select([name for name, _ in there])
            try:
                self._write(batch, rows, begins=not there)
            except Exception:
                # a newer run clears away what older ones stage; Spark and Arrow have their own words for it
                self.claim.recorded(self.ledger)
                raise
        self.claim.newest = batch
        return True

    def _write(self, batch: int, rows: Rows, *, begins: bool) -> None:
        aside = self.ledger.staging / str(batch)
        staged = stage(rows, aside)
        self.worst_moment()
        self.claim.recorded(self.ledger)
        if begins or pq.read_metadata(staged).num_rows:
            appear(staged, self.ledger.file(batch))
        else:
            self.ledger.record(batch)
        shutil.rmtree(aside, ignore_errors=True)

    def _environment(self) -> AbstractContextManager[None]:
        return refusals.environment([self.target], self.claim.place, NEXT_MOVE)


def stage(rows: Rows, aside: Path) -> Path:
    """Write the rows to one file in a directory of their own; returns the file."""
    if rows.frame is not None:
        return write_in_spark(rows.frame, aside)
    aside.mkdir(exist_ok=True)
    write_parquet(rows.to_arrow(), aside / "rows.parquet")
    return aside / "rows.parquet"


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
