"""Where a plan ends: an output, and the checks that its sink can take what comes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.plan.errors import PlanError
from penstock.plan.node import Node, walk
from penstock.plan.text import Drawn
from penstock.plan.written import written_at
from penstock.sinks.base import Sink


@dataclass(frozen=True)
class Output:
    """Rows on their way out; with a ``key`` later rows replace earlier ones."""

    name: str
    node: Node
    sink: Sink
    key: tuple[str, ...]
    written_at: str = field(default_factory=written_at, compare=False, repr=False)

    def drawn(self) -> Drawn:
        """The output as ``explain()`` shows it."""
        how = f"upsert by {', '.join(self.key)}" if self.key else "append"
        promise = "" if self.sink.transactional else "; not transactional: rows may come again after a crash"
        return Drawn(self.name, f"{self.sink.describe()} ({how}{promise})", self.node)


def write_output(node: Node, sink: Sink, name: str | None, key: str | tuple[str, ...] | None) -> Output:
    """The output of ``.to(...)``, refused when the sink cannot take it."""
    if not isinstance(sink, Sink):
        raise PlanError(f"to: the sink is one of penstock.sinks, not {sink!r}. ({written_at()})")
    called = sink.name if name is None else name
    if not isinstance(called, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", called):
        raise PlanError(
            f"to: {called!r} cannot be the name of an output; give one of letters, digits, '_', '.' and '-' "
            f"with name=. ({written_at()})"
        )
    wanted = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    for column in wanted:
        node.columns.require(column, f"to: key={column!r}")
    if node.key and wanted and set(wanted) != set(node.key):
        raise PlanError(
            f"output {called!r}: key={wanted} contradicts the plan's key {node.key}; leave it out. ({written_at()})"
        )
    if (wanted or node.mode == "upsert") and not sink.upserts:
        raise PlanError(
            f"output {called!r}: the rows change after they came out, and {sink.describe()} can only append; "
            f"use a sink that upserts, such as sqlite or memory. ({written_at()})"
        )
    sink.check_key(called, wanted or node.key)
    return Output(called, node, sink, wanted or node.key)


def check_names(outputs: tuple[Output, ...]) -> None:
    """Refuse two different stateful steps of one name: their state would be one."""
    seen: dict[str, Node] = {}
    for node in walk(*(o.node for o in outputs)):
        if not node.stateful:
            continue
        name = node.name  # type: ignore[attr-defined]  # every stateful node has one
        if name in seen:
            raise PlanError(
                f"two steps are called {name!r} ({seen[name].written_at} and {node.written_at}); "
                f"give one another name with .named(...). ({written_at()})"
            )
        seen[name] = node
