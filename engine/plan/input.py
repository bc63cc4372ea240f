"""Where a plan begins: a stream of events, with its time and how late it may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from penstock.plan.columns import Columns, check_name
from penstock.plan.durations import Duration, duration, spoken
from penstock.plan.errors import PlanError
from penstock.plan.node import Node
from penstock.plan.written import written_at
from penstock.sources.base import Source


@dataclass(frozen=True)
class Input(Node):
    """An append-only stream of events; without a ``time_column`` its time is the batch's wall time."""

    name: str
    source: Source
    time_column: str | None
    lateness: timedelta
    idle_after: timedelta | None
    max_ahead: timedelta

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

    def describe(self) -> str:
        if self.time_column is None:
            when = "processing time"
        else:
            when = f"time {self.time_column}, lateness {spoken(self.lateness)}"
        idle = f", idle after {spoken(self.idle_after)}" if self.idle_after is not None else ""
        return f"stream '{self.name}' from {self.source.describe()}: {when}{idle}"


def read_input(
    name: str,
    source: Source,
    time: str | None,
    lateness: Duration | None,
    idle_after: Duration | None,
    max_ahead: Duration,
) -> Input:
    """The node of ``job.stream``, refused when it makes no sense."""
    step = f"stream({name!r})"
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
