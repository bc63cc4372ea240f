"""The tester's own ends of a job: a sink that keeps the rules of real ones, and rows as they are read back."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar

from penstock.plan.errors import FencedError
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer

Row = dict[str, Any]


@dataclass
class Recorded:
    """What a reader of one output sees, and what has changed since somebody last asked."""

    key: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    asked: list[Row] = field(default_factory=list)
    news: list[Row] = field(default_factory=list)

    def apply(self, came: list[Row], gone: list[Row]) -> None:
        """A batch: append, or upsert by key."""
        if not self.key:
            self.rows += came
            self.news += came
            return
        current = {self._id(row): row for row in self.rows}
        before = dict(current)
        for row in gone:
            current.pop(self._id(row), None)
        for row in came:
            current[self._id(row)] = row
        self.rows = list(current.values())
        for identity in {**before, **current}:
            was, now = before.get(identity), current.get(identity)
            if was is None and now is not None:
                self.news.append({"op": "insert", **now})
            elif was is not None and now is None:
                self.news.append({"op": "delete", **was})
            elif was is not None and now is not None and was != now:
                self.news.append({"op": "update", **now})

    def _id(self, row: Row) -> str:
        return repr([row[k] for k in self.key])


@dataclass
class Recordings:
    """Everything that a job under test has written, with its ledger; it outlives a crash, as a database does."""

    outputs: dict[str, Recorded] = field(default_factory=dict)
    batch: int = -1
    epoch: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class RecordingSink(Sink):
    """Takes the place of a job's sinks: all outputs in one transaction, upserts, a ledger, fencing."""

    upserts: ClassVar[bool] = True
    transactional: ClassVar[bool] = True
    recordings: Recordings = field(compare=False)

    @property
    def name(self) -> str:
        return "recording"

    @property
    def place(self) -> str:
        return "recording"

    def describe(self) -> str:
        return "the tester"

    def writer(self, targets: Sequence[Target], owner: Owner) -> Writer:
        self.recordings.epoch = owner.epoch
        for target in targets:
            self.recordings.outputs.setdefault(target.output, Recorded(target.key))
        return RecordingWriter(self.recordings, owner.epoch)


class RecordingWriter(Writer):
    """Writes a batch whole: a crash in the middle leaves nothing of it."""

    def __init__(self, recordings: Recordings, epoch: int) -> None:
        self._recordings = recordings
        self._epoch = epoch

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        kept = self._recordings
        if kept.epoch != self._epoch:
            raise FencedError(f"run {kept.epoch} has taken over from run {self._epoch}.")
        if batch <= kept.batch:
            kept.skipped += 1
            return False
        transaction = copy.copy(kept.outputs)
        for number, (output, change) in enumerate(changes.items()):
            if number == len(changes) // 2:
                self.worst_moment()
            recorded = copy.deepcopy(transaction[output])
            gone = [] if change.deletes is None else rows_of(change.deletes.to_arrow())
            recorded.apply(rows_of(change.rows.to_arrow()), gone)
            transaction[output] = recorded
        kept.outputs, kept.batch = transaction, batch
        return True


def rows_of(table: Any) -> list[Row]:
    """Rows as dicts; times as aware UTC ``datetime``."""
    return [
        {name: _read_back(value) for name, value in row.items()} for row in table.to_pylist(maps_as_pydicts="strict")
    ]


def _read_back(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    if isinstance(value, dict):
        return {k: _read_back(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_read_back(v) for v in value]
    return value
