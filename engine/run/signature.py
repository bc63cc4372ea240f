"""What a job is, as a document that stands beside its state: all that a person must be told of when it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import singledispatch
from importlib.metadata import version
from typing import Any

import penstock
from penstock.compile.layout import Layout
from penstock.operators.clock import CorrectClock
from penstock.operators.rows import MapPandas, Union
from penstock.plan.durations import spoken
from penstock.plan.input import Input, TableInput
from penstock.plan.node import Node, type_of
from penstock.plan.output import Output
from penstock.plan.secrets import shown
from penstock.plan.step import LateRows, Step
from penstock.sinks.base import Sink
from penstock.sinks.postgres_table import PostgresTable
from penstock.sources.base import Source
from penstock.sources.files import Files
from penstock.sources.kafka_topic import Kafka

LAYOUT_VERSION = 3
TICKS = "(ticks)"
#: Options that say how fast files are read and what becomes of them then, and not what is read.
PACE = frozenset(("maxfilespertrigger", "maxbytespertrigger", "maxcachedfiles"))
PACE |= {"cleansource", "cleansourcenumthreads", "sourcearchivedir"}
#: Of the options of Kafka's clients the one that says which messages there are.
ISOLATION = "kafka.isolation.level"
SECRET = re.compile(r"(?i)password|secret|token|credential|access.?key")


def signature(layout: Layout, buckets: int) -> dict[str, Any]:
    """The job in plain values: what its state depends on, and what its numbers do."""
    dead = layout.job.dead_letter_sink
    return {
        "version": LAYOUT_VERSION,
        "job": layout.job.name,
        "buckets": buckets,
        "inputs": list(layout.sources),
        "steps": {step.name: _step(layout, step) for step in layout.stages},
        "reads": {node.name: _input(layout, node) for node in layout.inputs},
        "outputs": {output.name: _output(layout, output) for output in layout.outputs},
        "dead letters": None if dead is None else shown(dead.describe()),
        "dead letters' place": None if dead is None else place_of(dead),
        "versions": {"penstock": penstock.__version__, "pyspark": version("pyspark")},
    }


def _step(layout: Layout, step: Step) -> dict[str, Any]:
    return {
        "kind": type(step).__name__,
        **step.state_depends_on(),
        **step.may_become(),
        "late": step.late,
        "mode": step.mode,
        "from": [_begins(layout, node) for node in step.inputs],
        "rows": [_row_steps(layout, node) for node in step.inputs],
        "tables": [node.mode == "upsert" for node in step.inputs],
        "columns": [_columns(node) for node in step.kept_whole],
    }


def _input(layout: Layout, node: Input) -> dict[str, Any]:
    schema = node.source.schema
    corrected = layout.corrected.get(node)
    return {
        "kind": "table" if isinstance(node, TableInput) else "stream",
        "source": shown(node.source.describe()),
        "place": shown(node.source.place),
        "options": dict(options_of(node.source)),
        "time": node.time_column,
        "clock": None if corrected is None else f"{corrected[1]} - {corrected[0]}",
        "lateness": None if node.time_column is None else spoken(node.lateness),
        "idle_after": None if node.idle_after is None else spoken(node.idle_after),
        "max_ahead": spoken(node.max_ahead),
        "columns": None if schema is None else {field.name: str(field.type) for field in schema},
    }


def _output(layout: Layout, output: Output) -> dict[str, Any]:
    return {
        "sink": shown(output.sink.describe()),
        "place": place_of(output.sink),
        "transactional": output.sink.transactional,
        "key": list(output.key),
        "mode": output.node.mode,
        "from": _begins(layout, output.node),
        "rows": _row_steps(layout, output.node),
        "columns": _columns(output.node),
        "types": {name: type_of(output.node, name) for name in output.node.columns.names},
    }


@singledispatch
def options_of(source: Source) -> Iterable[tuple[str, str]]:
    """How a source is read, as far as its rows depend on it."""
    return ()


@options_of.register
def options_of_files(source: Files) -> Iterable[tuple[str, str]]:
    return _told(option for option in source.options if option[0].lower() not in PACE)


@options_of.register
def options_of_kafka(source: Kafka) -> Iterable[tuple[str, str]]:
    isolation = (option for option in source.connection.options if option[0] == ISOLATION)
    written = [] if source.avro_schema is None else [("avro_schema", source.avro_schema)]
    beside = ((f"column {name}", what) for what, name in source.beside)
    return [*_told((*source.parsing, *isolation)), *written, *beside]


def _told(options: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, shown(value)) for name, value in options if not SECRET.search(name)]


@singledispatch
def place_of(sink: Sink) -> str:
    """Where an output is, however its place is spelled."""
    return shown(f"{sink.name} in {sink.place}")


@place_of.register
def place_of_postgres(sink: PostgresTable) -> str:
    return shown(sink.describe())  # what its address refers to is read by a run, and kept nowhere


def _begins(layout: Layout, root: Node) -> list[str]:
    """Where the row steps before ``root`` begin."""
    return [_called(node) for node in layout.boundaries(root)]


def _called(node: Input | Step | LateRows) -> str:
    if isinstance(node, LateRows):
        return f"late rows of {node.step.name!r}"
    return f"{'input' if isinstance(node, Input) else 'step'} {node.name!r}"


def _row_steps(layout: Layout, root: Node) -> list[str]:
    """The row steps that lead to ``root``, in words; the correction of a clock is told of its input."""
    if isinstance(root, Input | Step | LateRows):
        return []
    if isinstance(root, Union):
        return [f"union of {' and '.join(_side(layout, side) for side in root.inputs)}"]
    before = _row_steps(layout, root.inputs[0])
    return before if isinstance(root, CorrectClock) else [*before, _said(root)]


def _side(layout: Layout, node: Node) -> str:
    """One side of a union: where it begins, and its row steps; a union in it says itself where it begins."""
    steps = _row_steps(layout, node)
    begins = [] if steps and steps[0].startswith("union ") else _begins(layout, node)
    return f"({', '.join([*begins, *steps])})"


def _said(node: Node) -> str:
    """A row step in words, with all that its rows depend on."""
    if isinstance(node, MapPandas):
        given = (f"{field.name} {field.type}" for field in node.schema)
        return f"{node.describe()} giving {', '.join(given)}"
    return node.describe()


def _columns(node: Node) -> list[str] | None:
    return None if node.columns.open else list(node.columns.names)
