"""The ledger in a Delta table itself: its properties, and its transaction ids; ``ledger`` has its rules."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.plan.expressions import literal, quoted
from penstock.sinks.base import Owner, Target
from penstock.sinks.ledger import Entry

PROPERTY = "penstock."


class DeltaLedger:
    """What a Delta table says of who writes it; a table that is not there says nothing."""

    next_move = "Give this output another path, or remove that table and replay the job with a new checkpoint."

    def __init__(self, spark: SparkSession, path: str, target: Target, owner: Owner) -> None:
        self.spark = spark
        self.path = path
        self.target = target
        self.owner = owner
        self._seen: Any = None
        #: Delta keeps the newest version of each application: the output of a checkpoint is one.
        self.application = f"penstock {owner.job} {target.output} {owner.checkpoint}"

    def read(self, table: str) -> Entry | None:
        """Who writes the table, and the newest batch in it."""
        snapshot = self._seen = self._snapshot()
        found = snapshot.metadata().configuration()
        job, output, checkpoint, epoch = (_of(found, PROPERTY + n) for n in ("job", "output", "checkpoint", "epoch"))
        if snapshot.version() < 0 or None in (job, output, checkpoint, epoch):
            return None
        batch = _of(snapshot.transactions(), self.application)
        return Entry(job, output, checkpoint, -1 if batch is None else int(batch), int(epoch))

    def columns(self, table: str) -> list[str]:
        """The names of the table's columns, as it was last read; none when there is no such table."""
        snapshot = self._seen or self._snapshot()
        return list(snapshot.metadata().schema().fieldNames()) if snapshot.version() >= 0 else []

    def add(self, table: str, entry: Entry) -> None:
        """Nothing: the first batch makes the table, with its properties."""

    def take(self, table: str, epoch: int) -> None:
        """Note that this run writes the table: a commit, on which a write that is under way elsewhere fails."""
        parts = f"{literal(PROPERTY + 'epoch')} = {literal(str(epoch))}"
        self.spark.sql(f"ALTER TABLE delta.{quoted(self.path)} SET TBLPROPERTIES ({parts})")

    def record(self, table: str, batch: int) -> None:
        """Nothing: the commit of the rows carries the batch."""

    def create(self, columns: str) -> None:
        """Make the table for these columns, this run's; nothing when there is one."""
        says = {"job": self.owner.job, "output": self.target.output, "checkpoint": self.owner.checkpoint}
        said = {**says, "epoch": str(self.owner.epoch)}.items()
        parts = ", ".join(f"{literal(PROPERTY + name)} = {literal(value)}" for name, value in said)
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.{quoted(self.path)} ({columns}) USING delta TBLPROPERTIES ({parts})"
        )

    def _snapshot(self) -> Any:
        java = self.spark._jvm
        assert java is not None
        log = java.org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(self.spark._jsparkSession, self.path)._2()


def _of(values: Any, name: str) -> Any:
    """The value under a name in a map of Scala's, None when there is none."""
    found = values.get(name)
    return found.get() if found.isDefined() else None
