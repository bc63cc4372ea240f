"""Tables as users write them: one current row per key, kept right as changes come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.operators import rows
from penstock.plan.node import Node, named
from penstock.plan.step import late_rows
from penstock.stream import Stream

if TYPE_CHECKING:
    from penstock.job import Job
    from penstock.sinks.base import Sink


@dataclass(frozen=True)
class Table:
    """Rows by key, each the newest of its key. Every method gives a new value; nothing runs until the job does.

    >>> from penstock import Job, sources
    >>> job = Job("shop")
    >>> views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
    ...                    time="at", lateness="10 minutes")
    >>> counts = views.by("url").agg(n="count(*)")
    >>> counts.where("n > 10").with_columns(thousands="n / 1000").columns
    ('url', 'n', 'thousands')
    """

    job: Job
    node: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.node.columns.names

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell one row from another.

        >>> counts.key
        ('url',)
        """
        return self.node.key

    def where(self, predicate: str) -> Table:
        """Keep the rows for which a Spark SQL predicate is true; a row that no longer fits goes.

        >>> counts.where("n > 10").key
        ('url',)
        """
        return Table(self.job, rows.where(self.node, predicate))

    def select(self, *expressions: str) -> Table:
        """Give just these columns: names, ``*``, or expressions ``as`` a name; the key must be among them.

        >>> counts.select("url", "n * 2 as twice").columns
        ('url', 'twice')
        """
        return Table(self.job, rows.select(self.node, expressions))

    def with_columns(self, **expressions: str) -> Table:
        """Add columns, or replace those of the same name that are not of the key.

        >>> counts.with_columns(n="n + 1").columns
        ('url', 'n')
        """
        return Table(self.job, rows.with_columns(self.node, expressions))

    def drop(self, *columns: str) -> Table:
        """Leave columns out that are not of the key.

        >>> counts.drop("n").columns
        ('url',)
        """
        return Table(self.job, rows.drop(self.node, columns))

    def rename(self, **old_to_new: str) -> Table:
        """Give columns other names.

        >>> counts.rename(url="page").key
        ('page',)
        """
        return Table(self.job, rows.rename(self.node, old_to_new))

    def named(self, name: str) -> Table:
        """Give the last step a stable name: state, metrics, errors and upgrades refer to it.

        >>> counts.named("views_so_far").node.name
        'views_so_far'
        """
        return Table(self.job, named(self.node, name))

    @property
    def late(self) -> Stream:
        """The rows that this step refused as late, as they came to it; it must say ``late="capture"``.

        >>> from penstock.windows import tumbling
        >>> hourly = views.window(tumbling("1 hour"), emit="updates", late="capture").agg(n="count(*)")
        >>> hourly.late.columns
        ('url', 'at')
        """
        return Stream(self.job, late_rows(self.node))

    def to(self, sink: Sink, *, name: str | None = None, key: str | tuple[str, ...] | None = None) -> Table:
        """Add an output to the job, which upserts by the table's key and deletes what is gone.

        >>> from penstock import sinks
        >>> counts.to(sinks.memory("so_far")).job.explain().splitlines()[1]
        "output 'so_far' to memory so_far (upsert by url)"
        """
        self.job._add_output(self.node, sink, name, key)
        return self
