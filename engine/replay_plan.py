"""A job cut down to be replayed: events from a time on, one of its outputs, another place.

Rows are chosen by event time, where they come in; those that are left out still move time. What the first
chosen rows need from before, a join's partners or the begin of a session, is read as a warm-up, and results
that belong to before are left out again.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from functools import singledispatch
from typing import Any

from penstock.job import Job
from penstock.joins.interval import IntervalJoin
from penstock.joins.versions import Versions
from penstock.operators.deduplicate import Deduplicate
from penstock.operators.rows import Filter
from penstock.plan.durations import micros
from penstock.plan.errors import PlanError
from penstock.plan.input import Input, TableInput
from penstock.plan.node import NO_LAG, Node, walk
from penstock.sources.base import Source
from penstock.sources.files import Files
from penstock.sources.kafka_topic import Kafka
from penstock.sources.rate import Rate
from penstock.state.edge import TIME
from penstock.windows.node import Window
from penstock.windows.sessions import Session

TOUCHES_FILES = ("cleansource", "sourcearchivedir", "cleansourcenumthreads")
LONGEST_CALENDAR = timedelta(days=32)
SLIDING = 1  # microseconds after its end that a sliding window closes, and no other


def replayed(job: Job, output: str, from_us: int, to_us: int | None) -> Job:
    """The same job with that one output, over the events of a span of time; its outputs are still the job's own."""
    chosen = next(o for o in job.outputs if o.name == output)
    span = _Span(from_us, to_us, micros(warm_up(chosen.node)), _read_whole(chosen.node))
    copy = Job(job.name)
    node = _of_span(span.rewritten(chosen.node), from_us, to_us)
    copy._inputs = {n.name: n for n in walk(node) if isinstance(n, Input)}
    copy._outputs = {output: replace(chosen, node=node)}
    return copy


def warm_up(node: Node) -> timedelta:
    """How far before a result the rows lie that it is made of, along the longest way."""
    if isinstance(node, Versions):
        return NO_LAG  # a table is read from its beginning
    return reach(node) + max(map(warm_up, node.inputs), default=NO_LAG)


@singledispatch
def reach(node: Node) -> timedelta:
    """How far before a result a step's rows lie; nothing for what looks at one row, or for ever."""
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


def for_ever(node: Node) -> list[str]:
    """The steps whose values run for ever: in a replay they begin with its first row."""
    return [n.name for n in walk(node) if isinstance(n, Window) and n.shape is None and not n.over_table]


def _read_whole(node: Node) -> frozenset[str]:
    """The inputs that are a table's: what they said long ago may still be true."""
    tables = [n for n in walk(node) if isinstance(n, Versions)]
    return frozenset(n.name for n in walk(*tables) if isinstance(n, Input))


class _Span:
    """Rewrites a plan so that its streams begin with a time."""

    def __init__(self, from_us: int, to_us: int | None, warm_up_us: int, whole: frozenset[str]) -> None:
        self._first_us = from_us - warm_up_us
        self._end_us = None if to_us is None else to_us + warm_up_us
        self._whole = whole
        self._done: dict[tuple[Node, bool], Node] = {}

    def rewritten(self, node: Node, of_table: bool = False) -> Node:
        key = node, of_table
        if key not in self._done:
            self._done[key] = self._input(node, of_table) if isinstance(node, Input) else self._step(node, of_table)
        return self._done[key]

    def _step(self, node: Node, of_table: bool) -> Node:
        below = of_table or isinstance(node, Versions)
        parts = {f.name: getattr(node, f.name) for f in fields(node)}
        changed: dict[str, Any] = {n: self.rewritten(v, below) for n, v in parts.items() if isinstance(v, Node)}
        return replace(node, **changed)

    def _input(self, node: Input, of_table: bool) -> Node:
        if node.processing:
            raise PlanError(
                f"replay: the input {node.name!r} ({node.written_at}) goes by the wall clock; events are chosen by "
                "their own time. Give it a time= column."
            )
        first_us = None if node.name in self._whole else self._first_us - micros(node.max_ahead)
        read = replace(node, source=since(node.source, first_us, node.name))
        if of_table or isinstance(node, TableInput):
            return read
        end = "" if self._end_us is None else f" AND {TIME} < {self._end_us}L"
        return Filter(read, f"{TIME} >= {self._first_us}L{end}", written_at=node.written_at)


def _of_span(node: Node, from_us: int, to_us: int | None) -> Node:
    """The results that belong to the span: windows that lie in it, rows whose time does; running values all."""
    if node.window_closes_us == SLIDING:
        begin, ended = "unix_micros(window_end)", "unix_micros(window_end) <"  # a result for each event, at its time
    elif node.window_closes_us is not None:
        begin, ended = "unix_micros(window_start)", "unix_micros(window_end) <="
    elif node.mode == "append" and node.timed:
        begin, ended = TIME, f"{TIME} <"
    else:
        return node
    told = f"{begin} >= {from_us}L" + ("" if to_us is None else f" AND {ended} {to_us}L")
    return Filter(node, told, written_at=node.written_at)


@singledispatch
def since(source: Source, first_us: int | None, name: str) -> Source:
    """The source from a time on, or from its beginning, so that reading it touches nobody else."""
    return source


@since.register
def since_files(source: Files, first_us: int | None, name: str) -> Source:
    """All files: a file's age says little of its events. None is moved or deleted."""
    return replace(source, options=tuple(o for o in source.options if o[0].lower() not in TOUCHES_FILES))


@since.register
def since_kafka(source: Kafka, first_us: int | None, name: str) -> Source:
    """From the first message that may hold an event of that time: none is sent long before it happens."""
    return replace(source, start="earliest" if first_us is None else max(first_us // 1000, 0))


@since.register
def since_rate(source: Rate, first_us: int | None, name: str) -> Source:
    """Its rows are made by the clock, and are gone."""
    raise PlanError(f"replay: the input {name!r} makes its rows by the clock; there is nothing to replay.")
