"""Streams on their way to a result: grouped by key, cut into windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from penstock.plan.columns import check_unique
from penstock.plan.errors import PlanError
from penstock.plan.node import Node
from penstock.plan.step import Late, check_late
from penstock.plan.written import written_at
from penstock.windows.firing import Final, Firing, Panes, Updates
from penstock.windows.node import Shape, Window, aggregate, check_shape, firing_of, top

if TYPE_CHECKING:
    from penstock.stream import Stream
    from penstock.table import Table


@dataclass(frozen=True)
class Grouped:
    """A stream grouped by key."""

    stream: Stream
    keys: tuple[str, ...]

    @overload
    def window(self, spec: Shape, *, emit: Literal["final"] = ..., late: str = ...) -> Windowed: ...
    @overload
    def window(self, spec: Shape, *, emit: Literal["updates"] | Panes, late: str = ...) -> WindowedTable: ...

    def window(self, spec: Shape, *, emit: str | Panes = "final", late: str = "drop") -> Windowed | WindowedTable:
        """Windows per key; then ``.agg(...)`` or ``.top(...)``.

        ``emit`` is when results come out: ``"final"`` (once, when time passes the end; a Stream),
        ``"updates"`` (the value so far, each time it changes; a Table), or ``panes(...)``. ``late`` is what
        happens to a row all of whose windows have closed: ``"drop"`` (counted exactly), ``"capture"`` (also
        readable from ``.late``), ``"dead_letter"``.

        >>> from penstock.windows import hopping
        >>> views.by("url").window(hopping("1 hour", "10 minutes")).agg(n="count(*)").columns
        ('window_start', 'window_end', 'url', 'n')
        """
        return cut(self.stream, self.keys, spec, emit, late)

    def agg(self, **aggregates: str) -> Table:
        """Running values per key, over all rows that ever came: a Table, kept for ever.

        >>> views.by("url").agg(n="count(*)", last="max(at)").key
        ('url',)
        """
        return _table(self.stream, aggregate(self.stream.node, self.keys, None, Updates(), "drop", aggregates))

    def top(self, n: int, by: str, ties: bool = False) -> Table:
        """The ``n`` first rows per key so far, by an order: a Table with a column ``rank``; a row may drop out.

        >>> views.by("url").top(3, by="at desc").key
        ('url', 'rank')
        """
        return _table(self.stream, top(self.stream.node, self.keys, None, Updates(), "drop", n, by, ties))


@dataclass(frozen=True)
class GroupedTable:
    """A table grouped by some of its columns; its rows may change and leave, and the results follow."""

    table: Table
    keys: tuple[str, ...]

    def agg(self, **aggregates: str) -> Table:
        """One row per group that has rows: what left is subtracted, what came is added.

        Counts, and sums and means of whole numbers and decimals, keep one part per group. All other
        aggregates keep what they read of every row, and a batch looks at all rows of the groups that it
        touches. ``first``, ``last`` and ``collect_list`` go by the order of the table's key.

        >>> orders.by("customer").agg(n="count(*)", most="max(total)").key
        ('customer',)
        """
        return _table(self.table, aggregate(self.table.node, self.keys, None, Updates(), "drop", aggregates))

    def top(self, n: int, by: str, ties: bool = False) -> Table:
        """The ``n`` first rows per group by an order, with a column ``rank``; equal rows go by the table's key.

        >>> orders.by("customer").top(3, by="total desc").key
        ('customer', 'id')
        """
        return _table(self.table, top(self.table.node, self.keys, None, Updates(), "drop", n, by, ties))


@dataclass(frozen=True)
class _Cut:
    """A stream cut into windows: by which keys and shape, when results come out, what happens to late rows."""

    stream: Stream
    keys: tuple[str, ...]
    shape: Shape
    firing: Firing
    late: Late

    def _agg(self, aggregates: dict[str, str]) -> Window:
        return aggregate(self.stream.node, self.keys, self.shape, self.firing, self.late, aggregates)

    def _top(self, n: int, by: str, ties: bool) -> Window:
        return top(self.stream.node, self.keys, self.shape, self.firing, self.late, n, by, ties)


class Windowed(_Cut):
    """A stream cut into windows, each with one final result."""

    def agg(self, **aggregates: str) -> Stream:
        """One row per key and window: ``window_start``, ``window_end``, the keys, then the aggregates.

        An aggregate is Spark SQL text: calls such as ``count(*)`` or ``max_by(user, price)``, each with
        ``filter (where ...)`` if you like, and expressions of them. The row's event time is the last
        instant of the window. There are no rows for empty windows.

        >>> from penstock.windows import tumbling
        >>> hour = views.by("url").window(tumbling("1 hour"))
        >>> hour.agg(n="count(*)", even="count(*) filter (where second(at) % 2 = 0)").columns
        ('window_start', 'window_end', 'url', 'n', 'even')
        """
        return _stream(self.stream, self._agg(aggregates))

    def top(self, n: int, by: str, ties: bool = False) -> Stream:
        """The ``n`` first rows of each key and window by an order: the window, the rows' columns, ``rank``.

        Rows that are equal in ``by`` stand in order of arrival. With ``ties=True`` they share a rank, as in
        SQL's ``rank()``, and rows equal to the n-th stay.

        >>> from penstock.windows import tumbling
        >>> views.by("url").window(tumbling("1 hour")).top(3, by="at desc").columns
        ('window_start', 'window_end', 'url', 'at', 'rank')
        """
        return _stream(self.stream, self._top(n, by, ties))


class WindowedTable(_Cut):
    """A stream cut into windows whose results are shown before they are final: a Table of current values."""

    def agg(self, **aggregates: str) -> Table:
        """One current row per key and window, as ``Windowed.agg`` has it; with ``panes(...)`` also ``pane``.

        >>> from penstock.windows import panes, tumbling
        >>> early = views.by("url").window(tumbling("1 hour"), emit=panes(early="10 seconds"))
        >>> early.agg(n="count(*)").columns
        ('window_start', 'window_end', 'url', 'n', 'pane')
        """
        return _table(self.stream, self._agg(aggregates))

    def top(self, n: int, by: str, ties: bool = False) -> Table:
        """The ``n`` first rows so far of each key and window; its key is the keys, the window and ``rank``.

        >>> from penstock.windows import tumbling
        >>> views.by("url").window(tumbling("1 hour"), emit="updates").top(3, by="at desc").key
        ('url', 'window_start', 'window_end', 'rank')
        """
        return _table(self.stream, self._top(n, by, ties))


def grouping_keys(upstream: Node, keys: tuple[str | tuple[str, ...], ...]) -> tuple[str, ...]:
    """The columns to group by, refused when there is none, or none of that name."""
    if not keys:
        how = (
            "; for a total add one that is the same in all rows, .with_columns(all_rows='1')"
            if upstream.mode == "upsert"
            else ", or leave it out before a window"
        )
        raise PlanError(f"by(): name at least one column{how}. ({written_at()})")
    names = tuple(n for k in keys for n in (k if isinstance(k, tuple | list) else (k,)))
    for key in names:
        upstream.columns.require(key, f"by({key!r})")
    return check_unique(names, "by")


def cut(stream: Stream, keys: tuple[str, ...], spec: Shape, emit: str | Panes, late: str) -> Windowed | WindowedTable:
    """The stream cut into windows, refused when that makes no sense."""
    check_shape(stream.node, keys, spec)
    firing = firing_of(emit)
    kind = Windowed if isinstance(firing, Final) else WindowedTable
    return kind(stream, keys, spec, firing, check_late(late, "window"))


def _stream(stream: Stream, node: Window) -> Stream:
    from penstock.stream import Stream

    return Stream(stream.job, node)


def _table(upstream: Stream | Table, node: Window) -> Table:
    from penstock.table import Table

    return Table(upstream.job, node)
