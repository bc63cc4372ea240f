"""One rule a node: row steps become Spark expressions.

On the way to a stateful step a row that a filter drops must still be seen, because it moves time. There
the frame is *flagged*: filters clear ``KEEP`` instead of dropping, and expressions look only at kept rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.compile.failures import root_cause
from penstock.compile.types import arrow_schema, spark_schema
from penstock.joins.versions import Gap, Versions
from penstock.operators.clock import CorrectClock
from penstock.operators.rows import Drop, Explode, Filter, MapPandas, Rename, Select, Union, WithColumns
from penstock.plan.errors import PlanError, RunError, UnsupportedPlanError
from penstock.plan.expressions import column_of, literal, quoted
from penstock.plan.node import Node, step_name, walk
from penstock.plan.text import where_written
from penstock.state.edge import BAD, BUCKET, DELETED, INPUT, KEEP, POSITION, SEQUENCE, TIME

HIDDEN = "__ps_"


@dataclass(frozen=True)
class Frames:
    """The frames that are there already, and how the way to this one is compiled."""

    at: Mapping[Node, DataFrame]
    flagged: bool = False
    numbers: Mapping[Node, int] = field(default_factory=dict)  # of the inputs, as rows name them


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
    return frame.withColumn(KEEP, F.col(KEEP) & F.coalesce(_guarded(node.predicate, frames), F.lit(False)))


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
    frame, new = compile_node(node.upstream, frames), dict(node.renames)
    # all at once: one after the other, two names could not change places
    return frame.select(*(F.col(quoted(c)).alias(new.get(c, c)) for c in frame.columns))


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
    array = F.expr(f"CASE WHEN {KEEP} THEN {node.expression.text}\n END")
    opened = frame.select(*every, F.posexplode_outer(array).alias(position, name))
    kept = opened.withColumn(KEEP, F.col(KEEP) & F.col(position).isNotNull())
    if INPUT in frame.columns:
        # a row of the input is counted once, however many elements it has
        kept = kept.withColumn(INPUT, F.expr(f"CASE WHEN coalesce({position}, 0) = 0 THEN {INPUT} ELSE -1 END"))
    return kept.select(*_visible_first([c for c in kept.columns if c != position]))


@compile_rule.register
def compile_union(node: Union, frames: Frames) -> DataFrame:
    left, right = compile_node(node.left, frames), compile_node(node.right, frames)
    twice = sorted(frames.numbers[n] for n in {*walk(node.left)} & {*walk(node.right)} if n in frames.numbers)
    if twice and frames.flagged:
        # rows of an input that stands on both sides are counted and judged on the left
        again = f"{INPUT} IN ({', '.join(map(str, twice))})"
        changed = {INPUT: f"CASE WHEN {again} THEN -1 ELSE {INPUT} END", BAD: f"CASE WHEN NOT {again} THEN {BAD} END"}
        right = right.selectExpr(*(f"{changed.get(c, quoted(c))} AS {quoted(c)}" for c in right.columns))
    return left.unionByName(right, allowMissingColumns=True)


@compile_rule.register
def compile_versions(node: Versions, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    if node.format is None:
        sequence = node.sequence or ((TIME,) if node.upstream.timed else ())
        made = {f"{SEQUENCE}{i}": quoted(name) for i, name in enumerate(sequence)}
        made[DELETED] = "false" if node.delete_when is None else f"coalesce({node.delete_when}\n, false)"
        if frames.flagged:
            made[DELETED] = f"CASE WHEN {KEEP} THEN {made[DELETED]} ELSE false END"
        frame = frame.withColumns({name: F.expr(text) for name, text in made.items()})
    null = " OR ".join(f"{quoted(k)} IS NULL" for k in node.of)
    told = literal(f"{where_written(node)}: a row without its key")
    # an input's own rows were judged where they came in; what steps made of them cannot be a dead letter
    stop = f"cast(raise_error({told}) AS boolean)"
    kept = f"{KEEP} AND CASE WHEN {KEEP} AND ({null}) THEN {stop} ELSE true END"
    if frames.flagged:
        return frame.withColumn(KEEP, F.expr(kept))
    return frame.where(f"CASE WHEN {null} THEN {stop} ELSE true END")


@compile_rule.register
def compile_gap(node: Gap, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    return frame.withColumn(DELETED, F.col(DELETED) | ~F.coalesce(_guarded(node.predicate, frames), F.lit(False)))


@compile_rule.register
def compile_correct_clock(node: CorrectClock, frames: Frames) -> DataFrame:
    return compile_node(node.upstream, frames)  # rows are corrected where they come in


@compile_rule.register
def compile_map_pandas(node: MapPandas, frames: Frames) -> DataFrame:
    frame = compile_node(node.upstream, frames)
    shown = [c for c in frame.columns if not c.startswith(HIDDEN)]
    carried = [StructField(c, frame.schema[c].dataType) for c in frame.columns if c.startswith(HIDDEN)]
    struct = StructType([*spark_schema(node.schema).fields, *carried])
    step = f"{step_name(node) or node.describe()} ({node.written_at})"
    work = _pandas_task(node.function, shown, node.time, node.schema, arrow_schema(struct), step)
    return frame.mapInArrow(work, struct)


def _pandas_task(
    function: Callable[[pd.DataFrame], pd.DataFrame],
    shown: list[str],
    time: str | None,
    schema: pa.Schema,
    result: pa.Schema,
    step: str,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The user's function over kept rows.

    What it makes of rows cannot be traced back to them. So in a flagged frame the rows as they came go on
    as dropped ones, which are counted and move time, and what the function makes belongs to no input. Where
    the rows do not show their time, it gets the rows of one time after the other: its results have that time.
    """

    def made(rows: pa.Table) -> pa.Table:
        try:
            frame = function(rows.select(shown).to_pandas())
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        except Exception as error:  # a user's function may raise anything
            raise RunError(f"{step}: {type(error).__name__}: {error}") from error
        if time is not None and table[time].null_count:
            raise RunError(f"{step}: the function gave a row without its time; it must return {time!r} as it came")
        count = table.num_rows
        for name in (c for c in rows.column_names if c.startswith(HIDDEN)):
            first = rows[name][0]
            if name == TIME and time is not None:
                column: Any = table[time].cast(pa.int64())
            elif name == INPUT:
                column = pa.array([-1] * count, pa.int32())
            elif name == POSITION:
                column = pa.array(range(first.as_py(), first.as_py() + count), pa.int64())
            else:
                column = pa.repeat(first, count)
            table = table.append_column(name, column)
        return table.select(result.names).cast(result)

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
            parts = [rows]
            if time is None and TIME in rows.column_names:
                parts = [rows.filter(pc.equal(rows[TIME], t)) for t in rows[TIME].unique()]
            for part in parts:
                yield from made(part).to_batches()

    return work


def _padded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [rows[f.name] if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _guarded(text: str, frames: Frames) -> Column:
    """The expression, over kept rows only: a dropped row must not divide by its zero."""
    if not frames.flagged or column_of(text) is not None:
        return F.expr(text)
    return F.expr(f"CASE WHEN {KEEP} THEN {text}\n END")  # a new line: the text may end in a comment


def hidden(frame: DataFrame) -> list[Column]:
    """The hidden columns that a frame carries."""
    return [F.col(c) for c in frame.columns if c.startswith(HIDDEN) and c != BUCKET]


def _visible_first(names: list[str]) -> list[Column]:
    return [F.col(quoted(c)) for c in sorted(names, key=lambda c: c.startswith(HIDDEN))]


def visible(frame: DataFrame) -> list[str]:
    """The columns that users see."""
    return [c for c in frame.columns if not c.startswith(HIDDEN)]
