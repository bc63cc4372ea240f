"""Keep results in this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer

NEXT_MOVE = "Give this output another name in sinks.memory(...), or start with a new checkpoint."


@dataclass
class Contents:
    """What one name holds: rows by the text of their key, or of their place in an output without key."""

    owner: Owner
    output: str
    batch: int = -1
    schema: pa.Schema | None = None
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


# a sink is a value and holds nothing itself: two that are equal show the same rows
CONTENTS: dict[str, Contents] = {}


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


class MemoryWriter(Writer):
    """Writes to a name, for as long as no other run has taken it."""

    def __init__(self, label: str, target: Target, owner: Owner) -> None:
        self.label = label
        self.target = target
        self.owner = owner
        self.contents = take(label, target, owner)

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        contents = self.contents
        self._assert_mine()
        if batch <= contents.batch:
            return False
        change = changes[self.target.output]
        added = self._keyed(batch, change.rows)
        dropped = [] if change.deletes is None else list(self._keyed(batch, change.deletes))
        self.worst_moment()
        self._assert_mine()
        with contents.lock:
            for key in dropped:
                contents.rows.pop(key, None)
            contents.rows.update(added)
            contents.schema = in_utc(change.rows.schema)
            contents.batch = batch
        return True

    def _keyed(self, batch: int, rows: Rows) -> dict[str, dict[str, Any]]:
        """Rows by the text of their key: NaN does not equal itself, and a list has no hash."""
        table = rows.to_arrow()
        listed = table.cast(in_utc(table.schema)).to_pylist(maps_as_pydicts="strict")
        if not self.target.key:
            return {f"{batch} {at}": row for at, row in enumerate(listed)}
        return {repr([row[name] for name in self.target.key]): row for row in listed}

    def _assert_mine(self) -> None:
        now = CONTENTS.get(self.label)
        if now is None or now is not self.contents:
            raise refusals.gone(self.target, self.owner, f"memory:{self.label}")
        if now.owner.epoch > self.owner.epoch:
            raise refusals.fenced(self.target, self.owner, f"memory:{self.label}", now.owner.epoch)


def take(label: str, target: Target, owner: Owner) -> Contents:
    """The contents for a run: empty for a new checkpoint, else what the run before has left."""
    place = f"memory:{label}"
    contents = CONTENTS.get(label)
    if contents is not None and is_same(contents, target, owner) and contents.owner.epoch > owner.epoch:
        raise refusals.fenced(target, owner, place, contents.owner.epoch)
    if owner.committed_to(target.output) < 0:
        contents = CONTENTS[label] = Contents(owner, target.output)
    if contents is None:
        raise refusals.gone(target, owner, place)
    if not is_same(contents, target, owner):
        found = (contents.owner.job, contents.output, contents.owner.checkpoint)
        raise refusals.belongs_to_another(target, owner, place, found, NEXT_MOVE)
    contents.owner = owner
    return contents


def is_same(contents: Contents, target: Target, owner: Owner) -> bool:
    """True when this output of this job and checkpoint wrote the contents."""
    there = (contents.owner.job, contents.output, contents.owner.checkpoint)
    return there == (owner.job, target.output, owner.checkpoint)


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
