"""Streams as users write them: each method is one step, and gives a new value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.operators import rows
from penstock.plan.columns import check_unique
from penstock.plan.errors import PlanError
from penstock.plan.node import Node, named
from penstock.plan.written import written_at
from penstock.windows.node import Late, LateRows, WindowAggregate, aggregate, check_late
from penstock.windows.shapes import Aligned

if TYPE_CHECKING:
    import pandas as pd

    from penstock.job import Job
    from penstock.sinks.base import Sink


@dataclass(frozen=True)
class Stream:
    """Events, each with its time. Every method gives a new stream; nothing runs until the job does.

    >>> from penstock import Job, sources
    >>> job = Job("shop")
    >>> views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
    ...                    time="at", lateness="10 minutes")
    >>> views.where("url like '/p/%'").with_columns(page="substring(url, 4)").columns
    ('url', 'at', 'page')
    """

    job: Job
    node: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.node.columns.names

    def where(self, predicate: str) -> Stream:
        """Keep the rows for which a Spark SQL predicate is true; rows that it drops still move time.

        >>> views.where("url = '/'").columns
        ('url', 'at')
        """
        return Stream(self.job, rows.where(self.node, predicate))

    def select(self, *expressions: str) -> Stream:
        """Give just these columns: names, ``*``, or expressions ``as`` a name. A row keeps its event time.

        >>> views.select("upper(url) as url", "at").columns
        ('url', 'at')
        """
        return Stream(self.job, rows.select(self.node, expressions))

    def with_columns(self, **expressions: str) -> Stream:
        """Add columns, or replace those of the same name; all of them see the rows as they came.

        >>> views.with_columns(host="parse_url(url, 'HOST')").columns
        ('url', 'at', 'host')
        """
        return Stream(self.job, rows.with_columns(self.node, expressions))

    def drop(self, *columns: str) -> Stream:
        """Leave columns out. Without its time column a row keeps its event time all the same.

        >>> views.drop("at").columns
        ('url',)
        """
        return Stream(self.job, rows.drop(self.node, columns))

    def rename(self, **old_to_new: str) -> Stream:
        """Give columns other names.

        >>> views.rename(url="path").columns
        ('path', 'at')
        """
        return Stream(self.job, rows.rename(self.node, old_to_new))

    def explode(self, expression: str, name: str) -> Stream:
        """A row for each element of an array, in a new column; an empty or null array gives none.

        >>> views.explode("split(url, '/')", "part").columns
        ('url', 'at', 'part')
        """
        return Stream(self.job, rows.explode(self.node, expression, name))

    def union(self, other: Stream) -> Stream:
        """The rows of both streams; their columns are matched by name and must be equal.

        >>> views.union(views.where("url = '/'")).columns
        ('url', 'at')
        """
        return Stream(self.job, rows.union(self.node, _same_job(self, other, "union").node))

    def map_pandas(self, function: Callable[[pd.DataFrame], pd.DataFrame], schema: Any) -> Stream:
        """Put a function from pandas frame to pandas frame in the way; it must return the time column as it came.

        >>> views.map_pandas(lambda frame: frame.assign(n=1), "url string, at timestamp, n long").columns
        ('url', 'at', 'n')
        """
        return Stream(self.job, rows.map_pandas(self.node, function, schema))

    def named(self, name: str) -> Stream:
        """Give the last step a stable name: state, metrics, errors and upgrades refer to it.

        >>> from penstock.windows import tumbling
        >>> counts = views.by("url").window(tumbling("1 hour")).agg(n="count(*)").named("hourly")
        >>> counts.node.name
        'hourly'
        """
        return Stream(self.job, named(self.node, name))

    def by(self, *keys: str) -> Grouped:
        """Group by columns; then ``.window(...)``. Null is a key like any other, as in SQL.

        >>> views.by("url").keys
        ('url',)
        """
        if not keys:
            raise PlanError(f"by(): name at least one column, or leave it out. ({written_at()})")
        names = tuple(n for k in keys for n in (k if isinstance(k, tuple) else (k,)))
        for key in names:
            self.node.columns.require(key, f"by({key!r})")
        return Grouped(self, check_unique(names, "by"))

    def window(self, spec: Aligned, *, emit: str = "final", late: str = "drop") -> Windowed:
        """Windows over the whole stream; then ``.agg(...)``. With ``by`` first: per key.

        >>> from penstock.windows import tumbling
        >>> views.window(tumbling("1 hour")).agg(n="count(*)").columns
        ('window_start', 'window_end', 'n')
        """
        return _windowed(self, (), spec, emit, late)

    @property
    def late(self) -> Stream:
        """The rows that this window refused as late, as they came to it; it must say ``late="capture"``.

        >>> from penstock.windows import tumbling
        >>> views.window(tumbling("1 hour"), late="capture").agg(n="count(*)").late.columns
        ('url', 'at')
        """
        if not isinstance(self.node, WindowAggregate):
            raise PlanError(f"late: only a window step refuses rows as late. ({written_at()})")
        if self.node.late != "capture":
            raise PlanError(
                f"late: the step {self.node.name!r} does not keep its late rows; "
                f"write .window(..., late='capture'). ({written_at()})"
            )
        return Stream(self.job, LateRows(self.node))

    def to(self, sink: Sink, *, name: str | None = None, key: str | tuple[str, ...] | None = None) -> Stream:
        """Add an output to the job; ``name`` defaults to the sink's. Gives the stream back, to go on with.

        >>> from penstock import sinks
        >>> views.to(sinks.memory("all_views")).job.explain().splitlines()[1]
        "output 'all_views' to memory all_views (append)"
        """
        self.job._add_output(self, sink, name, key)
        return self


@dataclass(frozen=True)
class Grouped:
    """A stream grouped by key, on its way to a window."""

    stream: Stream
    keys: tuple[str, ...]

    def window(self, spec: Aligned, *, emit: str = "final", late: str = "drop") -> Windowed:
        """Windows per key; then ``.agg(...)``.

        ``late`` is what happens to a row all of whose windows have closed: ``drop`` (counted exactly),
        ``capture`` (also readable from ``.late``), ``dead_letter``.

        >>> from penstock.windows import hopping
        >>> views.by("url").window(hopping("1 hour", "10 minutes")).agg(n="count(*)").columns
        ('window_start', 'window_end', 'url', 'n')
        """
        return _windowed(self.stream, self.keys, spec, emit, late)


@dataclass(frozen=True)
class Windowed:
    """A stream cut into windows, on its way to its aggregates."""

    stream: Stream
    keys: tuple[str, ...]
    shape: Aligned
    late: Late

    def agg(self, **aggregates: str) -> Stream:
        """One row per key and window: ``window_start``, ``window_end``, the keys, then the aggregates.

        An aggregate is Spark SQL text: calls such as ``count(*)`` or ``max_by(user, price)``, each with
        ``filter (where ...)`` if you like, and expressions of them. The row's event time is the last
        instant of the window. There are no rows for empty windows.

        >>> from penstock.windows import tumbling
        >>> hour = views.by("url").window(tumbling("1 hour"))
        >>> hour.agg(n="count(*)", roots="count(*) filter (where url = '/')").columns
        ('window_start', 'window_end', 'url', 'n', 'roots')
        """
        return Stream(self.stream.job, aggregate(self.stream.node, self.keys, self.shape, self.late, aggregates))


def _windowed(stream: Stream, keys: tuple[str, ...], spec: Aligned, emit: str, late: str) -> Windowed:
    if not isinstance(spec, Aligned):
        raise PlanError(f"window: {spec!r} is no window; use one of penstock.windows. ({written_at()})")
    if emit != "final":
        raise PlanError(f"window: emit={emit!r}; this version has 'final'. ({written_at()})")
    for column in ("window_start", "window_end"):
        if column in keys:
            raise PlanError(
                f"window: the key {column!r} is named like a window column; rename it first. ({written_at()})"
            )
    return Windowed(stream, keys, spec, check_late(late, "window"))


def _same_job(stream: Stream, other: object, step: str) -> Stream:
    if not isinstance(other, Stream):
        raise PlanError(f"{step}: {other!r} is no stream. ({written_at()})")
    if other.job is not stream.job:
        raise PlanError(
            f"{step}: the other stream belongs to the job {other.job.name!r}, this one to {stream.job.name!r}. "
            f"({written_at()})"
        )
    return other
