"""Carrying state over to a changed job: into other buckets, and to the aggregates that there are now.

It happens in the first batch of the changed job, step by step, and is committed with it: a run that is killed
before leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.compile.edge import CompiledStep
from penstock.compile.types import frame_of
from penstock.joins.interval import IntervalJoin
from penstock.joins.renumbered import Renumbered
from penstock.joins.table_join import TableJoin
from penstock.joins.tables import Lookup, Meeting
from penstock.joins.versions import Latest
from penstock.operators.changes import Changes
from penstock.operators.deduplicate import Deduplicate
from penstock.plan.columns import WINDOW_COLUMNS
from penstock.plan.errors import PlanChangedError, UnsupportedPlanError
from penstock.plan.expressions import quoted
from penstock.plan.step import Step
from penstock.run.fit import PARTS
from penstock.state.manifest import Manifest
from penstock.state.rewrite import Held, Rewrite, Split, rewritten
from penstock.state.runs import RunFiles
from penstock.windows.node import Window
from penstock.windows.regrouped import Regrouped
from penstock.windows.same import Same


def held(manifest: Manifest | None, step: str) -> Held:
    """The state of a step as a manifest names it."""
    if manifest is None:
        return Held()
    wakes = manifest.body["wakes"].get(step, {})
    return Held(manifest.steps.get(step, {}), {int(bucket): wake for bucket, wake in wakes.items()})


def carried(
    step: CompiledStep,
    manifest: Manifest | None,
    files: RunFiles,
    batch: int,
    buckets: tuple[int, int],
    spark: SparkSession,
) -> Held:
    """The state of a step for this job; ``buckets`` is how many there were and are. Refused when it does not fit."""
    name, before = step.node.name, held(manifest, step.node.name)
    if manifest is None or name not in manifest.steps:
        return before
    known = manifest.body.get(PARTS)
    parts = [] if known is None else known.get(name, [])
    layout = manifest.body["layouts"].get(name, dict(step.kept))
    if known is None:
        # an older Penstock wrote it: the job as it was has the same calls in the same order, or was refused before
        parts, layout = step.parts, {c: kind for c, kind in layout.items() if not step.parts or c in step.kept}
        layout = {**{c: step.kept[c] for c, _ in step.parts}, **layout}
    parts = [(call, count) for call, count in parts]
    _same_columns(step, layout, parts)
    split = None
    if buckets[0] != buckets[1]:
        split = Split(stored_key(step.node), *buckets, lambda keys: spark_hashes(spark, keys))
    other_parts = parts != list(step.parts)
    if not other_parts and split is None:
        return before
    rewrite = Regrouped(parts, step.parts) if other_parts else rewrite_of(step.node)
    return rewritten(files, name, batch, before, rewrite, split)


def spark_hashes(spark: SparkSession, keys: pa.Table) -> npt.NDArray[np.int64]:
    """The hashes by which Spark chose the buckets of these keys."""
    columns = ", ".join(map(quoted, keys.column_names))
    hashes = frame_of(spark, keys).selectExpr(f"xxhash64({columns}) AS hash").toArrow()["hash"]
    return np.asarray(hashes.to_numpy(), np.int64)


def _same_columns(step: CompiledStep, before: dict[str, str], parts: Sequence[tuple[str, int]]) -> None:
    """Refuse state whose columns are of other types than the step now keeps: another schema, or row steps."""
    now = step.kept
    dropped = {call for call, _ in parts} - {call for call, _ in step.parts}
    if isinstance(step.node, Lookup):
        # older checkpoints told the columns of the events too, which are not kept
        dropped |= set(step.node.left.columns.names) - set(now)
    before = {c: kind for c, kind in before.items() if c in now or c not in dropped}
    changed = [f"{c} was {before.get(c)} and is {now.get(c)}" for c in {**before, **now} if before.get(c) != now.get(c)]
    if not changed and not step.parts and list(before) != list(now):
        changed = [f"its columns came as {', '.join(before)} and come as {', '.join(now)}"]
    if changed:
        raise PlanChangedError(
            f"step {step.node.name!r} ({step.node.written_at}) no longer fits its state: {'; '.join(changed)}. "
            "Go back to the columns and types as they were, or start with a new checkpoint and new outputs."
        )


@singledispatch
def stored_key(node: Step) -> tuple[str, ...]:
    """The columns, as a step keeps them, by which its rows were given to buckets."""
    raise UnsupportedPlanError(f"no rule for the buckets of the step {type(node).__name__}")


@stored_key.register
def stored_key_of_window(node: Window) -> tuple[str, ...]:
    own: Sequence[Any] = WINDOW_COLUMNS if isinstance(node.shape, Same) else ()
    return tuple(f"__ps_key_{i}" for i in range(len(own) + len(node.keys)))


@stored_key.register(IntervalJoin)
@stored_key.register(Meeting)
@stored_key.register(TableJoin)
def stored_key_of_join(node: IntervalJoin | Meeting | TableJoin) -> tuple[str, ...]:
    return tuple(mine for mine, _ in node.on)


@stored_key.register
def stored_key_of_deduplicate(node: Deduplicate) -> tuple[str, ...]:
    return node.keys


@stored_key.register(Latest)
@stored_key.register(Changes)
def stored_key_of_table(node: Latest | Changes) -> tuple[str, ...]:
    return node.key


@singledispatch
def rewrite_of(node: Step) -> Rewrite:
    """What else changes in the state of a step when its buckets do."""
    return Rewrite()


@rewrite_of.register
def rewrite_of_interval_join(node: IntervalJoin) -> Rewrite:
    return Renumbered(stored_key_of_join(node))
