"""The same job over bounded frames: one batch, with the clock at the end of time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.compile.failures import SPARK_ERRORS, explained
from penstock.compile.ingest import ingest
from penstock.compile.layout import Layout
from penstock.compile.types import spark_schema
from penstock.job import Job
from penstock.plan.durations import END_US
from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.input import Input
from penstock.plan.node import Node
from penstock.run.batch import Engine
from penstock.run.outlets import Outlets, targets_of
from penstock.run.query import SMALL_BYTES, SMALL_ROWS, UNKNOWN_BYTES, size_of
from penstock.run.session import session
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer
from penstock.state.checkpoint import Checkpoint


@dataclass(frozen=True)
class Kept(Sink):
    """Holds the results of a bounded run as frames."""

    upserts: ClassVar[bool] = True
    frames: dict[str, DataFrame] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return "kept"

    @property
    def place(self) -> str:
        return "kept"

    def describe(self) -> str:
        return "this process"

    def writer(self, targets: Sequence[Target], owner: Owner) -> Writer:
        return KeptWriter(self.frames)


class KeptWriter(Writer):
    """Puts each output's frame aside, cut off from the state that made it."""

    def __init__(self, frames: dict[str, DataFrame]) -> None:
        self._frames = frames

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        for output, change in changes.items():
            frame = change.rows.to_spark()
            # the state is a temporary folder: what is still in Spark must be computed while it stands
            self._frames[output] = frame if change.rows.in_process else frame.localCheckpoint()
        return True


def run_batch(job: Job, inputs: Mapping[str, DataFrame], spark: SparkSession | None) -> dict[str, DataFrame]:
    """Run the job over whole inputs; each output's result by name."""
    wanted, given = {i.name for i in job.inputs}, set(inputs)
    if wanted != given:
        missing = ", ".join(sorted(wanted - given)) or "none"
        foreign = ", ".join(sorted(given - wanted)) or "none"
        raise PlanError(f"run_batch: one frame for each input; missing: {missing}; not inputs of the job: {foreign}.")
    own = session(spark if spark is not None else next(iter(inputs.values())).sparkSession)
    layout = Layout(job)
    with tempfile.TemporaryDirectory(prefix="penstock-batch-") as folder:
        checkpoint = Checkpoint.open(folder)
        kept = Kept()
        targets = [Target(t.output, kept, t.key) for t in targets_of(job)]
        epoch = checkpoint.take_epoch()
        outlets = Outlets(targets, Owner(job.name, checkpoint.id, epoch, -1))
        engine = Engine(layout, own, checkpoint, epoch, outlets, own.sparkContext.defaultParallelism * 4)
        try:
            now = time.time_ns() // 1000
            frames = {node: declared(node, inputs[node.name]) for node in layout.inputs}
            taken: dict[Node, DataFrame] = {}
            for node, frame in frames.items():
                wall = now if node.processing else END_US  # no event is too far ahead of the end of time
                taken[node] = ingest(layout, node, frame, f"{wall}L")
            small = all(map(_is_small, frames.values()))
            # beyond the end of time less any lateness: every window closes
            end = {node.name: 2 * END_US - 1 for node in layout.inputs}
            engine.process(0, taken, now, small=small, whole=True, punctuation=end)
        except SPARK_ERRORS as error:
            raise explained(error, layout.roots) from None
    return {t.output: kept.frames[t.output] for t in targets}


def _is_small(frame: DataFrame) -> bool:
    """True when the rows fit in this process; Spark knows nothing of rows that came from Python, and counts them."""
    size = size_of(frame)
    return size <= SMALL_BYTES or (size >= UNKNOWN_BYTES and frame.limit(SMALL_ROWS + 1).count() <= SMALL_ROWS)


def declared(node: Input, frame: DataFrame) -> DataFrame:
    """A frame as the input's schema has it."""
    schema = node.source.schema
    if schema is None:
        return frame
    if node.source.changelog is not None:
        return messages(node, frame)
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise PlanError(
            f"input {node.name!r}: the frame has no column {', '.join(missing)}; it has {', '.join(frame.columns)}."
        )
    struct = spark_schema(schema)
    return frame.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in struct.fields))


def messages(node: Input, frame: DataFrame) -> DataFrame:
    """A frame of a changelog's messages: their text in ``value``, and in ``key`` where they come in two parts."""
    if "value" not in frame.columns:
        raise PlanError(
            f"input {node.name!r}: a changelog's frame has its messages as text in a column value; it has "
            f"{', '.join(frame.columns)}."
        )
    return frame.select(*(F.col(c).cast("string").alias(c) for c in ("key", "value") if c in frame.columns))
