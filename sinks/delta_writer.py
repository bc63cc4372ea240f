"""Writes one output to a Delta table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.plan.expressions import quoted
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Target, Writer
from penstock.sinks.delta_ledger import MARK, DeltaLedger, columns_of
from penstock.sinks.ledger import Claim

NEXT_MOVE = "See that the path is there, that this user may write to it, and that Delta can keep these columns."
# MERGE takes its transaction id from the session
APPLICATION = "spark.databricks.delta.write.txnAppId"
VERSION = "spark.databricks.delta.write.txnVersion"
TOLD = "spark.databricks.delta.commitInfo.userMetadata"
VIEW = "penstock_changes"
OP, ROW, NEWEST = "__ps_op", "__ps_row", "__ps_newest"
OF_DELTA = ("io.delta.", "org.apache.spark.sql.delta.")
# somebody else's commit came between; the store was not reached
MAY_PASS = ("Concurrent", "MetadataChanged", "ProtocolChanged", "ConnectException", "SocketTimeout", "UnknownHost")


class DeltaWriter(Writer):
    """Appends or merges; the commit carries the batch's number, so that the same batch again changes nothing."""

    def __init__(self, path: str, target: Target, owner: Owner) -> None:
        self.target = target
        self.claim = Claim(target, owner, f"delta table {path}")
        self.book = DeltaLedger(SparkSession.active(), path, target, owner)
        with self._environment():
            self.claim.take(self.book)
            self._made = bool(self.book.columns())

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        mine = changes[self.target.output]
        frame = mine.rows.to_spark()
        self.book.spark = frame.sparkSession  # the query has one of its own
        with self._environment(writing=True):
            if not self._made:
                self.book.create(frame._jdf.schema().asNullable().toDDL())
                self.claim.take(self.book)
                self._made = True
            if self.claim.recorded(self.book) >= batch:
                return False
            self.claim.check_columns(self.book.columns(), columns_of(frame._jdf.schema()), str.lower)
            self.worst_moment()
            if self.target.key:
                merge(self.book, batch, self.target.key, frame, mine.deletes.to_spark() if mine.deletes else None)
            else:
                append(self.book, batch, frame)
        self.book.record(batch)
        self.claim.newest = batch
        return True

    @contextmanager
    def _environment(self, *, writing: bool = False) -> Iterator[None]:
        """Turn what Delta raises into errors of ours; a row that Spark cannot make is not the sink's fault."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            kinds = causes(error)
            passes = any(word in kind for kind in kinds for word in MAY_PASS)
            if not passes and not any(kind.startswith(OF_DELTA) for kind in kinds):
                raise
            if passes and writing:
                self.claim.recorded(self.book)  # the commit that came between may be a newer run's
            raise refusals.cannot_write(
                [self.target], self.claim.place, told(error), NEXT_MOVE, passes=passes
            ) from error


def append(book: DeltaLedger, batch: int, frame: DataFrame) -> None:
    """Add rows in one commit, unless the table has the batch."""
    writer = frame.write.format("delta").mode("append")
    writer.option("userMetadata", f"{MARK}{batch}")
    writer.option("txnAppId", book.application).option("txnVersion", str(batch)).save(book.path)


def merge(book: DeltaLedger, batch: int, key: Sequence[str], rows: DataFrame, deletes: DataFrame | None) -> None:
    """Upsert rows and delete keys in one commit, unless the table has the batch."""
    source = newest(key, rows, deletes)
    names = [quoted(name) for name in rows.columns]
    same = " AND ".join(f"there.{quoted(name)} <=> came.{quoted(name)}" for name in key)
    update = ", ".join(f"there.{name} = came.{name}" for name in names)
    source.createOrReplaceTempView(VIEW)
    try:
        with settings(book.spark, {APPLICATION: book.application, VERSION: str(batch), TOLD: f"{MARK}{batch}"}):
            book.spark.sql(
                f"MERGE INTO delta.{quoted(book.path)} AS there USING {VIEW} AS came ON {same} "
                f"WHEN MATCHED AND came.{OP} = 'delete' THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {update} "
                f"WHEN NOT MATCHED AND came.{OP} = 'upsert' THEN INSERT ({', '.join(names)}) "
                f"VALUES ({', '.join(f'came.{name}' for name in names)})"
            )
    finally:
        book.spark.catalog.dropTempView(VIEW)


def newest(key: Sequence[str], rows: DataFrame, deletes: DataFrame | None) -> DataFrame:
    """One change for each key: a row goes before a delete, and a later row before an earlier one."""
    came = rows.withColumn(OP, F.lit("upsert")).withColumn(ROW, F.monotonically_increasing_id())
    if deletes is not None:
        gone = deletes.select(*map(quoted, key)).withColumn(OP, F.lit("delete")).withColumn(ROW, F.lit(-1))
        came = came.unionByName(gone, allowMissingColumns=True)
    of_key = Window.partitionBy(*map(quoted, key)).orderBy(F.desc(ROW))
    return came.withColumn(NEWEST, F.row_number().over(of_key)).where(f"{NEWEST} = 1").drop(ROW, NEWEST)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings for one statement: other writes of the session must not carry our transaction."""
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


def causes(error: Py4JJavaError | PySparkException) -> list[str]:
    """The Java classes of an error and of what caused it."""
    found: list[str] = []
    at = thrown(error)
    while at is not None and len(found) < 20:
        found.append(str(at.getClass().getName()))
        at = at.getCause()
    return found


def told(error: Py4JJavaError | PySparkException) -> str:
    """The first line of what Java says."""
    at = thrown(error)
    said = str(at.getMessage() or at) if at is not None else str(error)
    return said.strip().splitlines()[0].rstrip(".")


def thrown(error: Py4JJavaError | PySparkException) -> Any:
    """Java's own exception, None when there is none."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
