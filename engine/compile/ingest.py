"""The first step of every input: its time, its order of arrival, and whether the row can be used at all."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.compile.failures import BAD_ROW, root_cause
from penstock.compile.rows import HIDDEN
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.input import Input
from penstock.plan.text import where_written
from penstock.sources.base import CLOCK, MALFORMED, PLACE
from penstock.state.edge import BAD, INPUT, KEEP, TIME


def ingest(node: Input, number: int, frame: DataFrame, wall: Column) -> DataFrame:
    """The source's rows with their hidden columns; a bad row says why, where it came from and what it held."""
    shown = [c for c in frame.columns if not c.startswith(HIDDEN)]
    if node.time_column is None:
        time = wall
    else:
        time = F.unix_micros(F.col(quoted(node.time_column)).cast("timestamp"))
    reason = F.when(F.lit(False), F.lit(""))
    if MALFORMED in frame.columns:
        reason = reason.when(F.col(MALFORMED).isNotNull(), F.lit("malformed"))
    for column in _required(node):
        reason = reason.when(F.col(quoted(column)).isNull(), F.lit("malformed"))
    if node.time_column is not None:
        reason = reason.when(time.isNull() | (time > wall + micros(node.max_ahead)), F.lit("bad_time"))
    row = F.to_json(F.struct(*(F.col(quoted(c)) for c in shown)), {"ignoreNullFields": "false"})
    if MALFORMED in frame.columns:
        row = F.coalesce(F.col(MALFORMED), row)
    place = F.col(PLACE) if PLACE in frame.columns else F.lit(None).cast("string")
    # the fields are null where the struct is: Arrow cannot view a null struct whose fields may not be
    told = {"reason": reason, "place": place, "row": row}
    bad = F.struct(*(F.when(reason.isNotNull(), value).alias(name) for name, value in told.items()))
    try:
        return frame.withColumns(
            {
                TIME: time,
                INPUT: F.lit(number),
                CLOCK: F.col(CLOCK) if CLOCK in frame.columns else F.lit(0),
                PLACE: place,
                BAD: F.when(reason.isNotNull(), bad),
            }
        ).drop(MALFORMED)
    except AnalysisException as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


def _required(node: Input) -> list[str]:
    schema = node.source.schema
    return [] if schema is None else [f.name for f in schema if not f.nullable]


def flagged(frame: DataFrame) -> DataFrame:
    """All rows, the bad ones flagged as dropped: on the way to a stateful step."""
    return frame.withColumn(KEEP, F.col(BAD).isNull())


def usable(frame: DataFrame) -> DataFrame:
    """The rows that can be used."""
    return frame.where(F.col(BAD).isNull()).drop(BAD)


def usable_or_stop(frame: DataFrame, node: Input) -> DataFrame:
    """The rows; a bad one stops the job and is named, because nobody takes its dead letters."""
    told = refusal(node.name, F.col(f"{BAD}.reason"), F.col(f"{BAD}.place"), F.col(f"{BAD}.row"))
    stop = F.raise_error(F.concat(F.lit(BAD_ROW), told)).cast("boolean")
    return frame.where(F.when(F.col(BAD).isNotNull(), stop).otherwise(F.lit(True))).drop(BAD)


def refusal(name: str, reason: Column, place: Column, row: Column) -> Column:
    """The text of a bad row, made in Spark."""
    unknown = F.lit("an unknown place")
    return F.concat(
        F.lit(f"the input '{name}' has a row that cannot be used ("), reason, F.lit("), from "),
        F.coalesce(place, unknown), F.lit(": "), F.coalesce(row, F.lit("null")),
        F.lit(". Correct it, or send such rows somewhere with job.dead_letters(...)."),
    )  # fmt: skip
