"""A table's changes as a sink takes them: the rows that are there now, and those that are gone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock.plan.expressions import quoted
from penstock.sinks.base import Changes, Rows
from penstock.state.edge import WEIGHT
from penstock.windows.aggregates.codes import codes


def table_changes(rows: Rows, key: tuple[str, ...]) -> Changes:
    """Rows of weight 1 are upserted; a row of weight -1 is deleted, unless one of its key is there now."""
    if rows.frame is not None:
        came, gone = (rows.frame.where(F.col(WEIGHT) * sign > 0).drop(WEIGHT) for sign in (1, -1))
        there = came.select(*(F.col(quoted(k)).alias(f"__ps_there_{i}") for i, k in enumerate(key)))
        same = [F.col(quoted(k)).eqNullSafe(F.col(f"__ps_there_{i}")) for i, k in enumerate(key)]
        return Changes(Rows(rows.spark, frame=came), Rows(rows.spark, frame=gone.join(there, same, "left_anti")))
    table = rows.to_arrow()
    now = table[WEIGHT].to_numpy() > 0
    table = table.drop_columns([WEIGHT])
    kept = table.filter(pa.array(now))
    if now.all():
        return Changes(Rows(rows.spark, table=kept))
    keys = codes([table[k] for k in key])
    dropped = table.filter(pa.array(~now & ~np.isin(keys, keys[now])))
    return Changes(Rows(rows.spark, table=kept), Rows(rows.spark, table=dropped))
