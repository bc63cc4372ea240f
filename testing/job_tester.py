"""Testing a job: push rows, move time, crash it, and read what a reader of its outputs would see."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.compile.failures import SPARK_ERRORS, explained
from penstock.compile.ingest import ingest
from penstock.compile.layout import Layout
from penstock.job import Job
from penstock.plan.durations import Duration, duration, micros
from penstock.plan.errors import PenstockError, PlanError
from penstock.plan.input import Input
from penstock.plan.node import Node
from penstock.run import dead_letters
from penstock.run.batch import BatchReport, Engine
from penstock.run.fit import fit
from penstock.run.outlets import Outlets, owner_of, targets_of
from penstock.run.session import session
from penstock.sinks.base import Target
from penstock.state.checkpoint import Checkpoint
from penstock.testing.pushed import as_micros, encoded, pushed_frame
from penstock.testing.recording import Recordings, RecordingSink, Row, rows_of

POINTS = ("before_sink", "during_sink", "after_sink")
Pushed = Mapping[str, Any] | str | None
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class JobCrashed(PenstockError):
    """The crash that ``crash`` armed has happened."""


@dataclass(frozen=True)
class Planned:
    """A batch as the log has it: its rows, its wall time, and the time that it moves without rows."""

    wall_us: int
    rows: Mapping[str, list[tuple[int, str]]] = field(default_factory=dict)
    punctuation: Mapping[str, int] = field(default_factory=dict)


class JobTester:
    """Runs a job batch by batch, with its sources and sinks replaced, in a small local Spark.

    The tester is the job's source and its log: a push is one batch, planned before it runs and run again
    after a crash, as Spark's log does it. Steps, state, clock, ledger and checkpoint are the engine's own.

    >>> from penstock import Job, sinks, sources
    >>> from penstock.testing import JobTester
    >>> from penstock.windows import tumbling
    >>> job = Job("shop")
    >>> views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
    ...                    time="at", lateness="10 minutes")
    >>> hourly = views.by("url").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.memory("hourly"))
    >>> with JobTester(job) as t:
    ...     t.push("views", [{"url": "/", "at": "2026-01-01 10:05:00"}, {"url": "/", "at": "2026-01-01 10:20:00"}])
    ...     t.advance("views", "2026-01-01 11:10:00")
    ...     [(row["url"], row["n"]) for row in t.read("hourly")]
    [('/', 2)]
    """

    def __init__(
        self,
        job: Job,
        spark: SparkSession | None = None,
        partitions: int = 1,
        buckets: int = 2,
        *,
        cluster: bool = False,
        wall: str | datetime | None = None,
    ) -> None:
        """``cluster`` runs every step as a large batch would run; ``wall`` is where the wall clock stands."""
        if not job.outputs:
            raise PlanError(f"the job {job.name!r} has no output; add one with .to(...).")
        self.job = job
        self._layout = Layout(job)
        self._partitions = partitions
        self._buckets = buckets
        self._cluster = cluster
        self._spark = session(spark, cores="2", ui=False)
        self._folder = tempfile.mkdtemp(prefix="penstock-tester-")
        self._recordings = Recordings()
        self._log: list[Planned] = []
        self._nothing: dict[Node, DataFrame] = {}  # of an input that is silent: made once
        self._positions: dict[str, int] = {}
        now = as_micros(wall, "wall") if wall is not None else micros(datetime.now(timezone.utc) - EPOCH)
        self._wall_us = now
        self._armed: str | None = None
        self._late: dict[str, dict[int, list[Row]]] = {}
        self._read: dict[str, int] = {}
        self._engine: Engine | None = self._opened()

    def __enter__(self) -> JobTester:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the checkpoint; the Spark session stays, for the next test."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self) -> Engine:
        checkpoint = Checkpoint.open(f"{self._folder}/checkpoint")
        fit(self._layout, checkpoint, self._buckets, self._buckets)
        checkpoint.verify()
        checkpoint.sweep_orphans()
        epoch = checkpoint.take_epoch()
        sink = RecordingSink(self._recordings)
        targets = [Target(t.output, sink, t.key) for t in targets_of(self.job)]
        outlets = Outlets(targets, owner_of(self.job, checkpoint, epoch))
        return Engine(
            self._layout,
            self._spark,
            checkpoint,
            epoch,
            outlets,
            self._buckets,
            keep_late=True,
            fault=self._fault,
        )

    def push(self, name: str, *rows: Pushed | Sequence[Pushed]) -> None:
        """Push rows into an input as one batch; returns when all that it causes has happened.

        A row is a dict, or the text of a line as a JSON file would hold it, which may be broken. They come as
        one list, or one after the other. To a changelog go whole messages, None for one without a value.
        """
        node = self._input(name)
        each = [
            row for given in rows for row in ([given] if given is None or isinstance(given, Mapping | str) else given)
        ]
        first = self._positions.get(name, 0)
        lines = [(first + i, encoded(row, node)) for i, row in enumerate(each)]
        self._positions[name] = first + len(lines)
        self._plan(Planned(self._wall_us, rows={name: lines}))

    def advance(self, name: str, time: str | datetime) -> None:
        """Move an input's event time to there without a row; to an earlier time: nothing happens."""
        self._input(name)
        self._plan(Planned(self._wall_us, punctuation={name: as_micros(time, f"advance({name!r})")}))

    def wall(self, length: Duration) -> None:
        """Move the tester's wall clock, which otherwise stands still, and let happen what that causes."""
        self._wall_us += micros(duration(length, "wall"))
        self._plan(Planned(self._wall_us))

    def read(self, output: str) -> list[Row]:
        """The output as a reader of the sink sees it: an upsert output's current rows, an append output's rows."""
        return [dict(row) for row in self._recorded(output).rows]

    def new(self, output: str) -> list[Row]:
        """What has come since the last call: an append output's rows, an upsert output's changes with ``op``."""
        news = self._recorded(output).news
        seen, self._read[output] = self._read.get(output, 0), len(news)
        return [dict(row) for row in news[seen:]]

    def late(self, step: str) -> list[Row]:
        """The rows that a step has refused as late, whatever its ``late=`` says."""
        names = [s.name for s in self._layout.stages]
        if step not in names:
            raise PlanError(f"late({step!r}): no such step; there is {', '.join(names) or 'none'}.")
        return [dict(row) for rows in self._late.get(step, {}).values() for row in rows]

    def dead_letters(self) -> list[Row]:
        """The dead letters: dicts with ``reason``, ``input``, ``step``, ``place``, ``row``."""
        if self.job.dead_letter_sink is None:
            return []
        kept = self._recordings.outputs[dead_letters.OUTPUT].rows
        return [{k: v for k, v in row.items() if k != "batch"} for row in kept]

    @property
    def watermark(self) -> datetime | None:
        """The smallest time of the job's inputs, None while one of them has said nothing."""
        engine = self._engine
        if engine is None:
            raise JobCrashed("the job has crashed; call restart() first.")
        mark = engine.clock.watermark_us
        return None if mark is None else EPOCH + timedelta(microseconds=mark)

    def crash(self, point: str) -> None:
        """Arm a crash: the next batch, of any kind, raises ``JobCrashed`` there."""
        if point not in POINTS:
            raise PlanError(f"crash({point!r}): there is {', '.join(POINTS)}.")
        self._armed = point

    def restart(self, job: Job | None = None, buckets: int | None = None) -> None:
        """Go on from the checkpoint; the batch that crashed is run again, and this returns when it is done.

        With ``job``, as a job that was changed goes on, or is refused; with ``buckets``, in another number of them.
        """
        before = self.job, self._layout, self._buckets
        if job is not None:
            self.job, self._layout = job, Layout(job)
        self._buckets = self._buckets if buckets is None else buckets
        try:
            self._engine = self._opened()
        except PenstockError:
            self.job, self._layout, self._buckets = before
            raise
        self._nothing.clear()
        self._catch_up()

    def _fault(self, point: str, batch: int) -> None:
        if point == self._armed:
            self._armed = None
            raise JobCrashed(f"crashed {point} in batch {batch}, as asked.")

    def _plan(self, planned: Planned) -> None:
        if self._engine is None:
            raise JobCrashed("the job has crashed; call restart() first.")
        self._log.append(planned)
        self._catch_up()

    def _catch_up(self) -> None:
        assert self._engine is not None
        done = self._engine.manifest.batch if self._engine.manifest else -1
        for batch in range(done + 1, len(self._log)):
            try:
                report = self._process(self._engine, batch, self._log[batch])
            except SPARK_ERRORS as error:
                self._engine = None
                raise explained(error, self._layout.roots) from None
            except BaseException:
                self._engine = None
                raise
            self._keep_late(report)

    def _process(self, engine: Engine, batch: int, planned: Planned) -> BatchReport:
        silent = [node for node in self._layout.inputs if not planned.rows.get(node.name)]
        given: dict[Node, DataFrame] = {}
        for node in self._layout.inputs:
            if node not in silent or node not in self._nothing:
                frame = pushed_frame(self._spark, node, planned.rows.get(node.name, []), self._partitions)
                given[node] = ingest(self._layout, node, frame, f"{planned.wall_us}L")
            else:
                given[node] = self._nothing[node]
        self._nothing |= {node: given[node] for node in silent}
        return engine.process(
            batch,
            given,
            planned.wall_us,
            small=not self._cluster,
            silent=() if self._cluster else silent,
            punctuation=planned.punctuation,
        )

    def _keep_late(self, report: BatchReport) -> None:
        for step, tables in report.late.items():
            shown = [t.select([c for c in t.column_names if not c.startswith("__ps_")]) for t in tables]
            self._late.setdefault(step, {})[report.batch] = [row for table in shown for row in rows_of(table)]

    def _input(self, name: str) -> Input:
        inputs = {i.name: i for i in self._layout.inputs}
        if name not in inputs:
            raise PlanError(f"no such input {name!r}; the job has {', '.join(inputs)}.")
        return inputs[name]

    def _recorded(self, output: str) -> Any:
        if output not in self._recordings.outputs:
            raise PlanError(f"no such output {output!r}; there is {', '.join(self._recordings.outputs)}.")
        return self._recordings.outputs[output]
