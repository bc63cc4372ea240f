"""Running the stateful steps of a batch: in this process when rows are few, else on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from penstock.compile.edge import CompiledStep, Way, packed_frame
from penstock.compile.failures import SPARK_ERRORS, root_cause
from penstock.compile.steps import compile_step
from penstock.compile.types import frame_of, spark_schema
from penstock.plan.errors import PlanChangedError, RunError
from penstock.plan.step import LateRows, Step
from penstock.run.partitions import landing
from penstock.run.reading import Reading
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import LATE
from penstock.state.manifest import Manifest
from penstock.state.pack import Facts, concat
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
    from_bytes,
    pack_task,
    run_here,
    run_rest,
    unpack_task,
)

ROWS_A_TABLE = 250_000


@dataclass(frozen=True)
class Done:
    """A stateful step that has run in this batch."""

    step: str
    facts: Facts
    reports: tuple[Report, ...]
    late: pa.Table | None
    late_count: int
    bad: pa.ChunkedArray | None


class Steps:
    """The stateful steps of a job; what does not change from batch to batch is compiled once."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, buckets: int, keep_late: bool) -> None:
        self._spark = spark
        self._files = checkpoint.files
        self._buckets = buckets
        self._keep_late = keep_late
        self._compiled: dict[Step, CompiledStep] = {}
        self._nothing: dict[Step, pa.Table] = {}
        self._held: list[DataFrame] = []

    def run(
        self,
        node: Step,
        reading: Reading,
        moment: Moment,
        manifest: Manifest | None,
        way: Way,
    ) -> Done:
        """Run a step and put its results with the batch's rows; ``way`` is how they come to it."""
        frame = None
        if node not in self._compiled or not reading.is_empty(node.inputs[0]):
            frame = reading.edge(node.inputs[0])
            if node not in self._compiled:
                self._compiled[node] = compile_step(node, frame, self._buckets)
                _same_layout(self._compiled[node], manifest)
        step = self._compiled[node]
        stage = self._stage(step, moment, manifest, way)
        keep_late = self._keep_late or node.late != "drop"
        if frame is None or reading.is_empty(node.inputs[0]):
            ran = run_here(stage, [])
        else:
            packed = packed_frame(step, frame, moment.batch, stage.previous_us, way, keep_late)
            if reading.is_here(node.inputs[0]):
                ran = run_here(stage, [packed.toArrow()])
            else:
                return self._on_cluster(step, stage, packed, reading)
        self._put(step, reading, ran.main)
        if node.late == "capture":
            none = self._late_schema(step, frame, reading)
            reading.put(LateRows(node), none.empty_table() if ran.late is None else ran.late)
        return Done(node.name, ran.facts, ran.reports, ran.late, ran.late_count, ran.bad)

    def layouts(self) -> dict[str, dict[str, str]]:
        """The columns that each step keeps, for the manifest."""
        return {node.name: dict(step.kept) for node, step in self._compiled.items()}

    def close(self) -> None:
        """Let go of what the batch held in Spark."""
        for frame in self._held:
            frame.unpersist()
        self._held.clear()

    def _stage(self, step: CompiledStep, moment: Moment, manifest: Manifest | None, way: Way) -> Stage:
        name = step.node.name
        sets = manifest.steps.get(name, {}) if manifest else {}
        wakes = manifest.body["wakes"].get(name, {}) if manifest else {}
        told = {int(bucket): wake for bucket, wake in wakes.items()}
        return Stage(name, step.kernel, self._buckets, self._files, sets, told, moment, way.only_input)

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

    def _late_schema(self, step: CompiledStep, frame: DataFrame | None, reading: Reading) -> pa.Schema:
        shown = reading.edge(step.node.inputs[0]) if frame is None else frame
        return pa.schema([(c, to_arrow_type(shown.schema[c].dataType)) for c in step.reads])

    def _on_cluster(self, step: CompiledStep, stage: Stage, packed: DataFrame, reading: Reading) -> Done:
        """Pack, shuffle by bucket, run the kernels; the packed results stay where they are."""
        wire = spark_schema(WIRE)
        partitions = min(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1), self._buckets)
        lands = F.array(*(F.lit(n) for n in landing(partitions)))
        placed = packed.mapInArrow(pack_task(stage), wire).repartition(
            partitions, F.get(lands, F.col("bucket") % F.lit(partitions))
        )
        results = placed.mapInArrow(bucket_task(stage), wire).persist()
        self._held.append(results)
        late = [LATE_ROWS] if step.node.late == "dead_letter" or self._keep_late else []
        told = results.where(F.col("kind").isin(REPORT, BAD_ROWS, *late)).select("kind", "data").collect()
        ran = run_rest(stage, collected((r.kind, r.data) for r in told if r.kind != LATE_ROWS))
        self._put_frame(step, reading, results, ran)
        if step.node.late == "capture":
            schema = pa.schema(list(to_arrow_type(packed.schema[LATE].dataType)))
            reading.put(LateRows(step.node), _unpacked(results, LATE_ROWS, schema))
        rows = concat([ran.late, *(from_bytes(r.data) for r in told if r.kind == LATE_ROWS)])
        return Done(step.node.name, ran.facts, ran.reports, rows, ran.late_count, ran.bad)

    def _put_frame(self, step: CompiledStep, reading: Reading, results: DataFrame, ran: Ran) -> None:
        main = _unpacked(results, MAIN, step.results)
        if ran.main is not None:
            main = main.unionByName(frame_of(self._spark, ran.main))
        reading.put(step.node, step.finished(main))


def _same_layout(step: CompiledStep, manifest: Manifest | None) -> None:
    """Refuse state whose columns are of other types than the step now keeps: another schema, or row steps."""
    name, now = step.node.name, step.kept
    before = (manifest.body["layouts"] if manifest else {}).get(name, now)
    changed = [c for c in {**before, **now} if before.get(c) != now.get(c)]
    if changed:
        found = "; ".join(f"{c} was {before.get(c)} and is {now.get(c)}" for c in changed)
        raise PlanChangedError(
            f"step {name!r} ({step.node.written_at}) no longer fits its state: {found}. "
            "Go back to the types as they were, or start with a new checkpoint and new outputs."
        )


def _unpacked(results: DataFrame, kind: int, schema: pa.Schema) -> DataFrame:
    return results.where(F.col("kind") == kind).mapInArrow(unpack_task(schema), spark_schema(schema))
