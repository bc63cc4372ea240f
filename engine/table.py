"""Tables as users write them: one current row per key, kept right as changes come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.grouped import GroupedTable, grouping_keys
from penstock.joins.on import On
from penstock.joins.table_join import join_tables
from penstock.operators import rows
from penstock.operators.changes import changes
from penstock.plan.errors import PlanError
from penstock.plan.node import Node, named
from penstock.plan.step import late_rows
from penstock.plan.written import written_at
from penstock.stream import Stream, one_job

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
    >>> orders = job.table("orders", sources.files("o", "json", "id long, customer long, total long"), key="id")
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

    def join(self, other: Table, *, on: On | None = None, how: str = "inner", name: str | None = None) -> Table:
        """The rows of both tables that have equal values in ``on``, kept right as either side changes.

        ``on`` is a name, a tuple of names, or ``{"left_name": "right_name"}``, and defaults to the other
        table's key. On the keys of both: inner, left, right, full. On the other's key, which a column here
        refers to: inner, left; the key stays, and when the reference moves, so does the result. On columns
        that are no key: inner, and the key is that of both.

        >>> customers = job.table("customers", sources.files("c", "json", "no long, name string"), key="no")
        >>> named = orders.join(customers, on={"customer": "no"}, how="left")
        >>> named.columns, named.key
        (('id', 'customer', 'total', 'name'), ('id',))
        """
        if not isinstance(other, Table):
            raise PlanError(f"join: a table is joined with a Table, not {type(other).__name__}. ({written_at()})")
        one_job(self.job, other.job, "join")
        return Table(self.job, join_tables(self.node, other.node, on, how, name))

    def by(self, *keys: str) -> GroupedTable:
        """Group by columns; then ``.agg(...)`` or ``.top(...)``, which follow what comes and what leaves.

        >>> orders.by("customer").agg(n="count(*)").columns
        ('customer', 'n')
        """
        return GroupedTable(self, grouping_keys(self.node, keys))

    def changes(self) -> Stream:
        """What becomes of the rows: ``op`` (insert, update, delete) and the row, a deleted one as it was last.

        Net per batch, and never a change that changes nothing. The rows have no event time.

        >>> orders.changes().columns
        ('op', 'id', 'customer', 'total')
        """
        return Stream(self.job, changes(self.node))

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
