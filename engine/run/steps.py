"""Running the stateful steps of a batch: in this process when rows are few, else on the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.compile.edge import CompiledStep, Way, packed_frame
from penstock.compile.failures import SPARK_ERRORS, root_cause, worker_died
from penstock.compile.steps import compile_step
from penstock.compile.types import arrow_type, frame_of, spark_schema
from penstock.plan.errors import RunError
from penstock.plan.step import LateRows, Step
from penstock.run import carry
from penstock.run.partitions import landing
from penstock.run.reading import Reading
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import LATE
from penstock.state.manifest import Manifest
from penstock.state.pack import Facts
from penstock.state.rewrite import Held
from penstock.state.stage import (
    BAD_ROWS,
    LATE_ROWS,
    MAIN,
    REPORT,
    WIRE,
    Moment,
    Ran,
    Report,
    Stage,
    bucket_task,
    collected,
    pack_task,
    run_here,
    run_rest,
    unpack_task,
)


@dataclass(frozen=True)
class Done:
    """A stateful step that has run in this batch."""

    step: str
    facts: Facts
    reports: tuple[Report, ...]
    late: tuple[pa.Table | None, ...]  # by edge, where somebody wants them
    late_count: int
    bad: pa.ChunkedArray | None


class Steps:
    """The stateful steps of a job; what does not change from batch to batch is compiled once."""

    def __init__(
        self, spark: SparkSession, checkpoint: Checkpoint, before: int | None, buckets: int, keep_late: bool
    ) -> None:
        """``before`` is how many buckets there were when the last run ended, None when there was none."""
        self._spark = spark
        self._files = checkpoint.files
        self._before = before
        self._buckets = buckets
        self._carried: set[Step] = set()
        self._keep_late = keep_late
        self._compiled: dict[Step, CompiledStep] = {}
        self._nothing: dict[Step, pa.Table] = {}
        self._held: list[DataFrame] = []

    def run(
        self, node: Step, reading: Reading, moment: Moment, manifest: Manifest | None, ways: tuple[Way, ...]
    ) -> Done:
        """Run a step and put its results with the batch's rows; ``ways`` is how they come to it."""
        frames: list[DataFrame | None] = [None if reading.is_empty(u) else reading.edge(u) for u in node.inputs]
        if node not in self._compiled:
            shown = [reading.edge(u) if f is None else f for u, f in zip(node.inputs, frames, strict=True)]
            self._compiled[node] = compile_step(node, shown, self._buckets)
        step = self._compiled[node]
        stage = self._stage(step, moment, self._held_by(step, manifest, moment.batch), ways)
        keep_late = self._keep_late or node.late != "drop"
        packed = [
            None if f is None else packed_frame(step, edge, f, moment.batch, stage.previous_us, way, keep_late)
            for edge, (f, way) in enumerate(zip(frames, ways, strict=True))
        ]
        if not all(reading.is_here(u) for u, f in zip(node.inputs, frames, strict=True) if f is not None):
            return self._on_cluster(step, stage, packed, reading)
        ran = run_here(stage, [None if frame is None else frame.toArrow() for frame in packed])
        self._put(step, reading, ran.main)
        if node.late == "capture":
            none = [self._late_schema(step, reading, edge).empty_table() for edge in range(len(frames))]
            rows = [n if t is None else t for n, t in zip(none, ran.late, strict=True)]
            reading.put(
                LateRows(node), rows[0] if len(rows) == 1 else pa.concat_tables(rows, promote_options="default")
            )
        return Done(node.name, ran.facts, ran.reports, ran.late, ran.late_count, ran.bad)

    def layouts(self) -> dict[str, dict[str, str]]:
        """The columns that each step keeps, for the manifest."""
        return {node.name: dict(step.kept) for node, step in self._compiled.items()}

    def parts(self) -> dict[str, list[tuple[str, int]]]:
        """The calls of each step's aggregates in the order in which they are kept, none of rows; for the manifest."""
        return {node.name: list(step.parts) for node, step in self._compiled.items()}

    def close(self) -> None:
        """Let go of what the batch held in Spark."""
        for frame in self._held:
            frame.unpersist()
        self._held.clear()

    def _held_by(self, step: CompiledStep, manifest: Manifest | None, batch: int) -> Held:
        """The state of a step; in the first batch as it is carried over from the job that there was before."""
        if step.node in self._carried or self._before is None:
            return carry.held(manifest, step.node.name)
        self._carried.add(step.node)
        buckets = self._before, self._buckets
        return carry.carried(step, manifest, self._files, batch, buckets, self._spark)

    def _stage(self, step: CompiledStep, moment: Moment, held: Held, ways: tuple[Way, ...]) -> Stage:
        only = tuple(way.only_input for way in ways)
        name, kernel = step.node.name, step.kernel
        return Stage(name, kernel, self._buckets, self._files, held.sets, held.wakes, moment, step.results, only)

    def _put(self, step: CompiledStep, reading: Reading, main: pa.Table | None) -> None:
        """The results as tables of this process: most need nothing more than their names."""
        node = step.node
        if main is None:
            if node not in self._nothing:
                none = frame_of(self._spark, step.results.empty_table())
                self._nothing[node] = step.finished(none).toArrow()
            reading.put(node, self._nothing[node])
            return
        named = step.renamed(main)
        if named is None:
            rows = step.finished(frame_of(self._spark, main))
            try:
                named = rows.toArrow()
            except SPARK_ERRORS as error:
                where = f"{node.name} ({node.written_at})"
                raise RunError(f"{where}: {root_cause(error)}", node.name, node.written_at, str(error)) from error
        reading.put(node, named)

    def _late_schema(self, step: CompiledStep, reading: Reading, edge: int) -> pa.Schema:
        shown = reading.edge(step.node.inputs[edge]).schema
        return pa.schema([(c, arrow_type(shown[c].dataType)) for c in step.edges[edge].reads])

    def _on_cluster(self, step: CompiledStep, stage: Stage, packed: list[DataFrame | None], reading: Reading) -> Done:
        """Pack, shuffle by bucket, run the kernels; the packed results stay where they are."""
        wire = spark_schema(WIRE)
        partitions = min(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1), self._buckets)
        lands = F.array(*(F.lit(n) for n in landing(partitions)))
        sent = [
            frame.mapInArrow(pack_task(stage, edge), wire) for edge, frame in enumerate(packed) if frame is not None
        ]
        placed = reduce(DataFrame.unionAll, sent).repartition(
            partitions, F.get(lands, F.col("bucket") % F.lit(partitions))
        )
        results = placed.mapInArrow(bucket_task(stage), wire).persist()
        self._held.append(results)
        late = LATE_ROWS if step.node.late == "dead_letter" or self._keep_late else ()
        try:
            told = results.where(F.col("kind").isin(REPORT, BAD_ROWS, *late)).select("kind", "data").collect()
        except SPARK_ERRORS as error:
            if worker_died(error):
                raise _died(step.node, stage.moment.batch, error) from error
            raise
        ran = run_rest(stage, collected(stage, ((r.kind, r.data) for r in told)))
        self._put_frame(step, reading, results, ran)
        if step.node.late == "capture":
            rows = []
            for edge, kind in enumerate(LATE_ROWS[: len(step.edges)]):
                frame = packed[edge]
                if frame is not None:
                    schema = pa.schema(list(arrow_type(frame.schema[LATE].dataType)))
                else:
                    schema = self._late_schema(step, reading, edge)
                rows.append(_unpacked(results, kind, schema))
            reading.put(LateRows(step.node), reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), rows))
        return Done(step.node.name, ran.facts, ran.reports, ran.late, ran.late_count, ran.bad)

    def _put_frame(self, step: CompiledStep, reading: Reading, results: DataFrame, ran: Ran) -> None:
        main = _unpacked(results, MAIN, step.results)
        if ran.main is not None:
            main = main.unionByName(frame_of(self._spark, ran.main))
        reading.put(step.node, step.finished(main))


def _unpacked(results: DataFrame, kind: int, schema: pa.Schema) -> DataFrame:
    return results.where(F.col("kind") == kind).mapInArrow(unpack_task(schema), spark_schema(schema))


def _died(node: Step, batch: int, error: Exception) -> RunError:
    """The error for a step whose worker is gone."""
    return RunError(
        f"{node.name} ({node.written_at}): a Python worker died in this step, in batch {batch}: it was killed, "
        "or ran out of memory. Nothing of the batch is kept. Start the job again; if it dies again, give the workers "
        "more memory, or the batches fewer rows.",
        node.name,
        node.written_at,
        str(error),
    )
