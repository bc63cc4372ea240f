"""The rules of joins: the key that both sides share, what is packed of each, how results become rows again."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.compile.edge import ORDER, CompiledEdge, CompiledStep, grouping, hashed, types_of
from penstock.compile.rows import visible
from penstock.joins.asof_kernel import AsOfKernel
from penstock.joins.interval import IntervalJoin
from penstock.joins.interval_kernel import IntervalJoinKernel, Side
from penstock.joins.latest_kernel import LatestKernel
from penstock.joins.lookup_kernel import LookupKernel
from penstock.joins.on import Pairs
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
    """Both sides of a join as they are packed: keys of one type, and the other columns of each by a name of ours."""

    def __init__(
        self, node: Step, pairs: Pairs, frames: Sequence[DataFrame], buckets: int, *, carry_right: bool = True
    ) -> None:
        self.node = node
        self.pairs = pairs
        self.frames = frames
        self.keys = tuple(f"__ps_key_{i}" for i in range(len(pairs)))
        left, right = frames
        self.left = {c: f"__ps_left_{i}" for i, c in enumerate(visible(left)) if c not in {m for m, _ in pairs}}
        carried = visible(right) if carry_right else []
        self.right = {c: f"__ps_right_{i}" for i, c in enumerate(carried) if c not in {o for _, o in pairs}}
        self._buckets = buckets
        self._common = [self._type(mine, other) for mine, other in pairs]

    def _type(self, mine: str, other: str) -> str:
        """The type in which two columns can be compared, as Spark has it."""
        left, right = (f.schema[c].dataType for f, c in zip(self.frames, (mine, other), strict=True))
        if left == right:
            return left.simpleString()
        both = f"coalesce(cast(null AS {left.simpleString()}), cast(null AS {right.simpleString()}))"
        if {left.typeName(), right.typeName()} & {"string", "boolean"}:
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
        columns = dict(zip(self.keys, keys, strict=True)) | {ours: quoted(c) for c, ours in carried.items()}
        return CompiledEdge({**columns, BUCKET: hashed(keys, self._buckets), **more}, tuple(visible(frame)))

    def types(self) -> dict[str, pa.DataType]:
        """The types of the packed columns that come out again."""
        made: dict[str, pa.DataType] = {}
        for number, carried in enumerate((self.left, self.right)):
            packed = self.edge(number).columns
            names = [*self.keys, *carried.values()]
            made |= dict(zip(names, types_of(self.frames[number], [packed[n] for n in names]), strict=True))
        return made

    def compiled(self, kernel: Kernel, edges: tuple[CompiledEdge, ...]) -> CompiledStep:
        """The step, its results under the users' names."""
        types = self.types()
        names = [*self.keys, *self.left.values(), *self.right.values()]
        shown = {mine: key for (mine, _), key in zip(self.pairs, self.keys, strict=True)} | self.left | self.right
        own = {mine: self.frames[0].schema[mine].dataType for mine, _ in self.pairs}
        cast = any(kind.simpleString() != k for kind, k in zip(own.values(), self._common, strict=True))
        columns = self.node.columns.names

        def finished(rows: DataFrame) -> DataFrame:
            made = [F.col(shown[c]).cast(own[c]) if c in own else F.col(shown[c]) for c in columns]
            return rows.select(*(m.alias(c) for m, c in zip(made, columns, strict=True)), *ORDER)

        def renamed(rows: pa.Table) -> pa.Table | None:
            if cast:
                return None
            chosen = [*(shown[c] for c in columns), *ORDER]
            return rows.select(chosen).rename_columns([*columns, *ORDER])

        return CompiledStep(
            self.node,
            kernel,
            edges,
            pa.schema([(n, types[n]) for n in names] + list(ORDER.items())),
            {n: str(t) for n, t in types.items()},
            finished,
            renamed,
        )


def interval(node: IntervalJoin, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of the join of two streams."""
    sides = Sides(node, node.on, frames, buckets, carry_right=node.how not in ("semi", "anti"))
    types = sides.types()
    left, right = (
        Side(sides.keys, tuple(carried.values()), _of(carried, types)) for carried in (sides.left, sides.right)
    )
    kernel = IntervalJoinKernel(
        left,
        right,
        micros(node.low),
        micros(node.high),
        node.how,
    )
    return sides.compiled(kernel, (sides.edge(0), sides.edge(1)))


def lookup(node: Lookup, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of a lookup."""
    sides = Sides(node, node.on, frames, buckets)
    kernel = LookupKernel(
        sides.keys, tuple(sides.left.values()), tuple(sides.right.values()), node.how, _of(sides.right, sides.types())
    )
    changes = sides.edge(1, **{WEIGHT: WEIGHT})
    # a table's changes have no time and no order: all of a batch come before its events
    return sides.compiled(kernel, (sides.edge(0), CompiledEdge(changes.columns, changes.reads, False, "0L")))


def asof(node: AsOf, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of an as-of join."""
    sides = Sides(node, node.on, frames, buckets)
    sequence = _sequence(frames[1])
    kernel = AsOfKernel(
        sides.keys,
        tuple(sides.left.values()),
        tuple(sides.right.values()),
        node.how,
        None if node.tolerance is None else micros(node.tolerance),
        micros(node.history),
        sequence,
        not node.chosen_sequence,
        _of(sides.right, sides.types()),
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
    keys = {k: f"__ps_key_{i}" for i, k in enumerate(node.key)}
    carried = {c: f"__ps_carried_{i}" for i, c in enumerate(shown) if c not in keys}
    columns = {ours: grouping(frame, k) for k, ours in keys.items()} | {o: quoted(c) for c, o in carried.items()}
    types = dict(zip(columns, types_of(frame, list(columns.values())), strict=True))
    names = keys | carried
    kernel = LatestKernel(tuple(keys.values()), tuple(carried.values()), sequence, not node.upstream.sequence)
    hidden = {c: c for c in (DELETED, *sequence)}
    bucket = hashed([columns[k] for k in keys.values()], buckets)
    return CompiledStep(
        node,
        Alone(kernel),
        (CompiledEdge({**columns, **hidden, BUCKET: bucket}, tuple(shown)),),
        pa.schema([*types.items(), (WEIGHT, pa.int8())]),
        {c: str(types[ours]) for c, ours in names.items()},
        lambda rows: rows.select(*(F.col(names[c]).alias(c) for c in shown), WEIGHT),
        lambda rows: rows.select([*(names[c] for c in shown), WEIGHT]).rename_columns([*shown, WEIGHT]),
    )


def _of(carried: dict[str, str], types: dict[str, pa.DataType]) -> tuple[pa.DataType, ...]:
    return tuple(types[c] for c in carried.values())


def _sequence(frame: DataFrame) -> tuple[str, ...]:
    return tuple(c for c in frame.columns if c.startswith(SEQUENCE))
