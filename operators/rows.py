"""Steps that look at one row at a time: Spark does them, and no state is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.columns import WINDOW_COLUMNS, Columns, check_name, check_unique
from penstock.plan.errors import PlanError
from penstock.plan.expressions import Expression, check, check_repeatable, column_of, selected
from penstock.plan.node import Made, Node, computed
from penstock.plan.schemas import schema
from penstock.plan.written import written_at

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Filter(Node):
    """Keep the rows for which ``predicate`` is true."""

    upstream: Node
    predicate: str

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    @property
    def window_closes_us(self) -> int | None:
        return self.upstream.window_closes_us

    def describe(self) -> str:
        return f"where {self.predicate}"


@dataclass(frozen=True)
class Select(Node):
    """Give just these columns."""

    upstream: Node
    expressions: tuple[Expression, ...]

    @property
    def columns(self) -> Columns:
        return Columns(tuple(e.name for e in self.expressions), owner="the select before it has")

    @property
    def time(self) -> str | None:
        shown = [e.name for e in self.expressions if column_of(e.text) == self.upstream.time is not None]
        return shown[0] if shown else None

    @property
    def key(self) -> tuple[str, ...]:
        shown = {column_of(e.text): e.name for e in self.expressions}
        return tuple(shown[k] for k in self.upstream.key)

    @property
    def window_closes_us(self) -> int | None:
        plain = {e.name for e in self.expressions if e.is_plain}
        return self.upstream.window_closes_us if plain >= set(WINDOW_COLUMNS) else None

    def makes(self, column: str) -> Made:
        return next(computed(e.name, e.text, self.upstream) for e in self.expressions if e.name == column)

    def describe(self) -> str:
        return "select " + ", ".join(e.name if e.is_plain else f"{e.text} as {e.name}" for e in self.expressions)


@dataclass(frozen=True)
class WithColumns(Node):
    """Add columns, or replace those of the same name."""

    upstream: Node
    expressions: tuple[Expression, ...]

    @property
    def columns(self) -> Columns:
        before = self.upstream.columns
        added = tuple(e.name for e in self.expressions if e.name not in before.names)
        return replace(before, names=before.names + added)

    @property
    def window_closes_us(self) -> int | None:
        made = {e.name for e in self.expressions if not e.is_plain}
        return None if made & set(WINDOW_COLUMNS) else self.upstream.window_closes_us

    def makes(self, column: str) -> Made:
        found = (computed(e.name, e.text, self.upstream) for e in self.expressions if e.name == column)
        return next(found, Made(None, ((self.upstream, column),), plain=True))

    def describe(self) -> str:
        return "with " + ", ".join(f"{e.name} = {e.text}" for e in self.expressions)


@dataclass(frozen=True)
class Drop(Node):
    """Leave columns out."""

    upstream: Node
    dropped: tuple[str, ...]

    @property
    def columns(self) -> Columns:
        before = self.upstream.columns
        return replace(before, names=tuple(n for n in before.names if n not in self.dropped))

    @property
    def time(self) -> str | None:
        return None if self.upstream.time in self.dropped else self.upstream.time

    @property
    def window_closes_us(self) -> int | None:
        return None if {*self.dropped} & {*WINDOW_COLUMNS} else self.upstream.window_closes_us

    def describe(self) -> str:
        return f"drop {', '.join(self.dropped)}"


@dataclass(frozen=True)
class Rename(Node):
    """Give columns other names."""

    upstream: Node
    renames: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> Columns:
        new = dict(self.renames)
        before = self.upstream.columns
        return replace(before, names=tuple(new.get(n, n) for n in before.names), owner="after the rename there is")

    @property
    def time(self) -> str | None:
        before = self.upstream.time
        return None if before is None else dict(self.renames).get(before, before)

    @property
    def key(self) -> tuple[str, ...]:
        new = dict(self.renames)
        return tuple(new.get(k, k) for k in self.upstream.key)

    @property
    def window_closes_us(self) -> int | None:
        return (
            None if {n for pair in self.renames for n in pair} & {*WINDOW_COLUMNS} else self.upstream.window_closes_us
        )

    def makes(self, column: str) -> Made:
        before = {new: old for old, new in self.renames}.get(column, column)
        return Made(None if before == column else f"{column} = {before}", ((self.upstream, before),), plain=True)

    def describe(self) -> str:
        return "rename " + ", ".join(f"{old} to {new}" for old, new in self.renames)


@dataclass(frozen=True)
class Explode(Node):
    """A row for each element of an array; a row whose array is empty or null gives none."""

    upstream: Node
    expression: Expression

    @property
    def columns(self) -> Columns:
        before = self.upstream.columns
        return replace(before, names=(*before.names, self.expression.name))

    @property
    def window_closes_us(self) -> int | None:
        return self.upstream.window_closes_us

    def makes(self, column: str) -> Made:
        if column != self.expression.name:
            return super().makes(column)
        made = computed(column, self.expression.text, self.upstream)
        return Made(f"{column} = explode({self.expression.text})", made.of)

    def describe(self) -> str:
        return f"explode {self.expression.text} as {self.expression.name}"


@dataclass(frozen=True)
class Union(Node):
    """The rows of both streams; their columns are matched by name."""

    left: Node
    right: Node

    @property
    def columns(self) -> Columns:
        return self.left.columns

    @property
    def time(self) -> str | None:
        return self.left.time if self.left.time == self.right.time else None

    @property
    def window_closes_us(self) -> int | None:
        left, right = self.left.window_closes_us, self.right.window_closes_us
        return left if left == right else None

    def describe(self) -> str:
        return "union"


@dataclass(frozen=True)
class MapPandas(Node):
    """A user's function from pandas frame to pandas frame; it must return the time column as it came."""

    upstream: Node
    function: Callable[[pd.DataFrame], pd.DataFrame]
    schema: pa.Schema = field(hash=False)

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.schema.names), owner="the map_pandas before it gives")

    def makes(self, column: str) -> Made:
        # nobody knows of which columns the function makes it
        every = tuple((self.upstream, name) for name in self.upstream.columns.names)
        return Made(f"{column} of {self.describe()}", every, type=str(self.schema.field(column).type))

    def describe(self) -> str:
        return f"map_pandas {getattr(self.function, '__name__', 'function')}"


def where(upstream: Node, predicate: str) -> Node:
    """The node of ``where``."""
    step = f"where({predicate!r})"
    check_repeatable([predicate], upstream.mode, step)
    return Filter(upstream, check(predicate, upstream.columns, step))


def select(upstream: Node, texts: tuple[str, ...]) -> Node:
    """The node of ``select``."""
    if not texts:
        raise PlanError(f"select(): name at least one column. ({written_at()})")
    chosen = tuple(e for text in texts for e in selected(text, upstream.columns, f"select({text!r})"))
    check_unique((e.name for e in chosen), "select")
    check_repeatable((e.text for e in chosen), upstream.mode, "select")
    for e in chosen:
        _keep_time(upstream, e, "select")
    _keep_key(upstream, {column_of(e.text) or "" for e in chosen}, "select")
    return Select(upstream, chosen)


def with_columns(upstream: Node, columns: dict[str, str]) -> Node:
    """The node of ``with_columns``."""
    if not columns:
        raise PlanError(f"with_columns(): name at least one column. ({written_at()})")
    added = []
    for name, text in columns.items():
        step = f"with_columns({name}={text!r})"
        e = Expression(check_name(name, step), check(text, upstream.columns, step))
        _keep_time(upstream, e, "with_columns")
        if e.name in upstream.key and not e.is_plain:
            raise PlanError(f"{step}: {name!r} is of the table's key; give the result another name. ({written_at()})")
        added.append(e)
    check_repeatable(columns.values(), upstream.mode, "with_columns")
    node = WithColumns(upstream, tuple(added))
    check_unique(node.columns.names, "with_columns")
    return node


def _keep_time(upstream: Node, e: Expression, step: str) -> None:
    if upstream.time is not None and e.name == upstream.time and not e.is_plain:
        raise PlanError(
            f"{step}({e.name}={e.text!r}): the time column may be renamed but not computed anew; "
            f"give the result another name. ({written_at()})"
        )


def _keep_key(upstream: Node, kept: set[str], step: str) -> None:
    missing = [k for k in upstream.key if k not in kept]
    if missing:
        raise PlanError(
            f"{step}: the table's key is {', '.join(upstream.key)}, and {', '.join(missing)} would be gone; keep it. "
            f"({written_at()})"
        )


def drop(upstream: Node, names: tuple[str, ...]) -> Node:
    """The node of ``drop``."""
    for name in names:
        upstream.columns.require(name, f"drop({name!r})")
    left = [n for n in upstream.columns.names if n not in names]
    if not left and not upstream.columns.open:
        raise PlanError(f"drop({', '.join(map(repr, names))}): no column would be left. ({written_at()})")
    _keep_key(upstream, set(upstream.key) - set(names), f"drop({', '.join(map(repr, names))})")
    return Drop(upstream, check_unique(names, "drop"))


def rename(upstream: Node, renames: dict[str, str]) -> Node:
    """The node of ``rename``."""
    for old, new in renames.items():
        upstream.columns.require(old, f"rename({old}={new!r})")
        check_name(new, f"rename({old}={new!r})")
    node = Rename(upstream, tuple(renames.items()))
    check_unique(node.columns.names, "rename")
    return node


def explode(upstream: Node, text: str, name: str) -> Node:
    """The node of ``explode``."""
    step = f"explode({text!r}, {name!r})"
    upstream.columns.refuse(name, step)
    return Explode(upstream, Expression(name, check(text, upstream.columns, step)))


def union(left: Node, right: Node) -> Node:
    """The node of ``union``."""
    mine, other = left.columns, right.columns
    if not (mine.open or other.open) and set(mine.names) != set(other.names):
        only = sorted(set(mine.names) ^ set(other.names))
        raise PlanError(
            f"union: both sides need equal columns; {', '.join(only)} stands on one side only. ({written_at()})"
        )
    return Union(left, right)


def map_pandas(upstream: Node, function: Callable[[pd.DataFrame], pd.DataFrame], result: object) -> Node:
    """The node of ``map_pandas``."""
    if not callable(function):
        raise PlanError(f"map_pandas: {function!r} is no function. ({written_at()})")
    given = schema(result, "map_pandas: schema")
    if upstream.time is not None and upstream.time not in given.names:
        raise PlanError(
            f"map_pandas: the schema must hold the time column {upstream.time!r}, and the function must return it. "
            f"({written_at()})"
        )
    return MapPandas(upstream, function, given)
