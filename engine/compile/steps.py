"""One rule a stateful step: the kernel that does it, what its rows must bring, and what becomes of its results."""

from __future__ import annotations

from functools import singledispatch

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from penstock.compile import windows
from penstock.compile.edge import ORDER, CompiledStep, grouping, hashed, types_of
from penstock.compile.failures import root_cause
from penstock.compile.rows import visible
from penstock.operators.deduplicate import Deduplicate
from penstock.operators.deduplicate_kernel import DeduplicateKernel
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError, UnsupportedPlanError
from penstock.plan.expressions import quoted
from penstock.plan.step import Step
from penstock.plan.text import where_written
from penstock.state.edge import BUCKET
from penstock.windows.node import WindowAggregate, WindowTop


def compile_step(node: Step, frame: DataFrame, buckets: int) -> CompiledStep:
    """Choose the kernel by the types that Spark gives, and say what each row must bring."""
    try:
        return compile_stateful(node, frame, buckets)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


@singledispatch
def compile_stateful(node: Step, frame: DataFrame, buckets: int) -> CompiledStep:
    """The rule of a step's class."""
    raise UnsupportedPlanError(f"no compile rule for the step {type(node).__name__}")


@compile_stateful.register
def compile_window_aggregate(node: WindowAggregate, frame: DataFrame, buckets: int) -> CompiledStep:
    return windows.aggregates(node, frame, buckets)


@compile_stateful.register
def compile_window_top(node: WindowTop, frame: DataFrame, buckets: int) -> CompiledStep:
    return windows.top(node, frame, buckets)


@compile_stateful.register
def compile_deduplicate(node: Deduplicate, frame: DataFrame, buckets: int) -> CompiledStep:
    shown = visible(frame)
    types = types_of(frame, [quoted(c) for c in shown])
    columns = {c: grouping(frame, c) if c in node.keys else quoted(c) for c in shown}
    carried = tuple(c for c in shown if c not in node.keys)
    kernel = DeduplicateKernel(node.keys, carried, micros(node.within), node.ordered)
    of = dict(zip(shown, types, strict=True))
    results = pa.schema([(c, of[c]) for c in (*node.keys, *carried)] + list(ORDER.items()))
    return CompiledStep(
        node,
        kernel,
        {**columns, BUCKET: hashed([columns[k] for k in node.keys], buckets)},
        ordered=True,
        results=results,
        kept={c: str(of[c]) for c in (shown if node.ordered else node.keys)},
        reads=tuple(shown),
        finished=lambda rows: rows.select(*map(quoted, shown), *ORDER),
        renamed=lambda rows: rows.select([*shown, *ORDER]),
    )
