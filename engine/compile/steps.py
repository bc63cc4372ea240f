"""One rule a stateful step: the kernel that does it, what its rows must bring, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from penstock.compile import joins, windows
from penstock.compile.edge import ORDER, CompiledEdge, CompiledStep, grouping, hashed, table_edge, types_of
from penstock.compile.failures import root_cause
from penstock.compile.rows import visible
from penstock.joins.interval import IntervalJoin
from penstock.joins.table_join import TableJoin
from penstock.joins.tables import AsOf, Lookup
from penstock.joins.versions import Latest
from penstock.operators.changes import OP, Changes, ChangesKernel
from penstock.operators.deduplicate import Deduplicate
from penstock.operators.deduplicate_kernel import DeduplicateKernel
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError, UnsupportedPlanError
from penstock.plan.expressions import quoted
from penstock.plan.step import Step
from penstock.plan.text import where_written
from penstock.state.edge import BUCKET, Alone
from penstock.windows.node import WindowAggregate, WindowTop


def compile_step(node: Step, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """Choose the kernel by the types that Spark gives, and say what each row must bring."""
    try:
        return compile_stateful(node, frames, buckets)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


@singledispatch
def compile_stateful(node: Step, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    """The rule of a step's class."""
    raise UnsupportedPlanError(f"no compile rule for the step {type(node).__name__}")


@compile_stateful.register
def compile_window_aggregate(node: WindowAggregate, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return windows.aggregates(node, frames[0], buckets)


@compile_stateful.register
def compile_window_top(node: WindowTop, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return windows.top(node, frames[0], buckets)


@compile_stateful.register
def compile_interval_join(node: IntervalJoin, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return joins.interval(node, frames, buckets)


@compile_stateful.register
def compile_lookup(node: Lookup, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return joins.lookup(node, frames, buckets)


@compile_stateful.register
def compile_asof(node: AsOf, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return joins.asof(node, frames, buckets)


@compile_stateful.register
def compile_table_join(node: TableJoin, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return joins.tables(node, frames, buckets)


@compile_stateful.register
def compile_changes(node: Changes, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    (frame,) = frames
    shown, keys = visible(frame), node.upstream.key
    carried = tuple(c for c in shown if c not in keys)
    columns = {c: grouping(frame, c) if c in keys else quoted(c) for c in (*keys, *carried)}
    types = types_of(frame, list(columns.values()))
    packed = {**columns, BUCKET: hashed([columns[k] for k in keys], buckets)}
    return CompiledStep(
        node,
        Alone(ChangesKernel(keys, carried)),
        (table_edge(packed, frame),),
        results=pa.schema([(OP, pa.string()), *zip(columns, types, strict=True)]),
        kept={},
        finished=lambda rows: rows.select(OP, *map(quoted, shown)),
        renamed=lambda rows: rows.select([OP, *shown]),
    )


@compile_stateful.register
def compile_latest(node: Latest, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    return joins.latest(node, frames, buckets)


@compile_stateful.register
def compile_deduplicate(node: Deduplicate, frames: Sequence[DataFrame], buckets: int) -> CompiledStep:
    frame = frames[0]
    shown = visible(frame)
    types = types_of(frame, [quoted(c) for c in shown])
    columns = {c: grouping(frame, c) if c in node.keys else quoted(c) for c in shown}
    carried = tuple(c for c in shown if c not in node.keys)
    kernel = DeduplicateKernel(node.keys, carried, micros(node.within), node.ordered)
    of = dict(zip(shown, types, strict=True))
    results = pa.schema([(c, of[c]) for c in (*node.keys, *carried)] + list(ORDER.items()))
    return CompiledStep(
        node,
        Alone(kernel),
        (CompiledEdge({**columns, BUCKET: hashed([columns[k] for k in node.keys], buckets)}, tuple(shown)),),
        results=results,
        kept={c: str(of[c]) for c in (shown if node.ordered else node.keys)},
        finished=lambda rows: rows.select(*map(quoted, shown), *ORDER),
        renamed=lambda rows: rows.select([*shown, *ORDER]),
    )
