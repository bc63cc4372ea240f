"""Where a plan begins: a stream of events, with its time and how late it may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from penstock.plan.columns import Columns, check_name, check_unique
from penstock.plan.durations import Duration, duration, spoken
from penstock.plan.errors import PlanError
from penstock.plan.node import Made, Node
from penstock.plan.written import written_at
from penstock.sources.base import Source

#: When a row came, where the source of a replay can tell.
CAME = "__ps_came"


@dataclass(frozen=True)
class Input(Node):
    """An append-only stream of events; without a ``time_column`` its time is the batch's wall time.

    ``ends_us`` is of a replay: events that are more than ``max_ahead`` ahead of it, and were so of the time at which
    they came, are left out, and do not move time.
    """

    name: str
    source: Source
    time_column: str | None
    lateness: timedelta
    idle_after: timedelta | None
    max_ahead: timedelta
    ends_us: int | None = field(default=None, kw_only=True)

    @property
    def columns(self) -> Columns:
        owner = f"the input {self.name!r} has"
        schema = self.source.schema
        if schema is None:
            return Columns((), open=True, owner=owner)
        return Columns(tuple(schema.names), owner=owner)

    @property
    def time(self) -> str | None:
        return self.time_column

    @property
    def timed(self) -> bool:
        return True

    @property
    def processing(self) -> bool:
        """True when the time of the rows is the batch's wall time."""
        return self.time_column is None

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns without which a row is of no key."""
        return ()

    def makes(self, column: str) -> Made:
        schema = self.source.schema
        kind = None if schema is None or column not in schema.names else str(schema.field(column).type)
        return Made(f"{self.name}.{column}" if kind is None else f"{self.name}.{column} {kind}", type=kind)

    def describe(self) -> str:
        return f"stream '{self.name}' from {self.source.describe()}: {self._when('processing time')}"

    def _when(self, without: str) -> str:
        if self.time_column is None:
            return without
        idle = f", idle after {spoken(self.idle_after)}" if self.idle_after is not None else ""
        return f"time {self.time_column}, lateness {spoken(self.lateness)}{idle}"


@dataclass(frozen=True)
class TableInput(Input):
    """A changelog that is read as a table; without a ``time_column`` it does not hold time back."""

    key_columns: tuple[str, ...]
    history: timedelta

    @property
    def timed(self) -> bool:
        return self.time_column is not None

    @property
    def processing(self) -> bool:
        return False

    @property
    def never_null(self) -> tuple[str, ...]:
        return self.key_columns

    def describe(self) -> str:
        return f"changelog '{self.name}' from {self.source.describe()}: {self._when('no time')}"


def check_append_only(source: Source, step: str) -> None:
    """Refuse a changelog where rows are events: nobody would apply its updates and deletes."""
    if isinstance(source, Source) and source.changelog is not None:
        raise PlanError(
            f"{step}: {source.changelog.name} messages are changes of a table, not events; read it as a table: "
            f"job.table(..., key=...), and .changes() for the stream of what changed. ({written_at()})"
        )


def check_plain(source: Source, step: str, **given: object) -> None:
    """Refuse what plain rows need to be told, of a changelog that says it itself."""
    if source.changelog is None:
        return
    for name in (name for name, value in given.items() if value):
        raise PlanError(
            f"{step}: {name}= is for plain rows; {source.changelog.name} messages know their own deletes and their own "
            f"order. Leave it out. ({written_at()})"
        )


def read_table(
    name: str,
    source: Source,
    key: tuple[str, ...],
    time: str | None,
    lateness: Duration | None,
    idle_after: Duration | None,
    max_ahead: Duration,
    history: Duration | None,
) -> TableInput:
    """The input of ``job.table``, refused when it makes no sense."""
    step = f"table({name!r})"
    if time is None and (lateness is not None or idle_after is not None):
        raise PlanError(f"{step}: lateness and idle_after are about time; name the time column too. ({written_at()})")
    like = read_input(name, source, time, lateness, idle_after, max_ahead, step)
    if not key:
        raise PlanError(f"{step}: key= names the columns that tell one row from another. ({written_at()})")
    for column in key:
        like.columns.require(column, f"{step}: key={column!r}")
    if like.columns.open:
        raise PlanError(f"{step}: rows are kept whole, so the source needs a schema. ({written_at()})")
    beyond = timedelta(0) if history is None else duration(history, f"{step}: history")
    return TableInput(
        name, source, time, like.lateness, like.idle_after, like.max_ahead, check_unique(key, f"{step}: key"), beyond
    )


def read_input(
    name: str,
    source: Source,
    time: str | None,
    lateness: Duration | None,
    idle_after: Duration | None,
    max_ahead: Duration,
    step: str,
) -> Input:
    """The node of ``job.stream``, refused when it makes no sense."""
    if not isinstance(source, Source):
        raise PlanError(f"{step}: the source is one of penstock.sources, not {source!r}. ({written_at()})")
    if source.schema is not None:
        for column in source.schema.names:
            check_name(column, step)
    if time is None:
        if lateness is not None:
            raise PlanError(f"{step}: processing time is never late; leave lateness out. ({written_at()})")
        late = timedelta(0)
    else:
        if lateness is None:
            raise PlanError(
                f"{step}: say how far behind the newest event an event may arrive: lateness='10 minutes'. "
                f"({written_at()})"
            )
        late = duration(lateness, f"{step}: lateness")
    idle = None if idle_after is None else duration(idle_after, f"{step}: idle_after", least_us=1)
    ahead = duration(max_ahead, f"{step}: max_ahead")
    node = Input(name, source, time, late, idle, ahead)
    if time is not None:
        node.columns.require(time, f"{step}: time={time!r}")
        check_time_type(source.schema, time, step)
    return node


def check_time_type(schema: pa.Schema | None, time: str, step: str) -> None:
    """Refuse a column that is no instant."""
    if schema is None:
        return
    kind = schema.field(time).type
    if not pa.types.is_timestamp(kind):
        raise PlanError(
            f"{step}: the time column {time!r} is {kind}, not a timestamp; declare it as timestamp in the schema. "
            f"({written_at()})"
        )
