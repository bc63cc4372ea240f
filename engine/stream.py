"""Streams as users write them: each method is one step, and gives a new value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.grouped import Grouped, Windowed, WindowedTable, cut, grouping_keys
from penstock.joins.interval import Within, join
from penstock.joins.on import On
from penstock.joins.tables import asof, lookup
from penstock.joins.versions import to_table
from penstock.operators import rows
from penstock.operators.clock import correct_clock
from penstock.operators.deduplicate import deduplicate
from penstock.plan.durations import Duration
from penstock.plan.errors import PlanError
from penstock.plan.node import Node, named
from penstock.plan.step import late_rows
from penstock.plan.written import written_at

if TYPE_CHECKING:
    import pandas as pd

    from penstock.job import Job
    from penstock.sinks.base import Sink
    from penstock.table import Table
    from penstock.windows.firing import Panes
    from penstock.windows.node import Shape


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

    def deduplicate(
        self, *keys: str, within: Duration, ordered: bool = False, late: str = "drop", name: str | None = None
    ) -> Stream:
        """Drop a row whose key was kept within that time of it, before or after.

        A kept row comes out at once, and of two the first to arrive stays. With ``ordered=True`` the first by
        event time stays, and rows wait for the watermark. A dropped row does not prolong the time; a row
        before the watermark is late.

        >>> views.deduplicate("url", within="1 hour").node.name
        'deduplicate_by_url'
        """
        return Stream(self.job, deduplicate(self.node, keys, within, ordered, late, name))

    def correct_clock(self, sent: str, received: str) -> Stream:
        """Correct the event time by how far the device's clock was off: time += received - sent.

        ``sent`` is when the device sent the event, by its own clock, ``received`` when the server got it. The
        time column, the input's watermark and ``max_ahead`` follow the corrected time.

        >>> phones = job.stream("phones", sources.files("in", format="json",
        ...     schema="at timestamp, sent timestamp, received timestamp"), time="at", lateness="1 hour")
        >>> phones.correct_clock("sent", "received").columns
        ('at', 'sent', 'received')
        """
        return Stream(self.job, correct_clock(self.node, sent, received))

    def join(
        self,
        other: Stream,
        *,
        on: On,
        within: Within | None = None,
        how: str = "inner",
        late: str = "drop",
        name: str | None = None,
    ) -> Stream:
        """Rows of two streams with equal ``on`` whose times satisfy ``left + lo <= right <= left + hi``.

        ``within=(lo, hi)``, both ends in, or one duration for both directions. ``how``: inner, left, right, full,
        semi, anti. Each pair comes out once, with the later time of the two; an unmatched row of an outer side
        comes out once, padded with nulls, when no partner can come any more. A null key matches nothing. A
        row before the watermark still meets what is held; if it finds no partner it is late.

        >>> clicks = job.stream("clicks", sources.files("clicks", format="json",
        ...     schema="url string, clicked_at timestamp"), time="clicked_at", lateness="10 minutes")
        >>> views.join(clicks, on="url", within=("0 seconds", "1 hour"), how="left").columns
        ('url', 'at', 'clicked_at')
        """
        right = _same_job(self, other, "join").node
        return Stream(self.job, join(self.node, right, on, within, how, late, name))

    def lookup(
        self,
        table: Table,
        *,
        on: On | None = None,
        how: str = "left",
        after_load: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Each event with the table's row as it is now; ``how``: left, inner.

        ``on`` defaults to the table's key. Within a batch the table's changes apply before its events. Not
        repeatable: what the table is *now* depends on how the inputs interleave; ``asof`` does not. With
        ``after_load=True`` events wait, and time with them, until the table has been read to its end once: until
        a batch brings nothing of it.

        >>> pages = job.table("pages", sources.files("pages", format="json",
        ...     schema="url string, title string"), key="url")
        >>> views.lookup(pages).columns
        ('url', 'at', 'title')
        """
        return Stream(self.job, lookup(self.node, _table_of(self, table, "lookup"), on, how, after_load, name))

    def asof(
        self,
        table: Table,
        *,
        on: On | None = None,
        how: str = "left",
        tolerance: Duration | None = None,
        late: str = "drop",
        name: str | None = None,
    ) -> Stream:
        """Each event with the table's row as it was at the event's own time; ``how``: left, inner.

        The version with the greatest time up to the event's; one that was deleted is a miss, as is one older than
        ``tolerance``. An event waits until the watermark is after it, so that the result is the same however
        the inputs interleave. The table needs ``time=`` and ``lateness=``.

        >>> rates = job.table("rates", sources.files("rates", format="json",
        ...     schema="url string, price double, since timestamp"), key="url", time="since", lateness="1 minute")
        >>> views.asof(rates).columns
        ('url', 'at', 'price', 'since')
        """
        node = _table_of(self, table, "asof")
        return Stream(self.job, asof(self.node, node, on, how, tolerance, late, name))

    def to_table(self, key: str | tuple[str, ...], sequence: str | tuple[str, ...] | None = None) -> Table:
        """The stream read as a changelog: the latest row per ``key``, by ``sequence``, else by event time.

        >>> views.to_table("url").key
        ('url',)
        """
        from penstock.table import Table

        return Table(self.job, to_table(self.node, key, sequence))

    def by(self, *keys: str) -> Grouped:
        """Group by columns; then ``.window(...)``, ``.agg(...)`` or ``.top(...)``. Null is a key, as in SQL.

        >>> views.by("url").keys
        ('url',)
        """
        return Grouped(self, grouping_keys(self.node, keys))

    @overload
    def window(self, spec: Shape, *, emit: Literal["final"] = ..., late: str = ...) -> Windowed: ...
    @overload
    def window(self, spec: Shape, *, emit: Literal["updates"] | Panes, late: str = ...) -> WindowedTable: ...

    def window(self, spec: Shape, *, emit: str | Panes = "final", late: str = "drop") -> Windowed | WindowedTable:
        """Windows over the whole stream; then ``.agg(...)`` or ``.top(...)``. With ``by`` first: per key.

        >>> from penstock.windows import tumbling
        >>> views.window(tumbling("1 hour")).agg(n="count(*)").columns
        ('window_start', 'window_end', 'n')
        """
        return cut(self, (), spec, emit, late)

    @property
    def late(self) -> Stream:
        """The rows that this step refused as late, as they came to it; it must say ``late="capture"``.

        >>> from penstock.windows import tumbling
        >>> views.window(tumbling("1 hour"), late="capture").agg(n="count(*)").late.columns
        ('url', 'at')
        """
        return Stream(self.job, late_rows(self.node))

    def to(self, sink: Sink, *, name: str | None = None, key: str | tuple[str, ...] | None = None) -> Stream:
        """Add an output to the job; ``name`` defaults to the sink's. Gives the stream back, to go on with.

        >>> from penstock import sinks
        >>> views.to(sinks.memory("all_views")).job.explain().splitlines()[1]
        "output 'all_views' to memory all_views (append)"
        """
        self.job._add_output(self.node, sink, name, key)
        return self


def _table_of(stream: Stream, table: object, step: str) -> Node:
    from penstock.table import Table

    if not isinstance(table, Table):
        raise PlanError(
            f"{step}: a {type(table).__name__} is no table; make one with job.table(...) or .to_table(...). "
            f"({written_at()})"
        )
    one_job(stream.job, table.job, step)
    return table.node


def _same_job(stream: Stream, other: object, step: str) -> Stream:
    if not isinstance(other, Stream):
        table = "; a stream meets a table by .lookup(...) or .asof(...)" if hasattr(other, "changes") else ""
        raise PlanError(f"{step}: a {type(other).__name__} is no stream{table}. ({written_at()})")
    one_job(stream.job, other.job, step)
    return other


def one_job(job: Job, other: Job, step: str) -> None:
    """Refuse sides of two jobs."""
    if other is not job:
        raise PlanError(
            f"{step}: the other side belongs to the job {other.name!r}, this one to {job.name!r}. ({written_at()})"
        )
