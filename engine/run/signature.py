"""What a job is, as a document that stands beside its state: all that a person must be told of when it changes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import penstock
from penstock.compile.layout import Layout
from penstock.operators.clock import CorrectClock
from penstock.plan.durations import spoken
from penstock.plan.input import Input, TableInput
from penstock.plan.node import Node, walk
from penstock.plan.output import Output
from penstock.plan.secrets import shown
from penstock.plan.step import LateRows, Step

LAYOUT_VERSION = 3
TICKS = "(ticks)"


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
        "transactional": output.sink.transactional,
        "key": list(output.key),
        "mode": output.node.mode,
        "from": _begins(layout, output.node),
        "rows": _row_steps(layout, output.node),
        "columns": _columns(output.node),
    }


def _begins(layout: Layout, root: Node) -> list[str]:
    """Where the row steps before ``root`` begin."""
    return [_called(node) for node in layout.boundaries(root)]


def _called(node: Input | Step | LateRows) -> str:
    if isinstance(node, LateRows):
        return f"late rows of {node.step.name!r}"
    return f"{'input' if isinstance(node, Input) else 'step'} {node.name!r}"


def _row_steps(layout: Layout, root: Node) -> list[str]:
    """The row steps that lead to ``root``, in words; the correction of a clock is told of its input."""
    begins: Sequence[Node] = layout.boundaries(root)
    before = set(walk(*begins))
    between = (node for node in walk(root) if node not in before)
    return [node.describe() for node in between if not isinstance(node, CorrectClock)]


def _columns(node: Node) -> list[str] | None:
    return None if node.columns.open else list(node.columns.names)
