"""One batch, from the rows that came to the manifest that says they are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.compile.edge import Way
from penstock.compile.ingest import OF_NO_ROW
from penstock.compile.layout import Layout
from penstock.plan.node import Node
from penstock.plan.step import Step
from penstock.run import dead_letters
from penstock.run.begun import Begun, Look, begin
from penstock.run.changes import table_changes
from penstock.run.clock import Clock, Rules, StepTime, loading
from penstock.run.counters import Counters
from penstock.run.fit import DOCUMENT, JOB, PARTS, pinned
from penstock.run.outlets import Outlets, Written
from penstock.run.reading import Reading
from penstock.run.signature import signature
from penstock.run.steps import Done, Steps
from penstock.sinks.base import Changes, Rows
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.pack import Facts, concat
from penstock.state.stage import Moment

#: Called at each point at which a test may crash the batch: the point, and the batch.
Fault = Callable[[str, int], None]
KEPT_VERSIONS = 10


@dataclass(frozen=True)
class BatchReport:
    """What a batch did, for the status line and for tests."""

    batch: int
    seconds: float
    rows: int
    watermark_us: int | None
    counters: Counters
    state_rows: int
    state_bytes: int
    skipped: bool
    late: Mapping[str, list[pa.Table]] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)  # how far they are behind, where that is known
    alarms: tuple[str, ...] = ()


class Engine:
    """Runs the batches of one job against one checkpoint, one after the other."""

    def __init__(
        self,
        layout: Layout,
        spark: SparkSession,
        checkpoint: Checkpoint,
        epoch: int,
        outlets: Outlets,
        buckets: int,
        *,
        keep_late: bool = False,
        fault: Fault | None = None,
    ) -> None:
        self.layout = layout
        self.manifest = checkpoint.latest()
        self._spark = spark
        self._checkpoint = checkpoint
        self._epoch = epoch
        self._outlets = outlets
        self._fault = fault
        self._names = tuple(i.name for i in layout.inputs)
        self._rules = {i.name: Rules.of(i) for i in layout.inputs if i.timed}
        self._rules |= {loading(name): Rules(loads=True) for s in layout.stages for name in s.loads}
        self._times = {s.name: StepTime.of(s) for s in layout.stages}
        self.clock = Clock()
        if self.manifest is not None:
            new = {name: time for name, time in self._times.items() if name not in self.manifest.steps}
            self.clock = Clock.from_json(self.manifest.body["clock"]).with_new(new)
        self._ways = {s: tuple(Way.to(s, edge, layout) for edge in range(len(s.inputs))) for s in layout.stages}
        self._steps = Steps(spark, checkpoint, pinned(checkpoint, self.manifest), buckets, keep_late)
        self._job = signature(layout, buckets)
        self._told = False

    def process(
        self,
        batch: int,
        given: Mapping[Node, DataFrame],
        wall_us: int,
        *,
        small: bool,
        whole: bool = False,
        silent: Collection[Node] = (),
        punctuation: Mapping[str, int] | None = None,
        said: Mapping[str, Any] | None = None,
        made_from: Begun | None = None,
        settled: Callable[[], Sequence[Look]] = tuple,
    ) -> BatchReport:
        """Run a batch: steps in order, sinks under their ledgers, then the manifest; one that is done is skipped.

        ``given`` are the rows as they were taken in (see ``Reading``), ``small`` when they fit in this
        process, ``whole`` when they are all that there is, ``silent`` the inputs that are known to have none.
        ``punctuation`` moves an input's time without a row; ``said`` is kept in the manifest. ``made_from`` is its
        plan where there is a log of plans, and ``settled`` gives its files, once all of them have been read.
        """
        began = time.monotonic()
        if self.manifest is not None and batch <= self.manifest.batch:
            return self._report(batch, began, Facts(), {}, skipped=True)
        self._checkpoint.assert_epoch(self._epoch)
        before = self.manifest.body["wall_us"] if self.manifest is not None else wall_us
        wall_us = max(wall_us, before)  # a clock that was set back is no time machine
        facts = Facts(newest={self._names.index(n): {0: t} for n, t in (punctuation or {}).items()})
        moment = Moment(batch, wall_us, before, self.clock, self._rules, self._times, self._names, facts, whole=whole)
        reading = Reading(self.layout, given, self._spark, small, moment, silent)
        try:
            done = []
            for step in self.layout.stages:
                done.append(self._steps.run(step, reading, moment, self.manifest, self._ways[step]))
                used = {**moment.used, step.name: moment.moved(done[-1].facts).steps.get(step.name)}
                facts += done[-1].facts
                moment = replace(moment, known=facts, used=used)
            counters = self.counters()
            letters = self._letters(batch, done, reading, counters)
            changes = self._changes(reading, letters)
            facts += reading.observed()
            plan = made_from or Begun(batch, "", "")
            written = self._write(plan, changes, settled)
            counters.retries.update(written.retries)
            counters.repeated.update(written.repeated)
            manifest = self._manifest(moment, done, facts, counters, changes)
            told = {**(made_from.to_body() if made_from else {}), **(said or {})}
            manifest = replace(manifest, body={**manifest.body, **told})
            self._checkpoint.commit(manifest)
            self._tell_job()
            self._at("after_commit", batch)
        finally:
            self._steps.close()
        self.manifest, self.clock = manifest, Clock.from_json(manifest.body["clock"])
        if batch % KEPT_VERSIONS == 0:
            self._checkpoint.sweep(KEPT_VERSIONS)
        late = {d.step: [rows for rows in d.late if rows is not None] for d in done}
        return self._report(batch, began, facts, late, skipped=False)

    def counters(self) -> Counters:
        """What has been counted up to the newest committed batch."""
        return Counters.from_json(self.manifest.body["counters"]) if self.manifest else Counters()

    def _letters(self, batch: int, done: list[Done], reading: Reading, counters: Counters) -> pa.Table:
        """The dead letters; where nobody takes them the job stops here, before anything is written."""
        bad = [d.bad for d in done if d.bad is not None] + reading.bad()
        found = [dead_letters.from_bad(texts, batch) for texts in bad]
        for step, d in zip(self.layout.stages, done, strict=True):
            if step.late == "dead_letter":
                late = [rows for rows in d.late if rows is not None]
                found += [dead_letters.from_late(rows, batch, d.step, self._names) for rows in late]
        letters = concat(found)
        if letters is not None:
            of_no_row = pc.equal(letters["reason"], OF_NO_ROW)
            counters.ignored.update(letters.filter(of_no_row)["input"].to_pylist())
            letters = letters.filter(pc.invert(of_no_row))
        if letters is None or not letters.num_rows:
            return dead_letters.SCHEMA.empty_table()
        if self.layout.job.dead_letter_sink is None:
            raise dead_letters.stop(letters)
        counters.dead.update(letters["reason"].to_pylist())
        return letters

    def _changes(self, reading: Reading, letters: pa.Table) -> dict[str, Changes]:
        changes = {}
        if self.layout.job.dead_letter_sink is not None:
            changes[dead_letters.OUTPUT] = Changes(Rows(self._spark, table=letters))
        for output in self.layout.outputs:
            table, frame = reading.table(output.node), None
            if table is None:
                frame = reading.rows(output.node)
                if reading.is_here(output.node):
                    table, frame = frame.toArrow(), None
            rows = Rows(self._spark, table=table, frame=frame)
            if output.node.mode == "append":
                changes[output.name] = Changes(rows)
            else:
                changes[output.name] = table_changes(rows, output.key, isinstance(output.node, Step))
        return changes

    def _write(self, plan: Begun, changes: Mapping[str, Changes], settled: Callable[[], Sequence[Look]]) -> Written:
        batch = plan.batch
        self._at("before_sink", batch)
        files = tuple(settled())
        self._checkpoint.assert_epoch(self._epoch)
        begin(self._checkpoint, replace(plan, files=files, job=self._job))
        written = self._outlets.write(batch, changes, lambda: self._at("during_sink", batch))
        self._at("after_sink", batch)
        return written

    def _manifest(
        self,
        moment: Moment,
        done: list[Done],
        facts: Facts,
        counters: Counters,
        changes: Mapping[str, Changes],
    ) -> Manifest:
        counters.rows.update({self._names[i]: n for i, n in facts.rows.items()})
        counters.late.update({d.step: d.late_count for d in done})
        counters.out.update({n: c.rows.table.num_rows for n, c in changes.items() if c.rows.table is not None})
        body = {
            "clock": replace(moment, known=Facts()).moved(facts).to_json(),
            "counters": counters.to_json(),
            "wall_us": moment.wall_us,
            "outputs": sorted(changes),
            "layouts": self._steps.layouts(),
            PARTS: self._steps.parts(),
            JOB: self._job,
            "wakes": {d.step: {str(r.bucket): r.wake_us for r in d.reports} for d in done},
        }
        return Manifest(moment.batch, self._epoch, {d.step: {r.bucket: r.sets for r in d.reports} for d in done}, body)

    def _tell_job(self) -> None:
        """Write down what the job is, once its first batch is there: until then the state is that of the one before."""
        if not self._told and self._checkpoint.read_json(DOCUMENT) != self._job:
            self._checkpoint.write_json(DOCUMENT, self._job)
        self._told = True

    def _at(self, point: str, batch: int) -> None:
        if self._fault is not None:
            self._fault(point, batch)

    def _report(
        self, batch: int, began: float, facts: Facts, late: Mapping[str, list[pa.Table]], *, skipped: bool
    ) -> BatchReport:
        runs = list(self.manifest.runs()) if self.manifest else []
        return BatchReport(
            batch, time.monotonic() - began, sum(facts.rows.values()),
            self.clock.watermark_us, self.counters(),
            sum(r.live for r in runs), sum(r.bytes for r in runs), skipped, late,
        )  # fmt: skip
