"""A job as one Structured Streaming query: starting, watching, stopping."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.compile.failures import explained
from penstock.compile.layout import Layout
from penstock.compile.streams import Streams
from penstock.job import Job
from penstock.plan.durations import Duration, duration, micros
from penstock.plan.errors import CheckpointError, PlanError, TransientSinkError
from penstock.run.alarms import Alarms
from penstock.run.batch import BatchReport, Engine, Fault
from penstock.run.begun import Begun, Look, before
from penstock.run.fit import fit
from penstock.run.lag import Lags
from penstock.run.outlets import Outlets, owner_of, taken_over, targets_of
from penstock.run.places import check_places, lost
from penstock.run.planned_files import PlannedFiles
from penstock.run.progress import Progress, facts, progress
from penstock.run.retries import Retries
from penstock.run.session import session
from penstock.run.spark_folder import spark_folder
from penstock.run.spark_log import SparkLog, wall_us
from penstock.run.unread import FolderWatch
from penstock.run.wholeness import check_whole
from penstock.state.checkpoint import Checkpoint

BUCKETS_PER_CORE = 4
LEAST_BUCKETS = 8
SMALL_BYTES = 4_000_000
WHOLE = "whole.json"  # the newest batch of which it was decided that it takes all that is there
SMALL_ROWS = 20_000
UNKNOWN_BYTES = 2**62  # what Spark says of a size that it does not know is greater


class _StoppedError(Exception):
    """A batch that was planned while the run was being stopped: it must not look done to Spark."""


class Run:
    """A job that runs: ``status()``, ``stop()``, ``wait()``."""

    def __init__(
        self,
        job: Job,
        spark: SparkSession,
        checkpoint: Checkpoint,
        told: Progress | None,
        fault: Fault | None,
        buckets: int | None = None,
        leaving: threading.Event | None = None,
        take_over: frozenset[str] = frozenset(),
    ):
        self._job = job
        self._spark = spark
        self._told = told
        self._between_batches = threading.Lock()
        self._leaving = leaving or threading.Event()  # the batch at hand waits for nothing more, and none follows it
        self._failure: BaseException | None = None
        self._last: BatchReport | None = None
        self._layout = Layout(job)
        self._checkpoint = checkpoint
        self._log = SparkLog(checkpoint.files.store)
        self._folders = FolderWatch(self._layout, self._log)
        self._alarms = Alarms()
        self._offsets: str | None = None
        self._lock = checkpoint.lock()
        try:
            check_whole(checkpoint)
            self.fit = fit(self._layout, checkpoint, max(LEAST_BUCKETS, BUCKETS_PER_CORE * cores(spark)), buckets)
            self._lags = Lags(self._layout.inputs, check_places(self._layout, spark, checkpoint))
            self._streams = Streams(self._layout, spark)
            # before the sweep: without a lock the run before may be at work, and must not commit what is swept
            epoch = checkpoint.take_epoch()
            checkpoint.sweep_orphans()
            self._spark_folder = spark_folder(checkpoint, epoch)
            owner = owner_of(job, checkpoint, epoch, take_over)
            self._outlets = Outlets(targets_of(job), owner, Retries(self._leaving))
            self._engine = Engine(self._layout, spark, checkpoint, epoch, self._outlets, self.fit.buckets, fault=fault)
        except BaseException:
            self._lock.release()
            raise
        self._query: StreamingQuery | None = None
        self._whole_from: int | None = None

    def begin(self, once: bool, trigger: Duration | None) -> None:
        """Start the query."""
        writer = (
            self._streams.frame.writeStream.foreachBatch(self._process)
            .queryName(self._job.name)
            .option("checkpointLocation", address(self._spark_folder.path))
        )
        if once:
            writer = writer.trigger(availableNow=True)
            if self._layout.needs_ticks:
                self._whole_from = self._planned() + 1  # Spark then takes the backlog in one batch
        elif trigger is not None:
            least = micros(duration(trigger, "trigger")) // 1000
            self._alarms = Alarms(least / 1000)
            writer = writer.trigger(processingTime=f"{least} milliseconds")
        self._query = writer.start()

    def _process(self, frame: DataFrame, batch: int) -> None:
        with self._between_batches:
            if self._leaving.is_set():
                raise _StoppedError
            try:
                report = self._run_batch(frame, batch)
            except BaseException as error:
                left = isinstance(error, TransientSinkError) and self._leaving.is_set()
                self._failure = None if left else error
                raise
            behind = self._behind(self._lags.told)
            self._last = replace(report, inputs=behind, alarms=self._alarms.after(report.seconds, behind))
            if self._told is not None:
                self._told.show(self._last)

    def _run_batch(self, frame: DataFrame, batch: int) -> BatchReport:
        done = self._engine.manifest.batch if self._engine.manifest else -1
        if batch > done + 1:
            raise CheckpointError(
                f"checkpoint {self._checkpoint.path}: Spark is at batch {batch}, the state at batch {done}; "
                "they belong to different copies. Restore both parts from one copy."
            )
        self._spark_folder.send()
        made_from = Begun(batch, self._log.offsets(batch), self._log.query_id())
        self._offsets = made_from.offsets
        if batch <= done:
            return self._engine.process(batch, {}, wall_us(made_from.offsets), small=True)  # it says that it is done
        files = PlannedFiles(self._log, made_from, before(self._checkpoint, made_from))
        files.check()
        persisted = False
        size = size_of(frame)
        small, unknown = size <= SMALL_BYTES, size >= UNKNOWN_BYTES
        if not self._streams.one_way or (unknown and (self._last is None or self._last.rows <= SMALL_ROWS)):
            frame = frame.persist()
            persisted = True
            small = small or (unknown and frame.count() <= SMALL_ROWS)
        try:
            silent = self._streams.silent(frame) if small else ()
            return self._engine.process(
                batch,
                self._streams.given(frame),
                wall_us(made_from.offsets),
                small=small,
                whole=self._is_whole(batch),
                silent=silent,
                said={"lags": self._lagged()},
                made_from=made_from,
                settled=lambda: self._settled(files, made_from),
            )
        finally:
            if persisted:
                frame.unpersist()

    def _planned(self) -> int:
        """The last batch that Spark's log has, run or not."""
        return max(self._log.planned(), default=-1)

    def _is_whole(self, batch: int) -> bool:
        """True when the batch takes all that is there; what was decided of it once holds when it is run again."""
        said = self._checkpoint.read_json(WHOLE)
        if said is not None and said["batch"] == batch:
            return True
        if self._whole_from is None or batch < self._whole_from or not any(s.loads for s in self._layout.stages):
            return False
        self._checkpoint.write_json(WHOLE, {"batch": batch})
        return True

    def status(self) -> Mapping[str, Any]:
        """Where the run stands: ``running``, and of the last batch its number, rows, watermark, late rows and state.

        ``inputs`` says how far inputs are behind now: by partition those that count in offsets, in files those that
        read files. ``alarms`` are sentences about what grows and does not end; empty when the job keeps up.
        """
        running = self._query is not None and self._query.isActive
        none: dict[str, Any] = {"job": self._job.name, "batch": None, "alarms": []}
        last = facts(self._job.name, self._last) if self._last is not None else none
        inputs = self._behind(self._lags.now)
        return {"running": running, **last, **({"inputs": inputs} if inputs else {})}

    def _settled(self, files: PlannedFiles, made_from: Begun) -> Sequence[Look]:
        """The files of a batch that has been read, and every place the one that it was when the run began."""
        self._lags.check(made_from.offsets)
        return files.settled()

    def _behind(self, asked: Callable[[str | None], dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
        """What each input has left to read, as far as somebody knows."""
        files = {name: {"files": count, "lag": count} for name, count in self._folders.waiting().items()}
        return {**files, **asked(self._offsets)}

    def _lagged(self) -> dict[str, dict[str, Any]]:
        """The lag of the inputs whose server only a run asks, as it was after the last batch."""
        inputs = self._last.inputs if self._last is not None else {}
        return {name: {"lag": said["lag"]} for name, said in inputs.items() if "files" not in said}

    def stop(self) -> None:
        """End after the batch at hand; the next run goes on from there."""
        self._leaving.set()
        # Spark cannot be stopped in the middle of our part of a batch without a stack trace of its own
        with self._between_batches:
            pass  # and not held on to: a batch that has been planned meanwhile must find out that it may not run
        if self._query is not None:
            self._query.stop()
        self._close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; True when it has. A failure is raised here, as one of ours."""
        assert self._query is not None
        try:
            # Spark says whole seconds, and takes any number of them
            ended = self._query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            if self._leaving.is_set() and self._failure is None:
                self._close()
                return True
            found = explained(self._failure or error, self._layout.roots)
            place = lost(self._layout, self._spark, self._checkpoint, found)
            self._close()
            raise place or found from None
        if timeout is None or ended:
            self._close()
            return True
        return False

    def _close(self) -> None:
        self._lags.close()
        self._spark_folder.close(whole=self._failure is None)
        self._outlets.close()
        self._lock.release()


def size_of(frame: DataFrame) -> int:
    """Spark's estimate of a batch's bytes; enormous when it does not know."""
    stats = frame._jdf.queryExecution().optimizedPlan().stats()
    return int(str(stats.sizeInBytes()))


def cores(spark: SparkSession) -> int:
    """The cores that a run has, or will have once a cluster has given what it was asked for."""
    return max(spark.sparkContext.defaultParallelism, promised(spark.sparkContext.getConf().get))


def promised(setting: Callable[[str], str | None]) -> int:
    """The cores that Spark's settings ask a cluster for; 0 where they do not say it.

    >>> promised({"spark.executor.instances": "6", "spark.executor.cores": "4"}.get)
    24
    """
    total, executors, each = (
        int(said) if said is not None and said.isdecimal() else 0
        for said in map(setting, ("spark.cores.max", "spark.executor.instances", "spark.executor.cores"))
    )
    return total or executors * (each or 1)


def address(path: str) -> str:
    """A folder of this machine, whatever file system Spark takes a plain path for.

    Hadoop takes it as it stands: percent signs would come to stand in the folder's name.

    >>> address("/srv/50% of a")
    'file:///srv/50% of a'
    """
    return f"file://{path}"


def start(
    job: Job,
    spark: SparkSession | None = None,
    *,
    checkpoint: str | None = None,
    once: bool = False,
    trigger: Duration | None = None,
    told: Progress | None = None,
    buckets: int | None = None,
    fault: Fault | None = None,
    leaving: threading.Event | None = None,
    take_over: Iterable[str] = (),
) -> Run:
    """Start a job without blocking; ``fault`` is where tests crash it, ``leaving`` ends its pauses."""
    if not job.outputs:
        raise PlanError(f"the job {job.name!r} has no output; add one with .to(...).")
    if once and trigger is not None:
        raise PlanError("once=True takes all that is there and stops; a trigger makes no sense with it.")
    taken = taken_over(job, take_over)
    place = Checkpoint.open(checkpoint or os.path.join("checkpoints", job.name))
    spark = session(spark, needs=job.needs)
    with _ours(job):
        run = Run(job, spark, place, told, fault, buckets, leaving, taken)
        try:
            run.begin(once, trigger)
        except BaseException:
            run._close()
            raise
    return run


@contextmanager
def _ours(job: Job) -> Iterator[None]:
    """What Spark refuses before the first batch, as one of ours; Ctrl-C and the like stay what they are."""
    try:
        yield
    except Exception as error:
        raise explained(error, Layout(job).roots) from None


def run(
    job: Job,
    spark: SparkSession | None = None,
    *,
    checkpoint: str | None = None,
    once: bool = False,
    trigger: Duration | None = None,
    buckets: int | None = None,
    take_over: Iterable[str] = (),
) -> None:
    """Run a job until it is stopped."""
    # Spark first: when it starts it takes Ctrl-C for itself, and would tear a batch apart
    spark = session(spark, needs=job.needs)
    told = progress(job.name)
    try:
        with _signals() as asked:
            try:
                running = start(
                    job,
                    spark,
                    checkpoint=checkpoint,
                    once=once,
                    trigger=trigger,
                    told=told,
                    buckets=buckets,
                    leaving=asked,
                    take_over=take_over,
                )
            except TransientSinkError:
                if asked.is_set():
                    return
                raise
            for change in running.fit.carried:
                sys.stderr.write(f"{change}\n")
            while not running.wait(timeout=0.5):
                if asked.is_set():
                    running.stop()
                    return
    finally:
        told.close()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """SIGTERM and Ctrl-C set the event instead of tearing a batch apart."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {s: signal.signal(s, lambda *_: asked.set()) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
