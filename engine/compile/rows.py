"""One rule a node: row steps become Spark expressions.

On the way to a stateful step a row that a filter drops must still be seen, because it moves time. There
the frame is *flagged*: filters clear ``KEEP`` instead of dropping, and expressions look only at kept rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.compile.failures import root_cause
from penstock.compile.types import spark_schema
from penstock.operators.rows import Drop, Explode, Filter, MapPandas, Rename, Select, Union, WithColumns
from penstock.plan.errors import PlanError, UnsupportedPlanError
from penstock.plan.expressions import column_of, quoted
from penstock.plan.node import Node
from penstock.plan.text import where_written
from penstock.state.edge import BUCKET, INPUT, KEEP, POSITION, TIME

HIDDEN = "__ps_"


@dataclass(frozen=True)
class Frames:
    """The frames that are there already, and how the way to this one is compiled."""

    at: Mapping[Node, DataFrame]
    flagged: bool = False


def compile_node(node: Node, frames: Frames) -> DataFrame:
    """The frame of a node: one that is there already, or what its rule makes of its inputs."""
    there = frames.at.get(node)
    if there is not None:
        return there
    try:
        return compile_rule(node, frames)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


@singledispatch
def compile_rule(node: Node, frames: Frames) -> DataFrame:
    """The rule of a node's class."""
    raise UnsupportedPlanError(f"no compile rule for {type(node).__name__}")


@compile_rule.register
def compile_filter(node: Filter, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    if not frames.flagged:
        return frame.where(F.expr(node.predicate))
    return frame.withColumn(KEEP, F.coalesce(_guarded(node.predicate, frames), F.lit(False)))


@compile_rule.register
def compile_select(node: Select, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    chosen = [_guarded(e.text, frames).alias(e.name) for e in node.expressions]
    return frame.select(*chosen, *hidden(frame))


@compile_rule.register
def compile_with_columns(node: WithColumns, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    return frame.withColumns({e.name: _guarded(e.text, frames) for e in node.expressions})


@compile_rule.register
def compile_drop(node: Drop, frames: Frames) -> DataFrame:
    return compile_node(node.upstream, frames).drop(*node.dropped)


@compile_rule.register
def compile_rename(node: Rename, frames: Frames) -> DataFrame:
    return compile_node(node.upstream, frames).withColumnsRenamed(dict(node.renames))


@compile_rule.register
def compile_explode(node: Explode, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    name, every = node.expression.name, [F.col(quoted(c)) for c in frame.columns]
    if not frames.flagged:
        return frame.select(*every, F.explode(F.expr(node.expression.text)).alias(name)).select(
            *_visible_first([*frame.columns, name])
        )
    # an empty array keeps its row, flagged as dropped: explode alone would lose its time
    position = f"{HIDDEN}at"
    opened = frame.select(*every, F.posexplode_outer(_guarded(node.expression.text, frames)).alias(position, name))
    kept = opened.withColumn(KEEP, F.col(KEEP) & F.col(position).isNotNull()).drop(position)
    return kept.select(*_visible_first(kept.columns))


@compile_rule.register
def compile_union(node: Union, frames: Frames) -> DataFrame:
    left, right = compile_node(node.left, frames), compile_node(node.right, frames)
    return left.unionByName(right, allowMissingColumns=True)


@compile_rule.register
def compile_map_pandas(node: MapPandas, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    shown = [c for c in frame.columns if not c.startswith(HIDDEN)]
    carried = [StructField(c, frame.schema[c].dataType) for c in frame.columns if c.startswith(HIDDEN)]
    struct = StructType([*spark_schema(node.schema).fields, *carried])
    work = _pandas_task(node.function, shown, node.time, node.schema, to_arrow_schema(struct))
    return frame.mapInArrow(work, struct)


def _pandas_task(
    function: Callable[[pd.DataFrame], pd.DataFrame],
    shown: list[str],
    time: str | None,
    schema: pa.Schema,
    result: pa.Schema,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The user's function over kept rows.

    What it makes of rows cannot be traced back to them. So in a flagged frame the rows as they came go on
    as dropped ones, which are counted and move time, and what the function makes belongs to no input.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if KEEP in result.names:
                seen = _padded(rows.select([c for c in rows.column_names if c.startswith(HIDDEN)]), result)
                at = result.get_field_index(KEEP)
                yield from seen.set_column(at, KEEP, pa.array([False] * seen.num_rows)).to_batches()
                rows = rows.filter(rows[KEEP])
            if not rows.num_rows:
                continue
            made = pa.Table.from_pandas(function(rows.select(shown).to_pandas()), schema=schema, preserve_index=False)
            count = made.num_rows
            first = {c: rows[c][0] for c in rows.column_names if c.startswith(HIDDEN)}
            fixed: dict[str, Any] = {
                TIME: made[time].cast(pa.int64()) if time is not None else None,
                INPUT: pa.array([-1] * count, pa.int32()),
            }
            if POSITION in first:
                fixed[POSITION] = pa.array(range(first[POSITION].as_py(), first[POSITION].as_py() + count), pa.int64())
            for name, value in first.items():
                column = fixed.get(name)
                made = made.append_column(name, pa.repeat(value, count) if column is None else column)
            yield from made.select(result.names).cast(result).to_batches()

    return work


def _padded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [rows[f.name] if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _guarded(text: str, frames: Frames) -> Column:
    """The expression, over kept rows only: a dropped row must not divide by its zero."""
    if not frames.flagged or column_of(text) is not None:
        return F.expr(text)
    return F.expr(f"CASE WHEN {KEEP} THEN {text} END")


def hidden(frame: DataFrame) -> list[Column]:
    """The hidden columns that a frame carries."""
    return [F.col(c) for c in frame.columns if c.startswith(HIDDEN) and c != BUCKET]


def _visible_first(names: list[str]) -> list[Column]:
    return [F.col(quoted(c)) for c in sorted(names, key=lambda c: c.startswith(HIDDEN))]


def visible(frame: DataFrame) -> list[str]:
    """The columns that users see."""
    return [c for c in frame.columns if not c.startswith(HIDDEN)]
