"""Write results to a Delta table: each batch is one commit, which carries its number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from penstock.plan.errors import PlanError, RunError
from penstock.plan.needs import Need
from penstock.plan.written import written_at
from penstock.sinks import refusals
from penstock.sinks.base import Owner, Sink, Target
from penstock.sinks.local_path import SCHEME

if TYPE_CHECKING:
    from penstock.sinks.delta_writer import DeltaWriter

DELTA = Need(
    "Delta",
    "io.delta:delta-spark_2.13:4.0.1",
    "io.delta.sql.DeltaSparkSessionExtension",
    (
        ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        # into how many parts a table's log is read: 50 unless told, which one machine feels in every batch
        ("spark.databricks.delta.snapshotPartitions", "2"),
    ),
)


def delta(path: str | os.PathLike[str]) -> DeltaTable:
    """Write to a Delta table: a Stream is appended, a Table merged by its key, with deletes.

    ``path`` is a folder, or an address that Spark knows. The first batch makes the table. Each batch is one commit
    that carries the batch's number as Delta's own transaction id, so that a batch which is written twice, by this
    run or by an older one that wakes, is there once. The table's properties name the job, the output, the
    checkpoint and the run that writes; a table of somebody else's is refused, and so is a run that finds a newer
    one there, or a table that ``RESTORE`` took back to another batch than the checkpoint's. The moment between that
    look and the commit cannot be closed: in it an older run can write the batch that is next, from the same events,
    and then the newer run skips that batch. It cannot write one twice, and none that is older.

    A merge looks through the whole table; null is a key like any other. Needs PySpark 4.0, and the package
    io.delta:delta-spark_2.13:4.0.1, which is fetched where Penstock starts Spark itself.

    >>> delta("out/ctr").describe()
    'delta table out/ctr'
    >>> delta("s3a://lake/ctr").name
    'ctr'
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip("/") or "\0" in text:
        raise PlanError(f"sinks.delta({text!r}): the path must be text that is not empty. ({written_at()})")
    return DeltaTable(text)


@dataclass(frozen=True)
class DeltaTable(Sink):
    """A Delta table."""

    path: str

    upserts: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def place(self) -> str:
        return self.path.rstrip("/") if SCHEME.match(self.path) else os.path.abspath(self.path)

    @property
    def needs(self) -> tuple[Need, ...]:
        here = version("pyspark")
        if not here.startswith("4.0."):
            raise RunError(f"sinks.delta({self.path!r}): there is no Delta for PySpark {here}. Use PySpark 4.0.")
        return (DELTA,)

    def describe(self) -> str:
        return f"delta table {self.path}"

    def writer(self, targets: Sequence[Target], owner: Owner) -> DeltaWriter:
        if len(targets) > 1:
            raise refusals.shared(targets, self.place)
        from penstock.sinks.delta_writer import DeltaWriter

        return DeltaWriter(self.place, targets[0], owner)
