"""The way out of a window: the expressions around its aggregates, and the aggregates that are Spark's to do."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.compile.edge import Edge, carried_names
from penstock.compile.failures import root_cause
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.text import where_written
from penstock.sources.base import PARTITION, POSITION
from penstock.state.edge import TIME
from penstock.windows.calls import Aggregate, Call
from penstock.windows.kernel import WINDOW_END, WINDOW_START
from penstock.windows.node import WindowAggregate

_ORDER = f"struct({TIME}, {PARTITION}, {POSITION})"
_REVERSED = f"struct(-{TIME}, -{PARTITION}, -{POSITION})"


def renamed(edge: Edge, results: pa.Table) -> pa.Table | None:
    """The results under the users' names, when there is nothing left to compute; else None."""
    if not edge.kernel.partial or any(set(a.around) != {""} for a in edge.node.aggregates):
        return None
    columns = [*results.columns[:2], *(results[k] for k in edge.kernel.keys)]
    columns += [results[_places(edge, a)[0]] for a in edge.node.aggregates]
    return pa.table(columns, names=list(edge.node.columns.names))


def finished(edge: Edge, results: DataFrame) -> DataFrame:
    """The rows of the window as its readers see them."""
    node, kernel = edge.node, edge.kernel
    carried = [c for c in kernel.carried if c.startswith("__ps_carried_")]
    new = dict(zip(carried, carried_names(node, list(edge.reads)) if carried else [], strict=True))
    new |= dict(zip(kernel.keys, node.keys, strict=True))
    for own, shown in ((WINDOW_START, "window_start"), (WINDOW_END, "window_end")):
        if shown not in new.values():  # a column of the rows themselves goes before the window's own
            new[own] = shown
    frame = results.select(*(F.col(c).alias(new.get(c, c)) for c in results.columns))
    window = [F.col(new.get(WINDOW_START, WINDOW_START)), F.col(new.get(WINDOW_END, WINDOW_END))]
    try:
        if kernel.partial:
            made = [F.expr(a.rebuilt(_places(edge, a))).alias(a.name) for a in node.aggregates]
            rows = frame.select(*window, *_keys(node.keys), *made)
        else:
            texts = [F.expr(a.rebuilt(tuple(map(spark_text, a.calls)))).alias(a.name) for a in node.aggregates]
            rows = frame.groupBy(*window, *_keys(node.keys)).agg(*texts)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None
    return rows.toDF(*node.columns.names)


def timed(node: WindowAggregate, rows: DataFrame) -> DataFrame:
    """A result's time is the last instant of its window; equal times are ordered by the key, whatever the buckets."""
    identity = F.xxhash64(F.col("window_start"), *_keys(node.keys))
    return rows.withColumns({TIME: F.unix_micros("window_end") - 1, PARTITION: F.lit(0), POSITION: identity})


def spark_text(call: Call) -> str:
    """A call as Spark SQL over the rows of a window: ours go by event time and order of arrival."""
    where, arguments = call.where, ", ".join(call.arguments)
    name, inside = call.name, ("distinct " if call.distinct else "") + arguments
    if name in ("first", "first_value", "any_value", "last", "last_value"):
        if call.ignore_nulls:
            where = f"({arguments}) IS NOT NULL" + (f" AND ({where})" if where else "")
        name, inside = ("max_by" if name.startswith("last") else "min_by"), f"{arguments}, {_ORDER}"
    elif name in ("min_by", "max_by"):
        value, by = call.arguments
        where = f"({by}) IS NOT NULL" + (f" AND ({where})" if where else "")
        inside = f"{value}, struct({by}, {_ORDER if name == 'min_by' else _REVERSED})"
    elif name in ("collect_list", "array_agg") and not call.distinct:
        where = f"({arguments}) IS NOT NULL" + (f" AND ({where})" if where else "")
        listed = f"collect_list(struct({_ORDER} as o, {arguments} as x)) filter (where {where})"
        # by the order alone: the values may be of a type that has none
        by_order = "(l, r) -> CASE WHEN l.o < r.o THEN -1 WHEN l.o > r.o THEN 1 ELSE 0 END"
        return f"transform(array_sort({listed}, {by_order}), e -> e.x)"
    text = f"{name}({inside})"
    if call.ignore_nulls and name == call.name:
        text += " ignore nulls"
    if call.within_group is not None:
        text += f" within group ({call.within_group})"
    return text + (f" filter (where {where})" if where else "")


def _places(edge: Edge, aggregate: Aggregate) -> tuple[str, ...]:
    return tuple(f"__ps_result_{edge.calls.index(call)}" for call in aggregate.calls)


def _keys(names: tuple[str, ...]) -> list[Column]:
    return [F.col(quoted(n)) for n in names]
