"""The ledger in a Delta table itself: its properties, its transaction ids and its history; ``ledger`` has its rules.

Properties say the owner and the newest run, a transaction id the newest batch. Delta gives three things to see to:

- Setting a property looks at nothing: of runs that come at once each reads in the history who else came.
- RESTORE takes rows and properties back and leaves transaction ids: so what came since somebody last looked is read
  for one, and the batch is then that of the version that it went back to.
- A transaction id never goes back: a place that is to have an older batch gets a new one, by ``penstock.taken``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Row, SparkSession

from penstock.plan.expressions import literal, quoted
from penstock.sinks.base import Owner, Target
from penstock.sinks.ledger import Column, Entry

PROPERTY = "penstock."
OWNER = ("job", "output", "checkpoint")
MARK = "penstock batch "  # begins what the history says of a batch of ours
LOOKS = 16


class DeltaLedger:
    """What a Delta table says of who writes it; a table that is not there says nothing."""

    next_move = "Give this output another path, or remove that table and replay the job with a new checkpoint"

    def __init__(self, spark: SparkSession, path: str, target: Target, owner: Owner) -> None:
        self.spark = spark
        self.path = path
        self.target = target
        self.owner = owner
        self._snapshot: Any = None
        self._said: dict[str, str] = {}
        self._seen: Entry | None = None
        self._looked = -1  # the version as far as which the history is known
        self._mine = 0  # commits of this run's since then

    @property
    def application(self) -> str:
        """Delta keeps the newest version of each application: the output of a checkpoint is one."""
        taken = self._said.get("taken", "0")
        name = f"penstock {self.owner.job} {self.target.output} {self.owner.checkpoint}"
        return name if taken == "0" else f"{name} {taken}"

    def read(self) -> Entry | None:
        """Who writes the table, and the newest batch in it."""
        self._snapshot, self._seen = self._now(), None
        self._said = properties(self._snapshot.metadata().configuration())
        if self._snapshot.version() < 0 or not {*OWNER, "epoch"} <= self._said.keys():
            return None
        batch = self._batch(self._snapshot)
        for commit in self._unseen():
            if commit.operation == "RESTORE":
                batch = self._restored(commit)
                break
        else:
            self._looked, self._mine = self._snapshot.version(), 0
        said = self._said
        self._seen = Entry(said["job"], said["output"], said["checkpoint"], batch, int(said["epoch"]))
        return self._seen

    def columns(self) -> list[Column]:
        """The table's columns, as it was last read; none when there is no such table."""
        return [] if self._snapshot.version() < 0 else columns_of(self._snapshot.metadata().schema())

    def take(self, entry: Entry) -> int:
        """Say it in the properties: a commit, on which a write that is under way elsewhere fails.

        A table that is not there yet says it when the first batch has made it.
        """
        if self._snapshot.version() < 0:
            return -1
        said = {"epoch": str(entry.epoch)}
        if self._seen is None or self._seen[:3] != entry[:3] or self._batch(self._snapshot) != entry.batch:
            taken = str(int(self._said.get("taken", "0")) + 1)
            said |= {**dict(zip(OWNER, entry[:3], strict=True)), "batch": str(entry.batch), "taken": taken}
        before = self._snapshot.version()
        self._say(said)
        self._looked, self._mine = self._now().version(), 0
        came = self._commits(self._looked - before) if self._looked > before + 1 else []
        epochs = sorted((epoch for epoch in map(self._epoch_in, came) if epoch >= 0), reverse=True)
        if entry.epoch in epochs:
            epochs.remove(entry.epoch)  # this run's own
        rival = epochs[0] if epochs else -1
        if rival > entry.epoch:
            self._say({"epoch": str(rival)})
        return rival

    def record(self, batch: int) -> None:
        """The commit of the rows carried it: the next look need not read what this run did itself."""
        self._mine += 1

    def create(self, columns: str) -> None:
        """Make the table for these columns, this owner's and no run's; nothing when there is one."""
        owner = (self.owner.job, self.target.output, self.owner.checkpoint)
        said = {**dict(zip(OWNER, owner, strict=True)), "epoch": "0"}
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.{quoted(self.path)} ({columns}) USING delta "
            f"TBLPROPERTIES ({listed(said)})"
        )

    def _say(self, said: Mapping[str, str]) -> None:
        self.spark.sql(f"ALTER TABLE delta.{quoted(self.path)} SET TBLPROPERTIES ({listed(said)})")

    def _now(self) -> Any:
        java = self.spark._jvm
        assert java is not None
        log = java.org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(self.spark._jsparkSession, self.path)._2()

    def _batch(self, snapshot: Any) -> int:
        """The newest batch by the transaction ids."""
        found = snapshot.transactions().get(self.application)
        return int(found.get() if found.isDefined() else self._said.get("batch", "-1"))

    def _unseen(self) -> list[Row]:
        """What has been done to the table since somebody of ours looked, newest first."""
        version = self._snapshot.version()
        if self._looked >= 0:
            news = version - self._looked
            return self._commits(news) if news > 0 and news != self._mine else []
        count = LOOKS
        while True:
            found = self._commits(count)
            for at, commit in enumerate(found):
                if (commit.userMetadata or "").startswith(MARK) or self._epoch_in(commit) >= 0:
                    return found[:at]
            if len(found) < count:
                return found
            count *= LOOKS

    def _restored(self, commit: Row) -> int:
        """The newest batch in the version that a table was taken back to; -1 where only a time was given."""
        version = commit.operationParameters.get("version")
        if version is None:
            return -1
        java = self.spark._jvm
        assert java is not None
        none = java.scala.Option.empty()
        return self._batch(self._snapshot.deltaLog().getSnapshotAt(int(version), none, none))

    def _commits(self, count: int) -> list[Row]:
        """The newest commits, newest first."""
        return self.spark.sql(f"DESCRIBE HISTORY delta.{quoted(self.path)} LIMIT {count}").collect()

    def _epoch_in(self, commit: Row) -> int:
        """The run that took the table in a commit, of the same checkpoint; -1 for any other commit."""
        said: Mapping[str, str] = json.loads((commit.operationParameters or {}).get("properties") or "{}")
        if commit.operation != "SET TBLPROPERTIES" or said.get(f"{PROPERTY}checkpoint", self.owner.checkpoint) != (
            self.owner.checkpoint
        ):
            return -1
        return int(said.get(f"{PROPERTY}epoch", "-1"))


def columns_of(schema: Any) -> list[Column]:
    """The names and types of a schema of Java's."""
    return [(field.name(), field.dataType().simpleString()) for field in schema.fields()]


def properties(found: Any) -> dict[str, str]:
    """Our own of a table's properties, from a map of Scala's."""
    names = ((name, found.get(f"{PROPERTY}{name}")) for name in (*OWNER, "epoch", "batch", "taken"))
    return {name: str(value.get()) for name, value in names if value.isDefined()}


def listed(said: Mapping[str, str]) -> str:
    """Properties as SQL takes them."""
    return ", ".join(f"{literal(PROPERTY + name)} = {literal(value)}" for name, value in said.items())
