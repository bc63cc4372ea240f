"""A job cut down to be replayed: events from a time on, one of its outputs, another place.

A result belongs to the span by its own window or time, and is judged right where it was made. What a bounded time
before it can tell, a join's partners or the begin of a window, is read as a warm-up: rows are chosen by event time
where they come in, and those that are left out still move time. An input on which a step hangs that may reach back
without a bound is read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.job import Job
from penstock.joins.interval import IntervalJoin
from penstock.joins.tables import Lookup
from penstock.joins.versions import Latest, Versions
from penstock.operators.deduplicate import Deduplicate
from penstock.operators.rows import Filter
from penstock.plan.durations import BEGINNING_US, END_US, micros
from penstock.plan.errors import PlanError
from penstock.plan.input import CAME, Input, TableInput
from penstock.plan.node import NO_LAG, Node, walk
from penstock.plan.step import LateRows, Step
from penstock.sources.base import Source
from penstock.sources.files import Files
from penstock.sources.kafka_topic import Kafka
from penstock.sources.rate import Rate
from penstock.state.edge import TIME
from penstock.windows.node import Window
from penstock.windows.sessions import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = TypeVar("S", bound=Source)

TOUCHES_FILES = ("cleansource", "sourcearchivedir", "cleansourcenumthreads")
LONGEST_CALENDAR = timedelta(days=32)
SLIDING = 1  # microseconds after its end that a sliding window closes, and no other


def replayed(job: Job, output: str, from_us: int, to_us: int | None) -> Job:
    """The same job with that one output, over the events of a span of time; its outputs are still the job's own."""
    chosen = next(o for o in job.outputs if o.name == output)
    node = _Span(chosen.node, from_us, to_us).results(chosen.node)
    if to_us is not None and (untold := as_they_are(*_tables(node))):
        raise PlanError(
            f"replay: nobody knows how the table {untold[0]!r} was at --to: it has no time=, or is in "
            "a format of changes. Leave --to out, and have it as it is now."
        )
    copy = Job(job.name)
    copy._inputs = {n.name: n for n in walk(node) if isinstance(n, Input)}
    copy._outputs = {output: replace(chosen, node=node)}
    return copy


def makers(node: Node) -> tuple[Node, ...]:
    """Where the row steps begin that lead to a result: their rows still have their window and their time."""
    if isinstance(node, Input | Step | LateRows):
        return (node,)
    return tuple(dict.fromkeys(maker for upstream in node.inputs for maker in makers(upstream)))


def warm_up(node: Node) -> timedelta:
    """How far before a result the rows lie that it is made of, along the longest way; of inputs read whole, apart."""
    if isinstance(node, Versions):
        return NO_LAG  # a table is read from its beginning
    return reach(node) + max(map(warm_up, node.inputs), default=NO_LAG)


@singledispatch
def reach(node: Node) -> timedelta:
    """How far before a result a step's rows lie; nothing for what looks at one row."""
    return NO_LAG


@reach.register
def reach_of_join(node: IntervalJoin) -> timedelta:
    """A partner may be as far away as the bounds say."""
    return max(abs(node.low), abs(node.high))


@reach.register
def reach_of_deduplicate(node: Deduplicate) -> timedelta:
    """The row that a duplicate repeats."""
    return node.within


@reach.register
def reach_of_window(node: Window) -> timedelta:
    """A window's size; of a session the gap, which tells that one began before."""
    if isinstance(node.shape, Session):
        return node.shape.gap + (node.shape.max_duration or NO_LAG)
    size = getattr(node.shape, "size", None)
    if isinstance(size, timedelta):
        return size
    return LONGEST_CALENDAR if hasattr(node.shape, "timezone") else NO_LAG


def read_whole(node: Node) -> tuple[str, ...]:
    """The inputs that are read from their beginning: what lies far before a result may still tell in it."""
    last = makers(node)
    below = set(walk(*(upstream for maker in last for upstream in maker.inputs)))
    found = [n for n in walk(*last) if endless(n, n in last and n not in below)]
    return tuple(n.name for n in walk(*found) if isinstance(n, Input))


@singledispatch
def endless(node: Node, judged: bool) -> bool:
    """True when no time before a result bounds what it is made of; ``judged``, of results whose own window tells
    whether they belong to the span. What a table said long ago may still be true."""
    return node.mode == "upsert"


@endless.register
def endless_versions(node: Versions, judged: bool) -> bool:
    """The changelog of a table."""
    return True


@endless.register
def endless_deduplicate(node: Deduplicate, judged: bool) -> bool:
    """Whether a row is kept hangs on the one kept before it, and so on."""
    return True


@endless.register
def endless_window(node: Window, judged: bool) -> bool:
    """A session may be far longer than its gap, and where it is cut hangs on where it began; but one that begins in
    the span is told by the gap before it. Running values have no window."""
    if isinstance(node.shape, Session):
        return not judged or node.shape.max_duration is not None
    return node.mode == "upsert" and not (judged and node.shape is not None)


def as_they_are(*nodes: Node) -> tuple[str, ...]:
    """The tables among the nodes of a replay that no event time cuts where the span ends."""
    changes = [n.upstream.upstream for n in nodes if isinstance(n, Latest)]
    return tuple(read.name for read in changes if isinstance(read, TableInput))


def _tables(node: Node) -> list[Node]:
    """The table that comes out, and those that it is made of; nothing for a stream, and for windows."""
    found = [m for m in makers(node) if m.mode == "upsert" and m.window_closes_us is None]
    for table in found:
        found += [n for n in table.inputs if n.mode == "upsert"]
    return found


class _Span:
    """Rewrites the plan of an output. A node becomes the same wherever it is read: its state is one."""

    def __init__(self, output: Node, from_us: int, to_us: int | None) -> None:
        warm_up_us = micros(warm_up(output))
        self._from_us, self._to_us = from_us, to_us
        self._first_us = max(from_us - warm_up_us, BEGINNING_US)
        self._end_us = None if to_us is None else min(to_us + warm_up_us, END_US)
        # a table that comes out is as it was at the end of the span; one that events meet, as the last of them needs it
        self._tables_end_us = to_us if _tables(output) else self._end_us
        self._lag_us = micros(output.lag)
        self._whole = read_whole(output)
        self._done: dict[Node, Node] = {}

    def results(self, node: Node) -> Node:
        """The rows that belong to the span: chosen where they are made, for a row step may drop their window."""
        if node in makers(node):
            told = self._belongs(node)
            return self._read(node) if told is None else Filter(self._read(node), told, written_at=node.written_at)
        return _with_inputs(node, self.results)

    def _belongs(self, node: Node) -> str | None:
        """Windows that lie in the span, rows whose time does; None of a table, which ends where the span does."""
        if node.window_closes_us == SLIDING:
            begin, ended = "unix_micros(window_end)", "unix_micros(window_end) <"  # for each event, at its time
        elif node.window_closes_us is not None:
            begin, ended = "unix_micros(window_start)", "unix_micros(window_end) <="
        elif node.mode == "upsert":
            return None
        elif node.timed:
            begin, ended = TIME, f"{TIME} <"
        else:
            raise PlanError(
                f"replay: the rows of {node.describe()} ({node.written_at}) have no event time, so nobody knows which "
                "of them belong to the span. Replay the table itself: give it an output."
            )
        told = f"{begin} >= {self._from_us}L"
        return told if self._to_us is None else f"{told} AND {ended} {self._to_us}L"

    def _read(self, node: Node) -> Node:
        if node not in self._done:
            made = self._input(node) if isinstance(node, Input) else _with_inputs(node, self._read)
            self._done[node] = remade(made, self._tables_end_us)
        return self._done[node]

    def _input(self, node: Input) -> Node:
        if node.processing:
            raise PlanError(
                f"replay: the input {node.name!r} ({node.written_at}) goes by the wall clock; events are chosen by "
                "their own time. Give it a time= column."
            )
        if isinstance(node, TableInput):
            return replace(node, source=since(node.source, None, node.name))
        ends_us = None
        if self._end_us is not None:  # and what it takes to bring time there
            ends_us = min(self._end_us + micros(node.lateness) + self._lag_us, END_US)
        if node.name in self._whole:
            return replace(node, source=since(node.source, None, node.name), ends_us=ends_us)
        source = since(node.source, self._first_us - micros(node.max_ahead), node.name)
        told = f"{TIME} >= {self._first_us}L" + ("" if self._end_us is None else f" AND {TIME} < {self._end_us}L")
        return Filter(replace(node, source=source, ends_us=ends_us), told, written_at=node.written_at)


def _with_inputs(node: Node, changed: Callable[[Node], Node]) -> Node:
    parts: dict[str, Any] = {f.name: getattr(node, f.name) for f in fields(node)}
    parts = {name: changed(part) for name, part in parts.items() if isinstance(part, Node)}
    return replace(node, **parts)


@singledispatch
def remade(node: Node, end_us: int | None) -> Node:
    """A step as a replay has it: where a stream becomes a table, of rows before the end."""
    return node


@remade.register
def remade_latest(node: Latest, end_us: int | None) -> Node:
    """A changelog knows its format by the input that it reads, and stays as it is."""
    changes = node.upstream
    if changes.format is not None or not changes.timed:
        return node
    return replace(node, upstream=replace(changes, upstream=_before(changes.upstream, end_us)))


@remade.register
def remade_window(node: Window, end_us: int | None) -> Node:
    """Values that run for ever, and windows that are shown before they are final."""
    becomes = node.mode == "upsert" and not node.over_table and node.upstream.timed
    return replace(node, upstream=_before(node.upstream, end_us)) if becomes else node


@remade.register
def remade_lookup(node: Lookup, end_us: int | None) -> Node:
    """Events and tables are not read as they came: what a running job found there may come batches later."""
    return replace(node, after_load=True)


def _before(node: Node, end_us: int | None) -> Node:
    return node if end_us is None else Filter(node, f"{TIME} < {end_us}L", written_at=node.written_at)


@singledispatch
def since(source: Source, first_us: int | None, name: str) -> Source:
    """The source from a time on, or from its beginning, so that reading it touches nobody else."""
    return source


@since.register
def since_files(source: Files, first_us: int | None, name: str) -> Source:
    """All files: a file's age says little of its events. None is moved or deleted."""
    kept = tuple(o for o in source.options if o[0].lower() not in TOUCHES_FILES)
    return _as(OldFiles, source, options=kept)


@since.register
def since_kafka(source: Kafka, first_us: int | None, name: str) -> Source:
    """From the first message that may hold an event of that time: none is sent long before it happens."""
    return _as(OldMessages, source, start="earliest" if first_us is None else max(first_us // 1000, 0))


@since.register
def since_rate(source: Rate, first_us: int | None, name: str) -> Source:
    """Its rows are made by the clock, and are gone."""
    raise PlanError(f"replay: the input {name!r} makes its rows by the clock; there is nothing to replay.")


class OldFiles(Files):
    """Files whose rows say when they came: when the file was written."""

    def read(self, spark: SparkSession) -> DataFrame:
        # Spark's own column is there after a select as well
        return super().read(spark).selectExpr("*", f"_metadata.file_modification_time AS {CAME}")


class OldMessages(Kafka):
    """Messages whose rows say when they came, by the message's own timestamp; a changelog's do not."""

    def read(self, spark: SparkSession) -> DataFrame:
        return Kafka.read(replace(self, beside=(*self.beside, ("timestamp", CAME))), spark)


def _as(kind: type[S], source: Source, **changed: Any) -> S:
    return kind(**{f.name: getattr(source, f.name) for f in fields(source)} | changed)
