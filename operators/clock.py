"""Clock correction: event time by the server's clock, where a device's own is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.operators.rows import Explode, MapPandas, Rename, Select, Union, WithColumns
from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.expressions import column_of
from penstock.plan.input import Input, check_time_type
from penstock.plan.node import Node
from penstock.plan.written import written_at


@dataclass(frozen=True)
class CorrectClock(Node):
    """Move each event's time by how far the device's clock was off: ``received - sent``.

    ``sent`` and ``received`` are columns of the input itself: its rows are corrected where they come in, so
    that its watermark and ``max_ahead`` follow the corrected time.
    """

    upstream: Node
    sent: str
    received: str

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    def describe(self) -> str:
        return f"correct clock by {self.received} - {self.sent}"


def correct_clock(upstream: Node, sent: str, received: str) -> CorrectClock:
    """The node of ``correct_clock``, refused where the time is no longer the input's own."""
    step = f"correct_clock({sent!r}, {received!r})"
    for column in (sent, received):
        upstream.columns.require(column, step)
    node, names = upstream, [sent, received]
    while not isinstance(node, Input):
        if node.stateful or isinstance(node, Union | MapPandas | CorrectClock):
            raise PlanError(
                f"{step}: correct the clock before {node.describe()!r}, right after job.stream(...): "
                f"the input's own time follows the corrected one. ({written_at()})"
            )
        names = [_before(node, name, step) for name in names]
        node = node.inputs[0]
    if node.time_column is None:
        raise PlanError(
            f"{step}: the input {node.name!r} goes by processing time, which needs no correction. ({written_at()})"
        )
    for name in names:
        check_time_type(node.source.schema, name, step)
    return CorrectClock(upstream, *names)


def _before(node: Node, name: str, step: str) -> str:
    """The name that a column had before a row step."""
    made: str | None = name
    if isinstance(node, Rename):
        made = {new: old for old, new in node.renames}.get(name, name)
    elif isinstance(node, Select | WithColumns):
        made = next((column_of(e.text) for e in node.expressions if e.name == name), name)
    elif isinstance(node, Explode) and node.expression.name == name:
        made = None
    if made is None:
        raise PlanError(
            f"{step}: {name!r} is made by {node.describe()!r}; the columns must be the input's own. ({written_at()})"
        )
    return made


def corrections(roots: Iterable[Node]) -> dict[Input, tuple[str, str]]:
    """How each input's time is corrected, if it is; an input that is read both ways is refused."""
    found: dict[Input, set[tuple[str, str] | None]] = {}
    seen: set[tuple[Node, tuple[str, str] | None]] = set()

    def visit(node: Node, corrected: tuple[str, str] | None) -> None:
        if (node, corrected) in seen:
            return
        seen.add((node, corrected))
        if isinstance(node, Input):
            found.setdefault(node, set()).add(corrected)
        for upstream in node.inputs:
            visit(upstream, (node.sent, node.received) if isinstance(node, CorrectClock) else corrected)

    for root in roots:
        visit(root, None)
    for node, ways in found.items():
        if len(ways) > 1:
            raise PlanError(
                f"the input {node.name!r} is read with its clock corrected and without; "
                f"correct it once, right after job.stream(...), and go on from there. ({written_at()})"
            )
    return {node: way for node, (way,) in ((n, tuple(w)) for n, w in found.items()) if way is not None}
