"""A table's changes as a sink takes them: the rows that are there now, and those that are gone."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.plan.expressions import quoted
from penstock.sinks.base import Changes, Rows
from penstock.state.changelog import net, settled
from penstock.state.edge import WEIGHT


def table_changes(rows: Rows, key: tuple[str, ...], is_net: bool) -> Changes:
    """Rows of weight 1 are upserted; a row of weight -1 is deleted, unless one of its key is there now.

    What a step tells ``is_net``. After row steps a row may be told that was there before, as it was: it is left out.
    """
    if rows.frame is None:
        now, gone = settled(rows.to_arrow() if is_net else net(rows.to_arrow()), key)
        return Changes(Rows(rows.spark, table=now), Rows(rows.spark, table=gone) if gone.num_rows else None)
    came, went = (rows.frame.where(F.col(WEIGHT) * sign > 0).drop(WEIGHT) for sign in (1, -1))
    deletes = _without(went, came, key)
    # a map cannot be compared in Spark: a row that has one is told once more
    compared = [] if is_net or "map<" in came.schema.simpleString() else came.columns
    return Changes(Rows(rows.spark, frame=_without(came, went, compared)), Rows(rows.spark, frame=deletes))


def _without(frame: DataFrame, others: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows that have no equal in some columns among the others."""
    if not columns:
        return frame
    there = others.select(*(F.col(quoted(c)).alias(f"__ps_there_{i}") for i, c in enumerate(columns)))
    same = [F.col(quoted(c)).eqNullSafe(F.col(f"__ps_there_{i}")) for i, c in enumerate(columns)]
    return frame.join(there, same, "left_anti")
