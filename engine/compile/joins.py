"""The rules of joins: the key that both sides share, what is packed of each, how results become rows again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.compile.edge import ORDER, CompiledEdge, CompiledStep, grouping, hashed, table_edge, types_of
from penstock.compile.rows import visible
from penstock.joins.asof_kernel import AsOfKernel
from penstock.joins.interval import IntervalJoin
from penstock.joins.interval_kernel import IntervalJoinKernel, Side
from penstock.joins.latest_kernel import LatestKernel
from penstock.joins.lookup_kernel import LookupKernel
from penstock.joins.on import Pairs
from penstock.joins.table_join import TableJoin
from penstock.joins.table_kernel import TableJoinKernel, TableSide
from penstock.joins.tables import AsOf, Lookup
from penstock.joins.versions import Latest
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.step import Step
from penstock.plan.text import where_written
from penstock.state.edge import BUCKET, DELETED, SEQUENCE, WEIGHT, Alone, Kernel
from penstock.windows.aggregates.ordering import orderable


class Sides:
    """Both sides of a join as they are packed: keys of one type, under the left's names, and the other columns."""

    def __init__(
        self, node: Step, pairs: Pairs, frames: Sequence[DataFrame], buckets: int, *, carry_right: bool = True
    ) -> None:
        self.node = node
        self.pairs = pairs
        self.frames = frames
        self.keys = tuple(mine for mine, _ in pairs)
        left, right = frames
        self.left = tuple(c for c in visible(left) if c not in self.keys)
        met = {other for _, other in pairs}
        self.right = tuple(c for c in visible(right) if c not in met) if carry_right else ()
        self._buckets = buckets
        self._common = [self._type(mine, other) for mine, other in pairs]

    def _type(self, mine: str, other: str) -> str:
        """The type in which two columns can be compared, as Spark has it."""
        left, right = (f.schema[c].dataType for f, c in zip(self.frames, (mine, other), strict=True))
        if left == right:
            return left.simpleString()
        both = f"coalesce(cast(null AS {left.simpleString()}), cast(null AS {right.simpleString()}))"
        inexact = {left.typeName(), right.typeName()} & {"float", "double"}
        if {left.typeName(), right.typeName()} & {"string", "boolean"} or len(inexact) == 1:
            # a whole number as a double may be another one's: keys would run into each other
            raise PlanError(
                f"{where_written(self.node)}: {mine} is {left.simpleString()} and {other} is {right.simpleString()}; "
                "cast one of them first."
            )
        return self.frames[0].selectExpr(both).schema[0].dataType.simpleString()

    def edge(self, number: int, **more: str) -> CompiledEdge:
        """What is packed of a side."""
        frame, carried = self.frames[number], (self.left, self.right)[number]
        keys = [
            f"cast({grouping(frame, pair[number])} AS {kind})"
            for pair, kind in zip(self.pairs, self._common, strict=True)
        ]
        columns = dict(zip(self.keys, keys, strict=True)) | {c: quoted(c) for c in carried}
        return CompiledEdge({**columns, BUCKET: hashed(keys, self._buckets), **more}, tuple(visible(frame)))

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the packed columns that come out again."""
        made: dict[str, pa.DataType] = {}
        for number, carried in enumerate((self.left, self.right)):
            packed = self.edge(number).columns
            names = [*self.keys, *carried]
            made |= dict(zip(names, types_of(self.frames[number], [packed[n] for n in names]), strict=True))
        return made

    def compiled(
        self,
        kernel: Kernel,
        edges: tuple[CompiledEdge, ...],
        hidden: Mapping[str, pa.DataType] = ORDER,
        how: str = "inner",
        keeps_left: bool = True,
    ) -> CompiledStep:
        """The step; ``hidden`` are the columns of its results that users do not see."""
        types = self.types
        names = [*self.keys, *self.left, *self.right]
        # where a key may be the right's it stays of the type that both have in common, as Spark's `using` has it
        left = self.frames[0].schema
        own = {} if how in ("right", "full") else {mine: left[mine].dataType for mine in self.keys}
        cast = any(kind.simpleString() != k for kind, k in zip(own.values(), self._common, strict=bool(own)))
        columns = self.node.columns.names

        def finished(rows: DataFrame) -> DataFrame:
            made = {c: F.col(quoted(c)).cast(own[c]) if c in own else F.col(quoted(c)) for c in columns}
            return rows.select(*(m.alias(c) for c, m in made.items()), *hidden)

        def renamed(rows: pa.Table) -> pa.Table | None:
            return None if cast else rows.select([*columns, *hidden])

        return CompiledStep(
            self.node,
            kernel,
            edges,
            pa.schema([(n, types[n]) for n in names] + list(hidden.items())),
            {n: str(t) for n, t in types.items() if keeps_left or n not in self.left},
            finished,
            renamed,
        )


def interval(node: IntervalJoin, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of the join of two streams."""
    sides = Sides(node, node.on, frames, buckets, carry_right=node.how not in ("semi", "anti"))
    types = sides.types
    left, right = (Side(sides.keys, carried, _of(carried, types)) for carried in (sides.left, sides.right))
    kernel = IntervalJoinKernel(
        left,
        right,
        micros(node.low),
        micros(node.high),
        node.how,
    )
    return sides.compiled(kernel, (sides.edge(0), sides.edge(1)), how=node.how)


def lookup(node: Lookup, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of a lookup."""
    sides = Sides(node, node.on, frames, buckets)
    types = _of(sides.right, sides.types)
    kernel = LookupKernel(sides.keys, sides.left, sides.right, node.how, types, node.after_load)
    # all changes of a batch come before its events
    edges = sides.edge(0), table_edge(sides.edge(1).columns, frames[1])
    return sides.compiled(kernel, edges, keeps_left=node.after_load)


def tables(node: TableJoin, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of the join of two tables."""
    sides = Sides(node, node.on, frames, buckets)
    types = sides.types
    pads = {"left": (True, False), "right": (False, True), "full": (True, True)}.get(node.how, (False, False))
    made = []
    for edge, (table, carried) in enumerate(zip(node.inputs, (sides.left, sides.right), strict=True)):
        met = {pair[edge] for pair in node.on}
        within = tuple(k for k in table.key if k not in met)
        made.append(TableSide(carried, _of(carried, types), within, pads[edge]))
    kernel = TableJoinKernel(sides.keys, _of(sides.keys, types), *made)
    edges = tuple(table_edge(sides.edge(edge).columns, frame) for edge, frame in enumerate(frames))
    return sides.compiled(kernel, edges, {WEIGHT: pa.int8()}, node.how)


def asof(node: AsOf, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of an as-of join."""
    sides = Sides(node, node.on, frames, buckets)
    sequence = _sequence(frames[1])
    kernel = AsOfKernel(
        sides.keys,
        sides.left,
        sides.right,
        node.how,
        None if node.tolerance is None else micros(node.tolerance),
        micros(node.history),
        sequence,
        not node.chosen_sequence,
        _of(sides.right, sides.types),
    )
    return sides.compiled(kernel, (sides.edge(0), sides.edge(1, **{c: c for c in (DELETED, *sequence)})))


def latest(node: Latest, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of a changelog read as a table."""
    (frame,) = frames
    shown = visible(frame)
    sequence = _sequence(frame)
    for name, kind in zip(sequence, types_of(frame, list(sequence)), strict=True):
        if not orderable(kind):
            raise PlanError(f"{where_written(node)}: rows cannot be put in order by {name} of type {kind}.")
    columns = {c: grouping(frame, c) if c in node.key else quoted(c) for c in shown}
    types = dict(zip(columns, types_of(frame, list(columns.values())), strict=True))
    carried = tuple(c for c in shown if c not in node.key)
    keep_us = None if node.tombstones is None else micros(node.tombstones)
    kernel = LatestKernel(node.key, carried, sequence, not node.upstream.sequence, keep_us, node.upstream.timed)
    hidden = {c: c for c in (DELETED, *sequence)}
    bucket = hashed([columns[k] for k in node.key], buckets)
    return CompiledStep(
        node,
        Alone(kernel),
        (CompiledEdge({**columns, **hidden, BUCKET: bucket}, tuple(shown)),),
        pa.schema([*((c, types[c]) for c in (*node.key, *carried)), (WEIGHT, pa.int8())]),
        {c: str(kind) for c, kind in types.items()},
        lambda rows: rows.select(*map(quoted, shown), WEIGHT),
        lambda rows: rows.select([*shown, WEIGHT]),
    )


def _of(names: Sequence[str], types: Mapping[str, pa.DataType]) -> tuple[pa.DataType, ...]:
    return tuple(types[c] for c in names)


def _sequence(frame: DataFrame) -> tuple[str, ...]:
    return tuple(c for c in frame.columns if c.startswith(SEQUENCE))
