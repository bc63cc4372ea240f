"""The way out of a window: the expressions around its aggregates, and the aggregates that are Spark's to do."""

from __future__ import annotations

from functools import singledispatch

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.compile.failures import root_cause
from penstock.operators.changes import Changes
from penstock.plan.columns import WINDOW_COLUMNS
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.node import Node
from penstock.plan.text import where_written
from penstock.sources.base import PARTITION, POSITION
from penstock.state.edge import INPUT, TIME, WEIGHT
from penstock.windows.calls import Aggregate, Call
from penstock.windows.kernel import WINDOW_END, WINDOW_START
from penstock.windows.node import Window, WindowAggregate, WindowTop
from penstock.windows.partials import RESULT
from penstock.windows.same import Same
from penstock.windows.shown import PANE

_ORDER = f"struct({TIME}, {PARTITION}, {POSITION})"
_REVERSED = f"struct(-{TIME}, -{PARTITION}, -{POSITION})"


def aggregates(node: WindowAggregate, keys: tuple[str, ...], calls: tuple[Call, ...], results: DataFrame) -> DataFrame:
    """The rows of a window whose aggregates the kernel has finished."""
    shown = _shown(node, keys)
    frame = results.select(*(F.col(c).alias(shown.get(c, c)) for c in results.columns))
    made = {a.name: a.rebuilt(_places(a, calls)) for a in node.aggregates}
    return _selected(node, frame, made)


def renamed_aggregates(
    node: WindowAggregate, keys: tuple[str, ...], calls: tuple[Call, ...], results: pa.Table
) -> pa.Table | None:
    """The results under the users' names, when there is nothing left to compute; else None."""
    if any(set(a.around) != {""} for a in node.aggregates):
        return None
    return _renamed(node, keys, {a.name: _places(a, calls)[0] for a in node.aggregates}, results)


def top(node: WindowTop, keys: tuple[str, ...], results: DataFrame) -> DataFrame:
    """The first rows of a window, as the rows were."""
    shown = _shown(node, keys) | {c: name for name, c in _carried(node).items()}
    return _selected(node, results.select(*(F.col(c).alias(shown.get(c, c)) for c in results.columns)), {})


def renamed_top(node: WindowTop, keys: tuple[str, ...], results: pa.Table) -> pa.Table:
    """The same, in this process."""
    return _renamed(node, keys, _carried(node), results)


def aggregated_by_spark(
    node: WindowAggregate, keys: tuple[str, ...], carried: tuple[str, ...], results: DataFrame
) -> DataFrame:
    """The rows of a window whose aggregates are Spark's to do, over the rows that the kernel kept."""
    # a column of the rows themselves goes before the window's own
    own = {c: name for c, name in _shown(node, keys).items() if name not in carried}
    shown = own | {f"__ps_carried_{i}": c for i, c in enumerate(carried)}
    frame = results.select(*(F.col(c).alias(shown.get(c, c)) for c in results.columns))
    window = [F.col(c if name in carried else name) for c, name in _WINDOW.items()]
    try:
        texts = [F.expr(a.rebuilt(tuple(map(spark_text, a.calls)))).alias(a.name) for a in node.aggregates]
        rows = frame.groupBy(*window, *_columns(node.keys)).agg(*texts)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None
    return rows.toDF(*node.columns.names)


@singledispatch
def timed(node: Node, rows: DataFrame) -> DataFrame:
    """A step's rows with their time; what was late, and what was kept whole, has its own."""
    return rows.drop(INPUT)


@timed.register
def timed_window(node: Window, rows: DataFrame) -> DataFrame:
    if node.mode == "upsert":
        return rows  # a table's rows have no time: they are there until others come
    # equal times are ordered by the key, whatever the buckets
    ranks = ("rank",) if isinstance(node, WindowTop) else ()
    identity = F.xxhash64(F.col("window_start"), *_columns((*node.keys, *ranks)))
    time = F.unix_micros("window_end") - 1 + (node.window_closes_us or 0)
    return rows.withColumns({TIME: time, PARTITION: F.lit(0), POSITION: identity})


@timed.register
def timed_changes(node: Changes, rows: DataFrame) -> DataFrame:
    return rows.withColumn(TIME, F.lit(0).cast("long"))  # they have none: what comes after goes by arrival


_WINDOW = {WINDOW_START: "window_start", WINDOW_END: "window_end"}


def _shown(node: Window, keys: tuple[str, ...]) -> dict[str, str]:
    """The kernel's own columns by the names that readers see."""
    if isinstance(node.shape, Same):
        names = dict(zip(keys, (*WINDOW_COLUMNS, *node.keys), strict=True))
    else:
        names = dict(zip(keys, node.keys, strict=True)) | ({} if node.shape is None else _WINDOW)
    return names | {PANE: "pane"}


def _carried(node: WindowTop) -> dict[str, str]:
    return {c: f"__ps_carried_{i}" for i, c in enumerate(node.carried)}


def _selected(node: Window, frame: DataFrame, made: dict[str, str]) -> DataFrame:
    weight = [F.col(WEIGHT)] if node.mode == "upsert" else []
    try:
        columns = [F.expr(made[c]).alias(c) if c in made else F.col(quoted(c)) for c in node.columns.names]
        return frame.select(*columns, *weight)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


def _renamed(node: Window, keys: tuple[str, ...], own: dict[str, str], results: pa.Table) -> pa.Table:
    named = {name: c for c, name in _shown(node, keys).items()} | own
    columns = {name: results[named.get(name, name)] for name in node.columns.names}
    if node.mode == "upsert":
        columns[WEIGHT] = results[WEIGHT]
    return pa.table(list(columns.values()), names=list(columns))


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


def _places(aggregate: Aggregate, calls: tuple[Call, ...]) -> tuple[str, ...]:
    return tuple(f"{RESULT}{calls.index(call)}" for call in aggregate.calls)


def _columns(names: tuple[str, ...]) -> list[Column]:
    return [F.col(quoted(n)) for n in names]
