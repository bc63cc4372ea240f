"""Running the stateful steps of a batch: in this process when rows are few, else on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from penstock.compile.edge import Edge, Way, compile_edge, packed_frame
from penstock.compile.failures import SPARK_ERRORS, root_cause
from penstock.compile.finish import finished, renamed
from penstock.compile.types import frame_of, spark_schema
from penstock.plan.errors import PlanChangedError, RunError
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
from penstock.windows.node import LateRows, WindowAggregate

ROWS_A_TABLE = 250_000


@dataclass(frozen=True)
class Done:
    """A stateful step that has run in this batch."""

    step: str
    facts: Facts
    reports: tuple[Report, ...]
    late: pa.Table | None
    bad: pa.ChunkedArray | None


class Steps:
    """The stateful steps of a job; what does not change from batch to batch is compiled once."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, buckets: int, keep_late: bool) -> None:
        self._spark = spark
        self._files = checkpoint.files
        self._buckets = buckets
        self._keep_late = keep_late
        self._edges: dict[WindowAggregate, Edge] = {}
        self._nothing: dict[WindowAggregate, pa.Table] = {}
        self._held: list[DataFrame] = []

    def run(
        self,
        node: WindowAggregate,
        reading: Reading,
        moment: Moment,
        manifest: Manifest | None,
        way: Way,
    ) -> Done:
        """Run a step and put its results with the batch's rows; ``way`` is how they come to it."""
        frame = None
        if node not in self._edges or not reading.is_empty(node.upstream):
            frame = reading.edge(node.upstream)
            if node not in self._edges:
                self._edges[node] = compile_edge(node, frame, self._buckets)
                _same_layout(self._edges[node], manifest)
        edge = self._edges[node]
        stage = self._stage(edge, moment, manifest, way)
        keep_late = self._keep_late or node.late != "drop"
        if frame is None or reading.is_empty(node.upstream):
            ran = run_here(stage, [])
        else:
            packed = packed_frame(edge, frame, moment.batch, stage.previous_us, way, keep_late)
            if reading.is_here(node.upstream):
                ran = run_here(stage, [packed.toArrow()])
            else:
                return self._on_cluster(edge, stage, packed, reading)
        self._put(edge, reading, ran.main)
        if node.late == "capture":
            none = self._late_schema(edge, frame, reading)
            reading.put(LateRows(node), none.empty_table() if ran.late is None else ran.late)
        return Done(node.name, ran.facts, ran.reports, ran.late, ran.bad)

    def layouts(self) -> dict[str, dict[str, str]]:
        """The columns that each step keeps, for the manifest."""
        return {node.name: edge.layout() for node, edge in self._edges.items()}

    def close(self) -> None:
        """Let go of what the batch held in Spark."""
        for frame in self._held:
            frame.unpersist()
        self._held.clear()

    def _stage(self, edge: Edge, moment: Moment, manifest: Manifest | None, way: Way) -> Stage:
        name = edge.node.name
        sets = manifest.steps.get(name, {}) if manifest else {}
        wakes = manifest.body["wakes"].get(name, {}) if manifest else {}
        told = {int(bucket): wake for bucket, wake in wakes.items()}
        return Stage(name, edge.kernel, self._buckets, self._files, sets, told, moment, way.only_input)

    def _put(self, edge: Edge, reading: Reading, main: pa.Table | None) -> None:
        """The results as tables of this process: most need nothing more than their names."""
        node = edge.node
        if main is None:
            if node not in self._nothing:
                none = frame_of(self._spark, edge.results.empty_table())
                self._nothing[node] = finished(edge, none).toArrow()
            reading.put(node, self._nothing[node])
            return
        named = renamed(edge, main)
        if named is None:
            rows = finished(edge, frame_of(self._spark, main))
            try:
                named = rows.toArrow()
            except SPARK_ERRORS as error:
                where = f"{node.name} ({node.written_at})"
                raise RunError(f"{where}: {root_cause(error)}", node.name, node.written_at, str(error)) from error
        reading.put(node, named)

    def _late_schema(self, edge: Edge, frame: DataFrame | None, reading: Reading) -> pa.Schema:
        shown = reading.edge(edge.node.upstream) if frame is None else frame
        return pa.schema([(c, to_arrow_type(shown.schema[c].dataType)) for c in edge.reads])

    def _on_cluster(self, edge: Edge, stage: Stage, packed: DataFrame, reading: Reading) -> Done:
        """Pack, shuffle by bucket, run the kernels; the packed results stay where they are."""
        wire = spark_schema(WIRE)
        partitions = min(int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1), self._buckets)
        lands = F.array(*(F.lit(n) for n in landing(partitions)))
        placed = packed.mapInArrow(pack_task(stage), wire).repartition(
            partitions, F.get(lands, F.col("bucket") % F.lit(partitions))
        )
        results = placed.mapInArrow(bucket_task(stage), wire).persist()
        self._held.append(results)
        late = [LATE_ROWS] if edge.node.late == "dead_letter" or self._keep_late else []
        told = results.where(F.col("kind").isin(REPORT, BAD_ROWS, *late)).select("kind", "data").collect()
        ran = run_rest(stage, collected((r.kind, r.data) for r in told if r.kind != LATE_ROWS))
        self._put_frame(edge, reading, results, ran)
        if edge.node.late == "capture":
            schema = pa.schema(list(to_arrow_type(packed.schema[LATE].dataType)))
            reading.put(LateRows(edge.node), _unpacked(results, LATE_ROWS, schema))
        rows = concat(from_bytes(r.data) for r in told if r.kind == LATE_ROWS)
        return Done(edge.node.name, ran.facts, ran.reports, rows, ran.bad)

    def _put_frame(self, edge: Edge, reading: Reading, results: DataFrame, ran: Ran) -> None:
        main = _unpacked(results, MAIN, edge.results)
        if ran.main is not None:
            main = main.unionByName(frame_of(self._spark, ran.main))
        reading.put(edge.node, finished(edge, main))


def _same_layout(edge: Edge, manifest: Manifest | None) -> None:
    """Refuse state whose columns are of other types than the step now keeps: another schema, or row steps."""
    name, now = edge.node.name, edge.layout()
    before = (manifest.body["layouts"] if manifest else {}).get(name, now)
    changed = [c for c in {**before, **now} if before.get(c) != now.get(c)]
    if changed:
        found = "; ".join(f"{c} was {before.get(c)} and is {now.get(c)}" for c in changed)
        raise PlanChangedError(
            f"step {name!r} ({edge.node.written_at}) no longer fits its state: {found}. "
            "Go back to the types as they were, or start with a new checkpoint and new outputs."
        )


def _unpacked(results: DataFrame, kind: int, schema: pa.Schema) -> DataFrame:
    return results.where(F.col("kind") == kind).mapInArrow(unpack_task(schema), spark_schema(schema))
