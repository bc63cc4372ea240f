"""The bucket stage: pack, shuffle by bucket, run the kernel on each bucket; in the driver or on the cluster.

Both ways run the same functions on the same tables. On the cluster a table travels as the bytes of an
Arrow IPC stream in a row ``(kind, bucket, data)``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.plan.durations import BEGINNING_US
from penstock.run.clock import Clock, Rules, StepTime, loading
from penstock.state.bucket import BucketState
from penstock.state.edge import Kernel, Outcome, StepClock
from penstock.state.pack import Facts, Packed, concat, pack
from penstock.state.runs import Run, RunFiles

FACTS, BAD_ROWS, MAIN, REPORT = range(4)
ROWS, LATE_ROWS = (4, 5), (6, 7)  # of the left edge, of the right
WIRE = pa.schema([("kind", pa.int32()), ("bucket", pa.int32()), ("data", pa.binary())])
ROWS_PER_PACK = 4_000_000

Sets = Mapping[str, tuple[Run, ...]]


@dataclass(frozen=True)
class Moment:
    """A batch's place in time: its wall time, the clock before it, and the rules by which the clock moves."""

    batch: int
    wall_us: int
    previous_wall_us: int
    clock: Clock
    rules: Mapping[str, Rules]
    times: Mapping[str, StepTime]
    inputs: tuple[str, ...]
    known: Facts = field(default_factory=Facts)  # what the driver knows already of this batch
    used: Mapping[str, int | None] = field(default_factory=dict)  # the marks of the steps that have run in it
    whole: bool = False  # the batch takes all that is there: what is loaded is so after it

    @property
    def since_us(self) -> int:
        """The wall time of the first batch of all."""
        return min((i.since_us for i in self.clock.inputs.values()), default=self.wall_us)

    def moved(self, facts: Facts) -> Clock:
        """The clock after the batch, as every bucket computes it for itself."""
        newest = {self.inputs[i]: partitions for i, partitions in (self.known + facts).newest.items()}
        newest |= {} if self.whole else {loading(name): partitions for name, partitions in newest.items()}
        return self.clock.moved(self.rules, self.times, newest, self.wall_us, self.used)


@dataclass(frozen=True)
class Stage:
    """One stateful step in one batch: all that a bucket needs besides its rows. Small: it is sent to tasks."""

    step: str
    kernel: Kernel
    buckets: int
    files: RunFiles
    sets: Mapping[int, Sets]  # bucket -> its runs in the manifest before
    wakes: Mapping[int, int | None]
    moment: Moment
    results: pa.Schema
    only_inputs: tuple[int | None, ...] = (None,)  # by edge the input that all rows are of, if they do not say it

    @property
    def previous_us(self) -> int | None:
        """The step's watermark before the batch."""
        return self.moment.clock.steps.get(self.step)

    def pack(self, edge: int, rows: pa.Table) -> Packed:
        """Rows of an edge, ready for their buckets."""
        return pack(rows, self.kernel, self.previous_us, self.only_inputs[edge], edge)

    def run(self, bucket: int, rows: Sequence[list[pa.Table]], facts: Facts) -> tuple[Outcome, Report]:
        """The kernel on one bucket; a bucket with no rows and nothing due keeps its runs."""
        moved = self.moment.moved(facts)
        previous, now = self.previous_us, moved.steps.get(self.step)
        loads = self.moment.times[self.step].loads if self.step in self.moment.times else ()
        clock = StepClock(
            BEGINNING_US if previous is None else previous,
            BEGINNING_US if now is None else now,
            self.moment.previous_wall_us,
            self.moment.wall_us,
            self.moment.since_us,
            all(moved.inputs[name].watermark_us is not None for name in loads),
        )
        sets, wake = self.sets.get(bucket, {}), self.wakes.get(bucket)
        if not any(rows) and (wake is None or wake > clock.now_us) and not self.kernel.ticks(clock):
            return Outcome(None, wake), Report(bucket, sets, wake)
        state = BucketState(self.files, self.step, bucket, self.moment.batch, sets)
        outcome = self.kernel.step(state, rows, clock)
        if outcome.main is not None and outcome.main.schema != self.results:
            # a bucket that has never seen a side of a join cannot know its types
            outcome = replace(outcome, main=outcome.main.select(self.results.names).cast(self.results))
        return outcome, Report(bucket, state.sets(), outcome.wake_us, outcome.late_count)


@dataclass(frozen=True)
class Report:
    """What a bucket tells the driver: the runs that it has now, when it wants to wake, what it found late."""

    bucket: int
    sets: Sets
    wake_us: int | None
    late: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it comes back from a task."""
        sets = {name: [run.to_json() for run in runs] for name, runs in self.sets.items()}
        return {"bucket": self.bucket, "sets": sets, "wake_us": self.wake_us, "late": self.late}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Report:
        """As the task sent it."""
        sets = {name: tuple(map(Run.from_json, runs)) for name, runs in value["sets"].items()}
        return cls(value["bucket"], sets, value["wake_us"], value["late"])


@dataclass(frozen=True)
class Ran:
    """A stage that has run: its results in this process, and what to put in the manifest."""

    facts: Facts
    reports: tuple[Report, ...]
    main: pa.Table | None
    late: tuple[pa.Table | None, ...]  # by edge
    bad: pa.ChunkedArray | None

    @property
    def late_count(self) -> int:
        """How many rows were late, by the pack or by the buckets."""
        return self.facts.late + sum(r.late for r in self.reports)


def run_here(stage: Stage, rows: Sequence[pa.Table | None]) -> Ran:
    """The whole stage in this process, over the rows of each edge."""
    packed = [None if table is None else stage.pack(edge, table) for edge, table in enumerate(rows)]
    there = [p for p in packed if p is not None]
    facts = sum((p.facts for p in there), Facts())
    outcomes, reports = [], []
    for bucket in range(stage.buckets):
        came = [[] if p is None or bucket not in p.buckets else [p.buckets[bucket]] for p in packed]
        outcome, report = stage.run(bucket, came, facts)
        outcomes.append(outcome)
        reports.append(report)
    bad = [p.bad for p in there if p.bad is not None]
    before = tuple(None if p is None else p.late for p in packed)
    late = _late(before, outcomes)
    main = concat(o.main for o in outcomes)
    return Ran(facts, tuple(reports), main, late, pa.chunked_array(bad) if bad else None)


def run_rest(stage: Stage, ran: Ran) -> Ran:
    """Run the buckets that no task has run: a frame without partitions wakes nobody."""
    done = {r.bucket for r in ran.reports}
    outcomes, reports = [], list(ran.reports)
    for bucket in range(stage.buckets):
        if bucket not in done:
            outcome, report = stage.run(bucket, [[] for _ in stage.only_inputs], ran.facts)
            outcomes.append(outcome)
            reports.append(report)
    late = _late(ran.late, outcomes)
    return replace(ran, reports=tuple(reports), main=concat(o.main for o in outcomes), late=late)


def _late(before: tuple[pa.Table | None, ...], outcomes: Sequence[Outcome]) -> tuple[pa.Table | None, ...]:
    """The late rows by edge: those that the pack found, and those that the buckets did."""
    found = ([o.late for o in outcomes], [o.late_right for o in outcomes])
    return tuple(concat([packed, *own]) for packed, own in zip(before, found, strict=False))


def pack_task(stage: Stage, edge: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does before the shuffle: pack its rows; its facts go to every bucket."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts = Facts()
        for rows in _gathered(batches):
            packed = stage.pack(edge, rows)
            facts += packed.facts
            yield from _sent(packed, edge)
        said = pa.py_buffer(json.dumps(facts.to_json()).encode())
        for bucket in range(stage.buckets):
            yield _wire(FACTS, bucket, said)

    return work


def bucket_task(stage: Stage) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does after the shuffle: all rows of its buckets are there, so each bucket knows the time."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: dict[int, tuple[list[pa.Table], ...]] = {}
        facts: dict[int, Facts] = {}
        for batch in batches:
            kinds, buckets, data = (batch.column(i) for i in range(3))
            for kind, bucket, value in zip(kinds.tolist(), buckets.tolist(), data, strict=True):
                if kind == FACTS:
                    told = Facts.from_json(json.loads(value.as_py()))
                    facts[bucket] = facts.get(bucket, Facts()) + told
                elif kind in ROWS:
                    there = rows.setdefault(bucket, tuple([] for _ in stage.only_inputs))
                    there[ROWS.index(kind)].append(from_bytes(value.as_buffer()))
                else:
                    yield _wire(kind, bucket, value.as_buffer())
        for bucket, told in sorted(facts.items()):
            came = rows.pop(bucket, None) or tuple([] for _ in stage.only_inputs)
            outcome, report = stage.run(bucket, came, told)
            for kind, table in zip((MAIN, *LATE_ROWS), (outcome.main, outcome.late, outcome.late_right), strict=True):
                if table is not None and table.num_rows:
                    yield _wire(kind, bucket, to_bytes(table))
            said = {"report": report.to_json(), "facts": told.to_json()}
            yield _wire(REPORT, bucket, pa.py_buffer(json.dumps(said).encode()))

    return work


def unpack_task(schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with packed results: open them."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.column("data"):
                yield from from_bytes(value.as_buffer()).cast(schema).to_batches(max_chunksize=250_000)

    return work


def collected(stage: Stage, rows: Iterable[tuple[int, bytes]]) -> Ran:
    """What tasks reported: (kind, data) of the reports, the bad rows and the late ones."""
    facts, reports, bad = Facts(), [], []
    late: list[list[pa.Table]] = [[] for _ in stage.only_inputs]
    for kind, data in rows:
        if kind == BAD_ROWS:
            bad.append(from_bytes(data)["bad"])
        elif kind in LATE_ROWS:
            late[LATE_ROWS.index(kind)].append(from_bytes(data))
        else:
            said = json.loads(data)
            reports.append(Report.from_json(said["report"]))
            facts = Facts.from_json(said["facts"])  # every bucket has the same
    texts = pa.chunked_array([c for b in bad for c in b.chunks]) if bad else None
    return Ran(facts, tuple(reports), None, tuple(map(concat, late)), texts)


def to_bytes(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


def from_bytes(data: Any) -> pa.Table:
    """The table of an Arrow IPC stream, without a copy."""
    return pa.ipc.open_stream(data).read_all()


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of a partition, as few large tables: more rows combine better."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= ROWS_PER_PACK:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if count:
        yield pa.Table.from_batches(waiting)


def _sent(packed: Packed, edge: int) -> Iterator[pa.RecordBatch]:
    for bucket, rows in packed.buckets.items():
        yield _wire(ROWS[edge], bucket, to_bytes(rows))
    if packed.late is not None:
        yield _wire(LATE_ROWS[edge], 0, to_bytes(packed.late))
    if packed.bad is not None:
        yield _wire(BAD_ROWS, 0, to_bytes(pa.table({"bad": packed.bad})))


def _wire(kind: int, bucket: int, data: pa.Buffer) -> pa.RecordBatch:
    """One row of the wire, around the bytes as they are: they may be many."""
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.RecordBatch.from_arrays(
        [pa.array([kind], pa.int32()), pa.array([bucket], pa.int32()), value], schema=WIRE
    )
