"""Keep results in this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, ClassVar

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer
from penstock.sinks.ledger import Claim, Column, Entry


@dataclass
class Contents:
    """What one name holds: rows by the text of their key, or by a number in an output without key."""

    entry: Entry
    schema: pa.Schema | None = None
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


# a sink is a value and holds nothing itself: two that are equal show the same rows
CONTENTS: dict[str, Contents] = {}
NUMBERS = count()


def memory(name: str) -> MemoryRows:
    """Keep the rows in this process; a Stream's rows are added up, of a Table the current rows are kept.

    The rows end with the process. A job that starts with a new checkpoint finds the name empty.

    >>> memory("ctr").rows()
    []
    """
    if not name or not isinstance(name, str):
        raise PlanError(f"sinks.memory({name!r}): the name must be text that is not empty. ({written_at()})")
    return MemoryRows(name)


@dataclass(frozen=True)
class MemoryRows(Sink):
    """Rows in this process, under a name."""

    label: str

    upserts: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.label

    @property
    def place(self) -> str:
        return f"memory:{self.label}"

    def rows(self) -> list[dict[str, Any]]:
        """The rows now, timestamps as UTC; empty before the first batch."""
        contents = CONTENTS.get(self.label)
        if contents is None:
            return []
        with contents.lock:
            return [dict(row) for row in contents.rows.values()]

    def table(self) -> pa.Table | None:
        """The rows now as Arrow; None before the first batch."""
        contents = CONTENTS.get(self.label)
        if contents is None or contents.schema is None:
            return None
        with contents.lock:
            return pa.Table.from_pylist(list(contents.rows.values()), contents.schema)

    def describe(self) -> str:
        return f"memory {self.label}"

    def writer(self, targets: Sequence[Target], owner: Owner) -> MemoryWriter:
        if len(targets) > 1:
            raise refusals.shared(targets, self.place)
        return MemoryWriter(self.label, targets[0], owner)


class MemoryLedger:
    """The ledger of one name; ``ledger`` has its rules."""

    next_move = "Give this output another name in sinks.memory(...), or start with a new checkpoint"

    def __init__(self, label: str) -> None:
        self.label = label

    def read(self) -> Entry | None:
        """Who writes under the name."""
        contents = CONTENTS.get(self.label)
        return None if contents is None else contents.entry

    def columns(self) -> list[Column]:
        """The columns of the newest batch."""
        contents = CONTENTS.get(self.label)
        schema = None if contents is None else contents.schema
        return [] if schema is None else [(item.name, str(item.type)) for item in schema]

    def take(self, entry: Entry) -> int:
        """Note it, beside the rows that are there."""
        CONTENTS.setdefault(self.label, Contents(entry)).entry = entry
        return -1

    def record(self, batch: int) -> None:
        """Note that the batch is there."""
        contents = CONTENTS[self.label]
        contents.entry = contents.entry._replace(batch=batch)


class MemoryWriter(Writer):
    """Writes to a name, for as long as no other run has taken it."""

    def __init__(self, label: str, target: Target, owner: Owner) -> None:
        self.label = label
        self.target = target
        self.ledger = MemoryLedger(label)
        self.claim = Claim(target, owner, f"memory:{label}")
        forget_others(self.ledger, target, owner)
        self.claim.take(self.ledger)

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        if self.claim.recorded(self.ledger) >= batch:
            return False
        change = changes[self.target.output]
        added = self._keyed(change.rows)
        dropped = [] if change.deletes is None else list(self._keyed(change.deletes))
        self.worst_moment()
        self.claim.recorded(self.ledger)
        contents = CONTENTS[self.label]
        with contents.lock:
            for key in dropped:
                contents.rows.pop(key, None)
            contents.rows.update(added)
            contents.schema = in_utc(change.rows.schema)
            self.ledger.record(batch)
        self.claim.newest = batch
        return True

    def _keyed(self, rows: Rows) -> dict[str, dict[str, Any]]:
        """Rows by the text of their key: NaN does not equal itself, and a list has no hash."""
        table = rows.to_arrow()
        listed = table.cast(in_utc(table.schema)).to_pylist(maps_as_pydicts="strict")
        if not self.target.key:
            return {str(next(NUMBERS)): row for row in listed}
        return {repr([row[name] for name in self.target.key]): row for row in listed}


def forget_others(ledger: MemoryLedger, target: Target, owner: Owner) -> None:
    """Let a new checkpoint find the name empty, unless it takes over what is there."""
    entry = ledger.read()
    others = entry is not None and entry[:3] != (owner.job, target.output, owner.checkpoint)
    if others and owner.committed_to(target.output) < 0 and target.output not in owner.take_over:
        del CONTENTS[ledger.label]


def in_utc(schema: pa.Schema) -> pa.Schema:
    """The same columns with instants in UTC: rows from Spark are in the session's time zone.

    >>> in_utc(pa.schema({"at": pa.timestamp("us", "Asia/Tokyo")})).field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    return pa.schema(
        [
            item.with_type(pa.timestamp(item.type.unit, "UTC"))
            if pa.types.is_timestamp(item.type) and item.type.tz is not None
            else item
            for item in schema
        ]
    )
